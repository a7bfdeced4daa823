//! What has to be changed in the system so that traffic meets the data path: first a plan, then the deed.
//!
//! A [`Plan`] lists every change as the command that an administrator would type, for `--dry-run`.
//! [`Plan::apply`] notes each in the [`Journal`] before it makes it; at an orderly end the journal takes all
//! of them back. The guard comes first, in one transaction in the place of the one that a former run may have
//! left, and without it nothing else is changed. Before it, the TUN interface is made, switched off, and the rule
//! for IPv4, into a table without routes: the kernel gives each to one instance only, which is alone with its
//! guard and its numbers from then on. [`Live`] keeps routes and filter in step with policies that
//! come and go later. What policies ask for is worked out in one place for both of them, `scheme`.

mod held;
mod live;
mod peers;
mod scheme;
mod sentry;
mod ways;

use crate::Error;
use crate::journal::{Journal, Undo, sysctl_path};
use crate::netlink::Netlink;
use crate::promises::Promise;
use crate::route::{self, Numbers, Route, Rule};
use crate::tun::Tun;
use casemate_datapath::spd::{Policy, PolicyId};
use casemate_sched::Classifier;
use scheme::Scheme;
use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use ways::Ways;

pub use live::Live;
pub use sentry::GuardState;

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
    pub outbound: &'a [(PolicyId, &'a Policy)],
    /// The policies for packets that come in.
    pub inbound: &'a [(PolicyId, &'a Policy)],
    /// UDP ports on which ESP arrives.
    pub encap_ports: &'a [u16],
    /// The other ends of the SAs.
    pub peers: &'a [IpAddr],
    /// What a former run protected, and is not to be seen in clear until the configuration is known
    /// ([`Live`]).
    pub held: &'a [Promise],
    /// Which packets have a queue of their own at the TUN interface; without it there is one for all.
    pub classifier: Option<&'a Classifier>,
}

/// One change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// The TUN interface, switched off. Whoever has it is alone with its name, and so with the name of its guard.
    Tun {
        /// Its name.
        name: String,
        /// Whether each class has a queue.
        has_queues: bool,
    },
    /// It is switched on.
    Up {
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
            Self::Tun { name, has_queues } => {
                let queues = if *has_queues { " multi_queue" } else { "" };
                write!(f, "ip tuntap add dev {name} mode tun{queues}")
            }
            Self::Up { name, mtu } => write!(f, "ip link set dev {name} mtu {mtu} up"),
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
    numbers: Numbers,
    scheme: Scheme,
}

impl Plan {
    /// Works out what is needed, looking at the system but changing nothing.
    pub fn new(wanted: &Wanted<'_>, netlink: &mut Netlink) -> Result<Self, Error> {
        let scheme = Scheme::new(wanted, netlink.addresses()?);
        let guard = Change::Guard { tun: wanted.tun.into(), script: scheme.guard.replacement() };
        let tun = Change::Tun { name: wanted.tun.into(), has_queues: wanted.classifier.is_some() };
        let up = Change::Up { name: wanted.tun.into(), mtu: wanted.tun_mtu };
        let mut changes = vec![tun, guard, up];
        changes.extend(loosened(wanted, &scheme.ways, netlink)?);
        changes.extend(scheme.routes(wanted.numbers.table).map(Change::Route));
        // The rules come last: they switch the traffic over when everything else stands. The one for IPv4 is there
        // in any case, because it is how the numbers are claimed.
        let needed = [true, false].into_iter().filter(|v4| *v4 || scheme.ways.leads_in(*v4));
        changes.extend(needed.map(|v4| Change::Rule(Rule { v4, numbers: wanted.numbers })));
        Ok(Self { changes, numbers: wanted.numbers, scheme })
    }

    /// The changes.
    pub fn changes(&self) -> &[Change] {
        &self.changes
    }

