//! What the harness asks of an implementation, and what an implementation says of its SAs.

use crate::plan::SidePlan;
use casemate_interop::Result;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// What to rekey or delete, by the name in the configuration.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Target<'a> {
    /// An IKE SA, by its connection.
    Ike(&'a str),
    /// A Child SA.
    Child(&'a str),
}

/// An IKE SA that is established.
#[derive(Debug, Clone)]
pub(crate) struct IkeSa {
    pub(crate) name: String,
    /// In hexadecimal digits, lower case.
    pub(crate) spi_i: String,
    pub(crate) spi_r: String,
    /// Where the peer is.
    pub(crate) remote: SocketAddr,
    /// Virtual addresses that the peer gave us.
    pub(crate) vips: Vec<IpAddr>,
    /// Only those that carry traffic: SAs about to be deleted are left out.
    pub(crate) children: Vec<ChildSa>,
}

/// A Child SA.
#[derive(Debug, Clone)]
pub(crate) struct ChildSa {
    pub(crate) name: String,
    /// In hexadecimal digits, lower case, eight of them.
    pub(crate) spi_in: String,
    pub(crate) spi_out: String,
    pub(crate) local_ts: Vec<String>,
    pub(crate) remote_ts: Vec<String>,
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
}

/// An implementation of IKE and ESP, on one side.
pub(crate) trait Peer {
    /// Starts serving.
    fn start(&mut self, plan: &SidePlan) -> Result<()>;

    /// Takes another configuration; SAs stay as they are.
    fn reload(&mut self, plan: &SidePlan) -> Result<()>;

    /// Sets up an SA and waits until it stands.
    fn initiate(&mut self, target: Target<'_>) -> Result<()>;

    /// Deletes an SA.
    fn terminate(&mut self, target: Target<'_>) -> Result<()>;

    /// Begins to replace an SA by a new one, and does not wait for it.
    fn rekey(&mut self, target: Target<'_>) -> Result<()>;

    /// The IKE SAs that are established.
    fn status(&self) -> Result<Vec<IkeSa>>;

    /// The DNS servers that the peer gave us.
    fn dns(&self) -> Result<Vec<IpAddr>>;

    /// How long after its last sign of life a peer is taken for dead, at `dpd_delay` of one second.
    fn patience(&self) -> Duration;

    /// With how many half-open IKE SAs it asks for cookies (RFC 7296 section 2.6).
    fn cookie_threshold(&self) -> usize;

    /// A directory with Wireshark's `ikev2_decryption_table` and `esp_sa`, written by now.
    fn keys(&self) -> Result<PathBuf>;

    /// What it logged.
    fn log(&self) -> String;

    /// Ends in good order.
    fn stop(&mut self) -> Result<()>;
}
