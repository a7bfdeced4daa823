//! Messages and their attributes (RFC 4187 sections 8 to 10, RFC 9048 section 3).
//!
//! A message begins with its subtype and two reserved bytes. An attribute has a type, its length in units of
//! four bytes, and a value. A receiver that does not know an attribute skips it if its type is 128 or higher,
//! and fails otherwise.

use super::keys::{Keys, MAC_LEN};
use super::milenage::{Autn, Auts, BLOCK};
use super::{Flavour, IdRequest, Subtype, packet_bytes};
use crate::packet::{TypeData, type_data};
use crate::{EapContext, EapFault};
use alloc::vec::Vec;
use casemate_wire::ike::EapCode;

const RAND: u8 = 1;
const AUTN: u8 = 2;
const RES: u8 = 3;
const AUTS: u8 = 4;
const PERMANENT_ID_REQ: u8 = 10;
const MAC: u8 = 11;
const NOTIFICATION: u8 = 12;
const ANY_ID_REQ: u8 = 13;
const IDENTITY: u8 = 14;
const FULLAUTH_ID_REQ: u8 = 17;
const CLIENT_ERROR_CODE: u8 = 22;
const KDF_INPUT: u8 = 23;
const KDF: u8 = 24;
/// Attributes from here on may be skipped.
const SKIPPABLE: u8 = 128;
const CHECKCODE: u8 = 134;
const RESULT_IND: u8 = 135;
const BIDDING: u8 = 136;

/// Length of the subtype and the reserved bytes.
const MESSAGE_HEADER_LEN: usize = 3;
/// Length of type and length of an attribute.
const HEADER_LEN: usize = 2;
/// Unit of lengths, in bytes.
const UNIT: usize = 4;
/// Maximum number of AT_KDF in a message.
const MAX_KDFS: usize = 16;
/// Minimum and maximum length of RES in bytes (RFC 4187 section 10.8).
const RES_LENS: core::ops::RangeInclusive<usize> = 4..=16;
/// Bit D of AT_BIDDING: the sender prefers EAP-AKA'.
const PREFERS_AKA_PRIME: u16 = 0x8000;

/// Length of the code, identifier, length and EAP type in front of the type data.
const PACKET_HEADER_LEN: usize = 5;

/// The value of AT_MAC, and its place in the type data.
#[derive(Debug, Clone, Copy)]
struct ReceivedMac<'a> {
    value: &'a [u8; MAC_LEN],
    at: usize,
}

/// A received message. Attributes that only pseudonyms and re-authentication need are skipped.
#[derive(Debug, Clone, Default)]
pub(super) struct Message<'a> {
    pub(super) subtype: Subtype,
    pub(super) rand: Option<&'a [u8; BLOCK]>,
    pub(super) autn: Option<&'a Autn>,
    pub(super) res: Option<&'a [u8]>,
    pub(super) auts: Option<&'a Auts>,
    mac: Option<ReceivedMac<'a>>,
    pub(super) notification: Option<u16>,
    pub(super) identity: Option<&'a [u8]>,
    pub(super) id_request: Option<IdRequest>,
    pub(super) network: Option<&'a [u8]>,
    pub(super) kdfs: Vec<u16>,
    pub(super) checkcode: Option<&'a [u8]>,
    pub(super) has_result_ind: bool,
    pub(super) prefers_aka_prime: bool,
    is_client_error: bool,
}

impl<'a> Message<'a> {
    /// Parses the type data of a packet.
    pub(super) fn parse(data: &'a [u8]) -> Result<Self, EapFault> {
        let (&[subtype, _, _], mut rest) =
            data.split_first_chunk::<MESSAGE_HEADER_LEN>().ok_or(EapFault::Malformed)?;
        let mut message = Self { subtype: Subtype(subtype), ..Self::default() };
        while !rest.is_empty() {
            let &[kind, units, ..] = rest else { return Err(EapFault::Malformed) };
            let len = usize::from(units).saturating_mul(UNIT);
            // A length of zero would never end.
            let (attribute, later) = rest.split_at_checked(len).ok_or(EapFault::Malformed)?;
            let value = attribute.get(HEADER_LEN..).ok_or(EapFault::Malformed)?;
            let at = data.len().saturating_sub(rest.len()).saturating_add(HEADER_LEN);
            message.add(kind, value, at)?;
            rest = later;
        }
        Ok(message)
    }

