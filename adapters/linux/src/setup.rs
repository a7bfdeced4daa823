//! What has to be changed in the system so that traffic meets the data path: first a plan, then the deed.
//!
//! A [`Plan`] lists every change as the command that an administrator would type, for `--dry-run`. [`Plan::apply`] notes
//! each in the [`Journal`] before it makes it; the journal takes all of them back.

mod live;

use crate::guard::{self, GuardSpec};
use crate::journal::{Journal, Undo, sysctl_path};
use crate::netlink::Netlink;
use crate::route::{Numbers, Prefix, Route, Rule, Way};
use crate::tun::Tun;
use crate::{Error, nft};
use casemate_datapath::spd::{Action, Policy};
use casemate_sa::{AddrRange, PortRange};
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

pub use live::Live;

/// What the plan is made from.
#[derive(Debug)]
pub struct Wanted<'a> {
    /// Name of the TUN interface.
    pub tun: &'a str,
    /// Its MTU.
    pub tun_mtu: usize,
    /// Mark, table and priority.
    pub numbers: Numbers,
    /// The policies for packets that leave, the first that decides first.
    pub outbound: &'a [&'a Policy],
    /// The policies for packets that come in.
    pub inbound: &'a [&'a Policy],
    /// UDP ports on which ESP arrives.
    pub encap_ports: &'a [u16],
    /// The other ends of the SAs.
    pub peers: &'a [IpAddr],
}

/// One change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// The TUN interface.
    Tun {
        /// Its name.
        name: String,
        /// Its MTU.
        mtu: usize,
    },
    /// A kernel parameter.
    Sysctl {
        /// Its path below /proc/sys/.
        name: String,
        /// Its new value.
        value: &'static str,
    },
    /// The packet filter against clear text.
    Guard {
        /// The interface whose filter it is.
        tun: String,
        /// For `nft -f -`.
        script: String,
    },
    /// A route of our table.
    Route(Route),
    /// A rule that leads into our table.
    Rule(Rule),
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tun { name, mtu } => {
                write!(f, "ip tuntap add dev {name} mode tun\nip link set dev {name} mtu {mtu} up")
            }
            Self::Sysctl { name, value } => write!(f, "sysctl -w {}={value}", name.replace('/', ".")),
            Self::Guard { script, .. } => write!(f, "nft -f - <<'END'\n{script}END"),
            Self::Route(route) => route.fmt(f),
            Self::Rule(rule) => rule.fmt(f),
        }
    }
}

/// Every change, in the order in which they are made.
#[derive(Debug)]
pub struct Plan {
    changes: Vec<Change>,
}

impl Plan {
    /// Works out what is needed, looking at the system but changing nothing.
    pub fn new(wanted: &Wanted<'_>, netlink: &mut Netlink) -> Result<Self, Error> {
        let routes = routes(wanted, &netlink.addresses()?);
        let mut changes = vec![Change::Tun { name: wanted.tun.into(), mtu: wanted.tun_mtu }];
        changes.extend(loosened(wanted, &routes, netlink)?);
        let script = script_of(wanted);
        changes.push(Change::Guard { tun: wanted.tun.into(), script });
        // The rules come last: they switch the traffic over when everything else stands.
        for v4 in [true, false] {
            if routes.iter().any(|route| route.dst.is_ipv4() == v4) {
                changes.push(Change::Rule(Rule { v4, numbers: wanted.numbers }));
            }
        }
        let before_rules = changes.iter().position(|change| matches!(change, Change::Rule(_)));
        let at = before_rules.unwrap_or(changes.len());
        changes.splice(at..at, routes.into_iter().map(Change::Route));
        Ok(Self { changes })
    }

    /// The changes.
    pub fn changes(&self) -> &[Change] {
        &self.changes
    }

    /// Makes the changes. What is not guarded against clear text is told to `warn`.
    pub fn apply(
        &self,
        journal: &mut Journal,
        netlink: &mut Netlink,
        warn: &mut dyn FnMut(String),
    ) -> Result<Tun, Error> {
        let mut tun = None;
        for change in &self.changes {
            let failed = |error| Error::new(format!("`{change}`"), error);
            match change {
                Change::Tun { name, mtu } => tun = Some(Tun::create(name, *mtu, netlink)?),
                Change::Sysctl { name, value } => {
                    let path = sysctl_path(name);
                    let before = std::fs::read_to_string(&path).map_err(failed)?;
                    let undo = Undo::Sysctl { name: name.clone(), value: before.trim().into() };
                    journal.note(undo)?;
                    std::fs::write(path, value).map_err(failed)?;
                }
                Change::Guard { tun, script } => {
                    journal.note(Undo::Guard { tun: tun.clone() })?;
                    if let Err(error) = nft::run(script) {
                        warn(format!(
                            "clear text is not guarded against: sockets bound to an interface can send it, and what \
                             arrives unprotected is not dropped ({error})"
                        ));
                    }
                }
                Change::Route(route) => {
                    journal.note(Undo::Route(route.clone()))?;
                    route.add(netlink).map_err(failed)?;
                }
                Change::Rule(rule) => {
                    journal.note(Undo::Rule(*rule))?;
                    rule.add(netlink).map_err(failed)?;
                }
            }
        }
        tun.ok_or_else(|| Error::other("plan", "it has no TUN interface"))
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.changes.iter().try_for_each(|change| writeln!(f, "{change}"))
    }
}

