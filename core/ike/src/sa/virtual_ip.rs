//! Virtual addresses by configuration payloads (RFC 7296 sections 2.19 and 3.15).

use super::Cx;
use crate::config::Connection;
use crate::pool::Lessee;
use crate::{Assigned, StateFault};
use alloc::vec::Vec;
use casemate_sa::AddrRange;
use casemate_wire::ike::{CfgAttribute, CfgType, Cp, CpAttribute, WriteError, Writer};
use core::net::{IpAddr, Ipv4Addr};

/// The longest value of an attribute: an IPv6 address and a prefix length.
const PREFIX_OF_ONE: u8 = 128;

/// Most values of one kind that are believed.
const MAX_VALUES: usize = 16;

/// Writes the initiator's request, if it wants an address.
pub(super) fn write_request(vips: &[IpAddr], out: &mut Writer<'_>) -> Result<(), WriteError> {
    if vips.is_empty() {
        return Ok(());
    }
    let mut values: Vec<(CfgAttribute, Vec<u8>)> = Vec::new();
    for vip in vips {
        let (addr, dns) = match vip {
            IpAddr::V4(_) => (CfgAttribute::INTERNAL_IP4_ADDRESS, CfgAttribute::INTERNAL_IP4_DNS),
            IpAddr::V6(_) => (CfgAttribute::INTERNAL_IP6_ADDRESS, CfgAttribute::INTERNAL_IP6_DNS),
        };
        // An empty value asks for any address (RFC 7296 section 3.15.1).
        values.push((addr, if vip.is_unspecified() { Vec::new() } else { address(*vip) }));
        if !values.iter().any(|(kind, _)| *kind == dns) {
            values.push((dns, Vec::new()));
        }
    }
    write(CfgType::REQUEST, &values, out)
}

/// What a reply gives us.
pub(super) fn read_reply(cp: &Cp<'_>) -> Assigned {
    let mut assigned = Assigned::default();
    if cp.kind != CfgType::REPLY {
        return assigned;
    }
    for attribute in cp.attributes() {
        match attribute.kind {
            CfgAttribute::INTERNAL_IP4_ADDRESS => {
                push(&mut assigned.addrs, attribute.v4().map(IpAddr::V4));
            }
            CfgAttribute::INTERNAL_IP6_ADDRESS => {
                push(&mut assigned.addrs, attribute.v6_prefix().map(|(addr, _)| IpAddr::V6(addr)));
            }
            CfgAttribute::INTERNAL_IP4_DNS => push(&mut assigned.dns, attribute.v4().map(IpAddr::V4)),
            CfgAttribute::INTERNAL_IP6_DNS => push(&mut assigned.dns, attribute.v6().map(IpAddr::V6)),
            CfgAttribute::INTERNAL_IP4_SUBNET => push(&mut assigned.subnets, v4_subnet(&attribute)),
            CfgAttribute::INTERNAL_IP6_SUBNET => {
                let prefix = attribute.v6_prefix();
                let range = prefix.and_then(|(addr, len)| AddrRange::prefix(addr.into(), len).ok());
                push(&mut assigned.subnets, range);
            }
            _ => {}
        }
    }
    assigned
}

fn push<T>(values: &mut Vec<T>, value: Option<T>) {
    if values.len() < MAX_VALUES {
        values.extend(value);
    }
}

fn v4_subnet(attribute: &CpAttribute<'_>) -> Option<AddrRange> {
    let (addr, mask) = attribute.v4_subnet()?;
    let len = mask.to_bits().leading_ones();
    let is_mask = mask.to_bits().checked_shl(len).unwrap_or(0) == 0;
    AddrRange::prefix(addr.into(), u8::try_from(len).ok().filter(|_| is_mask)?).ok()
}

/// What a peer gets from us.
#[derive(Debug, Default)]
pub(super) struct Leased {
    pub(super) addrs: Vec<IpAddr>,
    values: Vec<(CfgAttribute, Vec<u8>)>,
}

