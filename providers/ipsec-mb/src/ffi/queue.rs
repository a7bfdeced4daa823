//! The library's queue of jobs, emptied in the call that fills it.

use super::BURST;
use super::layout::{Job, ManagerHead, STATUS_COMPLETED};
use super::library::Library;
use super::manager;
use arrayvec::ArrayVec;

/// Jobs that go through the queue together.
pub(super) type Jobs = ArrayVec<Job, BURST>;

/// Works on all jobs, each at most once, and takes them out. `false` if the library refused one or failed; what was then done is not known.
///
/// # Safety
/// For each job: its source, its target and its tag are as long as it says, its target and its tag are in no other job, and
/// its keys and hash fields are those of its modes. All that until this function returns.
pub(super) unsafe fn run(library: &Library, jobs: &mut Jobs) -> bool {
    let (count, functions) = (jobs.len(), &library.functions);
    let work = |head: *mut ManagerHead| {
        let mut places = [core::ptr::null_mut(); BURST];
        // SAFETY: the manager is this thread's and in no other call; there are places for `BURST` pointers.
        let free = unsafe { (functions.queue_free)(head, count as u32, places.as_mut_ptr()) };
        if free as usize != count {
            return None;
        }
        for (place, job) in places.iter().zip(jobs.drain(..)) {
            // SAFETY: the library answered with as many jobs of its own, for us to fill.
            unsafe { place.write(job) };
        }
        // SAFETY: the caller's promise; the places are those that the library gave.
        let mut found = unsafe { (functions.queue_submit)(head, count as u32, places.as_mut_ptr()) };
        let (mut left, mut done) = (count, completed(&places, found));
        left = left.saturating_sub(found as usize);
        while left > 0 {
            // SAFETY: the manager as above; there are places for all that is left.
            found = unsafe { (functions.queue_flush)(head, left as u32, places.as_mut_ptr()) };
            if found == 0 {
                return None;
            }
            done = done.saturating_add(completed(&places, found));
            left = left.saturating_sub(found as usize);
        }
        (done == count).then_some(())
    };
    count == 0 || manager::with(library, work).is_some()
}

/// How many of the first `found` jobs are done.
fn completed(places: &[*mut Job; BURST], found: u32) -> usize {
    // SAFETY: the library wrote pointers to jobs of its own in that many places.
    let is_done = |place: &&*mut Job| unsafe { (***place).status } == STATUS_COMPLETED;
    places.iter().take(found as usize).filter(is_done).count()
}
