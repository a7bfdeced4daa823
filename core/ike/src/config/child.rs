//! Configuration of Child SAs.

use super::{ChildProposal, Lifespan, child_proposals};
use crate::{DownReason, TrafficSelectorTemplate};
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use casemate_crypto::MacAlg;
use casemate_rohc::ProfileSet;
use casemate_sa::{DscpSet, OuterHeader, SpdRules};
use core::time::Duration;

/// Default time of rekeying.
const REKEY: Duration = Duration::from_secs(3_600);
/// Default size of the anti-replay window in packets (RFC 4303 section 3.4.3: at least 32).
const REPLAY_WINDOW: u32 = 32;

/// Configuration of a Child SA: its traffic and its protection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChildConfig {
    /// Name, unique in its connection.
    pub name: String,
    /// Proposals in order of preference. Never empty.
    pub proposals: Vec<ChildProposal>,
    /// Local traffic selectors. Never empty.
    pub local_ts: Vec<TrafficSelectorTemplate>,
    /// Remote traffic selectors. Never empty.
    pub remote_ts: Vec<TrafficSelectorTemplate>,
    /// Tunnel or transport mode.
    pub mode: ChildMode,
    /// Times of rekeying and expiry.
    pub lifespan: Lifespan,
    /// Number of bytes after which the Child SA is rekeyed.
    pub rekey_bytes: Option<u64>,
    /// Number of packets after which the Child SA is rekeyed.
    pub rekey_packets: Option<u64>,
    /// Number of bytes after which the Child SA carries no more traffic.
    pub life_bytes: Option<u64>,
    /// Number of packets after which the Child SA carries no more traffic.
    pub life_packets: Option<u64>,
    /// Time without a packet in either direction after which this host closes the Child SA; `None`: it stays.
    #[cfg(feature = "inactivity")]
    pub inactivity: Option<Duration>,
    /// When the Child SA is set up.
    pub start_action: StartAction,
    /// Action after the peer closes the Child SA.
    pub close_action: CloseAction,
    /// Action after the peer stops responding.
    pub dpd_action: CloseAction,
    /// Request identifier. The endpoint chooses one if it is `None`.
    pub reqid: Option<u32>,
    /// Anti-replay window in packets.
    pub replay_window: u32,
    /// DSCP values of the outbound packets that use this child, among children with the same traffic. Empty
    /// means any.
    pub dscp: DscpSet,
    /// Pads each packet to a multiple of this number of bytes; 0 disables padding.
    pub tfc_pad_to: u16,
    /// Fields of the outer header of a tunnel.
    pub outer: OuterHeader,
    /// Priority of its policies; the lowest value is matched first. Derived from the selectors if it is
    /// `None`.
    pub priority: Option<u32>,
    /// Whether policies are installed for it.
    pub policies: bool,
    /// Header compression to negotiate (RFC 5857); `None`: none. Tunnel mode with ESP only, and without
    /// `tfc_pad_to`. The data path must allow it.
    pub rohc: Option<RohcConfig>,
    /// How the SPDs of its policies are chosen.
    pub spds: SpdRules,
}

/// Header compression of a Child SA: what the decompressor of this host can do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RohcConfig {
    /// Largest context identifier: one less than the number of flows that are compressed at the same time.
    /// At most 16,383; above 15, compressed headers are longer. A context takes at most 1 KiB.
    pub max_cid: u16,
    /// Profiles.
    pub profiles: ProfileSet,
    /// Algorithms that verify restored packets, in order of preference; `None` is none. Never empty.
    pub integrity: Vec<Option<MacAlg>>,
    /// Bytes that their ICV is cut to in received packets; `None`: the length of the algorithm.
    pub icv_len: Option<u8>,
}

impl Default for RohcConfig {
    /// 16 contexts, all profiles, no ICV.
    fn default() -> Self {
        Self { max_cid: 15, profiles: ProfileSet::ALL, integrity: vec![None], icv_len: None }
    }
}

impl ChildConfig {
    /// Whether one of the proposals has these algorithms. The key exchange does not count.
    #[cfg(feature = "records")]
    pub(crate) fn allows(&self, suite: crate::ChildSuite) -> bool {
        self.proposals.iter().any(|proposal| proposal.allows(suite))
    }

