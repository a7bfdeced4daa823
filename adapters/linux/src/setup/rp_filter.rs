//! Reverse path filters, and the peers that need loose ones.

use super::policy_routes::PolicyRoutes;
use super::{PlanInput, SystemChange};
use crate::Error;
use crate::journal::sysctl_path;
use crate::netlink::Netlink;
use casemate_ike::ChildId;
use casemate_wire::invariant::OrBroken;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::net::IpAddr;
use std::ops::RangeInclusive;

/// Changes of reverse path filters that the peers need. If a peer is a protected destination itself, its
/// packets arrive on another interface than the one to which our table would send the responses. Strict
/// reverse path filtering (RFC 3704 section 2.2) drops such packets; loose filtering does not.
pub(super) fn rp_filter_changes(
    input: &PlanInput<'_>,
    routes: &PolicyRoutes,
    netlink: &mut Netlink,
) -> Result<Vec<SystemChange>, Error> {
    let mut names = BTreeSet::new();
    for peer in input.peers.iter().filter(|peer| peer.is_ipv4() && routes.routes_into_tun(**peer)) {
        if let Some(index) = netlink.interface_to(*peer, input.numbers.mark)? {
            names.insert(netlink.link_at(index)?.name);
        }
    }
    // The TUN interface does not exist yet; it will have the default value.
    let mut changes: Vec<SystemChange> = rp_filter_change(input.tun, "default")?.into_iter().collect();
    for name in &names {
        changes.extend(rp_filter_change(name, name)?);
    }
    Ok(changes)
}

/// The change that makes the filter of an interface loose; `None` if it is not strict. The interface has the
/// value of `template`.
pub(super) fn rp_filter_change(interface: &str, template: &str) -> Result<Option<SystemChange>, Error> {
    let is_strict = rp_filter("all")?.max(rp_filter(template)?) == Some(1);
    Ok(is_strict.then(|| SystemChange::Sysctl { name: rp_filter_name(interface), value: "2" }))
}

/// Name of the kernel parameter of an interface.
pub(crate) fn rp_filter_name(interface: &str) -> String {
    format!("net/ipv4/conf/{interface}/rp_filter")
}

/// Value of the filter of an interface; `None` if there is no such interface.
fn rp_filter(interface: &str) -> Result<Option<u32>, Error> {
    let name = rp_filter_name(interface);
    let failed = |error| Error::new(format!("sysctl {name}"), error);
    match std::fs::read_to_string(sysctl_path(&name)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        text => {
            let value = text.map_err(failed)?.trim().parse();
            value.map(Some).map_err(|error| failed(io::Error::other(error)))
        }
    }
}

const PEER_COUNTED: &str = "the peer of a Child SA is counted";

/// The peers that have Child SAs.
#[derive(Debug, Default)]
pub(super) struct Peers {
    of_child: HashMap<ChildId, IpAddr>,
    counts: BTreeMap<IpAddr, usize>,
}

impl Peers {
    /// Adds a Child SA with a peer. Returns whether it is the first one of the peer.
    pub(super) fn add(&mut self, child: ChildId, peer: IpAddr) -> bool {
        self.remove(child);
        self.of_child.insert(child, peer);
        let count = self.counts.entry(peer).or_default();
        *count = count.saturating_add(1);
        *count == 1
    }

    /// Removes a Child SA.
    pub(super) fn remove(&mut self, child: ChildId) {
        let Some(peer) = self.of_child.remove(&child) else { return };
        let Some(count) = self.counts.get_mut(&peer).or_report(PEER_COUNTED) else { return };
        *count = count.checked_sub(1).or_broken(PEER_COUNTED, 0);
        if *count == 0 {
            self.counts.remove(&peer);
        }
    }

    /// The peers with addresses in this range.
    pub(super) fn within(&self, addresses: RangeInclusive<IpAddr>) -> impl Iterator<Item = IpAddr> {
        self.counts.range(addresses).map(|(peer, _)| *peer)
    }
}
