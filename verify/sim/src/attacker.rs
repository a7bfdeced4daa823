//! On-path attacker: observes every datagram, holds no key, and sends any datagram from any address.

use crate::addresses::{self, HostKind, HostPair};
use crate::net::{Datagram, Payload};
use crate::plan::{Layout, Setup};
use crate::situation::Situation;
use casemate_test_support::TestRng;
use casemate_wire::ike::{
    ExchangeType, Flags, Header, IkeSpi, Notify, NotifyType, PayloadType, Version, Writer,
};
use std::collections::VecDeque;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

/// Datagrams that the attacker remembers.
const MEMORY: usize = 64;
/// Requests of one flood.
const FLOOD: usize = 12;

/// Attacker state: the last [`MEMORY`] datagrams that were sent.
#[derive(Debug)]
pub(crate) struct Attacker {
    rng: TestRng,
    setup: Setup,
    observed: VecDeque<Datagram>,
}

/// Result of one step of the attacker.
pub(crate) struct Attack {
    /// Name of the attack, for the trace.
    pub(crate) name: &'static str,
    /// Situation to count besides [`Situation::Attack`].
    pub(crate) situation: Option<Situation>,
    /// Datagrams to send.
    pub(crate) datagrams: Vec<Datagram>,
}

impl Attack {
    fn new(name: &'static str, datagrams: impl IntoIterator<Item = Datagram>) -> Self {
        Self { name, situation: None, datagrams: datagrams.into_iter().collect() }
    }
}

/// Recorded datagram that carries an IKE message.
struct RecordedIke {
    datagram: Datagram,
    /// Offset of the IKE header in the UDP payload.
    offset: usize,
    header: Header,
}

impl Attacker {
    /// Attacker that has observed nothing yet.
    pub(crate) fn new(rng: TestRng, setup: Setup) -> Self {
        Self { rng, setup, observed: VecDeque::new() }
    }

    /// Records a datagram that a node sent.
    pub(crate) fn see(&mut self, datagram: &Datagram) {
        if self.observed.len() == MEMORY {
            let evicted = self.rng.below(MEMORY);
            self.observed.swap_remove_back(evicted);
        }
        self.observed.push_back(datagram.clone());
    }

    /// Performs one random attack.
    pub(crate) fn act(&mut self) -> Attack {
        if self.observed.is_empty() {
            return Attack::new("waits", []);
        }
        match self.rng.below(10) {
            0 | 1 => Attack::new("replays", [self.random_recorded()]),
            2 => Attack::new("replays from elsewhere", [self.forge_source()]),
            3 => Attack::new("corrupts", [self.corrupted()]),
            4 => Attack::new("truncates", [self.truncated()]),
            5 => Attack::new("forges a header", self.forged_header()),
            6 => Attack::new("forges a notification", self.forged_notification()),
            7 => Attack { situation: Some(Situation::Flood), ..Attack::new("floods", self.flood()) },
            8 => Attack {
                situation: Some(Situation::FragmentAttack),
                ..Attack::new("forges fragments", self.forged_fragments())
            },
            _ => Attack::new("sends in clear", [self.unprotected()]),
        }
    }

    fn random_recorded(&mut self) -> Datagram {
        let index = self.rng.below(self.observed.len());
        self.observed[index].clone()
    }

    fn random_source(&mut self) -> SocketAddr {
        let (host, port) = (self.rng.below(250) as u8, self.rng.next_u64() as u16);
        if self.setup.outer_v6 {
            let addr = Ipv6Addr::new(0x2001, 0xdb8, 0xbad, 0, 0, 0, 0, host.into());
            return SocketAddr::new(addr.into(), port);
        }
        SocketAddr::new(Ipv4Addr::new(203, 0, 113, host).into(), port)
    }

    fn forge_source(&mut self) -> Datagram {
        let from = self.random_source();
        Datagram { from, ..self.random_recorded() }
    }

