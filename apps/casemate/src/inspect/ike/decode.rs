//! Decodes the IKE messages of a capture in order: parses them, decrypts them if the keys are known, and
//! reassembles fragments.

use super::json;
use super::key_table::KeyTable;
use super::message_key::MessageKey;
use casemate_ike::{IkeSpis, SkError};
use casemate_wire::ike::{Body, Encrypted, Fault, Header, Message, Payload, PayloadType, Payloads};
use casemate_wire::invariant::OrBroken;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Decodes messages and keeps incomplete fragments between them.
pub struct Decoder {
    keys: KeyTable,
    fragments: BTreeMap<FragmentedMessage, Fragments>,
}

/// Identifies the message of a fragment (RFC 7383 section 2.6).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct FragmentedMessage {
    spis: IkeSpis,
    message_id: u32,
    from_initiator: bool,
    /// Number of fragments, because a message may be retransmitted in smaller fragments.
    total: u16,
}

/// The fragments of one message so far.
#[derive(Default)]
struct Fragments {
    /// Type of the first inner payload, from the first fragment.
    first: Option<PayloadType>,
    pieces: BTreeMap<u16, Vec<u8>>,
}

impl Decoder {
    /// Makes a decoder with these keys.
    pub fn new(keys: KeyTable) -> Self {
        Self { keys, fragments: BTreeMap::new() }
    }

    /// Decodes the message in `datagram`, which excludes the four zero bytes before a message on port
    /// 4500.
    pub fn read(&mut self, datagram: &[u8]) -> Value {
        let mut object = Header::parse(datagram).map(|header| self::header(&header)).unwrap_or_default();
        match Message::parse(datagram) {
            Ok(message) => {
                let payloads = self.payloads(&message, message.payloads());
                object.insert("payloads".into(), payloads);
            }
            Err(fault) => {
                object.insert("fault".into(), json::fault(&fault));
            }
        }
        object.into()
    }

    fn payloads(&mut self, message: &Message<'_>, payloads: Payloads<'_>) -> Value {
        let one = |payload| match payload {
            Ok(payload) => self.payload(message, &payload),
            Err(fault) => json!({ "fault": json::fault(&fault) }),
        };
        payloads.map(one).collect::<Vec<_>>().into()
    }

    fn payload(&mut self, message: &Message<'_>, payload: &Payload<'_>) -> Value {
        let mut value = json::payload(payload);
        if let (Ok(Body::Encrypted(encrypted)), Some(object)) = (Body::parse(payload), value.as_object_mut())
        {
            object.extend(self.open(message, &encrypted));
        }
        value
    }

    /// Decrypts an encrypted payload. The returned fields give its state and, if it was opened, the inner
    /// payloads.
    fn open(&mut self, message: &Message<'_>, encrypted: &Encrypted<'_>) -> Map<String, Value> {
        let state = |state: &str| Map::from_iter([("state".to_owned(), state.into())]);
        let header = message.header();
        let of_sa = self.keys.get(&spis(header));
        if of_sa.is_empty() {
            return state("no-key");
        }
        let keys =
            of_sa.iter().map(|keys| if header.flags.initiator { &keys.initiator } else { &keys.responder });
        // With additional key exchanges (RFC 9370), an SA has several keys in turn. The ICV shows which one.
        let opened =
            keys.map(|key| decrypt(key, message, encrypted)).find(|opened| !matches!(opened, Ok(None)));
        let Opened { inner, is_checked } = match opened {
            Some(Ok(Some(opened))) => opened,
            Some(Err(fault)) => return Map::from_iter([("fault".to_owned(), json::fault(&fault))]),
            Some(Ok(None)) | None => return state("icv-mismatch"),
        };
        let Some(Plaintext { first, bytes }) = self.collect(header, encrypted, &inner) else {
            return state("held");
        };
        let mut object = state("opened");
        if !is_checked {
            object.insert("icv".into(), "not-checked".into());
        }
        object.insert("payloads".into(), self.payloads(message, Payloads::from_plaintext(first, &bytes)));
        object
    }

    /// The plaintext of the message; `None` while fragments are missing.
    fn collect(&mut self, header: &Header, encrypted: &Encrypted<'_>, inner: &[u8]) -> Option<Plaintext> {
        let Some(fragment) = encrypted.fragment else {
            return Some(Plaintext { first: encrypted.first, bytes: inner.to_vec() });
        };
        let message = FragmentedMessage {
            spis: spis(header),
            message_id: header.message_id,
            from_initiator: header.flags.initiator,
            total: fragment.total(),
        };
        let fragments = self.fragments.entry(message).or_default();
        if fragment.number() == 1 {
            fragments.first = Some(encrypted.first);
        }
        fragments.pieces.insert(fragment.number(), inner.to_vec());
        if fragments.pieces.len() < usize::from(fragment.total()) {
            return None;
        }
        let Fragments { first, pieces } = self.fragments.remove(&message)?;
        Some(Plaintext { first: first?, bytes: pieces.into_values().flatten().collect() })
    }
}

