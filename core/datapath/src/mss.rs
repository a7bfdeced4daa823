//! MSS clamping: keeps TCP segments short enough for the path after protection.
//!
//! A host that does not know of the SA sends segments that fill its link. Each of them would have to be
//! fragmented after protection, or be rejected with an ICMP error that may get lost. Lowering the MSS in the
//! SYN is cheaper. The outbound and the inbound path call this for TCP packets that may be a SYN. Bypassed
//! packets stay unchanged, unless the data path protects a single host ([`Role::Host`]).

use crate::classify::{Decision, SaChain};
use crate::datapath::Role;
use crate::size::sealed_len;
use crate::{Datapath, pmtu};
use casemate_sa::{Instant, SpdId};
use casemate_wire::flow::FlowKey;
use casemate_wire::ip::{IpVersion, Ipv4, Ipv6, proto, v6};
use casemate_wire::packet::Packet;
use casemate_wire::tcp;
use core::net::IpAddr;

/// Whether a packet of this flow may be a TCP SYN. Cheap enough for every packet.
#[inline]
pub(crate) fn may_be_syn(flow: &FlowKey, packet: &Packet<'_>) -> bool {
    const FLAGS_AT: usize = 13;
    const SYN: u8 = 0x02;
    if flow.proto() != Some(proto::TCP) {
        return false;
    }
    let packet = packet.data();
    let segment_at = match packet.first_chunk::<{ v6::HEADER_LEN }>() {
        Some(header) if header[0] >> 4 == 4 => usize::from(header[0] & 0xf) * 4,
        Some(header) if header[v6::NEXT_HEADER_AT] == proto::TCP => v6::HEADER_LEN,
        // Extension headers: the packet may be a SYN. No SYN is shorter than an IPv6 header.
        Some(_) => return true,
        None => return false,
    };
    packet.get(segment_at.wrapping_add(FLAGS_AT)).is_some_and(|flags| flags & SYN != 0)
}

impl Datapath {
    /// Lowers the MSS option of an outgoing TCP SYN, so that full segments of the connection fit their path
    /// once these SAs have protected them (RFC 9293 section 3.7.1), or fit the link if there are no SAs. The
    /// innermost SA may have a limit of its own ([`Self::set_sa_max_mss`]).
    /// Other packets stay unchanged. Assumes that the SAs of both directions have the same overhead.
    #[cold]
    pub(crate) fn clamp_mss(&mut self, now: Instant, packet: &mut [u8], chain: Option<SaChain>) {
        let Some(syn) = Syn::of(packet) else { return };
        let limits = match chain {
            Some(chain) => self.inner_limits(now, packet, chain),
            None => Some((self.link_mtu, u16::MAX)),
        };
        let Some((mtu, limit)) = limits else { return };
        // RFC 9293 section 3.7.1: the MSS counts headers without options, whatever is sent.
        let headers = syn.at.saturating_add(tcp::HEADER_LEN);
        let max_mss = mtu.checked_sub(headers).and_then(|mss| u16::try_from(mss).ok());
        let max_mss = max_mss.map(|mss| mss.min(limit));
        if let (Some(segment), Some(max_mss @ 1..)) = (packet.get_mut(syn.at..), max_mss) {
            tcp::clamp_mss(segment, max_mss);
        }
    }

    /// Lowers the MSS option of an incoming SYN that `spd` admits: its receiver will send through the SAs of
    /// the other direction.
    #[cold]
    pub(crate) fn clamp_mss_inbound(&mut self, now: Instant, spd: SpdId, packet: &mut [u8], flow: &FlowKey) {
        let Some(back) = reply_flow(flow) else { return };
        match self.decide(spd, &back) {
            Decision::Protect(chain) => self.clamp_mss(now, packet, Some(chain)),
            Decision::Bypass if self.role == Role::Host => self.clamp_mss(now, packet, None),
            Decision::Bypass | Decision::Reassemble | Decision::Drop(_) | Decision::Acquire(_) => {}
        }
    }

    /// The longest packet with the headers of `packet` that these SAs can protect without fragmentation, and
    /// the limit of the innermost SA for the MSS.
    fn inner_limits(&self, now: Instant, packet: &[u8], chain: SaChain) -> Option<(usize, u16)> {
        let inner = self.sad.outbound_ref(chain.inner)?;
        let outer = chain.outer.and_then(|slot| self.sad.outbound_ref(slot));
        let mtu = outer.unwrap_or(inner).path_mtu.current(now, self.link_mtu);
        Some((pmtu::inner_mtu(mtu, sealed_len(packet, inner, outer)), inner.max_mss))
    }
}

/// The flow of the replies to a TCP packet. Assumes that they have the same DSCP.
fn reply_flow(flow: &FlowKey) -> Option<FlowKey> {
    let ports = flow.ports()?.reversed();
    let answer = match (flow.src(), flow.dst()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => FlowKey::v4(to, from, proto::TCP, ports),
        (IpAddr::V6(from), IpAddr::V6(to)) => FlowKey::v6(to, from, proto::TCP, ports),
        _ => return None,
    };
    Some(answer.with_dscp(flow.dscp()))
}

/// A TCP SYN in a packet.
struct Syn {
    /// Offset of the TCP segment.
    at: usize,
}

impl Syn {
    fn of(packet: &[u8]) -> Option<Self> {
        let at = match casemate_wire::ip::version(packet).ok()? {
            IpVersion::V4 => {
                let ip = Ipv4::parse(packet).ok()?;
                (ip.protocol() == proto::TCP && !ip.is_fragment()).then(|| ip.header_len())?
            }
            IpVersion::V6 => {
                let chain = Ipv6::parse(packet).ok()?.chain().ok()?;
                let is_whole = chain.fragment.is_none_or(|fragment| fragment.is_atomic());
                (chain.last.next_header == proto::TCP && is_whole).then_some(chain.last.at)?
            }
        };
        tcp::is_syn(packet.get(at..)?).then_some(Self { at })
    }
}