    /// Makes the changes at this interface, which was [claimed](Tun::claim) already. If the guard cannot be put
    /// up, nothing is changed and a guard that a former run left stays.
    pub fn apply(&self, journal: &mut Journal, tun: &Tun, netlink: &mut Netlink) -> Result<(), Error> {
        journal.note(Undo::Routes { table: self.numbers.table, tun: tun.name().into() })?;
        for change in &self.changes {
            let failed = |error| Error::new(format!("`{change}`"), error);
            match change {
                Change::Tun { .. } => {}
                Change::Guard { script, .. } => self.put_up_guard(script, journal)?,
                Change::Up { mtu, .. } => tun.set_up(*mtu, netlink)?,
                Change::Sysctl { name, value } => set_parameter(name, value, journal)?,
                Change::Route(route) => route.set(tun.index(), netlink).map_err(failed)?,
                Change::Rule(rule) => {
                    journal.note(Undo::Rule(*rule))?;
                    rule.add(netlink).or_else(is_there).map_err(failed)?;
                }
            }
        }
        if journal.is_adopted() {
            // Routes past the table outlived the interface.
            let wanted = self.changes.iter().filter_map(|change| match change {
                Change::Route(route) => Some(route.dst),
                _ => None,
            });
            route::clear(self.numbers.table, Some(tun.index()), &wanted.collect(), netlink)?;
        }
        Ok(())
    }

    /// In the place of a guard that a former run left and no journal knows comes only one that protects
    /// something: [`Live`] puts it up when it knows the policies. Until it stands it is not noted, so that an
    /// error does not remove the former one.
    fn put_up_guard(&self, script: &str, journal: &mut Journal) -> Result<(), Error> {
        let is_found = journal.finds_guard()?;
        journal.promise(self.scheme.promises())?;
        if is_found && self.scheme.promises().next().is_none() {
            return Ok(());
        }
        if !is_found {
            journal.note_guard()?;
        }
        journal.nft().run(script).map_err(|error| {
            let undone = if journal.is_adopted() { Ok(()) } else { journal.undo() };
            let also = undone.err().map_or(String::new(), |also| format!("; {also}"));
            let what = "the guard against cleartext, without which nothing is protected";
            Error::other(what, format!("{error}{also}"))
        })?;
        journal.note_guard()?;
        journal.drop_former()
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.changes.iter().try_for_each(|change| writeln!(f, "{change}"))
    }
}

/// A rule of a former run stands already.
fn is_there(error: std::io::Error) -> std::io::Result<()> {
    if error.raw_os_error() == Some(libc::EEXIST) { Ok(()) } else { Err(error) }
}

/// Sets a kernel parameter, after its value has been noted.
fn set_parameter(name: &str, value: &str, journal: &mut Journal) -> Result<(), Error> {
    let path = sysctl_path(name);
    let failed = |error| Error::new(format!("sysctl {name}"), error);
    let before = std::fs::read_to_string(&path).map_err(failed)?;
    journal.note(Undo::Sysctl { name: name.into(), value: before.trim().into() })?;
    std::fs::write(path, value).map_err(failed)
}

/// Where a peer is a protected destination itself, its packets arrive on another interface than our table would send the
/// answers to. Strict reverse path filtering (RFC 3704 section 2.2) drops them; loose filtering does not.
fn loosened(wanted: &Wanted<'_>, ways: &Ways, netlink: &mut Netlink) -> Result<Vec<Change>, Error> {
    let mut names = BTreeSet::new();
    for peer in wanted.peers.iter().filter(|peer| peer.is_ipv4() && ways.leads_in_to(**peer)) {
        if let Some(index) = netlink.interface_to(*peer, wanted.numbers.mark)? {
            names.insert(netlink.link_at(index)?.name);
        }
    }
    let of_interfaces = names.iter().filter_map(|name| loosening(name, name));
    // The TUN interface is not there yet, and will be like others.
    Ok(loosening(wanted.tun, "default").into_iter().chain(of_interfaces).collect())
}

/// What makes strict filtering of an interface loose; nothing if it is not strict. It has the value of `template`.
fn loosening(interface: &str, template: &str) -> Option<Change> {
    let strict = rp_filter("all").max(rp_filter(template)) == Some(1);
    strict.then(|| Change::Sysctl { name: rp_filter_name(interface), value: "2" })
}

fn rp_filter_name(interface: &str) -> String {
    format!("net/ipv4/conf/{interface}/rp_filter")
}

fn rp_filter(interface: &str) -> Option<u32> {
    std::fs::read_to_string(sysctl_path(&rp_filter_name(interface))).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests;
