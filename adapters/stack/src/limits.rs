//! What applications may have and do.

use alloc::vec::Vec;
use casemate_rings::Geometry;
use core::ops::RangeInclusive;

/// What the server and each application may have. All of it together is the most memory that applications can make the
/// server take: `applications * (geometry.bytes() + sockets * 2 * buffer)`, and small change.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Applications at a time.
    pub applications: usize,
    /// Sockets of one application: connections, also those that are being closed; UDP sockets; places in backlogs.
    pub sockets: u16,
    /// Bytes of a socket's buffer, of which it has one in each direction.
    pub buffer: usize,
    /// Datagrams in such a buffer.
    pub datagrams: usize,
    /// Calls of one application that may wait.
    pub calls: usize,
    /// Calls of one application that are served before the next one's.
    pub turn: usize,
    /// The rings of a session.
    pub geometry: Geometry,
}

/// Which ports below 1024 an application may have. All others are free to everybody.
#[derive(Debug, Clone, Default)]
pub struct Grant {
    ports: Vec<RangeInclusive<u16>>,
}

/// The first port that needs no grant.
const FREE: u16 = 1_024;

impl Grant {
    /// No port below 1024.
    pub const fn none() -> Self {
        Self { ports: Vec::new() }
    }

    /// These ports too.
    #[must_use]
    pub fn with(mut self, ports: RangeInclusive<u16>) -> Self {
        self.ports.push(ports);
        self
    }

    /// Whether a port may be bound.
    pub fn permits(&self, port: u16) -> bool {
        port >= FREE || self.ports.iter().any(|range| range.contains(&port))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn low_ports_need_a_grant() {
        let grant = Grant::none().with(80..=80).with(400..=500);
        for (port, permitted) in
            [(0, false), (79, false), (80, true), (450, true), (1_023, false), (1_024, true)]
        {
            assert_eq!(grant.permits(port), permitted, "{port}");
        }
    }
}
