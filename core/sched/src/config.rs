//! What a scheduler is made with: shares, bounds, and how long packets may wait.

use crate::{Class, MIN_CHARGE, PerClass};
use core::fmt;
use core::time::Duration;

/// How much of the low-latency class goes before everything else. Everything counts for at least [`MIN_CHARGE`] bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cap {
    /// Bytes a second.
    pub rate: u64,
    /// Bytes at once, after a pause.
    pub burst: u32,
}

/// What a class gets, and what it may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// Its part of the engine, measured against the others' weights, while the others want theirs. The low-latency class gets
    /// this part beyond its cap.
    pub weight: u16,
    /// Bytes that may wait. Everything counts for at least [`MIN_CHARGE`] bytes, so that this bounds the number too; about 40
    /// bytes of memory for each that there can be.
    pub limit: u32,
    /// Queues over which its flows are spread, rounded up to a multiple of 8; about 140 bytes each. Flows that have to share a
    /// queue share its turns.
    pub flows: u16,
}

/// How long a queue may stand (RFC 8289 section 4.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// The wait that is tolerable for long.
    pub target: Duration,
    /// How long it may be more before something is dropped: some round trips of the traffic, so that senders can answer.
    pub interval: Duration,
}

/// What a scheduler is made with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// What goes first.
    pub cap: Cap,
    /// Of each class.
    pub shares: PerClass<Share>,
    /// When a queue is cut.
    pub patience: Patience,
    /// The longest item, in bytes. Longer ones are refused.
    pub max_len: u32,
}

impl Config {
    /// For a gateway on a server. Some 2 MB of memory for items of 8 bytes.
    ///
    /// The cap is 100 Mbit/s, which is a thousand calls of 50 packets a second. Target and interval are those that RFC 8289
    /// sections 4.3 and 4.4 recommend for the Internet.
    pub const SERVER: Self = Self {
        cap: Cap { rate: 12_500_000, burst: 128 << 10 },
        shares: PerClass {
            low_latency: Share { weight: 4, limit: 1 << 20, flows: 128 },
            real_time: Share { weight: 8, limit: 2 << 20, flows: 64 },
            assured: Share { weight: 8, limit: 4 << 20, flows: 64 },
            standard: Share { weight: 8, limit: 4 << 20, flows: 256 },
            least: Share { weight: 1, limit: 1 << 20, flows: 16 },
        },
        patience: Patience { target: Duration::from_millis(5), interval: Duration::from_millis(100) },
        // The longest IPv6 packet without a jumbo payload: 40 bytes and 65,535.
        max_len: 65_575,
    };

    /// Whether a scheduler can be made with it.
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.cap.rate == 0 || self.cap.burst == 0 {
            return Err(ConfigError::NoCap);
        }
        if self.patience.target.is_zero() || self.patience.interval <= self.patience.target {
            return Err(ConfigError::NoPatience);
        }
        Class::ALL.into_iter().try_for_each(|class| self.check_share(class))
    }

    fn check_share(&self, class: Class) -> Result<(), ConfigError> {
        let Share { weight, limit, flows } = *self.shares.get(class);
        if weight == 0 {
            return Err(ConfigError::NoWeight(class));
        }
        if flows == 0 {
            return Err(ConfigError::NoFlows(class));
        }
        let least = self.max_len.max(MIN_CHARGE);
        if limit < least { Err(ConfigError::SmallLimit { class, limit, least }) } else { Ok(()) }
    }
}

/// Why a scheduler cannot be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConfigError {
    /// The cap lets nothing through.
    NoCap,
    /// The target is zero, or not below the interval.
    NoPatience,
    /// A class without weight would never be served.
    NoWeight(Class),
    /// A class without a queue.
    NoFlows(Class),
    /// A class that could not hold the longest item.
    SmallLimit {
        /// Which.
        class: Class,
        /// What it may hold, in bytes.
        limit: u32,
        /// What it must be able to hold.
        least: u32,
    },
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCap => f.write_str("cap of the class low-latency: rate and burst above 0 were expected"),
            Self::NoPatience => {
                f.write_str("patience: a target above 0 and an interval above the target were expected")
            }
            Self::NoWeight(class) => write!(f, "class {class}: a weight above 0 was expected"),
            Self::NoFlows(class) => write!(f, "class {class}: one queue for flows at least was expected"),
            Self::SmallLimit { class, limit, least } => {
                write!(f, "class {class}: a limit of {limit} bytes, where {least} or more were expected")
            }
        }
    }
}

impl core::error::Error for ConfigError {}
