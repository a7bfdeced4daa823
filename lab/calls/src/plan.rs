//! What a line does with calls: how many it carries, what each takes of it, and how long a packet is under way on it.

use crate::codec::Stream;
use crate::queue;

/// Calls of one kind on one line, in one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// Bits that the line sends in a second.
    pub line: u64,
    /// What a call sends.
    pub stream: Stream,
    /// Length of each of its packets on the line, in bytes.
    pub packet: usize,
}

impl Plan {
    /// How many calls the line carries: as many as it has room for all packets of.
    pub fn calls(&self) -> u64 {
        let bits = self.packet as u128 * 8 * 1_000_000_000;
        let room = u128::from(self.line) * self.stream.interval().as_nanos();
        room.checked_div(bits).and_then(|calls| u64::try_from(calls).ok()).unwrap_or(u64::MAX)
    }

    /// Bits a second that one call takes.
    pub fn bandwidth(&self) -> f64 {
        self.packet as f64 * 8.0 * self.stream.packets_per_second()
    }

    /// The part of the line that so many calls take; 1 is all of it.
    pub fn load(&self, calls: u64) -> f64 {
        calls as f64 * self.bandwidth() / self.line as f64
    }

    /// The part of a packet that is speech.
    pub fn ratio(&self) -> f64 {
        self.stream.payload as f64 / self.packet as f64
    }

    /// Seconds that the line needs for one packet.
    pub fn serialisation(&self) -> f64 {
        self.packet as f64 * 8.0 / self.line as f64
    }

    /// Seconds from the packet's arrival at the line to its last bit, on average, with as many calls as the line carries. None if it
    /// carries none.
    pub fn delay_when_full(&self) -> Option<f64> {
        queue::periodic(self.calls(), self.stream.interval().as_secs_f64(), self.serialisation())
    }
}

/// How much longer `len` is than `reference`; 1 is twice as long.
pub fn increase(len: usize, reference: usize) -> f64 {
    len as f64 / reference as f64 - 1.0
}

/// The part of the bandwidth that packets of `len` waste against packets of `reference`.
pub fn reduction(len: usize, reference: usize) -> f64 {
    1.0 - reference as f64 / len as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn plan(line: u64, packet: usize) -> Plan {
        Plan { line, stream: Stream::new(20, Duration::from_millis(20)).unwrap(), packet }
    }

    #[test]
    fn a_line_that_just_carries_a_call_carries_it() {
        assert_eq!(plan(24_000, 60).calls(), 1);
        assert_eq!(plan(23_999, 60).calls(), 0);
        assert_eq!(plan(47_999, 60).calls(), 1);
        assert_eq!(plan(u64::MAX, 60).calls(), u64::MAX / 24_000);
    }

    #[test]
    fn what_a_call_takes() {
        let plan = plan(128_000, 60);
        assert!((plan.bandwidth() - 24_000.0).abs() < 1e-6);
        assert!((plan.load(5) - 0.9375).abs() < 1e-9);
        assert!((plan.ratio() - 1.0 / 3.0).abs() < 1e-9);
        assert!((plan.serialisation() - 0.00375).abs() < 1e-9);
        assert!((increase(122, 45) - 1.7111).abs() < 1e-4);
        assert!((reduction(122, 45) - 0.6311).abs() < 1e-4);
    }

    /// Five packets of 3.75 ms at any phase: a packet waits for at most the other four.
    #[test]
    fn a_full_line_delays_by_less_than_all_its_calls() {
        let plan = plan(128_000, 60);
        let delay = plan.delay_when_full().unwrap();
        assert!(delay > plan.serialisation() && delay < 5.0 * plan.serialisation(), "{delay}");
        assert_eq!(Plan { line: 1000, ..plan }.delay_when_full(), None);
    }
}