    /// Adds an attribute whose value begins at the byte `at`. No attribute but AT_KDF may be repeated.
    fn add(&mut self, kind: u8, value: &'a [u8], at: usize) -> Result<(), EapFault> {
        match kind {
            RAND => once(&mut self.rand, behind_reserved(value)?),
            AUTN => once(&mut self.autn, behind_reserved(value)?),
            RES => once(&mut self.res, res(value)?),
            AUTS => once(&mut self.auts, value.try_into().map_err(|_| EapFault::Malformed)?),
            MAC => {
                let at = at.saturating_add(HEADER_LEN);
                once(&mut self.mac, ReceivedMac { value: behind_reserved(value)?, at })
            }
            NOTIFICATION => once(&mut self.notification, number(value)?),
            IDENTITY => once(&mut self.identity, with_length(value)?),
            PERMANENT_ID_REQ => self.request_id(IdRequest::Permanent, value),
            FULLAUTH_ID_REQ => self.request_id(IdRequest::FullAuth, value),
            ANY_ID_REQ => self.request_id(IdRequest::Any, value),
            KDF_INPUT => once(&mut self.network, with_length(value)?),
            KDF if self.kdfs.len() < MAX_KDFS => {
                self.kdfs.push(number(value)?);
                Ok(())
            }
            CLIENT_ERROR_CODE => {
                number(value)?;
                self.is_client_error = true;
                Ok(())
            }
            CHECKCODE => {
                let (_, value) = value.split_first_chunk::<2>().ok_or(EapFault::Malformed)?;
                once(&mut self.checkcode, value)
            }
            RESULT_IND => {
                number(value)?;
                self.has_result_ind = true;
                Ok(())
            }
            BIDDING => {
                self.prefers_aka_prime = number(value)? & PREFERS_AKA_PRIME != 0;
                Ok(())
            }
            SKIPPABLE.. => Ok(()),
            _ => Err(EapFault::Malformed),
        }
    }

    fn request_id(&mut self, request: IdRequest, value: &[u8]) -> Result<(), EapFault> {
        number(value)?;
        once(&mut self.id_request, request)
    }

    /// Verifies AT_MAC of the packet with this type data; `fault` is that of a wrong or missing one.
    pub(super) fn verify_mac(
        &self,
        packet: &Packet<'_>,
        keys: &Keys,
        fault: EapFault,
        context: &EapContext<'_>,
    ) -> Result<(), EapFault> {
        let mac = self.mac.ok_or(fault)?;
        let mut bytes = packet.to_bytes()?;
        let at = mac.at.saturating_add(PACKET_HEADER_LEN);
        let place = bytes.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<MAC_LEN>());
        *place.ok_or(EapFault::Malformed)? = [0; MAC_LEN];
        keys.verify_mac(&bytes, mac.value, fault, context)
    }
}

/// A packet of the conversation.
#[derive(Clone, Copy)]
pub(super) struct Packet<'a> {
    pub(super) code: EapCode,
    pub(super) identifier: u8,
    pub(super) flavour: Flavour,
    pub(super) data: &'a [u8],
}

impl Packet<'_> {
    pub(super) fn to_bytes(self) -> Result<Vec<u8>, EapFault> {
        packet_bytes(self.code, self.identifier, self.flavour, self.data)
    }
}

fn once<T>(place: &mut Option<T>, value: T) -> Result<(), EapFault> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(EapFault::Malformed),
    }
}

/// A value of two bytes.
fn number(value: &[u8]) -> Result<u16, EapFault> {
    value.try_into().map(u16::from_be_bytes).map_err(|_| EapFault::Malformed)
}

/// A value of 16 bytes behind two reserved ones.
fn behind_reserved(value: &[u8]) -> Result<&[u8; BLOCK], EapFault> {
    let (_, value) = value.split_first_chunk::<2>().ok_or(EapFault::Malformed)?;
    value.try_into().map_err(|_| EapFault::Malformed)
}

/// A value with its length in bytes in front, and less than four bytes of padding.
fn with_length(value: &[u8]) -> Result<&[u8], EapFault> {
    let (&len, value) = value.split_first_chunk::<2>().ok_or(EapFault::Malformed)?;
    padded(value, usize::from(u16::from_be_bytes(len)))
}

/// RES with its length in bits in front. Lengths that are no whole number of bytes are not supported, as no
/// known algorithm has them.
fn res(value: &[u8]) -> Result<&[u8], EapFault> {
    const BYTE_BITS: usize = 8;
    let (&bits, value) = value.split_first_chunk::<2>().ok_or(EapFault::Malformed)?;
    let bits = usize::from(u16::from_be_bytes(bits));
    let len = bits / BYTE_BITS;
    if bits % BYTE_BITS != 0 || !RES_LENS.contains(&len) {
        return Err(EapFault::Malformed);
    }
    padded(value, len)
}

