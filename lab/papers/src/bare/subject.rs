//! What is measured.

use casemate_crypto::{AeadAlg, AesBits, CipherAlg, EspSuite, MacAlg, MacKind};
use casemate_datapath::Direction;
use casemate_sa::Mode;

/// Payloads of the paper's packets, in bytes.
pub(super) fn sizes() -> impl Iterator<Item = usize> {
    (1..=16).map(|n| n * 64)
}

/// The paper's cipher and MAC.
pub(super) const CIPHER: CipherAlg = CipherAlg::AesCbc(AesBits::B128);
/// HMAC-SHA1-96.
pub(super) const MAC: MacAlg = MacAlg::standard(MacKind::HmacSha1);

/// Which algorithms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Suite {
    /// The paper's.
    Paper,
    /// AES-128-GCM.
    Today,
}

impl Suite {
    pub(super) const fn algorithms(self) -> EspSuite {
        match self {
            Self::Paper => EspSuite::Separate(CIPHER, MAC),
            Self::Today => EspSuite::Combined(AeadAlg::AesGcm { bits: AesBits::B128, icv: 16 }),
        }
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Paper => "AES-CBC, HMAC-SHA1",
            Self::Today => "AES-GCM",
        }
    }
}

/// What is timed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    /// Everything that the data path does.
    Esp(Suite, Mode),
    /// The MAC over what it covers, of the paper's suite in tunnel mode.
    Mac,
    /// The cipher over what it covers, likewise.
    Cipher,
}

/// A cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Subject {
    pub(super) operation: Operation,
    pub(super) direction: Direction,
    /// Payload of the packet, in bytes.
    pub(super) size: usize,
}

impl Subject {
    pub(super) fn name(self) -> String {
        format!("{}, {}, {} bytes", self.operation.name(), way(self.direction), self.size)
    }
}

impl Operation {
    pub(super) fn name(self) -> String {
        match self {
            Self::Esp(suite, mode) => format!("ESP {mode}, {}", suite.name()),
            Self::Mac => "HMAC-SHA1 alone".into(),
            Self::Cipher => "AES-CBC alone".into(),
        }
    }
}

pub(super) const fn way(direction: Direction) -> &'static str {
    match direction {
        Direction::Inbound => "inbound",
        Direction::Outbound => "outbound",
    }
}

/// All operations.
pub(super) const OPERATIONS: [Operation; 6] = [
    Operation::Esp(Suite::Paper, Mode::Tunnel),
    Operation::Esp(Suite::Paper, Mode::Transport),
    Operation::Mac,
    Operation::Cipher,
    Operation::Esp(Suite::Today, Mode::Tunnel),
    Operation::Esp(Suite::Today, Mode::Transport),
];

/// Both directions, as the paper's figures have them.
pub(super) const DIRECTIONS: [Direction; 2] = [Direction::Inbound, Direction::Outbound];

/// Every operation, in both directions, of every size.
pub(super) fn all() -> Vec<Subject> {
    let pairs =
        DIRECTIONS.into_iter().flat_map(|direction| OPERATIONS.map(|operation| (direction, operation)));
    pairs
        .flat_map(|(direction, operation)| sizes().map(move |size| Subject { operation, direction, size }))
        .collect()
}