    /// Returns a child in tunnel mode between the two hosts, with the algorithms of RFC 8221 and otherwise
    /// the defaults of `swanctl.conf`. Change the fields that should differ.
    ///
    /// The Child SA is rekeyed every hour.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            proposals: child_proposals(),
            local_ts: vec![TrafficSelectorTemplate::DYNAMIC],
            remote_ts: vec![TrafficSelectorTemplate::DYNAMIC],
            mode: ChildMode::Tunnel,
            lifespan: Lifespan::rekeyed_after(REKEY),
            rekey_bytes: None,
            rekey_packets: None,
            life_bytes: None,
            life_packets: None,
            #[cfg(feature = "inactivity")]
            inactivity: None,
            start_action: StartAction::default(),
            close_action: CloseAction::Clear,
            dpd_action: CloseAction::Clear,
            reqid: None,
            replay_window: REPLAY_WINDOW,
            dscp: DscpSet::NONE,
            tfc_pad_to: 0,
            outer: OuterHeader::default(),
            priority: None,
            policies: true,
            rohc: None,
            spds: SpdRules::MAIN,
        }
    }

    /// Whether a Child SA of this configuration is set up again after it ended for this reason. An expired
    /// one is, if one of the actions keeps the Child SA up without traffic.
    pub fn restarts_after(&self, reason: DownReason) -> bool {
        match reason {
            DownReason::DeadPeer | DownReason::Forgotten { is_reauthenticated: false, .. } => {
                self.dpd_action == CloseAction::Restart
            }
            DownReason::Reauth | DownReason::Forgotten { is_reauthenticated: true, .. } => true,
            DownReason::Peer => self.close_action == CloseAction::Restart,
            DownReason::Expired => self.is_kept_up(),
            DownReason::Local
            | DownReason::Inactive
            | DownReason::Replaced
            | DownReason::InitialContact
            | DownReason::NotUnique
            | DownReason::Refused(_)
            | DownReason::Fault(_)
            | DownReason::Unconfigured => false,
        }
    }

    /// Whether the traffic of a Child SA of this configuration is held after the Child SA ended for this
    /// reason. `close_action` decides after the peer closed it, and `dpd_action` after the peer stopped
    /// responding. After any other end that the administrator did not request, one of the two is enough.
    /// After a reload that changed the child, the new configuration decides.
    pub fn traps_after(&self, reason: DownReason) -> bool {
        match reason {
            DownReason::DeadPeer | DownReason::Forgotten { is_reauthenticated: false, .. } => {
                self.dpd_action == CloseAction::Trap
            }
            DownReason::Peer => self.close_action == CloseAction::Trap,
            DownReason::Local => false,
            DownReason::Replaced
            | DownReason::Expired
            | DownReason::Inactive
            | DownReason::InitialContact
            | DownReason::NotUnique
            | DownReason::Refused(_)
            | DownReason::Fault(_)
            | DownReason::Reauth
            | DownReason::Forgotten { .. }
            | DownReason::Unconfigured => self.has_action(CloseAction::Trap),
        }
    }

    /// Whether one of the actions sets the Child SA up without traffic.
    pub(crate) fn is_kept_up(&self) -> bool {
        self.start_action.at_once || self.has_action(CloseAction::Restart)
    }

    /// Whether `close_action` or `dpd_action` is this action.
    pub fn has_action(&self, action: CloseAction) -> bool {
        self.close_action == action || self.dpd_action == action
    }
}

/// Traffic that passes or is dropped without IKE (RFC 4301 section 4.4.1: BYPASS and DISCARD).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shunt {
    /// Name, unique in its connection.
    pub name: String,
    /// Whether the traffic passes. Otherwise it is dropped.
    pub passes: bool,
    /// Local traffic selectors. `dynamic` means every address of this host.
    pub local_ts: Vec<TrafficSelectorTemplate>,
    /// Remote traffic selectors.
    pub remote_ts: Vec<TrafficSelectorTemplate>,
    /// Priority of its policies. Derived from the selectors if it is `None`.
    pub priority: Option<u32>,
}

/// Mode to request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChildMode {
    /// Tunnel mode.
    Tunnel,
    /// Transport mode. A peer that insists on a tunnel gets one (RFC 7296 section 1.3.1).
    Transport,
}

/// When a Child SA is set up. Both may be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StartAction {
    /// When the connection is loaded.
    pub at_once: bool,
    /// When a packet needs it.
    pub on_traffic: bool,
}

/// Action after the unwanted end of a Child SA.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloseAction {
    /// No action.
    Clear,
    /// Holds the traffic. A packet sets the Child SA up again.
    Trap,
    /// Sets the Child SA up again at once.
    Restart,
}
