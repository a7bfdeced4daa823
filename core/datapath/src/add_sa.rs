//! Adding, moving and removing SAs, and the reasons for which an SA is not added; the sequence numbers of SAs
//! whose keys outlive the process.

use crate::sa::{SaIn, SaOut};
use crate::sad::SadError;
use crate::{Datapath, Direction, SaId};
use casemate_crypto::{KeyError, Providers};
use casemate_sa::{Instant, Mode, Protocol, SaParams, UdpEncap};
use core::fmt;
use core::net::IpAddr;

/// Addresses of an SA, and the ports of its UDP encapsulation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SaPath {
    /// Source address.
    pub src: IpAddr,
    /// Destination address.
    pub dst: IpAddr,
    /// Ports of UDP encapsulation; `None` without it.
    pub encap: Option<UdpEncap>,
}

/// Why an SA was not added. The data path is unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddSaError {
    /// The SAD has reached its limit.
    Full,
    /// An SA with this SPI, protocol and destination exists.
    Duplicate,
    /// Source and destination have different IP versions.
    MixedVersions,
    /// UDP encapsulation exists for ESP only (RFC 3948 section 1).
    EncapsulatedAh,
    /// The SAs use more different UDP ports than the data path supports.
    TooManyEncapPorts,
    /// The anti-replay window is larger than the limit.
    WindowTooLarge {
        /// The limit, in packets.
        limit: u32,
    },
    /// The initial sequence number exceeds 32 bits, and the SA has no extended sequence numbers.
    SequenceTooLarge,
    /// Traffic-flow padding exists in tunnel mode only (RFC 4303 section 2.7).
    PaddedTransport,
    /// Header compression exists for ESP in tunnel mode only (RFC 5856 section 1).
    CompressedTransport,
    /// Header compression and traffic-flow padding exclude each other.
    CompressedPadding,
    /// Header compression is not enabled: [`Datapath::enable_rohc`].
    NoRohc,
    /// No provider could set up the key.
    Key(KeyError),
}

impl From<KeyError> for AddSaError {
    fn from(error: KeyError) -> Self {
        Self::Key(error)
    }
}

impl From<SadError> for AddSaError {
    fn from(error: SadError) -> Self {
        match error {
            SadError::Full => Self::Full,
            SadError::Duplicate => Self::Duplicate,
        }
    }
}

