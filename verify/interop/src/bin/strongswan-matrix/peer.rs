//! Interface of the test program to an implementation, and the state of SAs that an implementation reports.

use crate::plan::SidePlan;
use casemate_interop::Result;
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
