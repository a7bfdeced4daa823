//! Child SAs: offered, chosen, keyed, and kept (RFC 7296 sections 1.3, 2.9 and 2.17).
//!
//! `request` is the initiator's side of a negotiation, `respond` the responder's, `keys` makes the two SAs of what was
//! agreed. The same code serves IKE_AUTH and CREATE_CHILD_SA.

mod keys;
mod request;
mod respond;
mod substitute;

use crate::config::Child;
use crate::negotiate::ChildSuite;
use crate::{ChildId, ChildStatus, Traffic};
use alloc::sync::Arc;
use alloc::vec::Vec;
use casemate_sa::{Instant, Mode, Spi};
use core::net::IpAddr;

pub(crate) use keys::{KeySource, Place, install};
pub(crate) use request::{ChildRequest, Wish, protocol_id};
pub(crate) use respond::{Grant, Refusal, respond};
pub(crate) use substitute::Substitution;

/// A Child SA of an IKE SA.
#[derive(Debug)]
pub(crate) struct ChildSa {
    pub(crate) id: ChildId,
    pub(crate) config: Arc<Child>,
    pub(crate) agreed: Agreed,
    pub(crate) stage: Stage,
    /// Whether the outbound SA is in use.
    pub(crate) active: bool,
    pub(crate) replaces: Option<ChildId>,
    pub(crate) rekey_at: Option<Instant>,
    pub(crate) expires_at: Option<Instant>,
    pub(crate) since: Instant,
    /// Rekeyings in a row that failed.
    pub(crate) failures: u8,
    /// Child SAs of its configuration in a row that ended soon, before this one was set up.
    pub(crate) attempts: u8,
}

/// What a Child SA is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// It carries traffic.
    Live,
    /// Another one has taken its place, and the peer is to close it.
    Replaced,
    /// We are closing it.
    Closing,
}

/// What both sides agreed on.
#[derive(Debug, Clone)]
pub(crate) struct Agreed {
    pub(crate) suite: ChildSuite,
    pub(crate) mode: Mode,
    /// Of packets that come in.
    pub(crate) spi_in: Spi,
    /// Of packets that go out.
    pub(crate) spi_out: Spi,
    pub(crate) local: Vec<Traffic>,
    pub(crate) remote: Vec<Traffic>,
    /// Transport mode through a NAT: source and destination of what comes in, as the peer sees them.
    pub(crate) original: Option<(IpAddr, IpAddr)>,
}

/// The ends that `dynamic` selectors mean.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ends {
    pub(crate) local: Vec<IpAddr>,
    pub(crate) remote: Vec<IpAddr>,
}

impl Ends {
    /// Our side's traffic and the peer's, as configured, with the ends filled in.
    pub(crate) fn fill(&self, child: &Child) -> (Vec<Traffic>, Vec<Traffic>) {
        let local = child.local_ts.iter().flat_map(|ts| ts.fill(&self.local)).collect();
        (local, child.remote_ts.iter().flat_map(|ts| ts.fill(&self.remote)).collect())
    }
}

impl ChildSa {
    pub(crate) fn status(&self) -> ChildStatus {
        let Agreed { suite, mode, spi_in, spi_out, local, remote, original: _ } = self.agreed.clone();
        ChildStatus {
            id: self.id,
            child: self.config.clone(),
            protocol: suite.protocol(),
            spi_in,
            spi_out,
            suite,
            mode,
            local,
            remote,
            rekey_at: self.rekey_at,
            state: match (self.stage, self.active) {
                (Stage::Live, true) => "installed",
                (Stage::Live, false) => "awaiting",
                (Stage::Replaced, _) => "rekeyed",
                (Stage::Closing, _) => "closing",
            },
        }
    }

    /// Another one has taken its place. If the peer does not close it by `until`, we do.
    pub(crate) fn be_replaced(&mut self, until: Instant) {
        self.stage = Stage::Replaced;
        self.expires_at = Some(self.expires_at.map_or(until, |at| at.min(until)));
    }

    /// When something is due.
    pub(crate) fn due(&self) -> Option<Instant> {
        let rekey = self.rekey_at.filter(|_| self.stage == Stage::Live);
        rekey.into_iter().chain(self.expires_at).min()
    }
}
