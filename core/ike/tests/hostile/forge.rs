//! Hand-made messages: payloads as bytes, encrypted with the keys of a session or in clear text.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    dead_code,
    reason = "a test may fail, and not every test needs all of it"
)]

use super::pair::{IkePeer, Pair, RecordingRng};
use casemate_crypto::{Provider, Providers};
use casemate_ike::{Event, IkeKeys, IkeState, Path, SkKey};
use casemate_wire::ike::{
    Body, ExchangeType, Flags, Header, Message, Notify, NotifyType, Parts, PayloadType, Payloads, ProtocolId,
    Sealable, Version,
};

/// A payload as bytes, valid or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Raw {
    pub(crate) kind: PayloadType,
    pub(crate) critical: bool,
    pub(crate) body: Vec<u8>,
}

impl Raw {
    pub(crate) fn new(kind: PayloadType, body: &[u8]) -> Self {
        Self { kind, critical: false, body: body.into() }
    }

    pub(crate) fn critical(kind: u8) -> Self {
        Self { kind: PayloadType(kind), critical: true, body: vec![1, 2, 3] }
    }

    pub(crate) fn notify(kind: NotifyType, data: &[u8]) -> Self {
        Self::notify_of(ProtocolId::NONE, kind, &[], data)
    }

    pub(crate) fn notify_of(protocol: ProtocolId, kind: NotifyType, spi: &[u8], data: &[u8]) -> Self {
        let head = [protocol.0, u8::try_from(spi.len()).unwrap()];
        Self::new(PayloadType::NOTIFY, &[&head, &kind.0.to_be_bytes()[..], spi, data].concat())
    }

    /// A Delete payload for ESP.
    pub(crate) fn delete(spis: &[u32]) -> Self {
        let count = u16::try_from(spis.len()).unwrap().to_be_bytes();
        let spis: Vec<u8> = spis.iter().flat_map(|spi| spi.to_be_bytes()).collect();
        Self::new(PayloadType::DELETE, &[&[3, 4], &count[..], &spis].concat())
    }
}

/// Numbers of a fragment, valid or not.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RawFragment {
    pub(crate) number: u16,
    pub(crate) total: u16,
}

fn raws(payloads: Payloads<'_>) -> Vec<Raw> {
    let raw = |payload: casemate_wire::ike::Payload<'_>| Raw {
        kind: payload.kind,
        critical: payload.critical,
        body: payload.body.into(),
    };
    payloads.map(|payload| raw(payload.unwrap())).collect()
}

/// The header and the payloads of a message in clear text.
pub(crate) fn read_plain(message: &[u8]) -> (Header, Vec<Raw>) {
    let message = Message::parse(message).unwrap();
    (*message.header(), raws(message.payloads()))
}

/// The payloads as bytes; `last` is the type of what follows them.
pub(crate) fn chain(payloads: &[Raw], last: PayloadType) -> Vec<u8> {
    let nexts = payloads.iter().skip(1).map(|payload| payload.kind).chain([last]);
    let one = |(payload, next): (&Raw, PayloadType)| {
        let len = u16::try_from(4 + payload.body.len()).unwrap().to_be_bytes();
        [&[next.0, u8::from(payload.critical) << 7], &len[..], &payload.body].concat()
    };
    payloads.iter().zip(nexts).flat_map(one).collect()
}

fn first_of(payloads: &[Raw], otherwise: PayloadType) -> PayloadType {
    payloads.first().map_or(otherwise, |payload| payload.kind)
}

fn with_header(header: &Header, next_payload: PayloadType, rest: &[u8]) -> Vec<u8> {
    let mut message = vec![0; 28];
    let length = u32::try_from(28 + rest.len()).unwrap();
    Header { next_payload, length, ..*header }.emit(message.first_chunk_mut().unwrap());
    message.extend_from_slice(rest);
    message
}

/// Writes a message in clear text.
pub(crate) fn plain(header: &Header, payloads: &[Raw]) -> Vec<u8> {
    with_header(header, first_of(payloads, PayloadType::NONE), &chain(payloads, PayloadType::NONE))
}

pub(crate) fn without(payloads: &[Raw], kind: PayloadType) -> Vec<Raw> {
    payloads.iter().filter(|payload| payload.kind != kind).cloned().collect()
}

/// Changes the body of the payload of this kind.
pub(crate) fn altered(payloads: &[Raw], kind: PayloadType, alter: impl Fn(&mut Vec<u8>)) -> Vec<Raw> {
    let mut payloads = payloads.to_vec();
    let payload = payloads.iter_mut().find(|payload| payload.kind == kind).unwrap();
    alter(&mut payload.body);
    payloads
}

/// Type and data of the notifications in a message.
pub(crate) fn notifies(payloads: &[Raw]) -> Vec<(NotifyType, Vec<u8>)> {
    let of = payloads.iter().filter(|payload| payload.kind == PayloadType::NOTIFY);
    of.map(|payload| Notify::parse(&payload.body).unwrap()).map(|n| (n.kind, n.data.into())).collect()
}

