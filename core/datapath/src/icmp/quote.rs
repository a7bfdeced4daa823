//! The packet that an ICMP error quotes.

use casemate_wire::flow::FlowKey;
use casemate_wire::icmp::{IcmpError, is_error};
use casemate_wire::ip::{self, IpVersion, Ipv4, Ipv6, proto};

/// Whether packets of this flow are ICMP errors: cheap enough for every packet.
#[inline]
pub(crate) fn is_of_errors(flow: &FlowKey) -> bool {
    let version = flow.version();
    let icmp = if version == IpVersion::V4 { proto::ICMP } else { proto::ICMPV6 };
    flow.proto() == Some(icmp)
        && flow.ports().is_some_and(|(kind, _)| u8::try_from(kind).is_ok_and(|kind| is_error(version, kind)))
}

/// The flow of the packet that an ICMP error quotes. `None` if it quotes none, or is damaged: nobody reads it then.
pub(crate) fn quoted_flow(packet: &[u8]) -> Option<FlowKey> {
    match ip::version(packet).ok()? {
        IpVersion::V4 => {
            let ip = Ipv4::parse(packet).ok().filter(|ip| ip.protocol() == proto::ICMP)?;
            FlowKey::parse_quoted(IcmpError::parse_v4(ip.payload()).ok()?.1).ok()
        }
        IpVersion::V6 => {
            let ip = Ipv6::parse(packet).ok()?;
            let chain = ip.chain().ok().filter(|chain| chain.upper() == Some(proto::ICMPV6))?;
            let message = ip.packet().get(chain.last.at..)?;
            FlowKey::parse_quoted(IcmpError::parse_v6(message, ip.src(), ip.dst()).ok()?.1).ok()
        }
    }
}
