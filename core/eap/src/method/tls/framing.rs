//! Fragments of TLS messages (RFC 5216 section 3.1, RFC 5281 section 9.1).
//!
//! A message is what one side sends before it waits for the other: one or more TLS records. The type data of
//! an EAP packet has one byte of flags, the length of the whole message if the flag L is set, and a fragment.
//! The other bits are ignored: they are reserved, or the version of EAP-TTLS, which is 0.

use crate::EapFault;
use crate::packet::{TypeData, type_data};
use alloc::vec::Vec;
use zeroize::{Zeroize as _, Zeroizing};

/// The length of the message is included.
const LENGTH: u8 = 0x80;
/// More fragments follow.
const MORE: u8 = 0x40;
/// The authenticator begins.
const START: u8 = 0x20;

/// Maximum number of bytes in a fragment that we send. The IKE message around it stays below an MTU of 1,280.
const MAX_FRAGMENT: usize = 1000;

/// Maximum length of a message that we accept, in bytes, unless the caller has a lower limit.
pub(crate) const MAX_MESSAGE: usize = 1 << 16;

/// The first request of the authenticator.
pub(super) fn start_packet() -> TypeData {
    type_data(&[&[START]])
}

/// A packet that confirms a fragment or ends the handshake.
pub(super) fn acknowledgement() -> TypeData {
    type_data(&[&[0]])
}

/// A received packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fragment<'a> {
    flags: u8,
    /// Length of the whole message, if the packet includes it.
    total: Option<usize>,
    data: &'a [u8],
}

impl<'a> Fragment<'a> {
    /// Parses the type data of a packet.
    pub(super) fn parse(data: &'a [u8]) -> Result<Self, EapFault> {
        let (&flags, rest) = data.split_first().ok_or(EapFault::Malformed)?;
        if flags & LENGTH == 0 {
            return Ok(Self { flags, total: None, data: rest });
        }
        let (&length, data) = rest.split_first_chunk().ok_or(EapFault::Malformed)?;
        let total = usize::try_from(u32::from_be_bytes(length)).map_err(|_| EapFault::Malformed)?;
        Ok(Self { flags, total: Some(total), data })
    }

    /// Whether the packet begins the conversation. It has no fragment: data in it is ignored (RFC 5281
    /// section 9.2.2).
    pub(super) const fn is_start(&self) -> bool {
        self.flags & START != 0
    }

    pub(super) const fn is_acknowledgement(&self) -> bool {
        self.flags & (LENGTH | MORE | START) == 0 && self.data.is_empty()
    }

    const fn has_more(&self) -> bool {
        self.flags & MORE != 0
    }
}

/// Fragments of a message that is not yet complete.
pub(super) struct Reassembly {
    /// Maximum length of a message in bytes.
    max: usize,
    received: Zeroizing<Vec<u8>>,
    /// Announced length of the message; `None` before the first fragment.
    total: Option<usize>,
}

impl Reassembly {
    pub(super) fn new(max: usize) -> Self {
        Self { max, received: Zeroizing::default(), total: None }
    }

    /// Bytes of the fragments that have arrived.
    pub(super) fn held_bytes(&self) -> usize {
        self.received.len()
    }

    /// Whether a message has begun and is not complete.
    pub(super) const fn is_pending(&self) -> bool {
        self.total.is_some()
    }

    /// Adds a fragment. Returns the message if it is complete.
    pub(super) fn add(&mut self, fragment: &Fragment<'_>) -> Result<Option<Zeroizing<Vec<u8>>>, EapFault> {
        if fragment.is_start() || fragment.data.is_empty() {
            return Err(EapFault::Malformed);
        }
        let total = match (self.total, fragment.total) {
            // RFC 5216 section 2.1.5: the first of several fragments has the length.
            (None, None) if fragment.has_more() => return Err(EapFault::Malformed),
            (None, None) => fragment.data.len(),
            (None, Some(total)) | (Some(total), None) => total,
            (Some(total), Some(again)) if total == again => total,
            (Some(_), Some(_)) => return Err(EapFault::Malformed),
        };
        let received = self.received.len().saturating_add(fragment.data.len());
        if total > self.max {
            return Err(EapFault::TooLong);
        }
        let fits = if fragment.has_more() { received < total } else { received == total };
        if !fits {
            return Err(EapFault::Malformed);
        }
        append(&mut self.received, fragment.data);
        if fragment.has_more() {
            self.total = Some(total);
            return Ok(None);
        }
        self.total = None;
        Ok(Some(core::mem::take(&mut self.received)))
    }
}

/// Appends to a list, and wipes the memory that it leaves when it grows.
fn append(list: &mut Zeroizing<Vec<u8>>, bytes: &[u8]) {
    let mut longer = Vec::with_capacity(list.len().saturating_add(bytes.len()));
    longer.extend_from_slice(list);
    longer.extend_from_slice(bytes);
    list.zeroize();
    **list = longer;
}

/// A message to send.
#[derive(Default)]
pub(super) struct Outgoing {
    message: Vec<u8>,
    sent: usize,
}

impl Outgoing {
    pub(super) const fn new(message: Vec<u8>) -> Self {
        Self { message, sent: 0 }
    }

    /// Bytes of the message, which is kept until the next one.
    pub(super) const fn held_bytes(&self) -> usize {
        self.message.len()
    }

    /// Whether a fragment is left.
    pub(super) const fn is_pending(&self) -> bool {
        self.sent < self.message.len()
    }

    /// Returns the next fragment. The first one of several has the length of the message.
    pub(super) fn next(&mut self) -> TypeData {
        let rest = self.message.get(self.sent..).unwrap_or_default();
        let (fragment, later) = rest.split_at_checked(MAX_FRAGMENT).unwrap_or((rest, &[]));
        let is_first = self.sent == 0;
        self.sent = self.sent.saturating_add(fragment.len());
        match (is_first, later.is_empty()) {
            (true, false) => {
                let total = u32::try_from(self.message.len()).unwrap_or(u32::MAX);
                type_data(&[&[LENGTH | MORE], &total.to_be_bytes(), fragment])
            }
            (false, false) => type_data(&[&[MORE], fragment]),
            (_, true) => type_data(&[&[0], fragment]),
        }
    }
}

#[cfg(test)]
mod tests;
