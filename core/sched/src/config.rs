//! Scheduler configuration: shares, limits and CoDel parameters.

use crate::{Class, MIN_CHARGE, PerClass};
use core::fmt;
use core::time::Duration;

/// Rate limit of the low-latency class, up to which it is served first. Each item counts for at least
/// [`MIN_CHARGE`] bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cap {
    /// Bytes per second.
    pub rate: u64,
    /// Bytes that may pass at once after an idle time.
    pub burst: u32,
}

/// Bandwidth share and queue limits of one class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// Bandwidth share relative to the weights of the other classes, while they have packets. The low-latency
    /// class gets this share in addition to its rate limit.
    pub weight: u16,
    /// Maximum number of queued bytes. Each item counts for at least [`MIN_CHARGE`] bytes, so this also
    /// limits the number of items. Costs about 40 bytes of memory for each possible item.
    pub limit: u32,
    /// Number of queues for the flows of the class, rounded up to a multiple of 8; about 140 bytes of memory
    /// each. Flows that share a queue share its bandwidth.
    pub flows: u16,
}

/// CoDel parameters: how long a queue may stand (RFC 8289 section 4.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CodelParams {
    /// Acceptable standing queue delay.
    pub target: Duration,
    /// Time for which the delay may exceed the target before packets are dropped: some round-trip times of
    /// the traffic, so that senders can react.
    pub interval: Duration,
}

/// Configuration of a scheduler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// Rate limit of the low-latency class.
    pub cap: Cap,
    /// Shares of the classes.
    pub shares: PerClass<Share>,
    /// CoDel parameters.
    pub codel: CodelParams,
    /// Maximum length of an item, in bytes. Longer items are rejected.
    pub max_len: u32,
}

impl Config {
    /// Configuration for a gateway on a server; takes about 2 MB of memory for items of 8 bytes.
    ///
    /// The rate limit is 100 Mbit/s, enough for a thousand calls of 50 packets per second. Target and
    /// interval are those that RFC 8289 sections 4.3 and 4.4 recommend for the Internet.
    pub const SERVER: Self = Self {
        cap: Cap { rate: 12_500_000, burst: 128 << 10 },
        shares: PerClass {
            low_latency: Share { weight: 4, limit: 1 << 20, flows: 128 },
            real_time: Share { weight: 8, limit: 2 << 20, flows: 64 },
            assured: Share { weight: 8, limit: 4 << 20, flows: 64 },
            standard: Share { weight: 8, limit: 4 << 20, flows: 256 },
            least: Share { weight: 1, limit: 1 << 20, flows: 16 },
        },
        codel: CodelParams { target: Duration::from_millis(5), interval: Duration::from_millis(100) },
        // The longest IPv6 packet that is no jumbogram: 40 bytes and 65,535.
        max_len: 65_575,
    };

    /// Checks the configuration.
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.cap.rate == 0 || self.cap.burst == 0 {
            return Err(ConfigError::NoCap);
        }
        if self.codel.target.is_zero() || self.codel.interval <= self.codel.target {
            return Err(ConfigError::InvalidCodel);
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
        let min = self.max_len.max(MIN_CHARGE);
        if limit < min { Err(ConfigError::SmallLimit { class, limit, min }) } else { Ok(()) }
    }
}

/// Why a configuration is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConfigError {
    /// The rate or burst of the low-latency class is zero.
    NoCap,
    /// The CoDel target is zero, or not below the interval.
    InvalidCodel,
    /// The weight of the class is zero: it would never be served.
    NoWeight(Class),
    /// The class has no queue.
    NoFlows(Class),
    /// The limit of the class is below the length of the longest item.
    SmallLimit {
        /// The class.
        class: Class,
        /// Configured limit, in bytes.
        limit: u32,
        /// Minimum limit, in bytes.
        min: u32,
    },
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCap => f.write_str("class low-latency: the rate and burst of its cap must be above 0"),
            Self::InvalidCodel => {
                f.write_str("CoDel: the target must be above 0, and the interval above the target")
            }
            Self::NoWeight(class) => write!(f, "class {class}: the weight must be above 0"),
            Self::NoFlows(class) => write!(f, "class {class}: at least one queue for flows is required"),
            Self::SmallLimit { class, limit, min } => {
                write!(f, "class {class}: the limit of {limit} bytes is too low, at least {min} are required")
            }
        }
    }
}

impl core::error::Error for ConfigError {}
