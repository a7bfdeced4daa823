//! What can be told of an SA while it works. No key is in it.

use crate::lifetime::Meter;
use crate::sa_in::{Gate, SaIn};
use crate::sa_out::SaOut;
use crate::shared::Engine;
use crate::{Direction, SaId};
use alloc::string::{String, ToString};
use casemate_sa::{DscpSet, Mode, Protocol, Spi};
use core::net::IpAddr;

/// A snapshot of one SA.
#[derive(Debug, Clone)]
pub struct SaStatus {
    /// Its name.
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
    /// Algorithms, by their IANA names.
    pub suite: String,
    /// Extended sequence numbers.
    pub esn: bool,
    /// UDP encapsulation.
    pub udp_encapsulated: bool,
    /// Request identifier.
    pub reqid: u32,
    /// Outbound only: which packets are for this SA rather than for others; empty is any.
    pub dscp: DscpSet,
    /// The last number used (outbound) or the highest received (inbound).
    pub seq: u64,
    /// Packets, bytes and times.
    pub meter: Meter,
    /// Inbound only: the anti-replay window.
    pub window: Option<WindowStatus>,
}

/// The state of an anti-replay window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowStatus {
    /// Size in packets; 0 if replays are not checked.
    pub size: u64,
    /// The newest 64 numbers: bit 0 is the highest one, a set bit is a received packet.
    pub recent: u64,
    /// Packets dropped as replays.
    pub replays: u64,
    /// Packets dropped for a wrong ICV.
    pub icv_failures: u64,
}

impl SaStatus {
    pub(crate) fn of_outbound(id: SaId, sa: &SaOut) -> Self {
        debug_assert!(id.direction() == Direction::Outbound);
        Self {
            id,
            spi: sa.spi,
            protocol: sa.protocol,
            mode: sa.mode,
            src: sa.src,
            dst: sa.dst,
            suite: suite(&sa.shared.engine),
            esn: sa.shared.esn,
            udp_encapsulated: sa.framing.encap.is_some(),
            reqid: sa.reqid,
            dscp: sa.dscp,
            seq: sa.seq.last(),
            meter: sa.meter.clone(),
            window: None,
        }
    }

    pub(crate) fn of_inbound(id: SaId, sa: &SaIn) -> Self {
        debug_assert!(id.direction() == Direction::Inbound);
        Self {
            id,
            spi: sa.spi,
            protocol: sa.protocol,
            mode: sa.shared.mode,
            src: sa.src,
            dst: sa.dst,
            suite: suite(&sa.shared.engine),
            esn: sa.shared.esn,
            udp_encapsulated: matches!(sa.gate, Gate::EspInUdp(_)),
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
        }
    }
}

fn suite(engine: &Engine) -> String {
    match engine {
        Engine::Esp(key) => key.suite.to_string(),
        Engine::Ah(key) => key.suite.to_string(),
    }
}
