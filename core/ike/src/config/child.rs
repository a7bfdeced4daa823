//! Child SAs that a connection may have.

use super::{ChildProposal, Lifespan, child_proposals};
use crate::Down;
use crate::traffic::TrafficTemplate;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use casemate_sa::{DscpSet, OuterHeader};
use core::time::Duration;

/// After how long a Child SA is rekeyed where nothing is said.
const REKEY: Duration = Duration::from_secs(3_600);
/// Packets of the anti-replay window where nothing is said (RFC 4303 section 3.4.3: 32 at least).
const REPLAY_WINDOW: u32 = 32;

/// A Child SA that may be: which traffic, and how it is protected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Child {
    /// Its name, unique in its connection.
    pub name: String,
    /// Algorithms, the preferred ones first. Never empty.
    pub proposals: Vec<ChildProposal>,
    /// Traffic of our side. Never empty.
    pub local_ts: Vec<TrafficTemplate>,
    /// Traffic of the peer's side. Never empty.
    pub remote_ts: Vec<TrafficTemplate>,
    /// Tunnel or transport.
    pub mode: ChildMode,
    /// When it is rekeyed, and when it ends.
    pub lifespan: Lifespan,
    /// Bytes after which it is rekeyed.
    pub rekey_bytes: Option<u64>,
    /// Packets after which it is rekeyed.
    pub rekey_packets: Option<u64>,
    /// Bytes after which it passes nothing more.
    pub life_bytes: Option<u64>,
    /// Packets after which it passes nothing more.
    pub life_packets: Option<u64>,
    /// When it is set up.
    pub start: Start,
    /// What follows when the peer closes it.
    pub on_close: OnClose,
    /// What follows when the peer is dead.
    pub on_dead_peer: OnClose,
    /// Request identifier; chosen by the endpoint if there is none.
    pub reqid: Option<u32>,
    /// Anti-replay window in packets.
    pub replay_window: u32,
    /// Which of our packets are for this child rather than for others with the same traffic; empty is any.
    pub dscp: DscpSet,
    /// Pads each packet to a multiple of this many bytes; 0 is off.
    pub tfc_pad_to: u16,
    /// Outer header of a tunnel.
    pub outer: OuterHeader,
    /// Rank of its policies among all; the lowest is asked first. Made from the selectors if there is none.
    pub priority: Option<u32>,
    /// Whether it has policies of its own: `false` leaves them to others.
    pub policies: bool,
}

impl Child {
    /// In tunnel mode between the ends themselves, with the algorithms of RFC 8221 and the values that `swanctl.conf` gives to
    /// what it does not say; change the fields that should differ.
    ///
    /// It is rekeyed every hour.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            proposals: child_proposals(),
            local_ts: vec![TrafficTemplate::DYNAMIC],
            remote_ts: vec![TrafficTemplate::DYNAMIC],
            mode: ChildMode::Tunnel,
            lifespan: Lifespan::rekeyed_after(REKEY),
            rekey_bytes: None,
            rekey_packets: None,
            life_bytes: None,
            life_packets: None,
            start: Start::default(),
            on_close: OnClose::Clear,
            on_dead_peer: OnClose::Clear,
            reqid: None,
            replay_window: REPLAY_WINDOW,
            dscp: DscpSet::NONE,
            tfc_pad_to: 0,
            outer: OuterHeader::default(),
            priority: None,
            policies: true,
        }
    }

    /// Whether a Child SA of this configuration that ended for this reason is set up again. One that expired is, if any
    /// of the actions says that the Child SA exists without a packet that needs it.
    pub fn comes_back_after(&self, why: Down) -> bool {
        match why {
            Down::Dead => self.on_dead_peer == OnClose::Restart,
            Down::Peer => self.on_close == OnClose::Restart,
            Down::Reauth => true,
            Down::Expired => self.start.at_once || self.has_action(OnClose::Restart),
            Down::Local
            | Down::Replaced
            | Down::NotUnique
            | Down::Refused(_)
            | Down::Fault(_)
            | Down::Unconfigured => false,
        }
    }

    /// Whether the traffic of a Child SA of this configuration is held after it ended for this reason. `close_action`
    /// decides after the peer closed it, and `dpd_action` after the peer did not respond. Any other end that
    /// the administrator did not ask for needs one of the two. After a reload that changed the child, the new
    /// configuration decides.
    pub fn holds_after(&self, why: Down) -> bool {
        match why {
            Down::Dead => self.on_dead_peer == OnClose::Trap,
            Down::Peer => self.on_close == OnClose::Trap,
            Down::Local => false,
            Down::Replaced
            | Down::Expired
            | Down::NotUnique
            | Down::Refused(_)
            | Down::Fault(_)
            | Down::Reauth
            | Down::Unconfigured => self.has_action(OnClose::Trap),
        }
    }

    /// Whether this action follows the end of a Child SA because the peer closed it, or because the peer is dead.
    pub fn has_action(&self, action: OnClose) -> bool {
        self.on_close == action || self.on_dead_peer == action
    }
}

/// Traffic that passes or is dropped without IKE (RFC 4301 section 4.4.1: BYPASS and DISCARD).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shunt {
    /// Its name, unique in its connection.
    pub name: String,
    /// Whether the traffic passes; else it is dropped.
    pub passes: bool,
    /// Traffic of our side; `dynamic` is every address here.
    pub local_ts: Vec<TrafficTemplate>,
    /// Traffic of the other side.
    pub remote_ts: Vec<TrafficTemplate>,
    /// Rank of its policies; made from the selectors if there is none.
    pub priority: Option<u32>,
}

/// Tunnel or transport, as it is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChildMode {
    /// Tunnel.
    Tunnel,
    /// Transport; a peer that insists on a tunnel gets one (RFC 7296 section 1.3.1).
    Transport,
}

/// When a Child SA is set up. Both may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Start {
    /// As soon as there is the connection.
    pub at_once: bool,
    /// When a packet needs it.
    pub on_traffic: bool,
}

/// What follows the unwanted end of a Child SA.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnClose {
    /// Nothing.
    Clear,
    /// Its traffic is held, and a packet that needs it sets it up again.
    Trap,
    /// It is set up again at once.
    Restart,
}
