//! Child SAs: negotiation, keys and state (RFC 7296 sections 1.3, 2.9 and 2.17).
//!
//! `initiate` is the initiator's side of a negotiation, `respond` the responder's, and `install` derives the
//! keys of the two SAs. The same code serves IKE_AUTH and CREATE_CHILD_SA.

use crate::config::ChildConfig;
use crate::context::Step;
use crate::negotiate::ChildSuite;
use crate::transport::Content;
use crate::{ChildId, ChildState, ChildStatus, DownReason, IkeSaId, TrafficSelector};
#[cfg(feature = "records")]
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use casemate_sa::{AddrPair, Instant, Mode, Protocol, Spi};
use casemate_wire::ike::{NotifyType, ProtocolId};
use core::net::IpAddr;

mod initiate;
mod install;
mod respond;
mod rohc;

pub(crate) use initiate::{AcceptedChild, ChildNegotiation, ChildRequest, from_wire};
#[cfg(feature = "records")]
pub(crate) use install::{ChildKeymat, ChildKeys, SequenceNumbers, install_with};
pub(crate) use install::{ChildOwner, KeymatSource, NewChild, install};
pub(crate) use respond::{ChildPolicy, ChildRejected, ChildResponse, respond};
pub use rohc::AgreedRohc;

/// A Child SA of an IKE SA.
#[derive(Debug)]
pub(crate) struct ChildSa {
    pub(crate) id: ChildId,
    pub(crate) config: Arc<ChildConfig>,
    pub(crate) agreed: AgreedChild,
    pub(crate) stage: Stage,
    /// Whether the Child SA has ended for this host, and the data path has dropped it. Only the Delete
    /// exchange is left, which the peer may delay.
    pub(crate) is_stopped: bool,
    /// Whether the outbound SA is in use.
    pub(crate) active: bool,
    pub(crate) replaces: Option<ChildId>,
    pub(crate) rekey_at: Option<Instant>,
    pub(crate) expires_at: Option<Instant>,
    pub(crate) installed_at: Instant,
    /// Number of consecutive failed rekeyings.
    pub(crate) rekey_failures: u8,
    /// Number of consecutive Child SAs of its configuration that ended soon, before this one was set up.
    pub(crate) attempts: u8,
    /// The keys, if the host makes records.
    #[cfg(feature = "records")]
    pub(crate) keymat: Option<Box<ChildKeymat>>,
    /// The peer's sequence numbers, if the SA was restored. A box, because most SAs are not.
    #[cfg(feature = "records")]
    pub(crate) restored_numbers: Option<Box<PeerNumbers>>,
}

/// What is known of the peer's sequence numbers.
#[cfg(feature = "records")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PeerNumbers {
    /// A number that the peer has used or skipped, the highest that is known without the data path; 0 for a
    /// new SA, `None` if nothing is known.
    pub(crate) reached: Option<u64>,
    /// The inbound SA has accepted higher numbers only, since this process has it.
    pub(crate) start: u64,
}

#[cfg(feature = "records")]
impl PeerNumbers {
    /// Those of a new SA.
    pub(crate) const NEW: Self = Self { reached: Some(0), start: 0 };

    /// Whether the peer certainly has the SA, because it has used it. The response in which this host has
    /// made an SA may be lost with its owner, and a later one repeats it.
    pub(crate) fn are_in_use(self) -> bool {
        self.reached.is_some_and(|reached| reached > 0)
    }

    /// How many numbers the peer has to leave out at most until the inbound SA accepts its packets; `None`
    /// if nothing is known.
    pub(crate) fn behind(self) -> Option<u64> {
        self.reached.map(|reached| self.start.saturating_sub(reached))
    }
}

/// Stage of a Child SA.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The Child SA carries traffic.
    Installed,
    /// Another Child SA has replaced this one. The peer is to close it.
    Replaced,
    /// This host is closing it.
    Closing,
}

/// Whether a message allows traffic-flow padding: it lacks the notification that refuses it (RFC 7296 section
/// 1.3.1).
fn takes_tfc_padding(content: &Content<'_>) -> bool {
    !content.has_notify(NotifyType::ESP_TFC_PADDING_NOT_SUPPORTED)
}

/// Result of a negotiation.
#[derive(Debug, Clone)]
pub(crate) struct AgreedChild {
    pub(crate) suite: ChildSuite,
    pub(crate) mode: Mode,
    /// SPI of inbound packets.
    pub(crate) spi_in: Spi,
    /// SPI of outbound packets.
    pub(crate) spi_out: Spi,
    pub(crate) local: Vec<TrafficSelector>,
    pub(crate) remote: Vec<TrafficSelector>,
    /// In transport mode through a NAT: addresses of inbound packets, as the peer sees them.
    pub(crate) original: Option<AddrPair>,
    /// Header compression.
    pub(crate) rohc: Option<AgreedRohc>,
    /// Whether the peer accepts traffic-flow padding (RFC 7296 section 1.3.1).
    pub(crate) takes_tfc_padding: bool,
}

impl AgreedChild {
    /// Protocol and SPI of the inbound SA, as payloads of this host name it.
    pub(crate) const fn inbound_spi(&self) -> ChildSpi {
        ChildSpi::new(self.suite.protocol(), self.spi_in)
    }

