//! What an outbound SA adds to a packet: outer header, UDP, sizes of ESP or AH. `protect` applies it.

use crate::ah;
use crate::esp::AroundPayload;
use crate::sa::{ProtocolKey, SaKeys};
use crate::tunnel::{MixedVersions, OuterTemplate};
use crate::{AddSaError, SaPath};
use casemate_sa::{Mode, RohcParams, SaParams, Spi, UdpEncap};
use casemate_wire::ah::Align;
use casemate_wire::ip::proto;
use casemate_wire::udp;
use core::net::IpAddr;

/// Addresses, header template and sizes of an outbound SA. They change when the peer moves.
pub(crate) struct Encapsulation {
    pub(crate) outer: OuterTemplate,
    pub(crate) encap: Option<UdpEncap>,
    /// Length of an outer header and a UDP header, if the SA has one: the offset of the ESP header in tunnel
    /// mode.
    pub(crate) esp_at: usize,
    pub(crate) spi: Spi,
    pub(crate) align: Align,
    /// Alignment of AH over IPv4.
    v4_align: Align,
    pub(crate) overhead: Overhead,
    /// XORed onto the counter in an IV; see [`iv_mask`].
    pub(crate) iv_mask: u64,
}

impl Encapsulation {
    pub(crate) fn new(params: &SaParams, keys: &SaKeys) -> Result<Self, AddSaError> {
        let protocol = match (&keys.key, params.encap) {
            (ProtocolKey::Ah(_), _) => ah::PROTOCOL,
            (ProtocolKey::Esp(_), None) => proto::ESP,
            (ProtocolKey::Esp(_), Some(_)) => proto::UDP,
        };
        let outer = OuterTemplate::new(params.src, params.dst, params.outer, protocol)
            .map_err(|MixedVersions| AddSaError::MixedVersions)?;
        // An SA that begins over IPv6 says nothing of IPv4.
        let v4_align = if params.src.is_ipv4() { params.ah_align } else { Align::Four };
        let align = if params.src.is_ipv4() { v4_align } else { Align::Eight };
        let overhead = Overhead::new(params, &keys.key, outer.len(), align);
        Ok(Self {
            outer,
            encap: params.encap,
            esp_at: outer.len().saturating_add(udp_len(params.encap)),
            spi: params.spi,
            align,
            v4_align,
            overhead,
            iv_mask: iv_mask(params),
        })
    }

    /// Whether packets have a UDP checksum: over IPv4 none is needed (RFC 3948 section 2.1).
    pub(crate) fn has_checksum(&self) -> bool {
        self.encap.is_some() && !self.outer.is_v4()
    }

    /// Whether packets of the SA can leave as one batch with outer headers of this TTL, and may be padded to
    /// one length for it.
    pub(crate) fn may_pad_batches(&self, ttl: u8) -> bool {
        self.encap.is_some() && self.outer.choice().ttl == ttl && self.overhead.tfc_pad_to == 0
    }

    /// Changes the addresses and the encapsulation in UDP. `key` is that of the SA. Returns `false` if they
    /// do not fit the SA: AH is never encapsulated.
    pub(crate) fn move_to(&mut self, path: SaPath, key: &ProtocolKey) -> bool {
        let SaPath { src, dst, encap } = path;
        let protocol = match (self.outer.protocol(), encap) {
            (ah::PROTOCOL, _) => ah::PROTOCOL,
            (_, None) => proto::ESP,
            (_, Some(_)) => proto::UDP,
        };
        let Ok(outer) = self.outer.with_addrs(src, dst, protocol) else { return false };
        if protocol == ah::PROTOCOL && encap.is_some() {
            return false;
        }
        let align = if src.is_ipv4() { self.v4_align } else { Align::Eight };
        // RFC 4302 section 3.3.3.2.1: the AH header may have another length over the other IP version.
        let ah_len = |align| if let ProtocolKey::Ah(key) = key { key.header_len(align) } else { 0 };
        let before = udp_len(self.encap).saturating_add(ah_len(self.align));
        let after = udp_len(encap).saturating_add(ah_len(align));
        self.overhead = self.overhead.moved(outer.len(), before, after);
        self.align = align;
        self.esp_at = outer.len().saturating_add(udp_len(encap));
        (self.outer, self.encap) = (outer, encap);
        true
    }
}

/// Length of the UDP header, if there is one.
const fn udp_len(encap: Option<UdpEncap>) -> usize {
    if encap.is_some() { udp::HEADER_LEN } else { 0 }
}

