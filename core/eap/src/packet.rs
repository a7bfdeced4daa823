//! Owned EAP packets (RFC 3748 section 4).

use crate::EapFault;
use alloc::vec::Vec;
use casemate_wire::ike::{Eap, EapCode};
use zeroize::{Zeroize as _, Zeroizing};

/// Data of a packet behind the EAP type. Wiped on drop, because a GTC response is a password.
pub(crate) type TypeData = Zeroizing<Vec<u8>>;

/// Returns the concatenation of `parts`.
pub(crate) fn type_data(parts: &[&[u8]]) -> TypeData {
    // `concat` allocates the whole length at once, so no part remains in memory that was given back.
    Zeroizing::new(parts.concat())
}

/// Length of the code, identifier and length of a packet, in bytes.
const HEADER_LEN: usize = 4;

/// An EAP packet to send. Wiped on drop, because a GTC response contains a password.
#[derive(Clone, PartialEq, Eq)]
pub struct EapPacket {
    code: EapCode,
    identifier: u8,
    data: Vec<u8>,
}

impl EapPacket {
    /// Returns a request of an EAP type.
    pub(crate) fn request(identifier: u8, kind: u8, data: &[u8]) -> Self {
        Self { code: EapCode::REQUEST, identifier, data: [&[kind], data].concat() }
    }

    /// Returns the response of an EAP type to the request with this identifier.
    pub(crate) fn response(identifier: u8, kind: u8, data: &[u8]) -> Self {
        Self { code: EapCode::RESPONSE, identifier, data: [&[kind], data].concat() }
    }

    /// Returns the packet that ends a successful conversation.
    pub(crate) const fn success(identifier: u8) -> Self {
        Self { code: EapCode::SUCCESS, identifier, data: Vec::new() }
    }

    /// Copies a packet that an AAA server has sent.
    pub fn from_payload(packet: &Eap<'_>) -> Self {
        Self { code: packet.code, identifier: packet.identifier, data: packet.data.into() }
    }

    /// Returns the packet that ends a failed conversation.
    pub const fn failure(identifier: u8) -> Self {
        Self { code: EapCode::FAILURE, identifier, data: Vec::new() }
    }

    /// The packet with its header, as it travels in a tunnel. Fails if it is longer than its length field
    /// allows.
    pub(crate) fn to_bytes(&self) -> Result<Zeroizing<Vec<u8>>, EapFault> {
        let len = self.data.len().saturating_add(HEADER_LEN);
        let len = u16::try_from(len).map_err(|_| EapFault::Malformed)?.to_be_bytes();
        Ok(type_data(&[&[self.code.0, self.identifier], &len, &self.data]))
    }

    /// The packet as a payload to write.
    pub fn as_payload(&self) -> Eap<'_> {
        Eap { code: self.code, identifier: self.identifier, data: &self.data }
    }
}

impl core::fmt::Debug for EapPacket {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "EapPacket({}, {}, {} bytes)", self.code, self.identifier, self.data.len())
    }
}

impl Drop for EapPacket {
    fn drop(&mut self) {
        self.data.zeroize();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    #[test]
    fn debug_output_has_no_data() {
        let packet = EapPacket::response(7, 6, b"tiger");
        assert_eq!(format!("{packet:?}"), "EapPacket(Response, 7, 6 bytes)");
    }
}