impl fmt::Display for AddSaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => f.write_str("the SAD is full"),
            Self::Duplicate => f.write_str("an SA with this SPI, protocol and destination exists already"),
            Self::MixedVersions => f.write_str("source and destination are of different IP versions"),
            Self::EncapsulatedAh => f.write_str("UDP encapsulation is for ESP, not for AH"),
            Self::TooManyEncapPorts => f.write_str("too many different UDP encapsulation ports"),
            Self::WindowTooLarge { limit } => {
                write!(f, "the anti-replay window is above the limit of {limit} packets")
            }
            Self::SequenceTooLarge => {
                f.write_str("a sequence number above 32 bits needs extended sequence numbers")
            }
            Self::PaddedTransport => f.write_str("traffic-flow padding needs tunnel mode"),
            Self::CompressedTransport => f.write_str("header compression needs ESP in tunnel mode"),
            Self::CompressedPadding => {
                f.write_str("header compression and traffic-flow padding exclude each other")
            }
            Self::NoRohc => f.write_str("header compression is not enabled"),
            Self::Key(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for AddSaError {}

impl Datapath {
    /// Adds an SA. The keys come from the first provider that has the algorithms.
    pub fn add_sa(
        &mut self,
        params: &SaParams,
        direction: Direction,
        providers: &Providers<'_>,
        now: Instant,
    ) -> Result<SaId, AddSaError> {
        self.check(params)?;
        let port = params.encap.map(|encap| encap.dst_port).filter(|_| direction == Direction::Inbound);
        let new_port = port.filter(|port| !self.encap_ports.contains(port));
        if new_port.is_some() && self.encap_ports.is_full() {
            return Err(AddSaError::TooManyEncapPorts);
        }
        let id = match direction {
            Direction::Outbound => {
                let mut sa = SaOut::new(params, providers, now)?;
                if let Some(rohc) = self.rohc {
                    sa.rohc = rohc.outbound(params, providers)?;
                }
                self.sad.add_outbound(sa)?
            }
            Direction::Inbound => {
                let mut sa = SaIn::new(params, providers, now)?;
                if let Some(rohc) = self.rohc {
                    sa.rohc = rohc.inbound(params, providers)?;
                }
                self.sad.add_inbound(sa)?
            }
        };
        #[cfg(feature = "records")]
        self.apply_first_limits(id);
        self.encap_ports.extend(new_port);
        self.forget_flows();
        Ok(id)
    }

    /// Removes an SA; `false` if it does not exist.
    pub fn remove_sa(&mut self, id: SaId) -> bool {
        self.forget_flows();
        self.sad.remove(id)
    }

    /// Allows an outbound SA to use sequence numbers up to `last`, because the caller has stored that number.
    /// Without a call there is no limit. Returns `false` if the SA does not exist.
    pub fn set_durable(&mut self, id: SaId, last: u64) -> bool {
        self.sad.outbound_by_id(id).map(|sa| sa.seq.set_durable(last)).is_some()
    }

    /// Limits SAs that are added from now on to these sequence numbers, sent and received, until
    /// [`set_durable`](Self::set_durable) and [`set_receive_limit`](Self::set_receive_limit) are called. So
    /// no SA is without a limit for a moment.
    #[cfg(feature = "records")]
    pub const fn limit_new_sas(&mut self, sent: u64, received: u64) {
        self.first_limits = Some((sent, received));
    }

    #[cfg(feature = "records")]
    fn apply_first_limits(&mut self, id: SaId) {
        let Some((sent, received)) = self.first_limits else { return };
        match id.direction() {
            Direction::Outbound => self.set_durable(id, sent),
            Direction::Inbound => self.set_receive_limit(id, received),
        };
    }

    /// Limits an inbound SA to sequence numbers up to `last`, because the caller has stored that number.
    /// Without a call there is no limit. Returns `false` if the SA does not exist.
    #[cfg(feature = "records")]
    pub fn set_receive_limit(&mut self, id: SaId, last: u64) -> bool {
        self.sad.inbound_by_id(id).map(|sa| sa.state.receive_limit = last).is_some()
    }

    /// Leaves out the next `count` sequence numbers of an outbound SA, because the peer accepts only higher
    /// ones (RFC 6311 section 5.2). If fewer are left, the SA sends no more packets. Returns whether the SA
    /// should be replaced soon, because less than a quarter of its numbers is left; `None` if the SA does not
    /// exist.
    #[cfg(feature = "records")]
    pub fn skip_numbers(&mut self, id: SaId, count: u64) -> Option<bool> {
        self.sad.outbound_by_id(id).map(|sa| sa.seq.skip(count))
    }

    /// Sets the last sequence number that was sent on an outbound SA, or the highest one that was received on
    /// an inbound one, by a former owner of the SA. Returns `false`, and changes nothing, if the SA does not
    /// exist or has carried a packet.
    #[cfg(feature = "records")]
    pub fn set_last_sequence(&mut self, id: SaId, last: u64) -> bool {
        match id.direction() {
            Direction::Outbound => self.sad.outbound_by_id(id).is_some_and(|sa| sa.set_last_sent(last)),
            Direction::Inbound => {
                self.sad.inbound_by_id(id).is_some_and(|sa| sa.state.set_last_received(last))
            }
        }
    }

    /// The last sequence number that an outbound SA used; `None` if the SA does not exist.
    pub fn last_seq(&mut self, id: SaId) -> Option<u64> {
        self.sad.outbound_by_id(id).map(|sa| sa.seq.last())
    }

    /// The last sequence number sent on an outbound SA, or the highest one of an authentic packet of an
    /// inbound one, even if the packet was dropped because of the limit; `None` if the SA does not exist.
    pub fn sa_sequence(&self, id: SaId) -> Option<u64> {
        if self.sad.id_of(id.direction(), id.slot()) != id {
            return None;
        }
        match id.direction() {
            Direction::Outbound => self.sad.outbound_ref(id.slot()).map(|sa| sa.seq.last()),
            Direction::Inbound => self.sad.inbound_ref(id.slot()).map(|sa| sa.state.highest_seen()),
        }
    }

    /// Changes the addresses, the ports or the encapsulation of an SA after one of the hosts has moved (RFC
    /// 7296 section 2.23, RFC 4555 section 3.5). Counters and replay window stay. Returns `false` if the SA
    /// does not exist or cannot have this path.
    pub fn move_sa(&mut self, id: SaId, path: SaPath) -> bool {
        let port = path.encap.map(|encap| encap.dst_port).filter(|_| id.direction() == Direction::Inbound);
        let new_port = port.filter(|port| !self.encap_ports.contains(port));
        if new_port.is_some() && self.encap_ports.is_full() {
            return false;
        }
        self.forget_flows();
        let is_moved = self.sad.move_sa(id, path);
        self.encap_ports.extend(new_port.filter(|_| is_moved));
        is_moved
    }

    fn check(&self, params: &SaParams) -> Result<(), AddSaError> {
        if params.src.is_ipv4() != params.dst.is_ipv4() {
            return Err(AddSaError::MixedVersions);
        }
        if params.encap.is_some() && params.transform.protocol() == Protocol::Ah {
            return Err(AddSaError::EncapsulatedAh);
        }
        if params.replay_window > self.limits.replay_window {
            return Err(AddSaError::WindowTooLarge { limit: self.limits.replay_window });
        }
        if !params.esn && params.last_sent.max(params.last_received) > u64::from(u32::MAX) {
            return Err(AddSaError::SequenceTooLarge);
        }
        if params.tfc_pad_to > 0 && params.mode == Mode::Transport {
            return Err(AddSaError::PaddedTransport);
        }
        self.check_rohc(params)
    }
}
