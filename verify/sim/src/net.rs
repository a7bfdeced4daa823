//! The network between the nodes: who is reached at which address, and NATs in front of some.

use casemate_wire::ike::{ExchangeType, Header};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

/// The UDP port that IKE shares with ESP.
const NATT: u16 = 4_500;

/// Something on its way.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Datagram {
    /// Where it says it is from. Without UDP, the port is 0.
    pub(crate) from: SocketAddr,
    /// Where it goes.
    pub(crate) to: SocketAddr,
    /// What it is.
    pub(crate) carries: Carries,
}

/// What a datagram is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Carries {
    /// UDP, with this payload.
    Udp(Vec<u8>),
    /// Another IP packet, header included.
    Ip(Vec<u8>),
}

impl Carries {
    /// The bytes, to be changed.
    pub(crate) fn bytes_mut(&mut self) -> &mut Vec<u8> {
        match self {
            Self::Udp(bytes) | Self::Ip(bytes) => bytes,
        }
    }
}

impl Datagram {
    /// Whether it carries an IKE message.
    pub(crate) fn is_ike(&self) -> bool {
        self.ike().is_some()
    }

    /// Whether it carries a message of an INFORMATIONAL exchange.
    pub(crate) fn is_informational(&self) -> bool {
        let header = self.ike().and_then(|message| Header::parse(message).ok());
        header.is_some_and(|header| header.exchange == ExchangeType::INFORMATIONAL)
    }

    /// Its IKE message: behind four zero bytes on the port that IKE shares with ESP (RFC 3948 section 2.2).
    fn ike(&self) -> Option<&[u8]> {
        let Carries::Udp(payload) = &self.carries else { return None };
        if self.from.port() == NATT || self.to.port() == NATT {
            return payload.strip_prefix(&[0; 4]);
        }
        Some(payload)
    }

    /// Length of the IP packet that carries it.
    pub(crate) fn ip_len(&self) -> usize {
        match &self.carries {
            Carries::Ip(packet) => packet.len(),
            Carries::Udp(payload) => payload.len() + 8 + if self.to.is_ipv6() { 40 } else { 20 },
        }
    }
}

/// A NAT with one host behind it. Whoever knows a mapping may use it from outside.
#[derive(Debug)]
pub(crate) struct Nat {
    inside: IpAddr,
    outside: IpAddr,
    /// Inner port to outer port.
    mapped: BTreeMap<u16, u16>,
    last_port: u16,
}

impl Nat {
    /// One between two addresses.
    pub(crate) fn new(inside: IpAddr, outside: IpAddr) -> Self {
        Self { inside, outside, mapped: BTreeMap::new(), last_port: 20_000 }
    }

    /// Lets a datagram out; only UDP knows ports to map.
    pub(crate) fn outbound(&mut self, mut datagram: Datagram) -> Option<Datagram> {
        if !matches!(datagram.carries, Carries::Udp(_)) || datagram.from.ip() != self.inside {
            return None;
        }
        let port = *self.mapped.entry(datagram.from.port()).or_insert_with(|| {
            self.last_port += 1;
            self.last_port
        });
        datagram.from = SocketAddr::new(self.outside, port);
        Some(datagram)
    }

    /// Lets a datagram in that goes to a mapped port.
    pub(crate) fn inbound(&self, mut datagram: Datagram) -> Option<Datagram> {
        let port = datagram.to.port();
        let (inner, _) = self.mapped.iter().find(|(_, outer)| **outer == port)?;
        datagram.to = SocketAddr::new(self.inside, *inner);
        Some(datagram)
    }

    /// Forgets all mappings: the same senders get other ports from now on.
    pub(crate) fn forget(&mut self) {
        self.mapped.clear();
    }
}
