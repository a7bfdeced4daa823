//! Somebody on the way who sees everything, has no key, and may send whatever he likes in anybody's name.

use crate::dice::Dice;
use crate::net::{Carries, Datagram};
use crate::places::{self, HostKind};
use crate::style::{Layout, Style};
use crate::tally::Seen;
use casemate_wire::ike::{
    ExchangeType, Flags, Header, IkeSpi, Notify, NotifyType, PayloadType, Version, Writer,
};
use std::collections::VecDeque;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

/// How many datagrams are remembered.
const MEMORY: usize = 64;
/// How many requests a flood has.
const FLOOD: usize = 12;

/// What is known of the past.
#[derive(Debug)]
pub(crate) struct Attacker {
    dice: Dice,
    style: Style,
    seen: VecDeque<Datagram>,
}

/// What he did.
pub(crate) struct Deed {
    /// In one word, or a few.
    pub(crate) what: &'static str,
    /// What else to count it as.
    pub(crate) seen: Option<Seen>,
    /// What he sends.
    pub(crate) datagrams: Vec<Datagram>,
}

impl Deed {
    fn new(what: &'static str, datagrams: impl IntoIterator<Item = Datagram>) -> Self {
        Self { what, seen: None, datagrams: datagrams.into_iter().collect() }
    }
}

impl Attacker {
    /// One who has seen nothing.
    pub(crate) fn new(dice: Dice, style: Style) -> Self {
        Self { dice, style, seen: VecDeque::new() }
    }

    /// Sees a datagram.
    pub(crate) fn see(&mut self, datagram: &Datagram) {
        if self.seen.len() == MEMORY {
            let forgotten = self.dice.below(MEMORY);
            self.seen.swap_remove_back(forgotten);
        }
        self.seen.push_back(datagram.clone());
    }

    /// Does something.
    pub(crate) fn act(&mut self) -> Deed {
        if self.seen.is_empty() {
            return Deed::new("waits", []);
        }
        match self.dice.below(10) {
            0 | 1 => Deed::new("replays", [self.recorded()]),
            2 => Deed::new("replays from elsewhere", [self.moved()]),
            3 => Deed::new("changes", [self.changed()]),
            4 => Deed::new("cuts", [self.cut()]),
            5 => Deed::new("forges a header", self.forged()),
            6 => Deed::new("forges a notification", self.notification()),
            7 => Deed { seen: Some(Seen::Flood), ..Deed::new("floods", self.flood()) },
            8 => Deed { seen: Some(Seen::FragmentAttack), ..Deed::new("forges fragments", self.fragments()) },
            _ => Deed::new("sends in clear", [self.clear()]),
        }
    }

    fn recorded(&mut self) -> Datagram {
        let at = self.dice.below(self.seen.len());
        self.seen[at].clone()
    }

    fn stranger(&mut self) -> SocketAddr {
        let (host, port) = (self.dice.below(250) as u8, self.dice.next() as u16);
        if self.style.outer_v6 {
            let addr = Ipv6Addr::new(0x2001, 0xdb8, 0xbad, 0, 0, 0, 0, host.into());
            return SocketAddr::new(addr.into(), port);
        }
        SocketAddr::new(Ipv4Addr::new(203, 0, 113, host).into(), port)
    }

    fn moved(&mut self) -> Datagram {
        let from = self.stranger();
        Datagram { from, ..self.recorded() }
    }

    fn changed(&mut self) -> Datagram {
        let mut datagram = self.recorded();
        change(&self.style, &mut datagram, &mut self.dice);
        datagram
    }

    fn cut(&mut self) -> Datagram {
        let mut datagram = self.recorded();
        let bytes = datagram.carries.bytes_mut();
        let len = self.dice.below(bytes.len() + 1);
        bytes.truncate(len);
        datagram
    }

    /// An IKE message that was seen, and where its header begins.
    fn recorded_ike(&mut self) -> Option<(Datagram, usize, Header)> {
        let datagram = self.recorded();
        let Carries::Udp(payload) = &datagram.carries else { return None };
        let at = if payload.starts_with(&[0; 4]) { 4 } else { 0 };
        let header = Header::parse(payload.get(at..)?).ok()?;
        Some((datagram, at, header))
    }

