//! Changed payloads of a key exchange.

use crate::forge::Raw;
use casemate_crypto::KexMethod;
use casemate_ike::StateFault;
use casemate_wire::ike::{NotifyType, PayloadType};

/// Method and reserved octets before the value.
const HEAD: usize = 4;
/// 3,329, the modulus of ML-KEM, twice in the encoding of 12 bits each (FIPS 203 algorithm 5).
const UNREDUCED: [u8; 3] = [0x01, 0x1d, 0xd0];

/// What is done to a message with one KE payload, and what the receiver has to find.
pub(crate) struct Change {
    pub(crate) name: &'static str,
    pub(crate) fault: StateFault,
    pub(crate) apply: fn(&[Raw]) -> Vec<Raw>,
}

impl Change {
    pub(crate) fn apply(&self, payloads: &[Raw]) -> Vec<Raw> {
        (self.apply)(payloads)
    }

    /// Notification in the response to a request with this change.
    pub(crate) fn notify(&self) -> NotifyType {
        match self.fault {
            StateFault::KeMethod => NotifyType::INVALID_KE_PAYLOAD,
            _ => NotifyType::INVALID_SYNTAX,
        }
    }
}

fn with_body(payloads: &[Raw], change: impl Fn(&mut Vec<u8>)) -> Vec<Raw> {
    crate::forge::altered(payloads, PayloadType::KE, change)
}

fn with_len(payloads: &[Raw], len: impl Fn(usize) -> usize) -> Vec<Raw> {
    with_body(payloads, |body| body.resize(HEAD + len(body.len() - HEAD), 7))
}

fn with_method(payloads: &[Raw], method: u16) -> Vec<Raw> {
    with_body(payloads, |body| body[..2].copy_from_slice(&method.to_be_bytes()))
}

const fn value(name: &'static str, apply: fn(&[Raw]) -> Vec<Raw>) -> Change {
    Change { name, fault: StateFault::KeValue, apply }
}

const fn method(name: &'static str, apply: fn(&[Raw]) -> Vec<Raw>) -> Change {
    Change { name, fault: StateFault::KeMethod, apply }
}

/// Changes of a request and of a response alike.
pub(crate) const CHANGES: [Change; 15] = [
    value("one byte less", |payloads| with_len(payloads, |len| len - 1)),
    value("half of it", |payloads| with_len(payloads, |len| len / 2)),
    value("one byte", |payloads| with_len(payloads, |_| 1)),
    value("one byte more", |payloads| with_len(payloads, |len| len + 1)),
    value("twice as long", |payloads| with_len(payloads, |len| 2 * len)),
    value("nearly 64 KiB", |payloads| with_len(payloads, |_| 60_000)),
    value("as long as an encapsulation key of ML-KEM-1024", |payloads| {
        with_len(payloads, |_| KexMethod::MlKem1024.public_len())
    }),
    value("as long as a public value of X25519", |payloads| with_len(payloads, |_| 32)),
    method("method of ML-KEM-1024", |payloads| with_method(payloads, KexMethod::MlKem1024.id())),
    method("method of the first key exchange", |payloads| {
        with_method(&with_len(payloads, |_| 32), KexMethod::X25519.id())
    }),
    method("method 0", |payloads| with_method(payloads, 0)),
    method("unknown method", |payloads| with_method(payloads, 65_535)),
    Change {
        name: "no KE payload",
        fault: StateFault::PayloadMissing,
        apply: |payloads| crate::forge::without(payloads, PayloadType::KE),
    },
    Change {
        name: "the KE payload twice",
        fault: StateFault::PayloadTwice,
        apply: |payloads| {
            let ke = payloads.iter().find(|payload| payload.kind == PayloadType::KE).cloned();
            payloads.iter().cloned().chain(ke).collect()
        },
    },
    Change {
        name: "another KE payload",
        fault: StateFault::PayloadTwice,
        apply: |payloads| {
            let other = [&31_u16.to_be_bytes()[..], &[0; 34]].concat();
            [payloads, &[Raw::new(PayloadType::KE, &other)]].concat()
        },
    },
];

/// An encapsulation key with a coefficient that is not reduced (FIPS 203 section 7.2).
pub(crate) const UNREDUCED_KEY: Change = value("an unreduced coefficient", |payloads| {
    with_body(payloads, |body| body[HEAD..HEAD + UNREDUCED.len()].copy_from_slice(&UNREDUCED))
});

/// The payloads with the value of another message.
pub(crate) fn with_value_of(payloads: &[Raw], other: &[Raw]) -> Vec<Raw> {
    let value = other.iter().find(|payload| payload.kind == PayloadType::KE).unwrap().body[HEAD..].to_vec();
    with_body(payloads, |body| {
        body.truncate(HEAD);
        body.extend_from_slice(&value);
    })
}

/// The payloads with changed bits in the value.
pub(crate) fn with_other_value(payloads: &[Raw]) -> Vec<Raw> {
    with_body(payloads, |body| *body.last_mut().unwrap() ^= 1)
}
