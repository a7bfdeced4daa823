//! Operations whose cost is measured.

use casemate_crypto::{AeadAlg, AesBits, CipherAlg, EspSuite, MacAlg, MacKind};
use casemate_datapath::Direction;
use casemate_sa::Mode;

/// Payload lengths of the paper's packets, in bytes.
pub(super) fn sizes() -> impl Iterator<Item = usize> {
    (1..=16).map(|n| n * 64)
}

/// Cipher of the paper.
pub(super) const CIPHER: CipherAlg = CipherAlg::AesCbc(AesBits::B128);
/// MAC of the paper, HMAC-SHA1-96.
pub(super) const MAC: MacAlg = MacAlg::standard(MacKind::HmacSha1);

/// Algorithms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Suite {
    /// AES-128-CBC with HMAC-SHA1-96, the paper's suite.
    Paper,
    /// AES-128-GCM.
    Modern,
}

impl Suite {
    pub(super) const fn algorithms(self) -> EspSuite {
        match self {
            Self::Paper => EspSuite::Separate(CIPHER, MAC),
            Self::Modern => EspSuite::Combined(AeadAlg::AesGcm { bits: AesBits::B128, icv: 16 }),
        }
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Paper => "AES-CBC, HMAC-SHA1",
            Self::Modern => "AES-GCM",
        }
    }
}

/// Timed operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    /// ESP in the data path.
    Esp(Suite, Mode),
    /// MAC over the data that it covers in the paper's suite in tunnel mode.
    Mac,
    /// Cipher over the data that it covers in the paper's suite in tunnel mode.
    Cipher,
}

/// An operation with direction and packet length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Benchmark {
    pub(super) operation: Operation,
    pub(super) direction: Direction,
    /// Payload of the packet in bytes.
    pub(super) size: usize,
}

impl Benchmark {
    pub(super) fn name(self) -> String {
        format!("{}, {}, {} bytes", self.operation.name(), direction_name(self.direction), self.size)
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

pub(super) const fn direction_name(direction: Direction) -> &'static str {
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
    Operation::Esp(Suite::Modern, Mode::Tunnel),
    Operation::Esp(Suite::Modern, Mode::Transport),
];

/// Both directions, in the order of the paper's figures.
pub(super) const DIRECTIONS: [Direction; 2] = [Direction::Inbound, Direction::Outbound];

/// Every operation with both directions and all packet lengths.
pub(super) fn all() -> Vec<Benchmark> {
    let pairs =
        DIRECTIONS.into_iter().flat_map(|direction| OPERATIONS.map(|operation| (direction, operation)));
    pairs
        .flat_map(|(direction, operation)| sizes().map(move |size| Benchmark { operation, direction, size }))
        .collect()
}