    /// The SPIs of a real message, and everything else at random.
    fn forged(&mut self) -> Option<Datagram> {
        let (mut datagram, at, header) = self.recorded_ike()?;
        let dice = &mut self.dice;
        let spi = |dice: &mut Dice, spi: IkeSpi| if dice.below(4) == 0 { IkeSpi(dice.next()) } else { spi };
        let forged = Header {
            spi_i: spi(dice, header.spi_i),
            spi_r: spi(dice, header.spi_r),
            next_payload: PayloadType(dice.pick(&[0, 33, 41, 46, 53, 200])),
            version: Version(dice.pick(&[0x20, 0x20, 0x21, 0x30, 0x10])),
            exchange: ExchangeType(dice.pick(&[34, 35, 36, 37, 43, 240])),
            flags: Flags { initiator: dice.coin(), higher_version: dice.coin(), response: dice.coin() },
            message_id: dice.pick(&[
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
        message.extend((0..dice.below(100)).map(|_| dice.next() as u8));
        let len = (message.len() as u32).to_be_bytes();
        message[24..28].copy_from_slice(&len);
        message[16] = forged.next_payload.0;
        datagram.carries.bytes_mut().truncate(at);
        datagram.carries.bytes_mut().extend(message);
        Some(datagram)
    }

    /// An answer to a real request, or a message of its own, with one notification in clear.
    fn notification(&mut self) -> Option<Datagram> {
        let (mut datagram, at, header) = self.recorded_ike()?;
        let answers = self.dice.coin();
        let kinds = [
            NotifyType::NO_PROPOSAL_CHOSEN,
            NotifyType::INVALID_KE_PAYLOAD,
            NotifyType::COOKIE,
            NotifyType::AUTHENTICATION_FAILED,
            NotifyType::INVALID_SYNTAX,
            NotifyType::INVALID_MAJOR_VERSION,
            NotifyType::INVALID_IKE_SPI,
            NotifyType::INITIAL_CONTACT,
        ];
        let kind = self.dice.pick(&kinds);
        let flags = Flags { initiator: !header.flags.initiator, higher_version: false, response: true };
        let forged = if answers {
            Header { flags, next_payload: PayloadType::NONE, ..header }
        } else {
            Header { exchange: ExchangeType::INFORMATIONAL, next_payload: PayloadType::NONE, ..header }
        };
        if answers {
            std::mem::swap(&mut datagram.from, &mut datagram.to);
        }
        let mut room = [0; 256];
        let mut writer = Writer::new(&mut room, &forged).ok()?;
        writer.notify(&Notify::new(kind, &[0, 19])).ok()?;
        let message = writer.finish().ok()?;
        datagram.carries.bytes_mut().truncate(at);
        datagram.carries.bytes_mut().extend_from_slice(message);
        Some(datagram)
    }

    /// First requests from strangers, all alike.
    fn flood(&mut self) -> Vec<Datagram> {
        let is_first = |datagram: &&Datagram| {
            let Carries::Udp(payload) = &datagram.carries else { return false };
            Header::parse(payload)
                .is_ok_and(|header| header.exchange == ExchangeType::IKE_SA_INIT && !header.flags.response)
        };
        let Some(first) = self.seen.iter().find(is_first).cloned() else { return vec![] };
        let mut flood = vec![];
        for _ in 0..FLOOD {
            let mut datagram = Datagram { from: self.stranger(), ..first.clone() };
            let spi = self.dice.next().to_be_bytes();
            datagram.carries.bytes_mut()[..8].copy_from_slice(&spi);
            flood.push(datagram);
        }
        flood
    }

    /// Fragments with the names of a real message, and with nothing in them that anybody could open.
    fn fragments(&mut self) -> Vec<Datagram> {
        let Some((datagram, at, header)) = self.recorded_ike() else { return vec![] };
        let total = 1 + self.dice.below(6) as u16;
        let message_id = header.message_id.wrapping_add(self.dice.below(2) as u32);
        let forged = Header { message_id, next_payload: PayloadType::NONE, ..header };
        let mut flood = vec![];
        for _ in 0..FLOOD {
            let mut room = [0; 64];
            let writer = Writer::new(&mut room, &forged).and_then(Writer::finish);
            let Ok(message) = writer else { return flood };
            let mut message = message.to_vec();
            message[16] = PayloadType::SKF.0;
            let number = 1 + self.dice.below(total.into()) as u16;
            let body: Vec<u8> = (0..40 + self.dice.below(60)).map(|_| self.dice.next() as u8).collect();
            let first = if number == 1 { 35 } else { 0 };
            message.extend([first, 0]);
            message.extend((body.len() as u16 + 8).to_be_bytes());
            message.extend([number.to_be_bytes(), total.to_be_bytes()].concat());
            message.extend(body);
            let len = (message.len() as u32).to_be_bytes();
            message[24..28].copy_from_slice(&len);
            let mut fragment = datagram.clone();
            fragment.carries.bytes_mut().truncate(at);
            fragment.carries.bytes_mut().extend(message);
            flood.push(fragment);
        }
        flood
    }

    /// A packet of a protected host, without protection.
    fn clear(&mut self) -> Datagram {
        let (from, to) = (self.dice.below(3), self.dice.below(3));
        let flow = places::flow(&self.style, (from, to, 0), HostKind::Protected);
        let packet = crate::watch::Ledger::default().forge(flow);
        let (from, to) = (self.stranger(), SocketAddr::new(places::outer(&self.style, to), 0));
        Datagram { from, to, carries: Carries::Ip(packet) }
    }
}

/// Flips a few bits.
pub(crate) fn change(style: &Style, datagram: &mut Datagram, dice: &mut Dice) {
    // ESP in transport mode does not cover the IP header, which is delivered.
    let header = match (style.layout, &datagram.carries, datagram.to.is_ipv6()) {
        (Layout::Ports, Carries::Ip(_), true) => 40,
        (Layout::Ports, Carries::Ip(_), false) => 20,
        _ => 0,
    };
    let Some(bytes) = datagram.carries.bytes_mut().get_mut(header..).filter(|bytes| !bytes.is_empty()) else {
        return;
    };
    for _ in 0..1 + dice.below(4) {
        let at = dice.below(bytes.len());
        bytes[at] ^= 1 << dice.below(8);
    }
}
