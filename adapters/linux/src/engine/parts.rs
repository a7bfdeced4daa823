//! What an engine is made from, and who looks after it.

use super::{DummyTraffic, Home, Scheduling};
use crate::clock::Clock;
use crate::counters::Ledger;
use crate::rng::SystemRng;
use crate::setup::Live;
use crate::signal::Signals;
use crate::tun::Tun;
use casemate::{Endpoint, Notice};
use casemate_crypto::Provider;
use casemate_datapath::SaId;
use casemate_ike::Credentials;
use casemate_sa::{Limits, SaParams};
use std::num::NonZeroUsize;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// Whoever looks after a running engine.
pub trait Attendant {
    /// Readable when the attendant wants to be called.
    fn wake(&self) -> BorrowedFd<'_>;
    /// Called then. Packets wait meanwhile.
    fn attend(&mut self, home: &mut Home);
    /// SIGHUP has come; `false` if that is to end the program.
    fn reload(&mut self, home: &mut Home) -> bool;
    /// The system follows what was done in the calls before: routes and filter stand. Called at least once a second.
    fn settled(&mut self);
    /// Something that the endpoint reports.
    fn notice(&mut self, endpoint: &Endpoint, notice: &Notice);
    /// Something that went wrong with the system, in words.
    fn trouble(&mut self, what: String);
    /// A packet or an IKE message that the system did not send, in words. A stranger can cause this for every packet.
    fn sending_failed(&mut self, what: String);
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
