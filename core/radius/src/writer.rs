//! Packets to send.

use crate::RadiusFault;
use crate::attribute::MESSAGE_AUTHENTICATOR;
use crate::packet::{Code, HEADER_LEN, MAX_PACKET};
use crate::proof::{digest, hmac};
use alloc::vec::Vec;
use casemate_crypto::{PasswordAlgorithms, SecretBytes};

/// Maximum length of the value of an attribute.
const MAX_VALUE: usize = 253;
/// Where the value of the Message-Authenticator is, which is the first attribute.
const MESSAGE_AUTHENTICATOR_AT: usize = HEADER_LEN + 2;

/// A packet that is being written. The first attribute is a Message-Authenticator, so that no attribute in
/// front of it can be chosen to forge a response (CVE-2024-3596).
pub(crate) struct Writer {
    bytes: Vec<u8>,
    is_too_long: bool,
}

impl Writer {
    pub(crate) fn new(code: Code, identifier: u8) -> Self {
        let mut bytes = [&[code.0, identifier], &[0; HEADER_LEN - 2][..]].concat();
        bytes.extend([MESSAGE_AUTHENTICATOR, 18]);
        bytes.extend([0; 16]);
        Self { bytes, is_too_long: false }
    }

    /// Adds an attribute. A value that is too long makes the packet invalid.
    pub(crate) fn attribute(&mut self, kind: u8, value: &[u8]) {
        let Some(len) = u8::try_from(value.len().saturating_add(2)).ok().filter(|_| value.len() <= MAX_VALUE)
        else {
            self.is_too_long = true;
            return;
        };
        self.bytes.extend([kind, len]);
        self.bytes.extend(value);
    }

    pub(crate) fn number(&mut self, kind: u8, value: u32) {
        self.attribute(kind, &value.to_be_bytes());
    }

    /// Adds a value as several attributes (RFC 3579 section 3.1).
    pub(crate) fn split(&mut self, kind: u8, value: &[u8]) {
        value.chunks(MAX_VALUE).for_each(|chunk| self.attribute(kind, chunk));
    }

    /// Completes an Access-Request with a random authenticator.
    pub(crate) fn finish_access(
        self,
        authenticator: [u8; 16],
        md5: &dyn PasswordAlgorithms,
        secret: &SecretBytes,
    ) -> Result<Vec<u8>, RadiusFault> {
        let mut bytes = self.with_length()?;
        set(&mut bytes, 4, &authenticator);
        authenticate(&mut bytes, md5, secret);
        Ok(bytes)
    }

    /// Completes a packet whose authenticator is a digest of it: an Accounting-Request with an
    /// `authenticator` of zeros, or a response with that of the request.
    pub(crate) fn finish_digest(
        self,
        authenticator: &[u8; 16],
        md5: &dyn PasswordAlgorithms,
        secret: &SecretBytes,
    ) -> Result<Vec<u8>, RadiusFault> {
        let mut bytes = self.with_length()?;
        set(&mut bytes, 4, authenticator);
        authenticate(&mut bytes, md5, secret);
        let digest = digest(md5, &bytes, authenticator, secret);
        set(&mut bytes, 4, &digest);
        Ok(bytes)
    }

    fn with_length(self) -> Result<Vec<u8>, RadiusFault> {
        let Self { mut bytes, is_too_long } = self;
        let len = u16::try_from(bytes.len()).ok().filter(|_| !is_too_long && bytes.len() <= MAX_PACKET);
        set(&mut bytes, 2, &len.ok_or(RadiusFault::TooLong)?.to_be_bytes());
        Ok(bytes)
    }
}

/// Sets the Message-Authenticator, which is zero.
fn authenticate(bytes: &mut [u8], md5: &dyn PasswordAlgorithms, secret: &SecretBytes) {
    let mac = hmac(md5, secret, [bytes, &[], &[], &[], &[]]);
    set(bytes, MESSAGE_AUTHENTICATOR_AT, &mac);
}

fn set(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes.iter_mut().skip(at).zip(value).for_each(|(to, from)| *to = *from);
}
