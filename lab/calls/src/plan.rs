//! Capacity of a line: number of calls, bandwidth of a call, and delay of a packet.

use crate::codec::Stream;
use crate::queue;

/// Calls of one kind on one line, in one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// Rate of the line in bit/s.
    pub line_rate: u64,
    /// Stream of one call.
    pub stream: Stream,
    /// Length of a packet on the line, in bytes.
    pub packet_len: usize,
}

impl Plan {
    /// Number of calls that fit the line.
    pub fn calls(&self) -> u64 {
        let bits = self.packet_len as u128 * 8 * 1_000_000_000;
        let room = u128::from(self.line_rate) * self.stream.interval().as_nanos();
        room.checked_div(bits).and_then(|calls| u64::try_from(calls).ok()).unwrap_or(u64::MAX)
    }

    /// Bandwidth of one call in bit/s.
    pub fn bandwidth(&self) -> f64 {
        self.packet_len as f64 * 8.0 * self.stream.packets_per_second()
    }

    /// Share of the line that these calls use; 1 is all of it.
    pub fn utilization(&self, calls: u64) -> f64 {
        calls as f64 * self.bandwidth() / self.line_rate as f64
    }

    /// Share of speech in a packet.
    pub fn payload_share(&self) -> f64 {
        self.stream.payload as f64 / self.packet_len as f64
    }

    /// Time to transmit one packet, in seconds.
    pub fn serialization_time(&self) -> f64 {
        self.packet_len as f64 * 8.0 / self.line_rate as f64
    }

    /// Mean time in seconds from the arrival of a packet at the line to its last bit, with as many calls as
    /// the line carries; `None` if it carries none.
    pub fn delay_when_full(&self) -> Option<f64> {
        queue::periodic(self.calls(), self.stream.interval().as_secs_f64(), self.serialization_time())
    }
}

/// Relative length of `len` over `reference`; 1 is twice as long.
pub fn increase(len: usize, reference: usize) -> f64 {
    len as f64 / reference as f64 - 1.0
}

/// Share of the bandwidth that packets of `len` bytes waste compared with `reference` bytes.
pub fn reduction(len: usize, reference: usize) -> f64 {
    1.0 - reference as f64 / len as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn plan(line: u64, packet: usize) -> Plan {
        Plan {
            line_rate: line,
            stream: Stream::new(20, Duration::from_millis(20)).unwrap(),
            packet_len: packet,
        }
    }

    #[test]
    fn calls_that_exactly_fit_count() {
        assert_eq!(plan(24_000, 60).calls(), 1);
        assert_eq!(plan(23_999, 60).calls(), 0);
        assert_eq!(plan(47_999, 60).calls(), 1);
        assert_eq!(plan(u64::MAX, 60).calls(), u64::MAX / 24_000);
    }

    #[test]
    fn bandwidth_and_utilization_of_a_call() {
        let plan = plan(128_000, 60);
        assert!((plan.bandwidth() - 24_000.0).abs() < 1e-6);
        assert!((plan.utilization(5) - 0.9375).abs() < 1e-9);
        assert!((plan.payload_share() - 1.0 / 3.0).abs() < 1e-9);
        assert!((plan.serialization_time() - 0.00375).abs() < 1e-9);
        assert!((increase(122, 45) - 1.7111).abs() < 1e-4);
        assert!((reduction(122, 45) - 0.6311).abs() < 1e-4);
    }

    /// Five packets of 3.75 ms with any phases: a packet waits for at most four others.
    #[test]
    fn a_full_line_delays_by_less_than_all_its_calls() {
        let plan = plan(128_000, 60);
        let delay = plan.delay_when_full().unwrap();
        assert!(delay > plan.serialization_time() && delay < 5.0 * plan.serialization_time(), "{delay}");
        assert_eq!(Plan { line_rate: 1000, ..plan }.delay_when_full(), None);
    }
}
