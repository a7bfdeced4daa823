//! Which ports are taken, and which is next.
//!
//! What is asked is the set of all sockets, those of IKE too, so that there is no second list that could be wrong. A port is in
//! use as long as a socket has it, also one that only a connection has which somebody accepted there: nobody else may
//! begin to listen in between.

use smoltcp::iface::SocketSet;
use smoltcp::socket::Socket;

/// The ports that are given to those who do not ask for one (RFC 6335 section 6).
const FIRST: u16 = 49_152;
const COUNT: u16 = 16_384;

/// A kind of port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    Tcp,
    Udp,
}

/// Whether a socket has the port.
pub(crate) fn is_used(sockets: &SocketSet<'_>, protocol: Protocol, port: u16) -> bool {
    sockets.iter().any(|(_, socket)| match (socket, protocol) {
        (Socket::Tcp(socket), Protocol::Tcp) => {
            socket.listen_endpoint().port == port
                || socket.local_endpoint().is_some_and(|local| local.port == port)
        }
        (Socket::Udp(socket), Protocol::Udp) => socket.endpoint().port == port,
        _ => false,
    })
}

/// The way through the ports that nobody asked for by number.
#[derive(Debug)]
pub(crate) struct Ephemeral {
    next: u16,
    step: u16,
}

impl Ephemeral {
    /// RFC 6056 section 3.1: it should not be easy to guess. `seed` is random.
    pub(crate) const fn new(seed: u64) -> Self {
        // Every odd step comes by every port.
        Self { next: (seed >> 16) as u16 % COUNT, step: (seed as u16 % COUNT) | 1 }
    }

    /// A port that no socket has.
    pub(crate) fn next(&mut self, sockets: &SocketSet<'_>, protocol: Protocol) -> Option<u16> {
        (0..COUNT).find_map(|_| {
            self.next = self.next.wrapping_add(self.step) % COUNT;
            let port = FIRST.saturating_add(self.next);
            (!is_used(sockets, protocol, port)).then_some(port)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use smoltcp::socket::udp;
    use std::collections::BTreeSet;
    use std::vec;

    #[test]
    fn every_port_comes_once_in_a_round() {
        for seed in [0, 1, 0x1234_5678_9abc_def0, u64::MAX] {
            let (sockets, mut ports) = (SocketSet::new(vec![]), Ephemeral::new(seed));
            let seen: BTreeSet<u16> =
                (0..COUNT).map(|_| ports.next(&sockets, Protocol::Tcp).unwrap()).collect();
            assert_eq!((seen.len(), seen.first()), (usize::from(COUNT), Some(&FIRST)), "{seed}");
        }
    }

    #[test]
    fn a_port_that_is_used_is_passed_by() {
        let buffer = || udp::PacketBuffer::new(vec![udp::PacketMetadata::EMPTY], vec![0; 8]);
        let (mut sockets, mut ports) = (SocketSet::new(vec![]), Ephemeral::new(7));
        let first = Ephemeral::new(7).next(&sockets, Protocol::Udp).unwrap();
        let mut socket = udp::Socket::new(buffer(), buffer());
        socket.bind(first).unwrap();
        sockets.add(socket);
        assert!(is_used(&sockets, Protocol::Udp, first) && !is_used(&sockets, Protocol::Tcp, first));
        assert_ne!(ports.next(&sockets, Protocol::Udp), Some(first));
    }
}