/// A value for the upper half of counter IVs that differs from SA to SA.
///
/// The sequence counter makes IVs unique under one key, and two SAs must not share a key. But administrators
/// who type manual keys do use one key for both directions. This value then keeps the IVs of the two SAs
/// apart, unless extended sequence numbers of both SAs happen to meet.
fn iv_mask(params: &SaParams) -> u64 {
    let octets = |addr: IpAddr| match addr {
        IpAddr::V4(addr) => u128::from(addr.to_bits()),
        IpAddr::V6(addr) => addr.to_bits(),
    };
    // FNV-1a over SPI and both addresses. Any function that spreads the values works; none of them is secret.
    let words = [u128::from(params.spi.get()), octets(params.src), octets(params.dst)];
    let bytes = words.iter().flat_map(|word| word.to_be_bytes());
    let hash = bytes.fold(0x811c_9dc5u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    u64::from(hash) << 32
}

/// Bytes that protection adds to a packet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Overhead {
    /// Length of an IP header between the SA's addresses, without options and extension headers.
    header: usize,
    is_transport: bool,
    /// UDP header, ESP or AH header, IV, ICV, and the ICV of compressed packets.
    fixed_len: usize,
    /// ESP trailer.
    trailer: usize,
    /// Alignment of the text, minus one.
    mask: usize,
    /// Unit of traffic-flow padding; 0 if there is none.
    tfc_pad_to: usize,
    /// Upper bound of what is added.
    max_growth: usize,
}

impl Overhead {
    /// `header` is the length of an IP header between the SA's addresses.
    pub(crate) fn new(params: &SaParams, key: &ProtocolKey, header: usize, align: Align) -> Self {
        let AroundPayload { fixed, trailer, align_mask: mask } = match key {
            ProtocolKey::Esp(key) => key.sizes.around_payload(),
            ProtocolKey::Ah(key) => AroundPayload { fixed: key.header_len(align), trailer: 0, align_mask: 0 },
        };
        let is_transport = params.mode == Mode::Transport;
        let tfc_pad_to = usize::from(params.tfc_pad_to);
        // An upper bound for packets that are not compressed.
        let rohc_icv = params.rohc.as_ref().map_or(0, RohcParams::icv_len);
        let fixed_len = udp_len(params.encap).saturating_add(fixed).saturating_add(rohc_icv);
        Self { header, is_transport, fixed_len, trailer, mask, tfc_pad_to, max_growth: 0 }.with_max_growth()
    }

    fn with_max_growth(self) -> Self {
        let Self { header, is_transport, fixed_len, trailer, mask, tfc_pad_to, .. } = self;
        let parts = [if is_transport { 0 } else { header }, fixed_len, trailer, mask, tfc_pad_to];
        Self { max_growth: parts.into_iter().fold(0, usize::saturating_add), ..self }
    }

    /// The same with an IP header of `header` bytes, and with UDP and AH headers of `after` instead of
    /// `before` bytes.
    fn moved(self, header: usize, before: usize, after: usize) -> Self {
        let fixed_len = self.fixed_len.saturating_sub(before).saturating_add(after);
        Self { header, fixed_len, ..self }.with_max_growth()
    }

    /// Length after protection of a packet of `len` bytes without IP options and extension headers.
    #[inline]
    pub(crate) fn sealed_len(&self, len: usize) -> usize {
        self.sealed_len_behind(len, self.header)
    }

    /// Length after protection of a packet of `len` bytes with `headers` bytes of IP headers. In transport
    /// mode these headers stay in front and are not padded.
    #[inline]
    pub(crate) fn sealed_len_behind(&self, len: usize, headers: usize) -> usize {
        let (front, text) = match self.is_transport {
            true => (headers, len.saturating_sub(headers)),
            false => (self.header, self.padded_len(len)),
        };
        let text = text.saturating_add(self.trailer).saturating_add(self.mask) & !self.mask;
        front.saturating_add(self.fixed_len).saturating_add(text)
    }

    /// Upper bound of what is added to a packet, whatever its headers.
    pub(crate) const fn max_growth(&self) -> usize {
        self.max_growth
    }

    /// Length with traffic-flow padding.
    #[inline]
    pub(crate) fn padded_len(&self, len: usize) -> usize {
        match self.tfc_pad_to {
            0 => len,
            unit => len.checked_next_multiple_of(unit).unwrap_or(len),
        }
    }
}