    fn corrupted(&mut self) -> Datagram {
        let mut datagram = self.random_recorded();
        flip_bits(&self.setup, &mut datagram, &mut self.rng);
        datagram
    }

    fn truncated(&mut self) -> Datagram {
        let mut datagram = self.random_recorded();
        let bytes = datagram.payload.bytes_mut();
        let len = self.rng.below(bytes.len() + 1);
        bytes.truncate(len);
        datagram
    }

    fn random_recorded_ike(&mut self) -> Option<RecordedIke> {
        let datagram = self.random_recorded();
        let Payload::Udp(payload) = &datagram.payload else { return None };
        let offset = if payload.starts_with(&[0; 4]) { 4 } else { 0 };
        let header = Header::parse(payload.get(offset..)?).ok()?;
        Some(RecordedIke { datagram, offset, header })
    }

    /// IKE message with the SPIs of a recorded message and otherwise random header fields.
    fn forged_header(&mut self) -> Option<Datagram> {
        let RecordedIke { mut datagram, offset, header } = self.random_recorded_ike()?;
        let rng = &mut self.rng;
        let spi =
            |rng: &mut TestRng, spi: IkeSpi| if rng.below(4) == 0 { IkeSpi(rng.next_u64()) } else { spi };
        let forged = Header {
            spi_i: spi(rng, header.spi_i),
            spi_r: spi(rng, header.spi_r),
            next_payload: PayloadType(rng.pick(&[0, 33, 41, 46, 53, 200])),
            version: Version(rng.pick(&[0x20, 0x20, 0x21, 0x30, 0x10])),
            exchange: ExchangeType(rng.pick(&[34, 35, 36, 37, 43, 240])),
            flags: Flags { initiator: rng.coin(), higher_version: rng.coin(), response: rng.coin() },
            message_id: rng.pick(&[
                0,
                1,
                2,
                3,
                u32::MAX,
                header.message_id,
                header.message_id.wrapping_add(1),
            ]),
            length: 0,
        };
        let mut room = [0; 256];
        let mut message = Writer::new(&mut room, &forged).ok()?.finish().ok()?.to_vec();
        message.extend((0..rng.below(100)).map(|_| rng.next_u64() as u8));
        let len = (message.len() as u32).to_be_bytes();
        message[24..28].copy_from_slice(&len);
        message[16] = forged.next_payload.0;
        datagram.payload.bytes_mut().truncate(offset);
        datagram.payload.bytes_mut().extend(message);
        Some(datagram)
    }

    /// Response to a recorded request, or a new request, with one unprotected notification.
    fn forged_notification(&mut self) -> Option<Datagram> {
        let RecordedIke { mut datagram, offset, header } = self.random_recorded_ike()?;
        let is_response = self.rng.coin();
        let types = [
            NotifyType::NO_PROPOSAL_CHOSEN,
            NotifyType::INVALID_KE_PAYLOAD,
            NotifyType::COOKIE,
            NotifyType::AUTHENTICATION_FAILED,
            NotifyType::INVALID_SYNTAX,
            NotifyType::INVALID_MAJOR_VERSION,
            NotifyType::INVALID_IKE_SPI,
            NotifyType::INITIAL_CONTACT,
        ];
        let notify_type = self.rng.pick(&types);
        let flags = Flags { initiator: !header.flags.initiator, higher_version: false, response: true };
        let forged = if is_response {
            Header { flags, next_payload: PayloadType::NONE, ..header }
        } else {
            Header { exchange: ExchangeType::INFORMATIONAL, next_payload: PayloadType::NONE, ..header }
        };
        if is_response {
            std::mem::swap(&mut datagram.from, &mut datagram.to);
        }
        let mut room = [0; 256];
        let mut writer = Writer::new(&mut room, &forged).ok()?;
        writer.notify(&Notify::new(notify_type, &[0, 19])).ok()?;
        let message = writer.finish().ok()?;
        datagram.payload.bytes_mut().truncate(offset);
        datagram.payload.bytes_mut().extend_from_slice(message);
        Some(datagram)
    }

