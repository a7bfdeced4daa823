//! Which addresses and lifetimes are possible, and whose the addresses of a host are.

use super::{MAX_ADDRESSES, MAX_LIFETIME, MIN_LIFETIME, VirtualAddress};
use crate::Error;
use crate::netlink::AssignedAddress;
use casemate_sa::AddrRange;
use std::net::IpAddr;
use std::time::Duration;

/// Checks what can be checked without the kernel.
pub(super) fn check(addresses: &[VirtualAddress], lifetime: Duration) -> Result<(), Error> {
    if !(MIN_LIFETIME..=MAX_LIFETIME).contains(&lifetime) {
        let expected = format!("expected {MIN_LIFETIME:?} to {MAX_LIFETIME:?}");
        return Err(Error::other(format!("lifetime of virtual addresses of {lifetime:?}"), expected));
    }
    if !(1..=MAX_ADDRESSES).contains(&addresses.len()) {
        let what = format!("{} virtual addresses", addresses.len());
        return Err(Error::other(what, format!("expected 1 to {MAX_ADDRESSES}")));
    }
    for (index, address) in addresses.iter().enumerate() {
        check_one(address).map_err(|expected| Error::other(address.to_string(), expected))?;
        if let Some(first) = addresses.iter().take(index).find(|other| other.addr == address.addr) {
            return Err(Error::other(address.to_string(), format!("it is given twice, also as {first}")));
        }
    }
    Ok(())
}

fn check_one(VirtualAddress { addr, prefix_len, .. }: &VirtualAddress) -> Result<(), String> {
    let width = if addr.is_ipv4() { 32 } else { 128 };
    let Some(range) = AddrRange::prefix(*addr, *prefix_len).ok().filter(|_| *prefix_len > 0) else {
        return Err(format!("a prefix length of {prefix_len}: expected 1 to {width}"));
    };
    let is_unicast = match addr {
        IpAddr::V4(addr) => !addr.is_unspecified() && !addr.is_loopback() && addr.octets() < [224, 0, 0, 0],
        IpAddr::V6(addr) => {
            !addr.is_unspecified()
                && !addr.is_loopback()
                && !addr.is_multicast()
                && addr.to_ipv4_mapped().is_none()
        }
    };
    if !is_unicast {
        return Err("expected the unicast address of a host".into());
    }
    // In a subnet of two addresses both are hosts (RFC 3021).
    if addr.is_ipv4() && *prefix_len < 31 && [range.first(), range.last()].contains(addr) {
        return Err(format!("expected an address of a host, between {} and {}", range.first(), range.last()));
    }
    Ok(())
}

/// Why an address of this host was not left by a former run; `None` if it was.
pub(super) fn foreign(address: &AssignedAddress) -> Option<String> {
    match address.remaining {
        None => Some("it is configured statically: expected an address that no host has permanently".into()),
        Some(secs) if Duration::from_secs(secs.into()) > MAX_LIFETIME => Some(format!(
            "another program has assigned it for {secs} s more: expected at most {} s, as a former run \
             leaves",
            MAX_LIFETIME.as_secs()
        )),
        Some(_) => None,
    }
}
