//! TCP segments that fit: the MSS of connections that begin under an SA.
//!
//! A host whose stack knows nothing of SAs would send segments as long as its link takes, and each would have to be cut after
//! protection. Telling both ends at the SYN is cheaper, and needs no ICMP.

use crate::classify::Decision;
use crate::outbound::sealed_len;
use crate::{Datapath, Direction, pmtu};
use casemate_sa::Instant;
use casemate_wire::flow::{FlowKey, Overview};
use casemate_wire::ip::{IpVersion, Ipv4, Ipv6, proto};
use casemate_wire::tcp;
use core::net::IpAddr;

impl Datapath {
    /// Lowers the MSS option of a TCP SYN so that full segments of the connection still fit their path once they are
    /// protected, or the link where they go in clear (RFC 9293 section 3.7.1). Other packets stay as they are.
    ///
    /// `packet` is a whole IP packet: an outgoing one before it is protected, an incoming one after it was admitted. The SAs of
    /// both directions are taken to cost the same.
    pub fn clamp_mss(&mut self, now: Instant, packet: &mut [u8], direction: Direction) {
        let Some(syn) = Syn::of(packet) else { return };
        let Some(mtu) = self.mtu_of(now, packet, direction) else { return };
        // RFC 9293 section 3.7.1: headers without options count, whatever is sent.
        let headers = syn.at.saturating_add(tcp::HEADER_LEN);
        let most = u16::try_from(mtu.saturating_sub(headers)).unwrap_or(u16::MAX);
        if let Some(segment) = packet.get_mut(syn.at..) {
            tcp::lower_mss(segment, most);
        }
    }

    /// The longest packet of this one's flow that need not be cut; `None` if it goes nowhere.
    fn mtu_of(&mut self, now: Instant, packet: &[u8], direction: Direction) -> Option<usize> {
        let key = Overview::of(packet).ok()?.key;
        let flow = match direction {
            Direction::Outbound => key,
            Direction::Inbound => answer_to(&key)?,
        };
        let chain = match self.decide(&flow) {
            Decision::Protect(chain) => chain,
            Decision::Bypass => return Some(self.link_mtu),
            Decision::Reassemble | Decision::Drop(_) | Decision::Acquire(_) => return None,
        };
        let inner = self.sad.outbound_ref(chain.inner)?;
        let outer = chain.outer.and_then(|slot| self.sad.outbound_ref(slot));
        let mtu = outer.unwrap_or(inner).path_mtu.current(now, self.link_mtu);
        Some(pmtu::inner_mtu(mtu, sealed_len(packet, inner, outer)))
    }
}

/// The flow of answers to a TCP packet, which are taken to have its DSCP.
fn answer_to(flow: &FlowKey) -> Option<FlowKey> {
    let (src, dst) = flow.ports()?;
    let answer = match (flow.src(), flow.dst()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => FlowKey::v4(to, from, proto::TCP, (dst, src)),
        (IpAddr::V6(from), IpAddr::V6(to)) => FlowKey::v6(to, from, proto::TCP, (dst, src)),
        _ => return None,
    };
    Some(answer.with_dscp(flow.dscp()))
}

/// A TCP SYN in a packet.
struct Syn {
    /// Where the segment begins.
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