/// An encrypted payload that a key has opened.
struct Opened {
    /// The inner payloads, of a fragment its part of them.
    inner: Vec<u8>,
    /// Whether the ICV was verified.
    is_checked: bool,
}

/// Decrypts an encrypted payload with a key; `None` if the ICV does not match.
fn decrypt(
    key: &MessageKey,
    message: &Message<'_>,
    encrypted: &Encrypted<'_>,
) -> Result<Option<Opened>, Fault> {
    let mut bytes = message.bytes().to_vec();
    let parts = encrypted.parts(key.layout())?;
    match key.open(&mut bytes, &parts) {
        Ok(inner) => {
            let inner = bytes.get(inner).or_broken_default("the inner payloads are inside the message");
            Ok(Some(Opened { inner: inner.to_vec(), is_checked: key.is_checked() }))
        }
        Err(SkError::IcvMismatch) => Ok(None),
        Err(SkError::Padding(fault)) => Err(fault),
    }
}

/// The decrypted payloads of a message.
struct Plaintext {
    /// Type of the first payload.
    first: PayloadType,
    bytes: Vec<u8>,
}

fn spis(header: &Header) -> IkeSpis {
    IkeSpis { initiator: header.spi_i, responder: header.spi_r }
}

fn header(header: &Header) -> Map<String, Value> {
    let from = if header.flags.initiator { "initiator" } else { "responder" };
    Map::from_iter([
        ("initiator_spi".to_owned(), header.spi_i.to_string().into()),
        ("responder_spi".to_owned(), header.spi_r.to_string().into()),
        ("version".to_owned(), header.version.to_string().into()),
        ("exchange".to_owned(), header.exchange.to_string().into()),
        ("from".to_owned(), from.into()),
        ("response".to_owned(), header.flags.response.into()),
        ("message_id".to_owned(), header.message_id.into()),
    ])
}

/// [`Decoder::read`] writes these fields.
const DECODED: &str = "a decoded message has all fields of its header";

/// Formats a message of [`Decoder::read`] on one line: `IKE_AUTH request 1: SK { IDi AUTH SA TSi TSr }`. A
/// KE payload has its method: `KE(ml-kem-768)`.
pub fn summary_line(message: &Value) -> String {
    let Some(list) = message.get("payloads") else {
        return format!("not an IKEv2 message: {}", fault(message));
    };
    let exchange = message.get("exchange").and_then(Value::as_str).or_broken_default(DECODED);
    let kind = if message.get("response") == Some(&true.into()) { "response" } else { "request" };
    let id = message.get("message_id").and_then(Value::as_u64).or_broken_default(DECODED);
    format!("{exchange} {kind} {id}: {}", payloads(list))
}

fn payloads(list: &Value) -> String {
    let one = |payload: &Value| {
        let name = payload.get("notify").or_else(|| payload.get("type")).and_then(Value::as_str);
        let name = match (name, payload.get("number"), payload.get("total")) {
            (Some(name), Some(number), Some(total)) => format!("{name} {number}/{total}"),
            (Some("KE"), ..) => format!("KE({})", ke_method(payload)),
            (name, ..) => name.unwrap_or_default().to_owned(),
        };
        match (payload.get("payloads"), payload.get("state").and_then(Value::as_str)) {
            (Some(inner), _) => format!("{name} {{ {}}}", with_space(&payloads(inner))),
            (None, Some(state)) => format!("{name} ({state})"),
            (None, None) if payload.get("fault").is_some() => format!("{name} ({})", fault(payload)),
            (None, None) => name,
        }
    };
    let names: Vec<String> = list.as_array().into_iter().flatten().map(one).collect();
    names.join(" ")
}

/// The method of a KE payload; empty if the payload is malformed.
fn ke_method(payload: &Value) -> &str {
    payload.get("method").and_then(Value::as_str).unwrap_or_default()
}

/// The text with a trailing space, unless it is empty.
fn with_space(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!("{text} ") }
}

fn fault(value: &Value) -> &str {
    value.pointer("/fault/text").and_then(Value::as_str).unwrap_or_default()
}