    /// Copies of a recorded IKE_SA_INIT request with random SPIs and source addresses.
    fn flood(&mut self) -> Vec<Datagram> {
        let is_first = |datagram: &&Datagram| {
            let Payload::Udp(payload) = &datagram.payload else { return false };
            Header::parse(payload)
                .is_ok_and(|header| header.exchange == ExchangeType::IKE_SA_INIT && !header.flags.response)
        };
        let Some(first) = self.observed.iter().find(is_first).cloned() else { return vec![] };
        let mut datagrams = vec![];
        for _ in 0..FLOOD {
            let mut datagram = Datagram { from: self.random_source(), ..first.clone() };
            let spi = self.rng.next_u64().to_be_bytes();
            datagram.payload.bytes_mut()[..8].copy_from_slice(&spi);
            datagrams.push(datagram);
        }
        datagrams
    }

    /// Encrypted fragments with the IKE header of a recorded message and a random body.
    fn forged_fragments(&mut self) -> Vec<Datagram> {
        let Some(RecordedIke { datagram, offset, header }) = self.random_recorded_ike() else {
            return vec![];
        };
        let total = 1 + self.rng.below(6) as u16;
        let message_id = header.message_id.wrapping_add(self.rng.below(2) as u32);
        let forged = Header { message_id, next_payload: PayloadType::NONE, ..header };
        let mut datagrams = vec![];
        for _ in 0..FLOOD {
            let mut room = [0; 64];
            let writer = Writer::new(&mut room, &forged).and_then(Writer::finish);
            let Ok(message) = writer else { return datagrams };
            let mut message = message.to_vec();
            message[16] = PayloadType::SKF.0;
            let number = 1 + self.rng.below(total.into()) as u16;
            let body: Vec<u8> = (0..40 + self.rng.below(60)).map(|_| self.rng.next_u64() as u8).collect();
            let first = if number == 1 { 35 } else { 0 };
            message.extend([first, 0]);
            message.extend((body.len() as u16 + 8).to_be_bytes());
            message.extend([number.to_be_bytes(), total.to_be_bytes()].concat());
            message.extend(body);
            let len = (message.len() as u32).to_be_bytes();
            message[24..28].copy_from_slice(&len);
            let mut fragment = datagram.clone();
            fragment.payload.bytes_mut().truncate(offset);
            fragment.payload.bytes_mut().extend(message);
            datagrams.push(fragment);
        }
        datagrams
    }

    /// Unprotected packet between two protected hosts.
    fn unprotected(&mut self) -> Datagram {
        let (from, to) = (self.rng.below(3), self.rng.below(3));
        let flow = addresses::flow(&self.setup, HostPair { from, to, child: 0 }, HostKind::Protected);
        let packet = crate::invariants::PacketLog::default().forged_packet(flow);
        let (from, to) = (self.random_source(), SocketAddr::new(addresses::outer(&self.setup, to), 0));
        Datagram { from, to, payload: Payload::Ip(packet) }
    }
}

/// Flips one to four random bits.
pub(crate) fn flip_bits(setup: &Setup, datagram: &mut Datagram, rng: &mut TestRng) {
    // ESP in transport mode does not authenticate the IP header, and the receiver delivers that header.
    let header = match (setup.layout, &datagram.payload, datagram.to.is_ipv6()) {
        (Layout::Ports, Payload::Ip(_), true) => 40,
        (Layout::Ports, Payload::Ip(_), false) => 20,
        _ => 0,
    };
    let Some(bytes) = datagram.payload.bytes_mut().get_mut(header..).filter(|bytes| !bytes.is_empty()) else {
        return;
    };
    for _ in 0..1 + rng.below(4) {
        let index = rng.below(bytes.len());
        bytes[index] ^= 1 << rng.below(8);
    }
}