fn padded(value: &[u8], len: usize) -> Result<&[u8], EapFault> {
    let (value, padding) = value.split_at_checked(len).ok_or(EapFault::Malformed)?;
    if padding.len() < UNIT { Ok(value) } else { Err(EapFault::Malformed) }
}

/// A message to send.
pub(super) struct Writer(Vec<u8>);

impl Writer {
    pub(super) fn new(subtype: Subtype) -> Self {
        Self(alloc::vec![subtype.0, 0, 0])
    }

    /// Adds an attribute, padded with zeros. Nothing that is sent here is longer than its length can say:
    /// identities have at most 253 bytes.
    fn add(mut self, kind: u8, parts: &[&[u8]]) -> Self {
        let len = parts.iter().fold(HEADER_LEN, |len, part| len.saturating_add(part.len()));
        let units = u8::try_from(len.div_ceil(UNIT)).unwrap_or(u8::MAX);
        let end = self.0.len().saturating_add(len.next_multiple_of(UNIT));
        self.0.extend_from_slice(&[kind, units]);
        parts.iter().for_each(|part| self.0.extend_from_slice(part));
        self.0.resize(end, 0);
        self
    }

    fn number(self, kind: u8, number: u16) -> Self {
        self.add(kind, &[&number.to_be_bytes()])
    }

    fn with_length(self, kind: u8, len: usize, value: &[u8]) -> Self {
        let len = u16::try_from(len).unwrap_or(u16::MAX).to_be_bytes();
        self.add(kind, &[&len, value])
    }

    pub(super) fn rand(self, rand: &[u8; BLOCK]) -> Self {
        self.add(RAND, &[&[0; 2], rand])
    }

    pub(super) fn autn(self, autn: &Autn) -> Self {
        self.add(AUTN, &[&[0; 2], autn])
    }

    pub(super) fn res(self, res: &[u8]) -> Self {
        self.with_length(RES, res.len().saturating_mul(8), res)
    }

    pub(super) fn auts(self, auts: &Auts) -> Self {
        self.add(AUTS, &[auts])
    }

    pub(super) fn identity(self, identity: &[u8]) -> Self {
        self.with_length(IDENTITY, identity.len(), identity)
    }

    pub(super) fn request_permanent_id(self) -> Self {
        self.number(PERMANENT_ID_REQ, 0)
    }

    pub(super) fn notification(self, code: u16) -> Self {
        self.number(NOTIFICATION, code)
    }

    pub(super) fn client_error(self, code: u16) -> Self {
        self.number(CLIENT_ERROR_CODE, code)
    }

    pub(super) fn kdf(self, function: u16) -> Self {
        self.number(KDF, function)
    }

    pub(super) fn kdfs(self, functions: &[u16]) -> Self {
        functions.iter().fold(self, |writer, function| writer.kdf(*function))
    }

    pub(super) fn network(self, name: &[u8]) -> Self {
        self.with_length(KDF_INPUT, name.len(), name)
    }

    pub(super) fn checkcode(self, value: &[u8]) -> Self {
        self.add(CHECKCODE, &[&[0; 2], value])
    }

    pub(super) fn result_ind(self) -> Self {
        self.number(RESULT_IND, 0)
    }

    pub(super) fn bidding(self) -> Self {
        self.number(BIDDING, PREFERS_AKA_PRIME)
    }

    /// Adds AT_MAC, which is the last attribute, over the packet.
    pub(super) fn mac(
        self,
        code: EapCode,
        identifier: u8,
        keys: &Keys,
        context: &EapContext<'_>,
    ) -> Result<TypeData, EapFault> {
        let zeros = self.add(MAC, &[&[0; 2], &[0; MAC_LEN]]);
        let mac = keys.mac(&packet_bytes(code, identifier, keys.flavour(), &zeros.0)?, context)?;
        let front = zeros.0.len().saturating_sub(MAC_LEN);
        Ok(type_data(&[zeros.0.get(..front).unwrap_or_default(), &mac]))
    }

    /// The type data of a message without AT_MAC.
    pub(super) fn finish(self) -> TypeData {
        type_data(&[&self.0])
    }
}

#[cfg(test)]
mod tests;
