//! Chains of header items, the outermost header first (RFC 5225 section 6.5).
//!
//! IR headers have the static and the dynamic chain, co_repair has the dynamic chain. All other compressed
//! headers have the irregular chain, which is in this file: fields without a pattern.

mod csrc_list;
mod dynamic;
mod static_chain;

pub(crate) use csrc_list::{read_csrc_list, write_csrc_list};
pub(crate) use dynamic::{read_dynamic, read_sdvl, write_dynamic, write_sdvl};
pub(crate) use static_chain::{read_static, write_static};

use crate::Fault;
use crate::cursor::{HeaderBytes, Reader, Write};
use crate::headers::{Ip, Transport};
use crate::state::{IpIdBehavior, State};

/// Reads the irregular chain into a state. `has_outer_fields`: TOS and TTL of outer IP headers are included.
pub(crate) fn read_irregular(
    reader: &mut Reader<'_>,
    has_outer_fields: bool,
    state: &mut State,
) -> Result<(), Fault> {
    let innermost = state.headers.ips.len().saturating_sub(1);
    for (n, (ip, behavior)) in state.headers.ips.iter_mut().zip(state.control.ip_ids).enumerate() {
        if let Ip::V4(ip) = ip {
            match behavior {
                IpIdBehavior::Random => ip.ident = reader.u16()?,
                IpIdBehavior::Zero => ip.ident = 0,
                IpIdBehavior::Sequential | IpIdBehavior::Swapped => {}
            }
        }
        if has_outer_fields && n != innermost {
            let [tos, ttl] = reader.array()?;
            ip.set_tos(tos);
            ip.set_ttl(ttl);
        }
    }
    if let Transport::Udp(udp) | Transport::Rtp(udp, _) = &mut state.headers.transport {
        udp.checksum = if state.control.has_checksum { reader.u16()? } else { 0 };
    }
    Ok(())
}

/// Writes the irregular chain.
pub(crate) fn write_irregular(
    state: &State,
    has_outer_fields: bool,
    out: &mut HeaderBytes,
) -> Result<(), Fault> {
    for (ip, behavior, is_innermost) in state.ips() {
        if let (Ip::V4(ip), IpIdBehavior::Random) = (ip, behavior) {
            out.put(&ip.ident.to_be_bytes())?;
        }
        if has_outer_fields && !is_innermost {
            out.put(&[ip.tos(), ip.ttl()])?;
        }
    }
    match &state.headers.transport {
        Transport::Udp(udp) | Transport::Rtp(udp, _) if state.control.has_checksum => {
            out.put(&udp.checksum.to_be_bytes())
        }
        _ => Ok(()),
    }
}
