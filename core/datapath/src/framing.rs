//! What an outbound SA puts around a packet: addresses, header template and sizes. `protect` does the work.

use crate::growth::Growth;
use crate::shared::Shared;
use crate::tunnel::{MixedVersions, Outer};
use crate::{AddSaError, SaPath};
use casemate_sa::{SaParams, Spi, UdpEncap};
use casemate_wire::ah::Align;
use core::net::IpAddr;

/// All that but the keys. It changes when the peer moves.
pub(crate) struct Framing {
    pub(crate) outer: Outer,
    pub(crate) encap: Option<UdpEncap>,
    pub(crate) spi: Spi,
    pub(crate) align: Align,
    pub(crate) growth: Growth,
    /// XORed onto the counter in an IV; see [`iv_mask`].
    pub(crate) iv_mask: u64,
}

impl Framing {
    pub(crate) fn new(params: &SaParams, shared: &Shared) -> Result<Self, AddSaError> {
        let outer = Outer::new(params.src, params.dst, params.outer)
            .map_err(|MixedVersions| AddSaError::MixedVersions)?;
        let align = if params.src.is_ipv4() { params.ah_align } else { Align::Eight };
        let growth = Growth::new(params, &shared.engine, outer.len(), align);
        Ok(Self { outer, encap: params.encap, spi: params.spi, align, growth, iv_mask: iv_mask(params) })
    }

    /// Whether packets have a UDP checksum: none is needed over IPv4 (RFC 3948 section 2.1).
    pub(crate) fn has_checksum(&self) -> bool {
        self.encap.is_some() && !self.outer.is_v4()
    }

    /// Takes other addresses, unless they do not fit the SA: another IP version has headers of another length.
    pub(crate) fn move_to(&mut self, path: SaPath) -> bool {
        let SaPath { src, dst, encap } = path;
        let Ok(outer) = Outer::new(src, dst, self.outer.choice()) else { return false };
        let fits = outer.len() == self.outer.len() && encap.is_some() == self.encap.is_some();
        if fits {
            (self.outer, self.encap) = (outer, encap);
        }
        fits
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
