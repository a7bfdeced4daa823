//! Status codes of the library and their texts.

use casemate_crypto::KeyError;
use casemate_datapath::AddSaError;
use casemate_datapath::spd::InsertError;
use casemate_ike::InitiateError;
use core::ffi::CStr;

/// Status of a call: 0, or an error. After an error nothing has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum Status {
    /// Success.
    Ok = 0,
    /// A pointer that must not be null is null.
    Null = -1,
    /// A field has an invalid value.
    Value = -2,
    /// An address has an invalid version, or two addresses have different versions.
    Address = -3,
    /// The suite is unknown, or the library was built without one of its algorithms.
    Suite = -4,
    /// The key has the wrong length for its suite, or is weak.
    Key = -5,
    /// An SA with this SPI, protocol and destination exists already.
    Duplicate = -6,
    /// A table is full.
    Full = -7,
    /// The library's memory is not sufficient.
    Memory = -8,
    /// The options of the SA are contradictory.
    Options = -9,
    /// The object does not exist.
    Absent = -10,
    /// The packet cannot be fragmented to this length.
    Cut = -11,
    /// The memory was provided already.
    Twice = -12,
    /// A name is empty or too long, or exists already.
    Name = -13,
    /// An identity is invalid.
    Identity = -14,
    /// A traffic selector is invalid.
    Traffic = -15,
    /// A certificate is invalid, too long, or does not match the private key.
    Certificate = -16,
    /// There is no route to the peer.
    Route = -17,
    /// The post-quantum pre-shared key is not valid, or the library was built without them.
    Ppk = -18,
}

impl Status {
    /// All status codes.
    pub const ALL: [Self; 19] = [
        Self::Ok,
        Self::Null,
        Self::Value,
        Self::Address,
        Self::Suite,
        Self::Key,
        Self::Duplicate,
        Self::Full,
        Self::Memory,
        Self::Options,
        Self::Absent,
        Self::Cut,
        Self::Twice,
        Self::Name,
        Self::Identity,
        Self::Traffic,
        Self::Certificate,
        Self::Route,
        Self::Ppk,
    ];

    /// Returns the text of the status.
    pub const fn text(self) -> &'static CStr {
        match self {
            Self::Ok => c"done",
            Self::Null => c"a pointer that must not be null is null",
            Self::Value => c"a field has an invalid value",
            Self::Address => c"an address has no version, or two addresses have different versions",
            Self::Suite => {
                c"unknown suite; expected e.g. aes128gcm16, aes128-sha256, or for IKE aes128-sha256-x25519"
            }
            Self::Key => c"the key does not have the length of its suite, or is weak",
            Self::Duplicate => c"an SA with this SPI, protocol and destination exists already",
            Self::Full => c"the table is full: it has as many entries as configured",
            Self::Memory => c"the library's memory is not sufficient",
            Self::Options => c"the options of the SA contradict each other",
            Self::Absent => c"the object does not exist",
            Self::Cut => c"the packet cannot be fragmented to this length",
            Self::Twice => c"the memory was provided already",
            Self::Name => c"the name is empty, longer than 31 bytes, or exists already",
            Self::Identity => c"invalid identity; expected one such as a.example.org or 192.0.2.1",
            Self::Traffic => c"invalid traffic selector; expected e.g. dynamic or 10.1.0.0/16[tcp/443]",
            Self::Certificate => c"the certificate is invalid, too long, or does not match the private key",
            Self::Route => c"there is no route to the peer",
            Self::Ppk => {
                c"the PPK has no ID or no key, is ambiguous, or the library has no PPKs (feature `ppk`)"
            }
        }
    }
}

impl From<AddSaError> for Status {
    fn from(error: AddSaError) -> Self {
        match error {
            AddSaError::Full | AddSaError::TooManyEncapPorts => Self::Full,
            AddSaError::Duplicate => Self::Duplicate,
            AddSaError::MixedVersions => Self::Address,
            AddSaError::EncapsulatedAh
            | AddSaError::WindowTooLarge { .. }
            | AddSaError::SequenceTooLarge
            | AddSaError::PaddedTransport
            | AddSaError::CompressedTransport
            | AddSaError::CompressedPadding
            | AddSaError::NoRohc => Self::Options,
            AddSaError::Key(KeyError::Unsupported) => Self::Suite,
            AddSaError::Key(_) => Self::Key,
        }
    }
}

impl From<InitiateError> for Status {
    fn from(error: InitiateError) -> Self {
        match error {
            InitiateError::NoRemoteAddress | InitiateError::OnlyPeer => Self::Address,
            // The C interface has no host names.
            InitiateError::Pending | InitiateError::UnknownHost => Self::Address,
            InitiateError::NoRoute => Self::Route,
            InitiateError::Full => Self::Full,
            InitiateError::NoPpk => Self::Ppk,
            InitiateError::Provider => Self::Suite,
        }
    }
}

impl From<InsertError> for Status {
    fn from(error: InsertError) -> Self {
        match error {
            InsertError::TableFull { .. } => Self::Full,
            InsertError::MixedVersions { .. } => Self::Address,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_status_has_its_own_number_and_text() {
        let texts: HashSet<_> = Status::ALL.iter().map(|code| code.text()).collect();
        assert_eq!(texts.len(), Status::ALL.len());
        for (index, code) in Status::ALL.iter().enumerate() {
            assert_eq!(*code as i32, -(index as i32));
        }
    }
}