    /// Protocol and SPI of the outbound SA, as payloads of the peer name it.
    pub(crate) const fn outbound_spi(&self) -> ChildSpi {
        ChildSpi::new(self.suite.protocol(), self.spi_out)
    }
}

/// Protocol and SPI with which a payload names an SA of a Child SA.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ChildSpi {
    pub(crate) protocol: ProtocolId,
    pub(crate) spi: [u8; 4],
}

impl ChildSpi {
    pub(crate) const fn new(protocol: Protocol, spi: Spi) -> Self {
        let protocol = match protocol {
            Protocol::Esp => ProtocolId::ESP,
            Protocol::Ah => ProtocolId::AH,
        };
        Self { protocol, spi: spi.get().to_be_bytes() }
    }

    /// Reads the fields of a payload; `None` if the SPI does not have 4 bytes.
    pub(crate) fn from_payload(protocol: ProtocolId, spi: &[u8]) -> Option<Self> {
        Some(Self { protocol, spi: spi.try_into().ok()? })
    }
}

/// Traffic selectors of both sides.
pub(crate) struct SelectorLists {
    pub(crate) local: Vec<TrafficSelector>,
    pub(crate) remote: Vec<TrafficSelector>,
}

/// Addresses of `dynamic` selectors.
#[derive(Debug, Clone, Default)]
pub(crate) struct DynamicAddrs {
    pub(crate) local: Vec<IpAddr>,
    /// Virtual addresses of the peer, or else the address at which it has proved that it receives. Anyone
    /// could claim the traffic of other addresses.
    pub(crate) remote: Vec<IpAddr>,
    /// Address of the path, if it is not the one in `remote`. Packets of transport mode would go there, so no
    /// traffic is acceptable then.
    pub(crate) unproved: Option<IpAddr>,
}

impl DynamicAddrs {
    /// Local and remote traffic selectors of the configuration, with the dynamic addresses filled in.
    pub(crate) fn traffic_selectors(&self, child: &ChildConfig, is_transport: bool) -> SelectorLists {
        let is_elsewhere = is_transport && self.unproved.is_some();
        let remote_ts = if is_elsewhere { &[][..] } else { &child.remote_ts };
        SelectorLists {
            local: child.local_ts.iter().flat_map(|ts| ts.fill(&self.local)).collect(),
            remote: remote_ts.iter().flat_map(|ts| ts.fill(&self.remote)).collect(),
        }
    }
}

impl ChildSa {
    /// What is known of the peer's sequence numbers.
    #[cfg(feature = "records")]
    pub(crate) fn peer_numbers(&self) -> PeerNumbers {
        self.restored_numbers.as_deref().copied().unwrap_or(PeerNumbers::NEW)
    }

    /// Whether the Child SA carries traffic and is not being replaced.
    pub(crate) fn is_installed(&self) -> bool {
        self.stage == Stage::Installed && !self.is_stopped
    }

    /// Whether the Child SA has addresses of `dynamic` selectors, or is in transport mode between addresses,
    /// that one of the hosts does not have any more.
    #[cfg(feature = "mobike")]
    pub(crate) fn is_outdated(&self, addrs: &DynamicAddrs) -> bool {
        let allowed = addrs.traffic_selectors(&self.config, false);
        let is_within = |agreed: &[TrafficSelector], allowed: &[TrafficSelector]| {
            agreed.iter().all(|agreed| allowed.iter().any(|allowed| allowed.contains(agreed)))
        };
        self.agreed.mode == Mode::Transport
            || !is_within(&self.agreed.local, &allowed.local)
            || !is_within(&self.agreed.remote, &allowed.remote)
    }

    /// Ends the Child SA for this host, once. `origin` is that of its IKE SA.
    pub(crate) fn stop(&mut self, reason: DownReason, origin: IkeSaId, step: &mut Step<'_, '_>) {
        if !core::mem::replace(&mut self.is_stopped, true) {
            step.child_down(self.id, reason, origin);
        }
    }

    pub(crate) fn status(&self) -> ChildStatus {
        let AgreedChild {
            suite,
            mode,
            spi_in,
            spi_out,
            local,
            remote,
            rohc,
            original: _,
            takes_tfc_padding: _,
        } = self.agreed.clone();
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
            rohc,
            rekey_at: self.rekey_at,
            expires_at: self.expires_at,
            state: match (self.stage, self.active) {
                (Stage::Installed, true) => ChildState::Installed,
                (Stage::Installed, false) => ChildState::Awaiting,
                (Stage::Replaced, _) => ChildState::Rekeyed,
                (Stage::Closing, _) => ChildState::Closing,
            },
        }
    }

    /// Marks the Child SA as replaced. If the peer does not close it by `until`, this host does.
    pub(crate) fn mark_replaced(&mut self, until: Instant) {
        self.stage = Stage::Replaced;
        self.expires_at = Some(self.expires_at.map_or(until, |at| at.min(until)));
    }

    /// Time of the next timeout.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        let rekey = self.rekey_at.filter(|_| self.stage == Stage::Installed);
        rekey.into_iter().chain(self.expires_at).min()
    }
}