fn script_of(wanted: &Wanted<'_>) -> String {
    guard::script(&GuardSpec {
        tun: wanted.tun,
        mark: wanted.numbers.mark,
        encap_ports: wanted.encap_ports,
        outbound: wanted.outbound,
        inbound: wanted.inbound,
    })
}

/// The routes of our table. Whatever a policy protects or discards goes into the TUN interface, also where a policy of
/// higher rank lets part of it pass: the data path decides. Only what passes in any case goes past it.
fn routes(wanted: &Wanted<'_>, addresses: &[IpAddr]) -> Vec<Route> {
    let mut ways: BTreeMap<Prefix, Way> = BTreeMap::new();
    for (rank, policy) in wanted.outbound.iter().enumerate() {
        let way = match policy.action {
            Action::Protect(_) | Action::Discard => {
                Way::Into(wanted.tun.into(), preferred_source(policy, addresses))
            }
            Action::Bypass if passes_in_any_case(policy, wanted.outbound.get(..rank).unwrap_or_default()) => {
                Way::Past
            }
            Action::Bypass => continue,
        };
        for dst in Prefix::cover(&policy.selector.dst) {
            // The policy that decides first has the say.
            ways.entry(dst).or_insert_with(|| way.clone());
        }
    }
    // A way past is needed only around a way in.
    let leads_in = |v4| ways.iter().any(|(dst, way)| dst.is_ipv4() == v4 && *way != Way::Past);
    let needed = [leads_in(true), leads_in(false)];
    let table = wanted.numbers.table;
    let routes = ways.into_iter().map(|(dst, way)| Route { dst, table, way });
    routes.filter(|route| if route.dst.is_ipv4() { needed[0] } else { needed[1] }).collect()
}

/// Whether a bypass holds for every packet to its destinations, for no policy of higher rank concerns any of them.
fn passes_in_any_case(bypass: &Policy, higher: &[&Policy]) -> bool {
    let selector = &bypass.selector;
    let any_source = selector.src == AddrRange::ANY_V4 || selector.src == AddrRange::ANY_V6;
    let any_port = selector.src_port == PortRange::ANY && selector.dst_port == PortRange::ANY;
    let overlaps = |policy: &&&Policy| {
        let (a, b) = (&policy.selector.dst, &selector.dst);
        policy.action != Action::Bypass && a.first() <= b.last() && b.first() <= a.last()
    };
    any_source && any_port && selector.proto.is_none() && higher.iter().filter(overlaps).count() == 0
}

/// The address that the host's own packets should come from, so that they match the policy.
fn preferred_source(policy: &Policy, addresses: &[IpAddr]) -> Option<IpAddr> {
    let fits = |addr: &&IpAddr| policy.selector.src.contains(**addr) && is_global(addr);
    let end = match &policy.action {
        Action::Protect(bundle) => bundle.templates().last().and_then(|template| template.src),
        _ => None,
    };
    let ends_here = addresses.iter().filter(fits).find(|addr| Some(**addr) == end);
    ends_here.or_else(|| addresses.iter().find(fits)).copied()
}

fn is_global(addr: &IpAddr) -> bool {
    match addr {
        IpAddr::V4(addr) => !addr.is_loopback() && !addr.is_link_local(),
        IpAddr::V6(addr) => !addr.is_loopback() && !addr.is_unicast_link_local(),
    }
}

/// Where a peer is a protected destination itself, its packets arrive on another interface than our table would send the
/// answers to. Strict reverse path filtering (RFC 3704 section 2.2) drops them; loose filtering does not.
fn loosened(wanted: &Wanted<'_>, routes: &[Route], netlink: &mut Netlink) -> Result<Vec<Change>, Error> {
    let mut interfaces = vec![(wanted.tun.to_owned(), "default".to_owned())];
    for peer in wanted.peers.iter().filter(|peer| peer.is_ipv4()) {
        let range = |route: &Route| AddrRange::prefix(route.dst.addr, route.dst.len);
        let protected =
            |route: &&Route| route.way != Way::Past && range(route).is_ok_and(|range| range.contains(*peer));
        if routes.iter().find(protected).is_none() {
            continue;
        }
        if let Some(index) = netlink.interface_to(*peer, wanted.numbers.mark)? {
            let name = netlink.link_at(index)?.name;
            interfaces.push((name.clone(), name));
        }
    }
    interfaces.sort();
    interfaces.dedup();
    let strict = |(_, template): &(String, String)| rp_filter("all").max(rp_filter(template)) == Some(1);
    let names = interfaces.into_iter().filter(strict).map(|(name, _)| name);
    Ok(names.map(|name| Change::Sysctl { name: rp_filter_name(&name), value: "2" }).collect())
}

fn rp_filter_name(interface: &str) -> String {
    format!("net/ipv4/conf/{interface}/rp_filter")
}

fn rp_filter(interface: &str) -> Option<u32> {
    std::fs::read_to_string(sysctl_path(&rp_filter_name(interface))).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests;
