//! What a function of the library answers, and its text.

use casemate_crypto::KeyError;
use casemate_datapath::AddSaError;
use casemate_datapath::spd::InsertError;
use casemate_ike::NotBegun;
use core::ffi::CStr;

/// An answer: 0, or what went wrong. Nothing is half done then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum Code {
    /// Done.
    Ok = 0,
    /// A pointer that must not be null is null.
    Null = -1,
    /// A number has none of the values that it may have.
    Value = -2,
    /// An address is neither of IPv4 nor of IPv6, or two addresses are of different versions.
    Address = -3,
    /// The suite is unknown, or the library was built without one of its algorithms.
    Suite = -4,
    /// The key has the wrong length for its suite, or is weak.
    Key = -5,
    /// There is an SA with this SPI, protocol and destination already.
    Duplicate = -6,
    /// A table holds as many entries as it may.
    Full = -7,
    /// The memory that the caller gave does not suffice.
    Memory = -8,
    /// The SA's options contradict each other.
    Options = -9,
    /// There is none like that.
    Absent = -10,
    /// The packet cannot be cut, or not into pieces that short.
    Cut = -11,
    /// The memory was given already.
    Twice = -12,
    /// A name is empty or too long, or another connection or child has it.
    Name = -13,
    /// An identity is not one.
    Identity = -14,
    /// A traffic selector is not one.
    Traffic = -15,
    /// A certificate is malformed, too long, or not that of the private key.
    Certificate = -16,
    /// There is no way to the peer.
    Route = -17,
}

impl Code {
    /// Every answer.
    pub const ALL: [Self; 18] = [
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
    ];

    /// Its text.
    pub const fn text(self) -> &'static CStr {
        match self {
            Self::Ok => c"done",
            Self::Null => c"a pointer that must not be null is null",
            Self::Value => c"a field has none of the values that it may have",
            Self::Address => c"an address has no version, or two have different ones",
            Self::Suite => c"unknown suite; expected one such as aes128gcm16, aes128-sha256, or for IKE aes128-sha256-x25519",
            Self::Key => c"the key does not have its suite's length, or is weak",
            Self::Duplicate => c"an SA with this SPI, protocol and destination exists already",
            Self::Full => c"the table holds as many entries as it may",
            Self::Memory => c"the memory that was given does not suffice",
            Self::Options => c"options of the SA contradict each other",
            Self::Absent => c"there is none like that",
            Self::Cut => c"the packet cannot be cut into pieces that short",
            Self::Twice => c"the memory was given already",
            Self::Name => c"a name is empty or has more than 31 bytes, or is there already",
            Self::Identity => c"an identity is not one; expected one such as a.example.org or 192.0.2.1",
            Self::Traffic => c"a traffic selector is not one; expected one such as dynamic or 10.1.0.0/16[tcp/443]",
            Self::Certificate => c"a certificate is malformed, too long, or not that of the private key",
            Self::Route => c"there is no way to the peer",

        }
    }
}

impl From<AddSaError> for Code {
    fn from(error: AddSaError) -> Self {
        match error {
            AddSaError::Full | AddSaError::TooManyEncapPorts => Self::Full,
            AddSaError::Duplicate => Self::Duplicate,
            AddSaError::MixedVersions => Self::Address,
            AddSaError::EncapsulatedAh
            | AddSaError::WindowTooLarge { .. }
            | AddSaError::SequenceTooLarge
            | AddSaError::PaddedTransport => Self::Options,
            AddSaError::Key(KeyError::Unsupported) => Self::Suite,
            AddSaError::Key(_) => Self::Key,
        }
    }
}

impl From<NotBegun> for Code {
    fn from(error: NotBegun) -> Self {
        match error {
            NotBegun::NoRemoteAddress => Self::Address,
            NotBegun::NoRoute => Self::Route,
            NotBegun::Full => Self::Full,
            NotBegun::Provider => Self::Suite,
        }
    }
}

impl From<InsertError> for Code {
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
    fn every_answer_has_a_number_and_a_text_of_its_own() {
        let texts: HashSet<_> = Code::ALL.iter().map(|code| code.text()).collect();
        assert_eq!(texts.len(), Code::ALL.len());
        for (index, code) in Code::ALL.iter().enumerate() {
            assert_eq!(*code as i32, -(index as i32));
        }
    }
}
