//! One manager for each thread: scratch memory of the library for the packets of one call, and its job queue,
//! which each call leaves empty.
//!
//! A thread creates its manager (200 kB) on first use. The manager is wiped when the thread ends, because it
//! may contain copies of round keys.

use super::BURST;
use super::layout::{ALIGN, Job, ManagerHead, STATUS_COMPLETED};
use super::library::Library;
use arrayvec::ArrayVec;
use core::ffi::c_void;
use core::ptr::NonNull;
use std::cell::RefCell;
use zeroize::Zeroize;

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; ALIGN]);

/// Memory for a manager: at a fixed address, wiped on drop.
pub(super) struct Memory(NonNull<[Line]>);

impl Memory {
    /// Allocates at least `size` zero bytes.
    pub(super) fn new(size: usize) -> Self {
        let lines = vec![Line([0; ALIGN]); size.div_ceil(ALIGN)].into_boxed_slice();
        Self(NonNull::from(Box::leak(lines)))
    }

    /// Pointer to the first byte.
    pub(super) fn start(&self) -> *mut c_void {
        self.0.as_ptr().cast()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: `new` leaked the pointer from a box, and no manager in this memory outlives it.
        let mut lines = unsafe { Box::from_raw(self.0.as_ptr()) };
        lines.iter_mut().for_each(|line| line.0.zeroize());
    }
}

/// A manager and its memory.
pub(super) struct Manager {
    pub(super) head: *mut ManagerHead,
    pub(super) _memory: Memory,
}

thread_local! {
    static MANAGER: RefCell<Option<Manager>> = const { RefCell::new(None) };
}

/// Calls `burst` with the manager of this thread, exclusively. Returns `None` if the library provides no
/// manager, or while the thread ends. If `burst` returns `None`, the manager is dropped, because it may still
/// contain jobs.
pub(super) fn with<T>(library: &Library, burst: impl FnOnce(*mut ManagerHead) -> Option<T>) -> Option<T> {
    let run = |slot: &RefCell<Option<Manager>>| {
        let mut slot = slot.try_borrow_mut().ok()?;
        if slot.is_none() {
            *slot = Some(library.manager().ok()?);
        }
        let answer = slot.as_ref().and_then(|manager| burst(manager.head));
        if answer.is_none() {
            *slot = None;
        }
        answer
    };
    MANAGER.try_with(run).ok().flatten()
}

/// Jobs that are submitted together.
pub(super) type Jobs = ArrayVec<Job, BURST>;

/// Submits all jobs and waits until they are done. Returns `false` if the library rejects a job or fails; the
/// output of the jobs is then undefined.
///
/// # Safety
/// For each job: source, target and tag have the lengths in the job, no other job has the same target or tag,
/// and keys and hash fields match the modes of the job. All these hold until this function returns.
pub(super) unsafe fn run_jobs(library: &Library, jobs: &mut Jobs) -> bool {
    let (count, functions) = (jobs.len(), &library.functions);
    let work = |head: *mut ManagerHead| {
        let mut slots = [core::ptr::null_mut(); BURST];
        // SAFETY: the manager belongs to this thread and is in no other call; the array has space for `BURST`
        // pointers.
        let free = unsafe { (functions.queue_free)(head, count as u32, slots.as_mut_ptr()) };
        if free as usize != count {
            return None;
        }
        for (slot, job) in slots.iter().zip(jobs.drain(..)) {
            // SAFETY: the library returned this number of its own jobs to be filled in.
            unsafe { slot.write(job) };
        }
        // SAFETY: the caller guarantees the jobs; the pointers come from the library.
        let mut found = unsafe { (functions.queue_submit)(head, count as u32, slots.as_mut_ptr()) };
        let (mut left, mut done) = (count, completed(&slots, found));
        left = left.saturating_sub(found as usize);
        while left > 0 {
            // SAFETY: the manager as above; the array has space for all remaining jobs.
            found = unsafe { (functions.queue_flush)(head, left as u32, slots.as_mut_ptr()) };
            if found == 0 {
                return None;
            }
            done = done.saturating_add(completed(&slots, found));
            left = left.saturating_sub(found as usize);
        }
        (done == count).then_some(())
    };
    count == 0 || with(library, work).is_some()
}

/// Number of completed jobs among the first `found` jobs.
fn completed(slots: &[*mut Job; BURST], found: u32) -> usize {
    // SAFETY: the library wrote this number of pointers to its own jobs.
    let is_done = |slot: &&*mut Job| unsafe { (***slot).status } == STATUS_COMPLETED;
    slots.iter().take(found as usize).filter(is_done).count()
}
