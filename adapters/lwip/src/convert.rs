//! Conversion of C structures to validated Rust types.

use crate::types::{self, Address, Policy, Sa, Template};
use crate::{Status, suite};
use casemate_crypto::SecretBytes;
use casemate_datapath::Direction;
use casemate_datapath::spd::{self, Action, Bundle};
use casemate_sa::{
    AddrRange, Mode, PortRange, Protocol, SaParams, Selector, SpdId, Spi, Transform, UdpEncap,
};
use casemate_wire::ah::Align;
use core::net::IpAddr;

/// The strings and keys that pointers of an [`Sa`] refer to.
pub(crate) struct Secrets<'a> {
    pub(crate) suite: &'a str,
    pub(crate) encryption: &'a [u8],
    pub(crate) integrity: &'a [u8],
}

pub(crate) fn direction(value: u32) -> Result<Direction, Status> {
    match value {
        types::OUT => Ok(Direction::Outbound),
        types::IN => Ok(Direction::Inbound),
        _ => Err(Status::Value),
    }
}

pub(crate) fn protocol(value: u32) -> Result<Protocol, Status> {
    match value {
        types::ESP => Ok(Protocol::Esp),
        types::AH => Ok(Protocol::Ah),
        _ => Err(Status::Value),
    }
}

pub(crate) fn mode(value: u32) -> Result<Mode, Status> {
    match value {
        types::TRANSPORT => Ok(Mode::Transport),
        types::TUNNEL => Ok(Mode::Tunnel),
        _ => Err(Status::Value),
    }
}

pub(crate) fn flag(value: u32) -> Result<bool, Status> {
    match value {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Status::Value),
    }
}

/// Converts an address; `None` for version 0.
pub(crate) fn optional(address: &Address) -> Result<Option<IpAddr>, Status> {
    match address.version {
        0 => Ok(None),
        4 => {
            let [a, b, c, d, ..] = address.bytes;
            Ok(Some([a, b, c, d].into()))
        }
        6 => Ok(Some(address.bytes.into())),
        _ => Err(Status::Address),
    }
}

pub(crate) fn required(address: &Address) -> Result<IpAddr, Status> {
    optional(address)?.ok_or(Status::Address)
}

/// Converts an address to the C type.
pub(crate) fn address(addr: Option<IpAddr>) -> Address {
    let mut bytes = [0; 16];
    let version = match addr {
        None => 0,
        Some(IpAddr::V4(addr)) => {
            bytes.iter_mut().zip(addr.octets()).for_each(|(byte, value)| *byte = value);
            4
        }
        Some(IpAddr::V6(addr)) => {
            bytes = addr.octets();
            6
        }
    };
    Address { version, bytes }
}

fn range(first: &Address, last: &Address) -> Result<AddrRange, Status> {
    AddrRange::new(required(first)?, required(last)?).map_err(|_| Status::Address)
}

fn ports(first: u16, last: u16) -> Result<PortRange, Status> {
    PortRange::new(first, last).ok_or(Status::Value)
}

/// The fields that identify an SA of one direction (RFC 4301 section 4.1).
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct SaKey {
    pub(crate) spi: Spi,
    pub(crate) protocol: Protocol,
    pub(crate) dst: IpAddr,
}

impl SaKey {
    pub(crate) fn of(sa: &Sa) -> Result<Self, Status> {
        let spi = Spi::new(sa.spi).ok_or(Status::Value)?;
        Ok(Self { spi, protocol: protocol(sa.protocol)?, dst: required(&sa.dst)? })
    }
}

fn transform(protocol: Protocol, secrets: &Secrets<'_>) -> Result<Transform, Status> {
    let integ = SecretBytes::new(secrets.integrity);
    match protocol {
        Protocol::Esp => {
            let suite = suite::esp(secrets.suite).ok_or(Status::Suite)?;
            Ok(Transform::Esp { suite, encr: SecretBytes::new(secrets.encryption), integ })
        }
        Protocol::Ah if !secrets.encryption.is_empty() => Err(Status::Key),
        Protocol::Ah => Ok(Transform::Ah { suite: suite::ah(secrets.suite).ok_or(Status::Suite)?, integ }),
    }
}

fn encap(sa: &Sa) -> Result<Option<UdpEncap>, Status> {
    match (sa.encap_src_port, sa.encap_dst_port) {
        (0, 0) => Ok(None),
        (0, _) | (_, 0) => Err(Status::Value),
        (src_port, dst_port) => Ok(Some(UdpEncap { src_port, dst_port })),
    }
}

pub(crate) fn sa(sa: &Sa, secrets: &Secrets<'_>) -> Result<SaParams, Status> {
    let SaKey { spi, protocol, dst } = SaKey::of(sa)?;
    let (src, transform) = (required(&sa.src)?, transform(protocol, secrets)?);
    Ok(SaParams {
        encap: encap(sa)?,
        esn: flag(sa.esn)?,
        replay_window: sa.replay_window,
        last_sent: sa.last_sequence,
        last_received: sa.last_sequence,
        reqid: sa.reqid,
        ah_align: if flag(sa.ah_align8)? { Align::Eight } else { Align::Four },
        ..SaParams::new(spi, src, dst, mode(sa.mode)?, transform)
    })
}

fn template(template: &Template) -> Result<spd::Template, Status> {
    Ok(spd::Template {
        protocol: protocol(template.protocol)?,
        mode: mode(template.mode)?,
        src: optional(&template.src)?,
        dst: optional(&template.dst)?,
        reqid: template.reqid,
    })
}

fn bundle(sa: &Template, around: &Template) -> Result<Bundle, Status> {
    let inner = template(sa)?;
    if around.protocol == 0 {
        return Ok(Bundle::single(inner));
    }
    Bundle::new(&[inner, template(around)?]).map_err(|_| Status::Value)
}

pub(crate) fn policy(policy: &Policy) -> Result<spd::Policy, Status> {
    let proto = match policy.upper {
        -1 => None,
        upper => Some(u8::try_from(upper).map_err(|_| Status::Value)?),
    };
    let selector = Selector {
        src: range(&policy.src_first, &policy.src_last)?,
        dst: range(&policy.dst_first, &policy.dst_last)?,
        proto,
        src_port: ports(policy.src_port_first, policy.src_port_last)?,
        dst_port: ports(policy.dst_port_first, policy.dst_port_last)?,
    };
    let action = match policy.action {
        types::DISCARD => Action::Discard,
        types::BYPASS => Action::Bypass,
        types::PROTECT => Action::Protect(bundle(&policy.sa, &policy.around)?),
        _ => return Err(Status::Value),
    };
    Ok(spd::Policy { spd: SpdId::MAIN, selector, action, priority: policy.priority })
}
