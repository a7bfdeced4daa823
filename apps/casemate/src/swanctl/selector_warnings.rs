//! Warnings about traffic selectors that do not fit the addresses of a connection.

use super::schema::Keys;
use casemate_ike::TrafficSelectorTemplate;
use casemate_ike::config::{AddrPattern, ChildConfig, Connection};
use casemate_sa::AddrRange;

/// Warns of the traffic selectors of a connection.
pub(super) fn warn(connection: &Connection, keys: &Keys<'_>) {
    in_clear(connection, keys);
    connection.children.iter().for_each(|child| without_traffic(connection, child, keys));
}

/// Warns if the children of a client reach all addresses of one IP version and none of the other: that
/// traffic leaves in clear.
fn in_clear(connection: &Connection, keys: &Keys<'_>) {
    if connection.vips.is_empty() {
        return;
    }
    let addrs = |templates: &[TrafficSelectorTemplate]| -> Vec<AddrRange> {
        templates.iter().filter_map(|template| template.addrs).collect()
    };
    let protected: Vec<AddrRange> =
        connection.children.iter().flat_map(|child| addrs(&child.remote_ts)).collect();
    let shunted = connection.shunts.iter().flat_map(|shunt| addrs(&shunt.remote_ts));
    let decided: Vec<AddrRange> = protected.iter().copied().chain(shunted).collect();
    for (all, is_v4, here, missing) in [
        (AddrRange::ANY_V4, false, "IPv4", "IPv6, ::/0"),
        (AddrRange::ANY_V6, true, "IPv6", "IPv4, 0.0.0.0/0"),
    ] {
        if protected.contains(&all) && !decided.iter().any(|range| range.is_ipv4() == is_v4) {
            let other = if is_v4 { "IPv4" } else { "IPv6" };
            keys.section_warning(&format!(
                "all traffic of {here} is protected, and traffic of {other} leaves in clear. If this host \
                 has {missing} was expected in remote_ts, too, or in a child with `mode = drop`"
            ));
        }
    }
}

/// IP versions that addresses may have.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Versions {
    v4: bool,
    v6: bool,
}

impl Versions {
    const NONE: Self = Self { v4: false, v6: false };
    const BOTH: Self = Self { v4: true, v6: true };

    fn of(addrs: impl IntoIterator<Item = Option<bool>>) -> Self {
        addrs.into_iter().fold(Self::NONE, |all, is_ipv4| match is_ipv4 {
            Some(is_ipv4) => Self { v4: all.v4 || is_ipv4, v6: all.v6 || !is_ipv4 },
            None => Self::BOTH,
        })
    }

    const fn text(self) -> &'static str {
        if self.v4 { "IPv4" } else { "IPv6" }
    }
}

/// Warns of a child without a pair of selectors of the same IP version: no packet matches it.
fn without_traffic(connection: &Connection, child: &ChildConfig, keys: &Keys<'_>) {
    // The hosts of the IKE SA have addresses of the same version.
    let is_ipv4 = |pattern: &AddrPattern| match pattern {
        AddrPattern::Range(range) => Some(range.is_ipv4()),
        AddrPattern::Any | AddrPattern::Host(_) => None,
    };
    let ends = [&connection.local_addrs, &connection.remote_addrs]
        .map(|addrs| Versions::of(addrs.iter().map(is_ipv4)));
    let ends = Versions { v4: ends[0].v4 && ends[1].v4, v6: ends[0].v6 && ends[1].v6 };
    let own = match connection.vips.is_empty() {
        true => ends,
        false => Versions::of(connection.vips.iter().map(|vip| Some(vip.is_ipv4()))),
    };
    let peer = if connection.pools.is_empty() { ends } else { Versions::BOTH };
    let versions = |templates: &[TrafficSelectorTemplate], dynamic: Versions| {
        templates.iter().fold(Versions::NONE, |all, template| {
            let one = template.addrs.map_or(dynamic, |range| Versions::of([Some(range.is_ipv4())]));
            Versions { v4: all.v4 || one.v4, v6: all.v6 || one.v6 }
        })
    };
    let (local, remote) = (versions(&child.local_ts, own), versions(&child.remote_ts, peer));
    let has_pair = local.v4 && remote.v4 || local.v6 && remote.v6;
    if !has_pair && local != Versions::NONE && remote != Versions::NONE {
        keys.section_warning(&format!(
            "children.{}: local_ts has addresses of {}, and remote_ts of {}, so no packet matches: selectors \
             of the same IP version were expected. `dynamic`, the default, is the address of the host, or a \
             virtual one",
            child.name,
            local.text(),
            remote.text()
        ));
    }
}
