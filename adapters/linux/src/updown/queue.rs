//! The order of scripts: those of a lane run one after the other, and not more than [`MAX_RUNNING`] at once.

use super::{MAX_RUNNING, UpdownJob};
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

/// Jobs that wait, and those that run.
#[derive(Debug, Default)]
pub(super) struct JobQueue {
    /// Lanes whose next job may start, the one that has waited longest first.
    ready: VecDeque<Arc<str>>,
    /// The waiting jobs of each lane, the oldest first.
    waiting: HashMap<Arc<str>, VecDeque<UpdownJob>>,
    /// The lane of each running job.
    running: HashMap<u64, Arc<str>>,
    busy: HashSet<Arc<str>>,
}

impl JobQueue {
    /// Adds a job behind the others of its lane.
    pub(super) fn push(&mut self, job: UpdownJob) {
        let lane = job.lane.clone();
        let jobs = self.waiting.entry(lane.clone()).or_default();
        jobs.push_back(job);
        if jobs.len() == 1 && !self.busy.contains(&lane) {
            self.ready.push_back(lane);
        }
    }

    /// Takes the next job to start, if one may start now.
    pub(super) fn next(&mut self) -> Option<UpdownJob> {
        if self.running.len() >= MAX_RUNNING {
            return None;
        }
        let lane = self.ready.pop_front()?;
        let jobs = self.waiting.get_mut(&lane)?;
        let job = jobs.pop_front()?;
        if jobs.is_empty() {
            self.waiting.remove(&lane);
        }
        self.running.insert(job.id, lane.clone());
        self.busy.insert(lane);
        Some(job)
    }

    /// A job has ended, so the next one of its lane may start.
    pub(super) fn end(&mut self, id: u64) {
        let Some(lane) = self.running.remove(&id) else { return };
        self.busy.remove(&lane);
        if self.waiting.contains_key(&lane) {
            self.ready.push_back(lane);
        }
    }

    /// Empties the queue. Returns the identifiers of all jobs, running or waiting.
    pub(super) fn take_all(&mut self) -> Vec<u64> {
        let Self { waiting, running, .. } = std::mem::take(self);
        let waiting = waiting.into_values().flatten().map(|job| job.id);
        let mut all: Vec<u64> = running.into_keys().chain(waiting).collect();
        all.sort_unstable();
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(id: u64, lane: &str) -> UpdownJob {
        UpdownJob { id, lane: lane.into(), command: "x".into(), environment: Vec::new() }
    }

    fn started(queue: &mut JobQueue) -> Vec<u64> {
        std::iter::from_fn(|| queue.next()).map(|job| job.id).collect()
    }

    #[test]
    fn a_lane_runs_one_job_at_a_time_and_others_pass_it() {
        let mut queue = JobQueue::default();
        for (id, lane) in [(1, "a"), (2, "a"), (3, "b"), (4, "a"), (5, "b")] {
            queue.push(job(id, lane));
        }
        assert_eq!(started(&mut queue), [1, 3]);
        queue.end(1);
        queue.end(1);
        assert_eq!(started(&mut queue), [2]);
        queue.end(3);
        queue.end(2);
        assert_eq!(started(&mut queue), [5, 4]);
        queue.end(4);
        queue.end(5);
        queue.push(job(6, "a"));
        queue.push(job(7, "a"));
        assert_eq!(started(&mut queue), [6]);
        assert_eq!(queue.take_all(), [6, 7]);
        assert!(started(&mut queue).is_empty());
    }

    #[test]
    fn the_number_of_running_jobs_is_bounded() {
        let mut queue = JobQueue::default();
        let count = MAX_RUNNING as u64 + 2;
        (0..count).for_each(|id| queue.push(job(id, &id.to_string())));
        assert_eq!(started(&mut queue).len(), MAX_RUNNING);
        queue.end(3);
        assert_eq!(started(&mut queue), [MAX_RUNNING as u64]);
    }
}
