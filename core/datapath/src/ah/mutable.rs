//! Mutable fields (RFC 4302 section 3.3.3.1 and appendix A).
//!
//! Before the ICV is computed, every mutable field in front of AH is set to zero, and every field that
//! changes predictably is set to the value that the receiver will see. The original headers are saved and
//! restored afterwards.

use casemate_wire::Malformed;
use casemate_wire::invariant::OrBroken;
use casemate_wire::ip::ext::ExtHeader;
use casemate_wire::ip::v4::Ipv4;
use casemate_wire::ip::v6::Ipv6;
use casemate_wire::ip::{IpVersion, version};

/// Maximum length in bytes of the headers in front of AH. An IPv4 header has at most 60.
pub(crate) const MAX_COVERED_HEADERS: usize = 512;

const OPTION_INSIDE: &str = "a parsed option is inside the packet";

/// Why the headers cannot be masked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MaskError {
    /// The headers do not parse.
    Malformed,
    /// The headers are longer than [`MAX_COVERED_HEADERS`].
    TooLong,
    /// A routing header of an unknown type.
    UnknownRouting,
}

impl From<Malformed> for MaskError {
    fn from(_: Malformed) -> Self {
        Self::Malformed
    }
}

/// The original headers, while those in the packet are masked.
pub(crate) struct SavedHeaders {
    bytes: [u8; MAX_COVERED_HEADERS],
    len: usize,
}

/// Masks the `ah_at` bytes of headers at the start of `packet`.
pub(crate) fn mask(packet: &mut [u8], ah_at: usize) -> Result<SavedHeaders, MaskError> {
    let mut saved_headers = SavedHeaders { bytes: [0; MAX_COVERED_HEADERS], len: ah_at };
    let headers = packet.get(..ah_at).ok_or(MaskError::Malformed)?;
    let saved = saved_headers.bytes.get_mut(..ah_at).ok_or(MaskError::TooLong)?;
    saved.copy_from_slice(headers);
    let outcome = match version(saved)? {
        IpVersion::V4 => mask_v4(packet, saved),
        IpVersion::V6 => mask_v6(packet, saved),
    };
    match outcome {
        Ok(()) => Ok(saved_headers),
        Err(reason) => {
            saved_headers.restore(packet);
            Err(reason)
        }
    }
}

impl SavedHeaders {
    /// Restores the original headers.
    pub(crate) fn restore(&self, packet: &mut [u8]) {
        let masked = packet.get_mut(..self.len).zip(self.bytes.get(..self.len));
        if let Some((headers, saved)) = masked.or_report("the packet contains the masked headers") {
            headers.copy_from_slice(saved);
        }
    }
}

/// RFC 4302 section 3.3.3.1.1. `saved` contains the original headers.
fn mask_v4(packet: &mut [u8], saved: &[u8]) -> Result<(), MaskError> {
    let mut ip = Ipv4::parse_quoted(&mut *packet)?;
    ip.set_tos(0);
    ip.set_df(false);
    ip.set_fragment(0, false);
    ip.set_ttl(0);
    ip.set_checksum(0);
    for option in Ipv4::parse_quoted(saved)?.options_iter() {
        let option = option?;
        if option.kind == LSRR || option.kind == SSRR {
            // "Mutable but predictable": the receiver sees the last address of the route as the destination.
            if let (Some(last), Some(dst)) = (last_hop(option.data), packet.get_mut(16..20)) {
                dst.copy_from_slice(&last);
            }
        }
        if !is_immutable_v4(option.kind) {
            let end = option.at.saturating_add(option.len);
            packet.get_mut(option.at..end).or_broken_default(OPTION_INSIDE).fill(0);
        }
    }
    Ok(())
}

const LSRR: u8 = 131;
const SSRR: u8 = 137;

/// The options that no router changes (RFC 4302 appendix A1).
const fn is_immutable_v4(kind: u8) -> bool {
    // End, no-operation, security, extended security, commercial security, router alert, sender directed
    // multi-destination.
    matches!(kind, 0 | 1 | 130 | 133 | 134 | 148 | 149)
}

/// The last address of a source route that is not used up (RFC 791 section 3.1: pointer, then addresses).
fn last_hop(data: &[u8]) -> Option<[u8; 4]> {
    let (&pointer, route) = data.split_first()?;
    // The pointer counts from 1, at the type byte of the option. Beyond the end, the route is used up.
    let used_up = usize::from(pointer) > route.len().saturating_add(3);
    if used_up { None } else { route.last_chunk().copied() }
}

/// RFC 4302 section 3.3.3.1.2. `saved` contains the original headers.
fn mask_v6(packet: &mut [u8], saved: &[u8]) -> Result<(), MaskError> {
    let mut ip = Ipv6::parse_quoted(&mut *packet)?;
    ip.set_traffic_class(0);
    ip.set_flow_label(0);
    ip.set_hop_limit(0);
    for header in Ipv6::parse_quoted(saved)?.headers() {
        let header = header?;
        for option in header.options() {
            let option = option?;
            // "The third-highest-order bit": the data may change on the way. The ICV covers type and length.
            if option.is_mutable() {
                let end = option.data_at.saturating_add(option.data.len());
                packet.get_mut(option.data_at..end).or_broken_default(OPTION_INSIDE).fill(0);
            }
        }
        if let Some(routing) = header.routing()
            && routing.segments_left > 0
        {
            apply_routing_header(packet, &header, routing.kind, routing.segments_left)?;
        }
    }
    Ok(())
}

/// Changes a routing header of type 0 or 2 to its state at the receiver: the last address is the destination,
/// and the visited addresses have moved down the list (RFC 4302 section 3.3.3.1.2, RFC 6275 section 11.3).
fn apply_routing_header(
    packet: &mut [u8],
    header: &ExtHeader<'_>,
    kind: u8,
    segments_left: u8,
) -> Result<(), MaskError> {
    if kind != 0 && kind != 2 {
        return Err(MaskError::UnknownRouting);
    }
    let (before, rest) = packet.split_at_mut_checked(header.at).ok_or(MaskError::Malformed)?;
    let header = rest.get_mut(..header.bytes.len()).ok_or(MaskError::Malformed)?;
    let (fixed, addresses) = header.split_at_mut_checked(8).ok_or(MaskError::Malformed)?;
    let dst = before.get_mut(24..40).ok_or(MaskError::Malformed)?;
    let unvisited = usize::from(segments_left).saturating_mul(16);
    let first = addresses.len().checked_sub(unvisited).ok_or(MaskError::Malformed)?;
    // Each hop swaps the destination with the next address.
    let unvisited = addresses.get_mut(first..).or_broken_default("the list contains the unvisited addresses");
    for address in unvisited.chunks_exact_mut(16) {
        address.swap_with_slice(dst);
    }
    if let Some(left) = fixed.get_mut(3).or_report("a routing header has 8 bytes") {
        *left = 0;
    }
    Ok(())
}
