//! One SA in the SAD: keys, which all cores share, and state that changes with each packet.

use crate::ah::AhKey;
use crate::batch_padding::PaddingState;
use crate::dummy::UniformHeader;
use crate::encapsulation::Encapsulation;
use crate::esp::{EspKey, EspSizes};
use crate::lifetime::Meter;
use crate::nat::OriginalAddrs;
use crate::pmtu::PathMtu;
use crate::replay::{Authenticated, ReplayWindow, Replayed};
use crate::rohc::{CompressHeaders, InboundRohc};
use crate::sad::SaLookupKey;
use crate::seq::SeqCounter;
use crate::spd::Template;
use crate::{AddSaError, DropReason, SaPath};
use alloc::boxed::Box;
use alloc::sync::Arc;
use casemate_crypto::{KeyError, Providers};
use casemate_sa::{DscpSet, Instant, Mode, Protocol, SaParams, Selector, SpdId, Spi, Transform};
use casemate_wire::flow::FlowKey;
use core::net::IpAddr;

/// Keys and mode of an SA, which never change. A batch holds a reference, so the SA may be removed while the
/// batch is being processed.
///
/// Aligned to a cache line, so that updates of the reference count do not evict the keys from the caches of
/// other cores.
#[repr(align(64))]
pub(crate) struct SaKeys {
    pub(crate) key: ProtocolKey,
    pub(crate) mode: Mode,
    pub(crate) esn: bool,
    /// The addresses that checksums of received packets cover, if a NAT changed them. Transport mode only.
    pub(crate) original_addrs: Option<OriginalAddrs>,
}

/// Key of the SA's protocol.
pub(crate) enum ProtocolKey {
    Esp(EspKey),
    Ah(AhKey),
}

impl SaKeys {
    pub(crate) fn new(params: &SaParams, providers: &Providers<'_>) -> Result<Self, KeyError> {
        let key = match &params.transform {
            Transform::Esp { suite, encr, integ } => {
                ProtocolKey::Esp(EspKey::new(*suite, encr, integ, providers)?)
            }
            Transform::Ah { suite, integ } => ProtocolKey::Ah(AhKey::new(*suite, integ, providers)?),
        };
        let original = params.original_addrs.filter(|_| params.mode == Mode::Transport);
        let original_addrs = original.map(OriginalAddrs::new);
        Ok(Self { key, mode: params.mode, esn: params.esn, original_addrs })
    }
}

/// Format of the packets of an inbound SA, for checks before the SA itself is accessed: encapsulation and
/// possible lengths.
#[derive(Clone, Copy)]
pub(crate) enum PacketFormat {
    /// AH. The length is checked later, with the key.
    Ah,
    /// ESP directly after IP.
    Esp(EspSizes),
    /// ESP in UDP.
    EspInUdp(EspSizes),
}

impl PacketFormat {
    /// Checks a packet with `len` bytes from the ESP or AH header on.
    #[inline]
    pub(crate) fn check(&self, in_udp: bool, len: usize) -> Result<(), DropReason> {
        let sizes = match (self, in_udp) {
            (Self::Esp(sizes), false) | (Self::EspInUdp(sizes), true) => sizes,
            (Self::Ah, false) => return Ok(()),
            _ => return Err(DropReason::EncapsulationMismatch),
        };
        if sizes.accept(len) { Ok(()) } else { Err(DropReason::Truncated) }
    }
}

/// State of an inbound SA that changes with each packet.
pub(crate) struct State {
    pub(crate) window: ReplayWindow,
    pub(crate) meter: Meter,
    /// The highest number that may be received: the next owner of the SA accepts higher ones only.
    #[cfg(feature = "records")]
    pub(crate) receive_limit: u64,
    /// The highest number of an authentic packet that was dropped because of that limit.
    #[cfg(feature = "records")]
    pub(crate) highest_refused: u64,
    /// Packets dropped as replays.
    pub(crate) replays: u64,
    /// Packets dropped because of a wrong ICV.
    pub(crate) icv_failures: u64,
}