/// A forger who has the keys of an IKE SA and acts as one of its ends.
pub(crate) struct MessageForger {
    pub(crate) keys: IkeKeys,
    pub(crate) initiator: bool,
    counter: u64,
}

fn with_providers<T>(act: impl FnOnce(&Providers<'_>) -> T) -> T {
    let provider: &dyn Provider = &casemate_rustcrypto::RustCrypto;
    act(&Providers(&[provider]))
}

impl MessageForger {
    /// Creates a forger with the keys that this side reported last, who acts as the other side.
    pub(crate) fn against(side: &IkePeer) -> Self {
        let keys = side.events.iter().rev().find_map(|event| match event {
            Event::Keys(keys) => Some((**keys).clone()),
            _ => None,
        });
        let keys = keys.expect("the side reports its keys");
        let ike = side
            .ike
            .status()
            .find(|status| status.spis == keys.spis)
            .expect("the side has the IKE SA of the keys");
        Self::new(keys, !ike.initiator)
    }

    /// Creates a forger with these keys, as the initiator or the responder.
    pub(crate) const fn new(keys: IkeKeys, initiator: bool) -> Self {
        // Counters that differ from those of the real peer.
        Self { keys, initiator, counter: 1 << 32 }
    }

    fn key(&self, initiator: bool) -> SkKey {
        let IkeKeys { suite, encr, integ, .. } = &self.keys;
        let (encr, integ) =
            if initiator { (&encr.initiator, &integ.initiator) } else { (&encr.responder, &integ.responder) };
        with_providers(|providers| SkKey::new(suite.sk, encr, integ, providers)).unwrap()
    }

    pub(crate) fn header(&self, exchange: ExchangeType, message_id: u32, response: bool) -> Header {
        Header {
            spi_i: self.keys.spis.initiator,
            spi_r: self.keys.spis.responder,
            next_payload: PayloadType::NONE,
            version: Version::V2,
            exchange,
            flags: Flags { initiator: self.initiator, higher_version: false, response },
            message_id,
            length: 0,
        }
    }

    pub(crate) fn seal(&mut self, header: &Header, inside: &[Raw]) -> Vec<u8> {
        let (first, plaintext) = (first_of(inside, PayloadType::NONE), chain(inside, PayloadType::NONE));
        self.seal_with(header, &[], None, first, &plaintext)
    }

    /// Encrypts any plaintext, which begins with a payload of type `first`, after the payloads `outside`.
    pub(crate) fn seal_with(
        &mut self,
        header: &Header,
        outside: &[Raw],
        fragment: Option<RawFragment>,
        first: PayloadType,
        plaintext: &[u8],
    ) -> Vec<u8> {
        let key = self.key(self.initiator);
        let layout = *key.layout();
        let kind = if fragment.is_some() { PayloadType::SKF } else { PayloadType::SK };
        let numbers: Vec<u8> = fragment
            .iter()
            .flat_map(|RawFragment { number, total }| [number.to_be_bytes(), total.to_be_bytes()].concat())
            .collect();
        let pad = (layout.block - (plaintext.len() + 1) % layout.block) % layout.block;
        let text = [plaintext, &vec![0; pad], &[u8::try_from(pad).unwrap()]].concat();
        let len = 4 + numbers.len() + layout.iv + text.len() + layout.icv;
        let mut rest = chain(outside, kind);
        rest.extend([first.0, 0]);
        rest.extend(u16::try_from(len).unwrap().to_be_bytes());
        rest.extend(&numbers);
        let iv = 28 + rest.len()..28 + rest.len() + layout.iv;
        rest.extend(vec![0; layout.iv]);
        rest.extend(&text);
        rest.extend(vec![0; layout.icv]);
        let mut message = with_header(header, first_of(outside, kind), &rest);
        let ciphertext = iv.end..iv.end + text.len();
        let parts =
            Parts { icv: ciphertext.end..ciphertext.end + layout.icv, iv, ciphertext: ciphertext.clone() };
        self.counter += 1;
        let sealable = Sealable { message: &mut message, parts, payloads: ciphertext };
        key.seal(sealable, self.counter, &mut RecordingRng::new(self.counter)).unwrap();
        message
    }

    /// Decrypts a message of either end.
    pub(crate) fn open(&self, message: &[u8]) -> (Header, Vec<Raw>) {
        self.try_open(message).expect("a message under these keys")
    }

    /// Decrypts a message if it is under these keys, complete and well formed.
    pub(crate) fn try_open(&self, message: &[u8]) -> Option<(Header, Vec<Raw>)> {
        let mut bytes = message.to_vec();
        let message = Message::parse(message).ok()?;
        let header = *message.header();
        let last = message.payloads().last()?.ok()?;
        let Body::Encrypted(encrypted) = Body::parse(&last).ok()? else { return None };
        let key = self.key(header.flags.initiator);
        let payloads = key.open(&mut bytes, &encrypted.parts(key.layout()).ok()?).ok()?;
        let payloads = Payloads::from_plaintext(encrypted.first, &bytes[payloads]);
        payloads.clone().all(|payload| payload.is_ok()).then(|| (header, raws(payloads)))
    }
}

/// A responder or an established host, and a malicious peer.
pub(crate) struct Attack {
    pub(crate) pair: Pair,
    pub(crate) forger: MessageForger,
    /// Message ID of the next forged request.
    pub(crate) next: u32,
}

impl Attack {
    /// Attacks the right side of an established pair.
    pub(crate) fn established() -> Self {
        Self::on(Pair::with_defaults())
    }

    /// Attacks the right side of this established pair.
    pub(crate) fn on(mut pair: Pair) -> Self {
        pair.right.ike.report_keys(true);
        pair.left.initiate(pair.now);
        pair.run();
        assert_eq!(pair.right.ike.status().next().unwrap().state, IkeState::Established);
        let forger = MessageForger::against(&pair.right);
        Self { pair, forger, next: 2 }
    }

    /// Attacks a right side that waits for IKE_AUTH. Returns the left side's IKE_AUTH payloads, decrypted.
    pub(crate) fn half_open(mut pair: Pair) -> (Self, Vec<Raw>) {
        pair.right.ike.report_keys(true);
        pair.left.initiate(pair.now);
        pair.deliver_to_right();
        pair.deliver_to_left();
        let forger = MessageForger::against(&pair.right);
        let sent: Vec<_> = pair.left.sent.drain(..).collect();
        assert_eq!(sent.len(), 1, "IKE_AUTH is whole");
        let (_, payloads) = forger.open(&sent[0].message);
        (Self { pair, forger, next: 1 }, payloads)
    }

    /// Delivers a datagram from the left side's address to the right side. Returns what the right side sends.
    pub(crate) fn give(&mut self, message: &[u8]) -> Vec<Vec<u8>> {
        give_right(&mut self.pair, message)
    }

    /// Sends a request and returns the payloads of the only response.
    pub(crate) fn ask(&mut self, exchange: ExchangeType, inside: &[Raw]) -> Vec<Raw> {
        let header = self.forger.header(exchange, self.next, false);
        let message = self.forger.seal(&header, inside);
        let answers = self.give(&message);
        let answer =
            answers.first().unwrap_or_else(|| panic!("no answer: {:?}", self.pair.right.events.last()));
        let (answer, payloads) = self.forger.open(answer);
        assert!(answer.flags.response, "{answer:?}");
        assert_eq!((answer.exchange, answer.message_id), (exchange, self.next));
        // RFC 7296 section 2.1: a repeated request gets the same response, bit by bit.
        assert_eq!(self.give(&message), answers[..1]);
        self.next += 1;
        payloads
    }

    /// Checks that the IKE SA answers an empty request.
    pub(crate) fn check_alive(&mut self) {
        assert_eq!(self.ask(ExchangeType::INFORMATIONAL, &[]), []);
    }

    /// Checks that the right side has no IKE SA and holds no SPI.
    pub(crate) fn check_gone(&self) {
        assert_eq!(self.pair.right.ike.status().count(), 0);
        assert!(self.pair.right.leaked_spis().is_empty());
    }

    pub(crate) fn count(&self, name: &str) -> u64 {
        count(&self.pair.right, name)
    }
}

/// Number of faults with this name that a side counted.
pub(crate) fn count(side: &IkePeer, name: &str) -> u64 {
    side.ike.faults().iter().find(|(known, _)| *known == name).expect("the fault has a counter").1
}

pub(crate) fn give_right(pair: &mut Pair, message: &[u8]) -> Vec<Vec<u8>> {
    let path = Path { local: (pair.right.addr, 500).into(), remote: (pair.left.addr, 500).into() };
    give_on(pair, message, path)
}

pub(crate) fn give_on(pair: &mut Pair, message: &[u8], path: Path) -> Vec<Vec<u8>> {
    let mut message = message.to_vec();
    pair.right.with_context(pair.now, |ike, host, context| ike.receive(&mut message, path, host, context));
    pair.right.sent.drain(..).map(|transmit| transmit.message).collect()
}

/// Whether a message is the notification INVALID_IKE_SPI in clear (RFC 7296 section 2.21.4).
pub(crate) fn reports_unknown_spi(message: &[u8]) -> bool {
    let message = casemate_wire::ike::Message::parse(message).unwrap();
    let is_it = |body: &[u8]| body == [0, 0, 0, 4];
    message.header().flags.response && message.payloads().all(|payload| is_it(payload.unwrap().body))
}

/// Delivers a datagram from the right side's address to the left side. Returns what the left side sends.
pub(crate) fn give_left(pair: &mut Pair, message: &[u8]) -> Vec<Vec<u8>> {
    let path = Path { local: (pair.left.addr, 500).into(), remote: (pair.right.addr, 500).into() };
    let mut message = message.to_vec();
    pair.left.with_context(pair.now, |ike, host, context| ike.receive(&mut message, path, host, context));
    pair.left.sent.drain(..).map(|transmit| transmit.message).collect()
}

/// Takes the left side's first request off the wire.
pub(crate) fn first_request(pair: &mut Pair) -> Vec<u8> {
    pair.left.initiate(pair.now);
    pair.left.sent.pop_back().unwrap().message
}
