//! An outbound SA: an immutable half that any core may seal with, and a small mutable half.

use crate::ah::AhKey;
use crate::esp::EspKey;
use crate::growth::Growth;
use crate::lifetime::Meter;
use crate::pmtu::PathMtu;
use crate::seq::SeqCounter;
use crate::spd::Template;
use crate::tunnel::{MixedVersions, Outer};
use crate::{AddSaError, SaPath};
use alloc::boxed::Box;
use alloc::sync::Arc;
use casemate_crypto::Providers;
use casemate_sa::{Instant, Mode, Protocol, SaParams, Selector, Spi, Transform, UdpEncap};
use casemate_wire::ah::Align;
use core::net::IpAddr;

/// Keys, addresses and header template. Never changes, so it is shared.
pub(crate) struct Shared {
    pub(crate) engine: Engine,
    pub(crate) outer: Outer,
    pub(crate) encap: Option<UdpEncap>,
    pub(crate) spi: Spi,
    pub(crate) mode: Mode,
    pub(crate) esn: bool,
    pub(crate) align: Align,
    pub(crate) growth: Growth,
    /// XORed onto the counter in an IV; see [`iv_mask`].
    pub(crate) iv_mask: u64,
}

/// The protocol's half.
pub(crate) enum Engine {
    Esp(EspKey),
    Ah(AhKey),
}

/// An outbound SA in the SAD.
pub(crate) struct SaOut {
    pub(crate) shared: Arc<Shared>,
    pub(crate) seq: SeqCounter,
    pub(crate) meter: Meter,
    pub(crate) path_mtu: PathMtu,
    pub(crate) spi: Spi,
    pub(crate) protocol: Protocol,
    pub(crate) mode: Mode,
    pub(crate) src: IpAddr,
    pub(crate) dst: IpAddr,
    pub(crate) reqid: u32,
    /// Boxed, for few SAs have one: policies say what negotiated ones carry.
    pub(crate) selector: Option<Box<Selector>>,
    /// Order of addition, set by the SAD.
    pub(crate) serial: u64,
}

impl SaOut {
    pub(crate) fn new(
        params: &SaParams,
        providers: &Providers<'_>,
        now: Instant,
    ) -> Result<Self, AddSaError> {
        let outer = Outer::new(params.src, params.dst, params.outer)
            .map_err(|MixedVersions| AddSaError::MixedVersions)?;
        let engine = Engine::new(params, providers)?;
        let align = if params.src.is_ipv4() { params.ah_align } else { Align::Eight };
        let growth = Growth::new(params, &engine, outer.len(), align);
        let protocol = params.transform.protocol();
        let shared = Shared {
            engine,
            outer,
            encap: params.encap,
            spi: params.spi,
            mode: params.mode,
            esn: params.esn,
            align,
            growth,
            iv_mask: iv_mask(params),
        };
        Ok(Self {
            shared: Arc::new(shared),
            seq: SeqCounter::new(params.last_sent, params.esn),
            meter: Meter::new(params.lifetime, now),
            path_mtu: if params.src.is_ipv4() { PathMtu::V4 } else { PathMtu::V6 },
            spi: params.spi,
            protocol,
            mode: params.mode,
            src: params.src,
            dst: params.dst,
            reqid: params.reqid,
            selector: params.selector.map(Box::new),
            serial: 0,
        })
    }

    /// Takes other addresses, unless they do not fit the SA: another IP version has headers of another length.
    pub(crate) fn move_to(&mut self, path: SaPath) -> bool {
        let SaPath { src, dst, encap } = path;
        let fits = src.is_ipv4() == self.src.is_ipv4() && encap.is_some() == self.shared.encap.is_some();
        let Ok(outer) = Outer::new(src, dst, self.shared.outer.choice()) else { return false };
        // Nobody else seals while the SAD is being changed.
        let Some(shared) = Arc::get_mut(&mut self.shared).filter(|_| fits) else { return false };
        (shared.outer, shared.encap) = (outer, encap);
        (self.src, self.dst) = (src, dst);
        true
    }

    /// Source and destination.
    pub(crate) fn path(&self) -> (IpAddr, IpAddr) {
        (self.src, self.dst)
    }

    pub(crate) fn is_wanted_by(&self, template: &Template) -> bool {
        template.accepts(self.protocol, self.mode, self.src, self.dst, self.reqid)
    }
}

impl Engine {
    pub(crate) fn new(params: &SaParams, providers: &Providers<'_>) -> Result<Self, AddSaError> {
        let engine = match &params.transform {
            Transform::Esp { suite, encr, integ } => Self::Esp(EspKey::new(*suite, encr, integ, providers)?),
            Transform::Ah { suite, integ } => Self::Ah(AhKey::new(*suite, integ, providers)?),
        };
        Ok(engine)
    }
}

/// A value for the upper half of a counter IV that differs from SA to SA.
///
/// The sequence counter alone makes IVs unique under one key, and two SAs must not share a key. Manual keys are typed by
/// people, though, who do give both directions the same one; then this keeps their IVs apart, unless extended sequence
/// numbers of two such SAs happen to meet.
fn iv_mask(params: &SaParams) -> u64 {
    let octets = |addr: IpAddr| match addr {
        IpAddr::V4(addr) => u128::from(addr.to_bits()),
        IpAddr::V6(addr) => addr.to_bits(),
    };
    // FNV-1a over SPI and both addresses: any function that spreads will do, nothing here is secret.
    let words = [u128::from(params.spi.get()), octets(params.src), octets(params.dst)];
    let bytes = words.iter().flat_map(|word| word.to_be_bytes());
    let hash = bytes.fold(0x811c_9dc5u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    u64::from(hash) << 32
}