/// An inbound SA. The fields that each packet needs come first.
#[repr(C, align(64))]
pub(crate) struct SaIn {
    pub(crate) keys: Arc<SaKeys>,
    pub(crate) state: State,
    /// Whether the SA is in transport mode, so that it delivers the IP header in front of its packets.
    pub(crate) is_transport: bool,
    pub(crate) protocol: Protocol,
    pub(crate) src: IpAddr,
    pub(crate) dst: IpAddr,
    pub(crate) spi: Spi,
    pub(crate) reqid: u32,
    /// The SPD whose policies apply to its packets.
    pub(crate) spd: SpdId,
    /// Boxed, because few SAs have one: policies restrict the traffic of negotiated SAs.
    pub(crate) selector: Option<Box<Selector>>,
    pub(crate) format: PacketFormat,
    /// Header compression, if the SA has it.
    pub(crate) rohc: Option<Box<InboundRohc>>,
}

impl SaIn {
    pub(crate) fn new(
        params: &SaParams,
        providers: &Providers<'_>,
        now: Instant,
    ) -> Result<Self, AddSaError> {
        let protocol = params.transform.protocol();
        let keys = SaKeys::new(params, providers)?;
        let format = match &keys.key {
            ProtocolKey::Ah(_) => PacketFormat::Ah,
            ProtocolKey::Esp(key) if params.encap.is_some() => PacketFormat::EspInUdp(key.sizes),
            ProtocolKey::Esp(key) => PacketFormat::Esp(key.sizes),
        };
        let state = State {
            window: ReplayWindow::new(params.replay_window, params.esn, params.last_received),
            meter: Meter::new(params.lifetime, now),
            #[cfg(feature = "records")]
            receive_limit: u64::MAX,
            #[cfg(feature = "records")]
            highest_refused: 0,
            replays: 0,
            icv_failures: 0,
        };
        Ok(Self {
            format,
            keys: Arc::new(keys),
            state,
            is_transport: params.mode == Mode::Transport,
            spi: params.spi,
            protocol,
            src: params.src,
            dst: params.dst,
            reqid: params.reqid,
            spd: SpdId::MAIN,
            selector: params.selector.map(Box::new),
            rohc: None,
        })
    }

    /// Changes the addresses and the encapsulation in UDP. Returns `false` if they do not fit the SA: AH is
    /// never encapsulated, and both addresses have one IP version.
    pub(crate) fn move_to(&mut self, path: SaPath) -> bool {
        let format = match (self.format, path.encap) {
            (PacketFormat::Ah, None) => PacketFormat::Ah,
            (PacketFormat::Ah, Some(_)) => return false,
            (PacketFormat::Esp(sizes) | PacketFormat::EspInUdp(sizes), Some(_)) => {
                PacketFormat::EspInUdp(sizes)
            }
            (PacketFormat::Esp(sizes) | PacketFormat::EspInUdp(sizes), None) => PacketFormat::Esp(sizes),
        };
        let fits = path.src.is_ipv4() == path.dst.is_ipv4();
        if fits {
            (self.src, self.dst, self.format) = (path.src, path.dst, format);
        }
        fits
    }

    /// The key of this SA in the inbound index.
    pub(crate) fn lookup_key(&self) -> SaLookupKey {
        SaLookupKey::new(self.spi.get(), self.protocol, self.dst)
    }

    pub(crate) fn matches_template(&self, template: &Template) -> bool {
        template.accepts(self.protocol, self.keys.mode, self.src, self.dst, self.reqid)
    }
}

impl State {
    /// The full sequence number of a packet that carries `low`, unless it is a replay.
    #[inline]
    pub(crate) fn check_replay(&mut self, low: u32) -> Result<u64, DropReason> {
        self.window.check(low).map_err(|Replayed| self.count_replay())
    }

    /// Marks an authenticated sequence number as received, unless it is above the limit. The limit is
    /// compared here and not before the packet is opened, so that only the peer moves `highest_refused`.
    #[inline]
    pub(crate) fn commit_replay(&mut self, proof: Authenticated) -> Result<(), DropReason> {
        #[cfg(feature = "records")]
        if proof.seq() > self.receive_limit {
            self.highest_refused = self.highest_refused.max(proof.seq());
            return Err(DropReason::CounterNotReserved);
        }
        self.window.commit(proof).map_err(|Replayed| self.count_replay())
    }

    /// The highest sequence number that the peer has used, as far as authentic packets show.
    pub(crate) fn highest_seen(&self) -> u64 {
        #[cfg(feature = "records")]
        return self.window.highest().max(self.highest_refused);
        #[cfg(not(feature = "records"))]
        self.window.highest()
    }