impl Leased {
    /// Leases what a request asks for; nothing if the connection has no pools.
    pub(super) fn fill(
        &mut self,
        cp: &Cp<'_>,
        connection: &Connection,
        to: Lessee<'_>,
        cx: &mut Cx<'_, '_>,
    ) -> Result<(), StateFault> {
        if cp.kind != CfgType::REQUEST || connection.pools.is_empty() {
            return Ok(());
        }
        let mut failed = false;
        for attribute in cp.attributes().take(MAX_VALUES) {
            let wanted = match attribute.kind {
                CfgAttribute::INTERNAL_IP4_ADDRESS => attribute.v4().map(IpAddr::V4),
                CfgAttribute::INTERNAL_IP6_ADDRESS => attribute.v6_prefix().map(|(addr, _)| IpAddr::V6(addr)),
                _ => continue,
            };
            let v4 = attribute.kind == CfgAttribute::INTERNAL_IP4_ADDRESS;
            match cx.shared.pools.lease(&connection.pools, v4, wanted, to) {
                Some(addr) => self.add(attribute.kind, addr),
                None => failed = true,
            }
        }
        // RFC 7296 section 3.15.4: only if no address can be had at all.
        if failed && self.addrs.is_empty() {
            return Err(StateFault::NoAddress);
        }
        for pool in cx.shared.pools.named(&connection.pools) {
            let used = self.addrs.iter().any(|addr| pool.addrs.contains(*addr));
            let (dns, subnets) = if used { (&*pool.dns, &*pool.subnets) } else { (&[][..], &[][..]) };
            self.values.extend(dns.iter().map(|dns| name_server(*dns)));
            self.values.extend(subnets.iter().filter_map(subnet));
        }
        Ok(())
    }

    fn add(&mut self, kind: CfgAttribute, addr: IpAddr) {
        self.addrs.push(addr);
        self.values.push((kind, address(addr)));
    }

    pub(super) fn write(&self, out: &mut Writer<'_>) -> Result<(), WriteError> {
        if self.addrs.is_empty() { Ok(()) } else { write(CfgType::REPLY, &self.values, out) }
    }
}

fn write(kind: CfgType, values: &[(CfgAttribute, Vec<u8>)], out: &mut Writer<'_>) -> Result<(), WriteError> {
    let attributes: Vec<CpAttribute<'_>> =
        values.iter().map(|(kind, value)| CpAttribute { kind: *kind, value }).collect();
    out.cp(kind, &attributes)
}

/// The value of an address attribute. IPv6 has a prefix length with it (RFC 7296 section 3.15.1).
fn address(addr: IpAddr) -> Vec<u8> {
    match addr {
        IpAddr::V4(addr) => addr.octets().into(),
        IpAddr::V6(addr) => [&addr.octets()[..], &[PREFIX_OF_ONE]].concat(),
    }
}

fn name_server(addr: IpAddr) -> (CfgAttribute, Vec<u8>) {
    match addr {
        IpAddr::V4(addr) => (CfgAttribute::INTERNAL_IP4_DNS, addr.octets().into()),
        IpAddr::V6(addr) => (CfgAttribute::INTERNAL_IP6_DNS, addr.octets().into()),
    }
}

fn subnet(range: &AddrRange) -> Option<(CfgAttribute, Vec<u8>)> {
    let len = range.prefix_len()?;
    Some(match range.first() {
        IpAddr::V4(addr) => {
            let mask = u32::MAX.checked_shl(32u32.saturating_sub(len.into())).unwrap_or(0);
            let mask = Ipv4Addr::from_bits(mask);
            (CfgAttribute::INTERNAL_IP4_SUBNET, [addr.octets(), mask.octets()].concat())
        }
        IpAddr::V6(addr) => (CfgAttribute::INTERNAL_IP6_SUBNET, [&addr.octets()[..], &[len]].concat()),
    })
}
