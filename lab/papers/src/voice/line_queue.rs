//! Queue of a slow line, as the paper configured its routers: low latency queueing (LLQ) with 64 kbit/s
//! reserved for voice, and link fragmentation and interleaving (LFI).

use std::collections::VecDeque;
use std::time::Duration;

/// Rate that is reserved for voice, in bits per second. Voice beyond it is dropped, so that it cannot starve
/// other packets.
pub(super) const RESERVED: f64 = 64_000.0;
/// Voice that may arrive at once, in bytes: 200 ms of the reserved rate, as is usual.
const VOICE_BURST: f64 = RESERVED / 8.0 * 0.2;
/// Length of a fragment in bytes: 10 ms on 128 kbit/s, as the paper configured.
pub(super) const FRAGMENT: usize = 160;
/// Capacity of a queue in packets.
const CAPACITY: usize = 60;
/// DS field of voice: DSCP EF. The two lower bits are ECN.
const EF: u8 = 46 << 2;
const DSCP_MASK: u8 = 0xfc;

/// Order of the packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Discipline {
    /// One queue in the order of arrival.
    Fifo,
    /// Voice first, whole packets.
    Llq,
    /// Voice first, also between the fragments of other packets.
    LlqLfi,
}

/// What the line transmits next without interruption.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unit {
    /// Length in bytes.
    pub(super) len: usize,
    /// Packet that has arrived when the unit has; `None` while fragments of it are missing.
    pub(super) packet: Option<Vec<u8>>,
}

/// Packets that wait for a line.
pub(super) struct LineQueue {
    discipline: Discipline,
    voice: VecDeque<Vec<u8>>,
    others: VecDeque<Vec<u8>>,
    /// Bytes of the first of the other packets that have been transmitted.
    transmitted: usize,
    /// Bytes of voice that may arrive, at the time of `updated`.
    credit: f64,
    updated: Duration,
}

impl LineQueue {
    pub(super) const fn new(discipline: Discipline) -> Self {
        Self {
            discipline,
            voice: VecDeque::new(),
            others: VecDeque::new(),
            transmitted: 0,
            credit: VOICE_BURST,
            updated: Duration::ZERO,
        }
    }

    /// Adds an IPv4 packet that arrives at this time, or drops it: if its queue is full, or if it is voice
    /// beyond the reserved rate.
    pub(super) fn push(&mut self, packet: Vec<u8>, now: Duration) {
        let is_voice = packet.get(1).is_some_and(|field| field & DSCP_MASK == EF);
        if !is_voice || self.discipline == Discipline::Fifo {
            if self.others.len() < CAPACITY {
                self.others.push_back(packet);
            }
            return;
        }
        let passed = now.saturating_sub(self.updated).as_secs_f64();
        self.credit = (self.credit + passed * RESERVED / 8.0).min(VOICE_BURST);
        self.updated = now;
        if self.credit >= packet.len() as f64 {
            self.credit -= packet.len() as f64;
            self.voice.push_back(packet);
        }
    }

    /// Removes what is transmitted next.
    pub(super) fn pop(&mut self) -> Option<Unit> {
        let is_whole = self.transmitted == 0 || self.discipline == Discipline::LlqLfi;
        if let Some(packet) = is_whole.then(|| self.voice.pop_front()).flatten() {
            return Some(Unit { len: packet.len(), packet: Some(packet) });
        }
        let left = self.others.front()?.len().saturating_sub(self.transmitted);
        if self.discipline == Discipline::LlqLfi && left > FRAGMENT {
            self.transmitted += FRAGMENT;
            return Some(Unit { len: FRAGMENT, packet: None });
        }
        self.transmitted = 0;
        Some(Unit { len: left, packet: self.others.pop_front() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(len: usize, ds_field: u8) -> Vec<u8> {
        let mut packet = vec![0; len];
        packet[1] = ds_field;
        packet
    }

    /// Lengths of the units until the queue is empty.
    fn units(queue: &mut LineQueue) -> Vec<usize> {
        std::iter::from_fn(|| queue.pop()).map(|unit| unit.len).collect()
    }

    fn queue(discipline: Discipline) -> LineQueue {
        let mut queue = LineQueue::new(discipline);
        queue.push(packet(400, 0), Duration::ZERO);
        queue.push(packet(136, EF | 1), Duration::ZERO);
        queue
    }

    #[test]
    fn voice_passes_others_except_in_one_queue() {
        assert_eq!(units(&mut queue(Discipline::Fifo)), [400, 136]);
        assert_eq!(units(&mut queue(Discipline::Llq)), [136, 400]);
        assert_eq!(units(&mut queue(Discipline::LlqLfi)), [136, 160, 160, 80]);
    }

    #[test]
    fn voice_passes_between_fragments() {
        let mut queue = LineQueue::new(Discipline::LlqLfi);
        queue.push(packet(400, 0), Duration::ZERO);
        assert_eq!(queue.pop(), Some(Unit { len: 160, packet: None }));
        queue.push(packet(136, EF), Duration::ZERO);
        assert_eq!(queue.pop().unwrap().packet.unwrap().len(), 136);
        assert_eq!(queue.pop(), Some(Unit { len: 160, packet: None }));
        assert_eq!(queue.pop(), Some(Unit { len: 80, packet: Some(packet(400, 0)) }));
        assert_eq!(queue.pop(), None);
    }

    #[test]
    fn voice_beyond_the_reserved_rate_is_dropped() {
        let mut queue = LineQueue::new(Discipline::Llq);
        // One call of 136 bytes each 20 ms is 54 kbit/s, two are 109.
        for n in 0..100_u32 {
            queue.push(packet(136, EF), Duration::from_millis(20) * n);
        }
        assert_eq!(units(&mut queue).len(), 100);
        for n in 100..200_u32 {
            queue.push(packet(136, EF), Duration::from_millis(20) * n);
            queue.push(packet(136, EF), Duration::from_millis(20) * n);
        }
        let passed = units(&mut queue).len();
        assert!((115..=135).contains(&passed), "{passed}");
    }

    #[test]
    fn a_full_queue_drops() {
        let mut queue = LineQueue::new(Discipline::Fifo);
        (0..100).for_each(|_| queue.push(packet(100, 0), Duration::ZERO));
        assert_eq!(units(&mut queue).len(), CAPACITY);
    }
}
