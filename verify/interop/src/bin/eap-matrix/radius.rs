//! RADIUS packets with EAP of both roles (RFC 2865, RFC 3579, RFC 2548). casemate-radius is a client only,
//! and a second implementation finds faults that are on both sides of one.

use casemate_crypto::PasswordAlgorithms as _;
use casemate_legacy::LEGACY;

pub(crate) const SECRET: &str = "a-secret-of-both-sides";

pub(crate) const ACCESS_REQUEST: u8 = 1;
pub(crate) const ACCESS_ACCEPT: u8 = 2;
pub(crate) const ACCESS_REJECT: u8 = 3;
pub(crate) const ACCESS_CHALLENGE: u8 = 11;

const USER_NAME: u8 = 1;
pub(crate) const STATE: u8 = 24;
const VENDOR_SPECIFIC: u8 = 26;
pub(crate) const EAP_MESSAGE: u8 = 79;
const MESSAGE_AUTHENTICATOR: u8 = 80;
const HEADER_LEN: usize = 20;
const SEND_KEY: u8 = 16;
const RECEIVE_KEY: u8 = 17;
const MICROSOFT: [u8; 4] = 311_u32.to_be_bytes();

/// A received packet.
pub(crate) struct Packet {
    pub(crate) code: u8,
    pub(crate) identifier: u8,
    pub(crate) authenticator: [u8; 16],
    pub(crate) attributes: Vec<(u8, Vec<u8>)>,
}

impl Packet {
    pub(crate) fn parse(datagram: &[u8]) -> Option<Self> {
        let header: &[u8; HEADER_LEN] = datagram.first_chunk()?;
        let mut rest = &datagram[HEADER_LEN..];
        let mut attributes = Vec::new();
        while let [kind, len, ..] = *rest {
            let attribute = rest.get(..usize::from(len)).filter(|attribute| attribute.len() >= 2)?;
            attributes.push((kind, attribute[2..].to_vec()));
            rest = &rest[attribute.len()..];
        }
        let authenticator = header[4..].try_into().ok()?;
        Some(Self { code: header[0], identifier: header[1], authenticator, attributes })
    }

    pub(crate) fn joined(&self, kind: u8) -> Vec<u8> {
        self.attributes
            .iter()
            .filter(|(found, _)| *found == kind)
            .flat_map(|(_, value)| value.clone())
            .collect()
    }

    /// The master session key in the response to the request with this authenticator.
    pub(crate) fn msk(&self, authenticator: &[u8; 16]) -> Option<Vec<u8>> {
        let key = |kind| {
            let found = self.attributes.iter().find_map(|(found, value)| {
                let value = value.strip_prefix(&MICROSOFT[..]).filter(|_| *found == VENDOR_SPECIFIC)?;
                (value[0] == kind).then(|| value[2..].to_vec())
            })?;
            let (salt, encrypted) = found.split_at(2);
            let mut plain = Vec::new();
            let mut mask = LEGACY.md5(&[SECRET.as_bytes(), authenticator, salt]);
            for block in encrypted.chunks(16) {
                plain.extend(block.iter().zip(mask).map(|(byte, mask)| byte ^ mask));
                mask = LEGACY.md5(&[SECRET.as_bytes(), block]);
            }
            let len = usize::from(plain[0]);
            Some(plain[1..=len].to_vec())
        };
        Some([key(RECEIVE_KEY)?, key(SEND_KEY)?].concat())
    }
}

fn hmac_md5(message: &[u8]) -> [u8; 16] {
    let mut key = [0; 64];
    key[..SECRET.len()].copy_from_slice(SECRET.as_bytes());
    let inner = LEGACY.md5(&[&key.map(|byte| byte ^ 0x36), message]);
    LEGACY.md5(&[&key.map(|byte| byte ^ 0x5C), &inner])
}

fn attribute(kind: u8, value: &[u8]) -> Vec<u8> {
    [&[kind, value.len() as u8 + 2], value].concat()
}

/// A packet with a Message-Authenticator, whose header has this authenticator.
fn packet(code: u8, identifier: u8, authenticator: &[u8; 16], attributes: &[u8]) -> Vec<u8> {
    let attributes = [&attribute(MESSAGE_AUTHENTICATOR, &[0; 16]), attributes].concat();
    let len = ((HEADER_LEN + attributes.len()) as u16).to_be_bytes();
    let mut bytes = [&[code, identifier][..], &len, authenticator, &attributes].concat();
    let mac = hmac_md5(&bytes);
    bytes[HEADER_LEN + 2..HEADER_LEN + 18].copy_from_slice(&mac);
    bytes
}

fn eap_attributes(eap: &[u8]) -> Vec<u8> {
    eap.chunks(253).flat_map(|chunk| attribute(EAP_MESSAGE, chunk)).collect()
}

/// An Access-Request.
pub(crate) fn request(
    identifier: u8,
    authenticator: &[u8; 16],
    user: &[u8],
    eap: &[u8],
    state: &[u8],
) -> Vec<u8> {
    let mut attributes = attribute(USER_NAME, user);
    if !state.is_empty() {
        attributes.extend(attribute(STATE, state));
    }
    attributes.extend(eap_attributes(eap));
    packet(ACCESS_REQUEST, identifier, authenticator, &attributes)
}

/// The response to a request, with the master session key if there is one.
pub(crate) fn response(code: u8, request: &Packet, eap: &[u8], state: &[u8], msk: Option<&[u8]>) -> Vec<u8> {
    let mut attributes = eap_attributes(eap);
    if code == ACCESS_CHALLENGE {
        attributes.extend(attribute(STATE, state));
    }
    if let Some((receive, send)) = msk.and_then(|msk| msk.split_at_checked(32)) {
        for (kind, salt, key) in [(RECEIVE_KEY, [0x80, 1], receive), (SEND_KEY, [0x80, 2], send)] {
            let mut plain = [&[key.len() as u8], key].concat();
            plain.resize(plain.len().next_multiple_of(16), 0);
            let mut mask = LEGACY.md5(&[SECRET.as_bytes(), &request.authenticator, &salt]);
            let mut encrypted = Vec::new();
            for block in plain.chunks(16) {
                let block: Vec<u8> = block.iter().zip(mask).map(|(byte, mask)| byte ^ mask).collect();
                mask = LEGACY.md5(&[SECRET.as_bytes(), &block]);
                encrypted.extend(block);
            }
            let inner = attribute(kind, &[&salt[..], &encrypted].concat());
            attributes.extend(attribute(VENDOR_SPECIFIC, &[&MICROSOFT[..], &inner].concat()));
        }
    }
    let mut bytes = packet(code, request.identifier, &request.authenticator, &attributes);
    let digest = LEGACY.md5(&[&bytes, SECRET.as_bytes()]);
    bytes[4..HEADER_LEN].copy_from_slice(&digest);
    bytes
}