    /// Sets the highest number that a former owner has received, unless this one has accepted a packet.
    #[cfg(feature = "records")]
    pub(crate) fn set_last_received(&mut self, last: u64) -> bool {
        let is_unused = self.meter.packets == 0;
        if is_unused {
            self.window = self.window.ending_at(last);
        }
        is_unused
    }

    #[cold]
    fn count_replay(&mut self) -> DropReason {
        self.replays = self.replays.saturating_add(1);
        DropReason::Replay
    }
}

/// Source and destination address of packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct AddrPair {
    pub(crate) src: IpAddr,
    pub(crate) dst: IpAddr,
}

/// An outbound SA.
pub(crate) struct SaOut {
    pub(crate) keys: Arc<SaKeys>,
    pub(crate) encapsulation: Encapsulation,
    pub(crate) seq: SeqCounter,
    pub(crate) meter: Meter,
    pub(crate) path_mtu: PathMtu,
    /// Limit for the MSS of TCP connections.
    pub(crate) max_mss: u16,
    pub(crate) spi: Spi,
    pub(crate) protocol: Protocol,
    pub(crate) mode: Mode,
    pub(crate) src: IpAddr,
    pub(crate) dst: IpAddr,
    pub(crate) reqid: u32,
    /// Boxed, because few SAs have one: policies restrict the traffic of negotiated SAs.
    pub(crate) selector: Option<Box<Selector>>,
    pub(crate) dscp: DscpSet,
    /// The visible header fields of all packets, if the SA carries dummy packets.
    pub(crate) uniform_header: Option<UniformHeader>,
    /// Header compression, if the SA has it.
    pub(crate) rohc: Option<Box<dyn CompressHeaders>>,
    pub(crate) padding: PaddingState,
    /// Order of addition, set by the SAD.
    pub(crate) serial: u64,
}

impl SaOut {
    pub(crate) fn new(
        params: &SaParams,
        providers: &Providers<'_>,
        now: Instant,
    ) -> Result<Self, AddSaError> {
        let keys = SaKeys::new(params, providers)?;
        let encapsulation = Encapsulation::new(params, &keys)?;
        Ok(Self {
            keys: Arc::new(keys),
            encapsulation,
            seq: SeqCounter::new(params.last_sent, params.esn),
            meter: Meter::new(params.lifetime, now),
            path_mtu: if params.src.is_ipv4() { PathMtu::V4 } else { PathMtu::V6 },
            max_mss: u16::MAX,
            spi: params.spi,
            protocol: params.transform.protocol(),
            mode: params.mode,
            src: params.src,
            dst: params.dst,
            reqid: params.reqid,
            selector: params.selector.map(Box::new),
            dscp: params.dscp,
            uniform_header: None,
            rohc: None,
            padding: PaddingState::default(),
            serial: 0,
        })
    }

    /// Sets the last number that a former owner has sent, unless this one has sent a packet.
    #[cfg(feature = "records")]
    pub(crate) const fn set_last_sent(&mut self, last: u64) -> bool {
        let is_unused = self.meter.packets == 0;
        if is_unused {
            self.seq.set_last(last);
        }
        is_unused
    }

    /// Changes the addresses; `false` if they do not fit the SA.
    pub(crate) fn move_to(&mut self, path: SaPath) -> bool {
        let moved = self.encapsulation.move_to(path, &self.keys.key);
        if moved && self.path() != (AddrPair { src: path.src, dst: path.dst }) {
            (self.src, self.dst) = (path.src, path.dst);
            self.path_mtu.move_to(path.src.is_ipv4());
        }
        moved
    }

    /// Source and destination.
    pub(crate) fn path(&self) -> AddrPair {
        AddrPair { src: self.src, dst: self.dst }
    }

    /// Rank of the SA for the DSCP of a packet; the lowest wins. RFC 4301 section 4.4.2.1: DSCPs choose among
    /// SAs that match otherwise. An SA for other DSCPs is better than none: no packet is lost while the right
    /// SA is missing.
    pub(crate) fn dscp_rank(&self, flow: Option<&FlowKey>) -> u8 {
        match flow {
            Some(flow) if self.dscp.contains(flow.dscp()) => 0,
            _ if self.dscp.is_empty() => 1,
            _ => 2,
        }
    }

    pub(crate) fn matches_template(&self, template: &Template) -> bool {
        template.accepts(self.protocol, self.mode, self.src, self.dst, self.reqid)
    }
}
