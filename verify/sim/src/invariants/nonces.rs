//! No key seals twice with the same IV, and no message ID identifies two messages.

use super::{Checked, Monitor, Violation, digest, violated};
use crate::node::{Incarnation, Node};
use crate::packet::ProtectedPacket;
use casemate_crypto::EspSuite;
use casemate_sa::{SaParams, Transform};
use casemate_wire::ike::{Body, Encrypted, Header, IkeSpi, Message};
use std::ops::Range;

/// Identifies one message of a node, and all its retransmissions.
#[derive(PartialEq, Eq, Hash)]
pub(super) struct MessageName {
    sender: Incarnation,
    spi_i: IkeSpi,
    spi_r: IkeSpi,
    is_response: bool,
    message_id: u32,
    fragment: u16,
}

/// A key and an IV under it.
#[derive(PartialEq, Eq, Hash)]
pub(super) struct KeyAndIv {
    key: Vec<u8>,
    iv: Vec<u8>,
}

/// Length of the ESP header. The IV follows it.
const ESP_HEADER: usize = 8;
/// Offset of the sequence number in the ESP header.
const ESP_SEQ: usize = 4;
/// Offset of the SPI in the AH header. The sequence number follows it.
const AH_SPI: usize = 4;

/// Key of an outbound SA, and where its packets have the value that never repeats under it.
pub(super) struct NonceSource {
    key: Vec<u8>,
    /// From the start of the ESP or AH header.
    place: Range<usize>,
}

impl NonceSource {
    pub(super) fn of(sa: &SaParams) -> Self {
        match &sa.transform {
            // The sequence number is the IV (RFC 8750 section 4).
            Transform::Esp { suite: EspSuite::ImplicitIv(_), encr, .. } => {
                Self { key: encr.expose().to_vec(), place: ESP_SEQ..ESP_HEADER }
            }
            Transform::Esp { suite, encr, .. } => {
                Self { key: encr.expose().to_vec(), place: ESP_HEADER..ESP_HEADER + suite.iv_len() }
            }
            // AH has no IV. Its sequence number must not repeat.
            Transform::Ah { integ, .. } => {
                Self { key: integ.expose().to_vec(), place: AH_SPI + 4..AH_SPI + 8 }
            }
        }
    }
}

impl Monitor {
    /// Checks a protected packet that a node sends.
    pub(crate) fn check_sealed_packet(&mut self, node: &Node, packet: &ProtectedPacket) -> Checked {
        let payload = packet.payload();
        let spi_offset = if packet.is_ah() { AH_SPI } else { 0 };
        let spi =
            u32::from_be_bytes(*payload[spi_offset..].first_chunk().expect("it is long enough for a header"));
        let Some(NonceSource { key, place }) = self.outbound.get(&(node.incarnation(), spi)) else {
            return violated(format!(
                "node {} sends with SPI {spi:08x}, which no peer negotiated",
                node.index
            ));
        };
        let iv = payload[place.clone()].to_vec();
        if node.store.is_some() && !packet.is_ah() {
            let number = *payload[ESP_SEQ..].first_chunk().expect("it is long enough for a header");
            if !self.owners.numbers.insert((key.clone(), number)) {
                return violated(format!(
                    "node {}, SPI {spi:08x}: a sequence number twice under one key",
                    node.index
                ));
            }
        }
        let sealed = KeyAndIv { key: key.clone(), iv: iv.clone() };
        match self.sealed.insert(sealed, digest(payload)) {
            None => Ok(()),
            Some(_) => {
                violated(format!("node {}, SPI {spi:08x}: IV {iv:02x?} twice under one key", node.index))
            }
        }
    }

    /// Checks an IKE message that a node sends.
    pub(crate) fn check_sealed_message(&mut self, node: &Node, message: &[u8]) -> Checked {
        let parsed = Message::parse(message);
        let parsed = parsed
            .map_err(|fault| Violation(format!("node {} sends a malformed message: {fault}", node.index)))?;
        let Some(encrypted) = encrypted(&parsed) else { return Ok(()) };
        let incarnation = node.incarnation();
        self.check_name(incarnation, parsed.header(), &encrypted, message)?;
        self.check_iv(incarnation, parsed.header(), &encrypted, message)
    }

    fn check_name(
        &mut self,
        incarnation: Incarnation,
        header: &Header,
        part: &Encrypted<'_>,
        message: &[u8],
    ) -> Checked {
        let fragment = part.fragment.map_or(0, |fragment| fragment.number());
        let name = MessageName {
            sender: incarnation,
            spi_i: header.spi_i,
            spi_r: header.spi_r,
            is_response: header.flags.response,
            message_id: header.message_id,
            fragment,
        };
        match self.messages.insert(name, digest(message)) {
            Some(before) if before != digest(message) => violated(format!(
                "node {}: two messages with the ID {} (response: {}) in the IKE SA {} {}",
                incarnation.node, header.message_id, header.flags.response, header.spi_i, header.spi_r
            )),
            _ => Ok(()),
        }
    }

    fn check_iv(
        &mut self,
        incarnation: Incarnation,
        header: &Header,
        part: &Encrypted<'_>,
        message: &[u8],
    ) -> Checked {
        let Some(keys) = self.keys_of_message(incarnation, header) else {
            return violated(format!("node {} sends with keys that no notice reported", incarnation.node));
        };
        let key = if header.flags.initiator { &keys.encr.initiator } else { &keys.encr.responder };
        let iv = part.content[..keys.suite.sk.layout().iv].to_vec();
        let sealed = KeyAndIv { key: key.expose().to_vec(), iv };
        match self.sealed.insert(sealed, digest(message)) {
            // A retransmission is identical, bit for bit.
            Some(before) if before != digest(message) => {
                let id = header.message_id;
                violated(format!("node {}: an IV twice under one IKE key, message {id}", incarnation.node))
            }
            _ => Ok(()),
        }
    }
}

/// Encrypted payload of a message.
fn encrypted<'m>(message: &Message<'m>) -> Option<Encrypted<'m>> {
    let last = message.payloads().filter_map(Result::ok).last()?;
    match Body::parse(&last) {
        Ok(Body::Encrypted(encrypted)) => Some(encrypted),
        _ => None,
    }
}
