//! Traffic selectors of transport mode through a NAT (RFC 7296 section 2.23.1).
//!
//! In transport mode the selectors are the two ends themselves, and each end names the addresses that it
//! sees. The receiver replaces them with the addresses that it sees itself, those of the IKE message, and
//! keeps the originals: checksums of TCP and UDP were computed with them (RFC 3948 section 3.1.2).

use crate::nat::Nat;
use crate::{Path, Traffic};
use alloc::vec::Vec;
use casemate_sa::AddrRange;
use core::net::IpAddr;

/// The addresses that take the place of those behind a NAT.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Substitution {
    local: Option<IpAddr>,
    remote: Option<IpAddr>,
}

/// Selectors with the addresses that we see.
pub(super) struct Substituted {
    pub(super) local: Vec<Traffic>,
    pub(super) remote: Vec<Traffic>,
    /// Source and destination of what the peer sends, as the peer sees them; `None` if we see the same.
    pub(super) original: Option<(IpAddr, IpAddr)>,
}

impl Substitution {
    /// For messages on `path`; `None` without a NAT.
    pub(crate) fn new(nat: Nat, path: Path) -> Option<Self> {
        let of = |translated: bool, addr| Some(addr).filter(|_| translated);
        let (local, remote) = (of(nat.local, path.local.ip()), of(nat.remote, path.remote.ip()));
        nat.any().then_some(Self { local, remote })
    }

    /// Replaces the addresses of a peer's selectors for transport mode; `None` if a side is not exactly one
    /// address, of the IP version of the IKE SA.
    pub(super) fn apply(&self, local: &[Traffic], remote: &[Traffic]) -> Option<Substituted> {
        let original = (single(remote)?, single(local)?);
        let seen = (self.remote.unwrap_or(original.0), self.local.unwrap_or(original.1));
        if original.0.is_ipv4() != seen.0.is_ipv4() || original.1.is_ipv4() != seen.1.is_ipv4() {
            return None;
        }
        let with = |traffic: &[Traffic], addr| {
            traffic.iter().map(|part| Traffic { addrs: AddrRange::single(addr), ..*part }).collect()
        };
        Some(Substituted {
            local: with(local, seen.1),
            remote: with(remote, seen.0),
            original: Some(original).filter(|original| *original != seen),
        })
    }
}

/// The one address of all these selectors.
fn single(traffic: &[Traffic]) -> Option<IpAddr> {
    let addr = traffic.first()?.addrs.first();
    traffic.iter().all(|part| part.addrs == AddrRange::single(addr)).then_some(addr)
}
