//! Snapshots of SAs for status output. They contain no keys.

use crate::lifetime::Meter;
use crate::rohc::InboundRohc;
use crate::sa::{PacketFormat, ProtocolKey, SaIn, SaOut};
use crate::sad::Sad;
use crate::{Datapath, Direction, RohcStatus, SaId};
use alloc::string::{String, ToString};
use casemate_sa::{DscpSet, Mode, Protocol, Spi};
use casemate_wire::invariant;
use core::net::IpAddr;

/// Snapshot of one SA.
#[derive(Debug, Clone)]
pub struct SaStatus {
    /// Identifier of the SA.
    pub id: SaId,
    /// SPI.
    pub spi: Spi,
    /// ESP or AH.
    pub protocol: Protocol,
    /// Transport or tunnel.
    pub mode: Mode,
    /// Source address.
    pub src: IpAddr,
    /// Destination address.
    pub dst: IpAddr,
    /// Names of the algorithms as registered by IANA.
    pub suite: String,
    /// Extended sequence numbers.
    pub esn: bool,
    /// UDP encapsulation.
    pub udp_encapsulated: bool,
    /// Request identifier.
    pub reqid: u32,
    /// Outbound only: DSCPs of the packets that prefer this SA; empty for any.
    pub dscp: DscpSet,
    /// The last sequence number sent (outbound) or the highest received (inbound).
    pub seq: u64,
    /// Packets, bytes and times of use.
    pub meter: Meter,
    /// Inbound only: the anti-replay window.
    pub window: Option<WindowStatus>,
    /// Header compression, if the SA has it.
    pub rohc: Option<RohcStatus>,
}

/// Counters of one SA, which cost less than its [`SaStatus`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SaCounters {
    /// Packets sealed or opened.
    pub packets: u64,
    /// Bytes of those packets before protection or after opening.
    pub bytes: u64,
    /// Inbound only: packets dropped as replays.
    pub replays: u64,
    /// Inbound only: packets dropped because of a wrong ICV.
    pub icv_failures: u64,
}

impl SaCounters {
    /// The sums of both.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            packets: self.packets.saturating_add(other.packets),
            bytes: self.bytes.saturating_add(other.bytes),
            replays: self.replays.saturating_add(other.replays),
            icv_failures: self.icv_failures.saturating_add(other.icv_failures),
        }
    }

    /// The counters of an SA; `None` if it does not exist.
    pub(crate) fn of(sad: &Sad, id: SaId) -> Option<Self> {
        if sad.id_of(id.direction(), id.slot()) != id {
            return None;
        }
        match id.direction() {
            Direction::Outbound => sad.outbound_ref(id.slot()).map(Self::of_outbound),
            Direction::Inbound => sad.inbound_ref(id.slot()).map(Self::of_inbound),
        }
    }

    pub(crate) const fn of_outbound(sa: &SaOut) -> Self {
        Self { packets: sa.meter.packets, bytes: sa.meter.bytes, replays: 0, icv_failures: 0 }
    }

    pub(crate) const fn of_inbound(sa: &SaIn) -> Self {
        let state = &sa.state;
        Self {
            packets: state.meter.packets,
            bytes: state.meter.bytes,
            replays: state.replays,
            icv_failures: state.icv_failures,
        }
    }
}

/// State of an anti-replay window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowStatus {
    /// Size in packets; 0 if replays are not checked.
    pub size: u64,
    /// The newest 64 sequence numbers: bit 0 is the highest, and a set bit is a received packet.
    pub recent: u64,
    /// Packets dropped as replays.
    pub replays: u64,
    /// Packets dropped because of a wrong ICV.
    pub icv_failures: u64,
}

impl SaStatus {
    pub(crate) fn from_outbound(id: SaId, sa: &SaOut) -> Self {
        invariant::check(id.direction() == Direction::Outbound, "the SA is outbound");
        Self {
            id,
            spi: sa.spi,
            protocol: sa.protocol,
            mode: sa.mode,
            src: sa.src,
            dst: sa.dst,
            suite: suite(&sa.keys.key),
            esn: sa.keys.esn,
            udp_encapsulated: sa.encapsulation.encap.is_some(),
            reqid: sa.reqid,
            dscp: sa.dscp,
            seq: sa.seq.last(),
            meter: sa.meter.clone(),
            window: None,
            rohc: sa.rohc.as_ref().map(|rohc| rohc.status()),
        }
    }

    pub(crate) fn from_inbound(id: SaId, sa: &SaIn) -> Self {
        invariant::check(id.direction() == Direction::Inbound, "the SA is inbound");
        Self {
            id,
            spi: sa.spi,
            protocol: sa.protocol,
            mode: sa.keys.mode,
            src: sa.src,
            dst: sa.dst,
            suite: suite(&sa.keys.key),
            esn: sa.keys.esn,
            udp_encapsulated: matches!(sa.format, PacketFormat::EspInUdp(_)),
            reqid: sa.reqid,
            dscp: DscpSet::NONE,
            seq: sa.state.window.highest(),
            meter: sa.state.meter.clone(),
            window: Some(WindowStatus {
                size: sa.state.window.size(),
                recent: sa.state.window.recent(),
                replays: sa.state.replays,
                icv_failures: sa.state.icv_failures,
            }),
            rohc: sa.rohc.as_deref().map(InboundRohc::status),
        }
    }
}

impl Datapath {
    /// State of every SA, outbound ones first.
    pub fn sas(&self) -> impl Iterator<Item = SaStatus> + '_ {
        let out = self.sad.iter_outbound().map(|(id, sa)| SaStatus::from_outbound(id, sa));
        out.chain(self.sad.iter_inbound().map(|(id, sa)| SaStatus::from_inbound(id, sa)))
    }

    /// State of an SA; `None` if it does not exist.
    pub fn sa(&self, id: SaId) -> Option<SaStatus> {
        if self.sad.id_of(id.direction(), id.slot()) != id {
            return None;
        }
        match id.direction() {
            Direction::Outbound => self.sad.outbound_ref(id.slot()).map(|sa| SaStatus::from_outbound(id, sa)),
            Direction::Inbound => self.sad.inbound_ref(id.slot()).map(|sa| SaStatus::from_inbound(id, sa)),
        }
    }

    /// Counters of an SA; `None` if it does not exist.
    pub fn sa_counters(&self, id: SaId) -> Option<SaCounters> {
        SaCounters::of(&self.sad, id)
    }

    /// Sums of the counters of the SAs of one direction. Takes time in proportion to their number.
    pub fn sum_counters(&self, direction: Direction) -> SaCounters {
        let none = SaCounters::default();
        match direction {
            Direction::Inbound => {
                self.sad.iter_inbound().fold(none, |sum, (_, sa)| sum.plus(SaCounters::of_inbound(sa)))
            }
            Direction::Outbound => {
                self.sad.iter_outbound().fold(none, |sum, (_, sa)| sum.plus(SaCounters::of_outbound(sa)))
            }
        }
    }
}

fn suite(key: &ProtocolKey) -> String {
    match key {
        ProtocolKey::Esp(key) => key.suite.to_string(),
        ProtocolKey::Ah(key) => key.suite.to_string(),
    }
}
