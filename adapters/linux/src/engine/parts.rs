//! What an engine is made from, and who looks after it.

use super::{DummyTraffic, HomeLock, Scheduling};
use crate::Error;
use crate::clock::Clock;
use crate::counters::Ledger;
use crate::rng::SystemRng;
use crate::setup::Live;
use crate::signal::Signals;
use crate::tun::Tun;
use casemate::{Endpoint, Notice};
use casemate_crypto::Provider;
use casemate_datapath::{SaId, SaStatus};
use casemate_ike::Credentials;
use casemate_sa::{Limits, SaParams};
use std::fmt;
use std::num::NonZeroUsize;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// Whoever looks after a running engine. The endpoint is not locked during any of these calls.
pub trait Attendant {
    /// Readable when the attendant wants to be called.
    fn wake(&self) -> BorrowedFd<'_>;
    /// Called then. An error ends the run.
    fn attend(&mut self, home: &HomeLock<'_>) -> Result<(), Error>;
    /// SIGHUP has come: the configuration is to be read again.
    fn reload(&mut self);
    /// The system follows what was done in the calls before: routes and filter stand. Called at least once a second.
    fn settled(&mut self);
    /// Something that the endpoint reports, in the order in which it happened; and the SA that it is about, if it is one of the
    /// data path's.
    fn notice(&mut self, notice: &Notice, sa: Option<&SaStatus>);
    /// The operating system refused something; `what` says it in words. Packets from the network can cause
    /// any number of these calls.
    fn trouble(&mut self, kind: Trouble, what: String);
}

/// What the operating system refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trouble {
    /// To send a packet or an IKE message.
    Sending,
    /// To take packets for a destination as fast as they come.
    Link,
    /// To write the counter file.
    Counters,
    /// To change routes, addresses or the packet filter as policies and peers ask.
    Policies,
    /// To leave the guard as it was: another program has changed or removed it.
    Guard,
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sending => "sending failed",
            Self::Link => "full links",
            Self::Counters => "counters not written",
            Self::Policies => "policies not followed",
            Self::Guard => "guard changed",
        })
    }
}

/// What an engine is made from.
pub struct Parts {
    /// Data path and IKE, with their SAs, policies and connections.
    pub endpoint: Endpoint,
    /// Its clock.
    pub clock: Clock,
    /// Its randomness.
    pub rng: SystemRng,
    /// Its algorithms.
    pub providers: Vec<&'static dyn Provider>,
    /// Its keys and certificates.
    pub credentials: Arc<dyn Credentials + Send + Sync>,
    /// Whether it speaks IKE.
    pub speaks_ike: bool,
    /// Sizes of what is allocated here.
    pub limits: Limits,
    /// The TUN interface.
    pub tun: Tun,
    /// How packets are put in order before they are protected; without it they keep theirs.
    pub scheduling: Option<Scheduling>,
    /// What was changed in the system.
    pub live: Live,
    /// What our own packets carry.
    pub mark: u32,
    /// The SAs with manual keys, as they were added.
    pub sas: Vec<(SaId, SaParams)>,
    /// Dummy packets, if any are wanted.
    pub dummies: Option<DummyTraffic>,
    /// Counters that survive a restart, if there are any.
    pub ledger: Option<Ledger>,
    /// What ends the loop.
    pub signals: Signals,
    /// How many threads move packets at most. All but one sleep unless there is a backlog.
    pub threads: NonZeroUsize,
}
