//! The order of scripts: those of a lane run one after the other, peers take turns, and not more than
//! [`MAX_RUNNING`] run at once, [`MAX_RUNNING_OF_PEER`] of them for one peer.

use super::{MAX_RUNNING, MAX_RUNNING_OF_PEER, UpdownJob};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// Jobs that wait, and those that run.
#[derive(Debug, Default)]
pub(super) struct JobQueue {
    /// Peers of which a job may start, the one that has waited longest first.
    turns: VecDeque<Arc<str>>,
    /// The peers that have jobs.
    peers: HashMap<Arc<str>, PeerJobs>,
    /// The waiting jobs of each lane, the oldest first. A lane that is busy has an entry, too.
    lanes: HashMap<Arc<str>, Lane>,
    /// Peer and lane of each running job.
    running: HashMap<u64, (Arc<str>, Arc<str>)>,
}

/// The jobs of a peer.
#[derive(Debug, Default)]
struct PeerJobs {
    /// Lanes whose next job is one of this peer and may start, the one that has waited longest first.
    ready: VecDeque<Arc<str>>,
    running: usize,
    /// Whether the peer has a place in `turns`.
    has_turn: bool,
}

#[derive(Debug, Default)]
struct Lane {
    waiting: VecDeque<UpdownJob>,
    is_busy: bool,
}

impl JobQueue {
    /// Adds a job behind the others of its lane.
    pub(super) fn push(&mut self, job: UpdownJob) {
        let name = job.lane.clone();
        let lane = self.lanes.entry(name.clone()).or_default();
        lane.waiting.push_back(job);
        if lane.waiting.len() == 1 && !lane.is_busy {
            self.make_ready(name);
        }
    }

    /// Notes that the next job of a lane may start.
    fn make_ready(&mut self, lane: Arc<str>) {
        let Some(next) = self.lanes.get(&lane).and_then(|jobs| jobs.waiting.front()) else { return };
        let peer = next.peer.clone();
        self.peers.entry(peer.clone()).or_default().ready.push_back(lane);
        self.take_turn(peer);
    }

    /// Gives a peer a place behind the others if one of its jobs may start.
    fn take_turn(&mut self, peer: Arc<str>) {
        let Some(jobs) = self.peers.get_mut(&peer) else { return };
        if jobs.ready.is_empty() && jobs.running == 0 {
            self.peers.remove(&peer);
        } else if !jobs.has_turn && !jobs.ready.is_empty() && jobs.running < MAX_RUNNING_OF_PEER {
            jobs.has_turn = true;
            self.turns.push_back(peer);
        }
    }

    /// Takes the next job to start, if one may start now.
    pub(super) fn next(&mut self) -> Option<UpdownJob> {
        if self.running.len() >= MAX_RUNNING {
            return None;
        }
        let peer = self.turns.pop_front()?;
        let jobs = self.peers.get_mut(&peer)?;
        jobs.has_turn = false;
        let name = jobs.ready.pop_front()?;
        jobs.running = jobs.running.saturating_add(1);
        let lane = self.lanes.get_mut(&name)?;
        lane.is_busy = true;
        let job = lane.waiting.pop_front()?;
        self.running.insert(job.id, (peer.clone(), name));
        self.take_turn(peer);
        Some(job)
    }

    /// A job has ended, so the next one of its lane may start.
    pub(super) fn end(&mut self, id: u64) {
        let Some((peer, name)) = self.running.remove(&id) else { return };
        if let Some(jobs) = self.peers.get_mut(&peer) {
            jobs.running = jobs.running.saturating_sub(1);
        }
        if let Some(lane) = self.lanes.get_mut(&name) {
            lane.is_busy = false;
            if lane.waiting.is_empty() {
                self.lanes.remove(&name);
            } else {
                self.make_ready(name);
            }
        }
        self.take_turn(peer);
    }

    /// Empties the queue. Returns the identifiers of all jobs, running or waiting.
    pub(super) fn take_all(&mut self) -> Vec<u64> {
        let Self { lanes, running, .. } = std::mem::take(self);
        let waiting = lanes.into_values().flat_map(|lane| lane.waiting).map(|job| job.id);
        let mut all: Vec<u64> = running.into_keys().chain(waiting).collect();
        all.sort_unstable();
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A job of a peer of its own for each lane.
    fn job(id: u64, lane: &str) -> UpdownJob {
        job_of(id, lane, lane)
    }

    fn job_of(id: u64, peer: &str, lane: &str) -> UpdownJob {
        UpdownJob { id, peer: peer.into(), lane: lane.into(), command: "x".into(), environment: Vec::new() }
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

    #[test]
    fn peers_take_turns_and_one_leaves_room_for_others() {
        let mut queue = JobQueue::default();
        // A flood of one peer, with traffic of its own each.
        (0..100).for_each(|id| queue.push(job_of(id, "eve", &format!("eve {id}"))));
        let mut first = started(&mut queue);
        assert_eq!(first.len(), MAX_RUNNING_OF_PEER);
        (100..108).for_each(|id| queue.push(job_of(id, "carol", &format!("carol {id}"))));
        queue.push(job(200, "dave"));
        first.extend(started(&mut queue));
        assert!(first.contains(&200), "{first:?}");
        assert_eq!(first.len(), MAX_RUNNING);
        // Each place that is free goes to another peer.
        for id in first {
            queue.end(id);
        }
        let peers = |ids: &[u64]| ids.iter().filter(|id| **id < 100).count();
        let next = started(&mut queue);
        assert_eq!((next.len(), peers(&next)), (MAX_RUNNING, MAX_RUNNING / 2), "{next:?}");
    }

    #[test]
    fn peers_that_share_a_lane_keep_its_order() {
        let mut queue = JobQueue::default();
        for (id, peer) in [(1, "a"), (2, "b"), (3, "a")] {
            queue.push(job_of(id, peer, "lane"));
        }
        for id in 1..=3 {
            assert_eq!(started(&mut queue), [id]);
            queue.end(id);
        }
        assert!(queue.peers.is_empty() && queue.lanes.is_empty() && queue.turns.is_empty());
    }
}
