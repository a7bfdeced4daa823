//! No key ever seals twice with the same IV, and no message number stands for two messages.

use super::{Checked, Life, Violation, Watch, digest, violated};
use crate::node::{Node, Protected};
use casemate_sa::{SaParams, Transform};
use casemate_wire::ike::{Body, Encrypted, Header, IkeSpi, Message};

/// Under such a name a node sends one message, however often: SPIs, response or not, number, fragment.
pub(super) type MessageName = (IkeSpi, IkeSpi, bool, u32, u16);

/// Length of the ESP header, behind which the IV is.
const ESP_HEADER: usize = 8;
/// Where AH has its SPI, and behind it the sequence number.
const AH_SPI: usize = 4;

/// The key of an SA that encrypts, and the length of its IV; without encryption the key of the MAC.
pub(super) fn key_of(sa: &SaParams) -> (Vec<u8>, usize) {
    match &sa.transform {
        Transform::Esp { suite, encr, .. } => (encr.expose().to_vec(), suite.iv_len()),
        Transform::Ah { integ, .. } => (integ.expose().to_vec(), 0),
    }
}

impl Watch {
    /// A node sends a protected packet.
    pub(crate) fn sealed_packet(&mut self, node: &Node, packet: &Protected) -> Checked {
        let (payload, is_ah) = packet.payload();
        let at = if is_ah { AH_SPI } else { 0 };
        let spi = u32::from_be_bytes(*payload[at..].first_chunk().expect("it is long enough for a header"));
        let Some((key, iv_len)) = self.outbound.get(&((node.index, node.lives), spi)) else {
            return violated(format!("node {} sends with SPI {spi:08x}, which nobody agreed on", node.index));
        };
        // AH has no IV; there the sequence number is what must never come again.
        let iv = if is_ah { AH_SPI + 4..AH_SPI + 8 } else { ESP_HEADER..ESP_HEADER + iv_len };
        let iv = payload[iv].to_vec();
        match self.sealed.insert((key.clone(), iv.clone()), digest(payload)) {
            None => Ok(()),
            Some(_) => {
                violated(format!("node {}, SPI {spi:08x}: IV {iv:02x?} twice under one key", node.index))
            }
        }
    }

    /// A node sends an IKE message.
    pub(crate) fn sealed_message(&mut self, node: &Node, message: &[u8]) -> Checked {
        let parsed = Message::parse(message);
        let parsed =
            parsed.map_err(|fault| Violation(format!("node {} sends nonsense: {fault}", node.index)))?;
        let Some(encrypted) = encrypted(&parsed) else { return Ok(()) };
        let life = (node.index, node.lives);
        self.check_name(life, parsed.header(), &encrypted, message)?;
        self.check_iv(life, parsed.header(), &encrypted, message)
    }

    fn check_name(&mut self, life: Life, header: &Header, part: &Encrypted<'_>, message: &[u8]) -> Checked {
        let fragment = part.fragment.map_or(0, |fragment| fragment.number());
        let name = (header.spi_i, header.spi_r, header.flags.response, header.message_id, fragment);
        match self.messages.insert((life, name), digest(message)) {
            Some(before) if before != digest(message) => violated(format!(
                "node {}: two messages with the number {} (response: {}) in the IKE SA {} {}",
                life.0, header.message_id, header.flags.response, header.spi_i, header.spi_r
            )),
            _ => Ok(()),
        }
    }

    fn check_iv(&mut self, life: Life, header: &Header, part: &Encrypted<'_>, message: &[u8]) -> Checked {
        let Some(keys) = self.ike_keys.get(&(life, header.spi_i, header.spi_r)) else {
            return violated(format!("node {} sends under keys that nobody was told of", life.0));
        };
        let key = if header.flags.initiator { &keys.encr.0 } else { &keys.encr.1 };
        let iv = part.content[..keys.suite.sk.layout().iv].to_vec();
        let sealed = (key.expose().to_vec(), iv);
        match self.sealed.insert(sealed, digest(message)) {
            // A repetition is the same message, bit for bit.
            Some(before) if before != digest(message) => {
                let id = header.message_id;
                violated(format!("node {}: an IV twice under one IKE key, message {id}", life.0))
            }
            _ => Ok(()),
        }
    }
}

/// The encrypted payload of a message.
fn encrypted<'m>(message: &Message<'m>) -> Option<Encrypted<'m>> {
    let last = message.payloads().filter_map(Result::ok).last()?;
    match Body::parse(&last) {
        Ok(Body::Encrypted(encrypted)) => Some(encrypted),
        _ => None,
    }
}
