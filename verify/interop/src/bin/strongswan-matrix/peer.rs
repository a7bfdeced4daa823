//! The two sides of a case, the interface of the test program to their implementations, and the state of SAs
//! that an implementation reports.
//!
//! ```text
//!     left namespace               router namespace                         right namespace
//!     10.9.1.2  fd09:1::2 wire  ---  to-left      to-right (captured)  ---  wire  10.9.2.2  fd09:2::2
//!     10.99.1.1 fd99:1::1 lo         10.9.1.1     10.9.2.1           lo    10.99.2.1 fd99:2::1
//!     10.97.1.1           lo         fd09:1::1    fd09:2::1          lo    10.97.2.1
//! ```

use crate::plan::SidePlan;
use casemate_interop::{Error, Result};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// SA to set up, rekey or delete, by its name in the configuration.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Target<'a> {
    /// IKE SA, by the name of its connection.
    Ike(&'a str),
    /// Child SA.
    Child(&'a str),
}

/// Established IKE SA.
#[derive(Debug, Clone)]
pub(crate) struct IkeSa {
    pub(crate) name: String,
    /// Eight bytes as lower-case hexadecimal digits.
    pub(crate) spi_i: String,
    pub(crate) spi_r: String,
    /// Address and port of the peer.
    pub(crate) remote: SocketAddr,
    /// Virtual addresses that the peer assigned.
    pub(crate) vips: Vec<IpAddr>,
    /// Child SAs that carry traffic. SAs that are about to be deleted are not included.
    pub(crate) children: Vec<ChildSa>,
}

/// Child SA.
#[derive(Debug, Clone)]
pub(crate) struct ChildSa {
    pub(crate) name: String,
    /// Eight lower-case hexadecimal digits.
    pub(crate) spi_in: String,
    pub(crate) spi_out: String,
    pub(crate) local_ts: Vec<String>,
    pub(crate) remote_ts: Vec<String>,
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
}

/// Implementation of IKE and ESP on one side.
pub(crate) trait Peer {
    /// Starts the implementation.
    fn start(&mut self, plan: &SidePlan) -> Result<()>;

    /// Loads another configuration. Existing SAs stay unchanged.
    fn reload(&mut self, plan: &SidePlan) -> Result<()>;

    /// Sets up an SA and waits until it is established.
    fn initiate(&mut self, target: Target<'_>) -> Result<()>;

    /// Deletes an SA.
    fn terminate(&mut self, target: Target<'_>) -> Result<()>;

    /// Starts to replace an SA by a new one, without waiting for the result.
    fn rekey(&mut self, target: Target<'_>) -> Result<()>;

    /// Redirects the peers of a connection to another gateway.
    fn redirect(&mut self, connection: &str, _gateway: &str) -> Result<()> {
        Err(Error::new(format!("{connection}: this peer has no command that redirects")))
    }

    /// Returns the established IKE SAs.
    fn status(&self) -> Result<Vec<IkeSa>>;

    /// Returns the DNS servers that the peer announced.
    fn dns(&self) -> Result<Vec<IpAddr>>;

    /// Returns the time after the last message at which a peer counts as dead, for a `dpd_delay` of one
    /// second.
    fn dpd_timeout(&self) -> Duration;

    /// Returns the number of half-open IKE SAs from which the implementation asks for cookies (RFC 7296
    /// section 2.6).
    fn cookie_threshold(&self) -> usize;

    /// Returns a directory with Wireshark's `ikev2_decryption_table` and `esp_sa` of the keys so far.
    fn keys(&self) -> Result<PathBuf>;

    /// Returns the log.
    fn log(&self) -> String;

    /// Shuts the implementation down.
    fn stop(&mut self) -> Result<()>;
}

/// IP version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    V4,
    V6,
}

/// One of the two sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// The program under test.
    Left,
    /// strongSwan.
    Right,
}

impl Side {
    /// Both sides, the program under test first.
    pub(crate) const BOTH: [Self; 2] = [Self::Left, Self::Right];

    /// Returns the opposite side.
    pub(crate) fn other(self) -> Self {
        match self {
            Self::Left => Self::Right,
            Self::Right => Self::Left,
        }
    }

    /// Returns the name of the side in paths and messages.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Left => "left",
            Self::Right => "right",
        }
    }

    /// Returns the IKE identity of the side, which is also the subjectAltName of its certificates.
    pub(crate) fn id(self) -> &'static str {
        match self {
            Self::Left => "left.test",
            Self::Right => "right.test",
        }
    }

    fn number(self) -> u8 {
        match self {
            Self::Left => 1,
            Self::Right => 2,
        }
    }

    /// Returns the address of the side on the wire.
    pub(crate) fn wire(self, family: Family) -> String {
        self.link(family, 2)
    }

    /// Returns another IPv4 address of the side on the wire, to which it may move.
    pub(crate) fn moved(self) -> String {
        self.link(Family::V4, 77)
    }

    /// Returns the address of the router towards the side.
    pub(crate) fn router(self, family: Family) -> String {
        self.link(family, 1)
    }

    fn link(self, family: Family, host: u8) -> String {
        let net = self.number();
        match family {
            Family::V4 => format!("10.9.{net}.{host}"),
            Family::V6 => format!("fd09:{net}::{host}"),
        }
    }

    /// Returns the address of the side behind the tunnel.
    pub(crate) fn behind(self, family: Family) -> String {
        let net = self.number();
        match family {
            Family::V4 => format!("10.99.{net}.1"),
            Family::V6 => format!("fd99:{net}::1"),
        }
    }

    /// Returns the address of the side in the second network behind it.
    pub(crate) fn second(self) -> String {
        format!("10.97.{}.1", self.number())
    }

    /// Returns the network of `behind`.
    pub(crate) fn network(self, family: Family) -> String {
        let net = self.number();
        match family {
            Family::V4 => format!("10.99.{net}.0/24"),
            Family::V6 => format!("fd99:{net}::/64"),
        }
    }

    /// Returns the network of `second`.
    pub(crate) fn second_network(self) -> String {
        format!("10.97.{}.0/24", self.number())
    }
}
