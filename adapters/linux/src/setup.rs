//! System setup that directs traffic into the data path: first a plan, then its application.
//!
//! A [`Plan`] lists every change as the command that an administrator would type, for `--dry-run`.
//! [`Plan::apply`] records each change in the [`Journal`] before it makes the change; an orderly end undoes
//! all of them from the journal. The guard comes first. One transaction replaces the guard that a former run
//! may have left, and without the guard no further change is made. Two steps come before the guard: the TUN
//! interface is created, switched off, and the rule for IPv4 is added, into a table without routes. The
//! kernel gives each of the two to one instance only, so from then on no other instance uses the same guard
//! and numbers. [`SystemState`] keeps routes and filter up to date when policies are added and removed later.
//! `desired_state` derives from the policies what both need.

mod configured_traffic;
pub(crate) mod desired_state;
mod former_traffic;
mod guard_monitor;
pub(crate) mod mark_routes;
mod policy_routes;
mod routing_check;
mod rp_filter;
mod system_state;

use crate::Error;
use crate::VirtualAddress;
use crate::journal::{Journal, Undo, sysctl_path};
use crate::netlink::Netlink;
use crate::protected_traffic::ProtectedSelector;
use crate::route::{self, Route, RoutingNumbers, Rule};
use crate::tun::Tun;
use casemate_datapath::spd::{Policy, PolicyId};
use casemate_sched::Classifier;
use desired_state::DesiredState;
use rp_filter::rp_filter_changes;
use std::fmt;
use std::net::IpAddr;

pub use configured_traffic::ConfiguredTraffic;
pub use guard_monitor::GuardState;
pub(crate) use rp_filter::rp_filter_name;
pub use system_state::SystemState;

/// Input of a plan.
#[derive(Debug)]
pub struct PlanInput<'a> {
    /// Name of the TUN interface.
    pub tun: &'a str,
    /// MTU of the TUN interface.
    pub tun_mtu: usize,
    /// Mark, routing table and rule priority.
    pub numbers: RoutingNumbers,
    /// The outbound policies, the first that decides first.
    pub outbound: &'a [(PolicyId, &'a Policy)],
    /// The inbound policies, in the same order.
    pub inbound: &'a [(PolicyId, &'a Policy)],
    /// UDP ports on which ESP arrives.
    pub encap_ports: &'a [u16],
    /// Addresses of a cell. This host does not forward packets to them back to where they came from.
    pub cell_addresses: &'a [VirtualAddress],
    /// Remote addresses of the SAs.
    pub peers: &'a [IpAddr],
    /// Traffic that a former run protected, or that another node of the cell may protect. It stays blocked
    /// until the configuration is known ([`SystemState`]).
    pub former_protected: &'a [ProtectedSelector],
    /// Classes that have a queue of their own at the TUN interface; without a classifier there is one queue.
    pub classifier: Option<&'a Classifier>,
}

/// One change of the system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SystemChange {
    /// Create the TUN interface, switched off. Only one instance can have the interface, and so the name of
    /// its guard.
    Tun {
        /// Name of the interface.
        name: String,
        /// Whether each class has a queue.
        has_queues: bool,
    },
    /// Switch the TUN interface on.
    Up {
        /// Name of the interface.
        name: String,
        /// MTU in bytes.
        mtu: usize,
    },
    /// Set a kernel parameter.
    Sysctl {
        /// Path below /proc/sys/.
        name: String,
        /// New value.
        value: &'static str,
    },
    /// Install the guard, a packet filter against traffic in clear.
    Guard {
        /// Name of the TUN interface to which the guard belongs.
        tun: String,
        /// Script for `nft -f -`.
        script: String,
    },
    /// Add a route to our table.
    Route(Route),
    /// Add a rule that leads into our table.
    Rule(Rule),
}

impl fmt::Display for SystemChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tun { name, has_queues } => {
                let queues = if *has_queues { " multi_queue" } else { "" };
                write!(f, "ip tuntap add dev {name} mode tun{queues}")
            }
            Self::Up { name, mtu } => write!(f, "ip link set dev {name} mtu {mtu} up"),
            Self::Sysctl { name, value } => write!(f, "sysctl -w {name}={value}"),
            Self::Guard { script, .. } => write!(f, "nft -f - <<'END'\n{script}END"),
            Self::Route(route) => route.fmt(f),
            Self::Rule(rule) => rule.fmt(f),
        }
    }
}

/// All changes, in the order in which they are made.
#[derive(Debug)]
pub struct Plan {
    changes: Vec<SystemChange>,
    numbers: RoutingNumbers,
    desired: DesiredState,
}

impl Plan {
    /// Determines the changes. Reads the state of the system and changes nothing.
    pub fn new(input: &PlanInput<'_>, netlink: &mut Netlink) -> Result<Self, Error> {
        let desired = DesiredState::new(input, netlink.addresses()?);
        let guard = SystemChange::Guard { tun: input.tun.into(), script: desired.guard.replacement_script() };
        let tun = SystemChange::Tun { name: input.tun.into(), has_queues: input.classifier.is_some() };
        let up = SystemChange::Up { name: input.tun.into(), mtu: input.tun_mtu };
        let mut changes = vec![tun, guard, up];
        changes.extend(rp_filter_changes(input, &desired.routes, netlink)?);
        changes.extend(desired.routes(input.numbers.table).map(SystemChange::Route));
        // The rules come last: they activate the routes once everything else is set up. The rule for IPv4 is
        // always there, because it claims the numbers.
        let needed = [true, false].into_iter().filter(|v4| *v4 || desired.routes.has_tun_routes(*v4));
        changes.extend(needed.map(|v4| SystemChange::Rule(Rule { v4, numbers: input.numbers })));
        Ok(Self { changes, numbers: input.numbers, desired })
    }

    /// The changes, in order.
    pub fn changes(&self) -> &[SystemChange] {
        &self.changes
    }

    /// Makes the changes, for an interface that was [claimed](Tun::claim) before. If the guard cannot be
    /// installed, nothing is changed, and the guard of a former run stays.
    pub fn apply(&self, journal: &mut Journal, tun: &Tun, netlink: &mut Netlink) -> Result<(), Error> {
        journal.record(Undo::Routes { table: self.numbers.table, tun: tun.name().into() })?;
        for change in &self.changes {
            let failed = |error| Error::new(format!("`{change}`"), error);
            match change {
                SystemChange::Tun { .. } => {}
                SystemChange::Guard { script, .. } => self.install_guard(script, journal)?,
                SystemChange::Up { mtu, .. } => tun.set_up(*mtu, netlink)?,
                SystemChange::Sysctl { name, value } => set_parameter(name, value, journal)?,
                SystemChange::Route(route) => route.set(tun.index(), netlink).map_err(failed)?,
                SystemChange::Rule(rule) => {
                    journal.record(Undo::Rule(*rule))?;
                    rule.add(netlink).or_else(ignore_existing).map_err(failed)?;
                }
            }
        }
        if journal.is_recovered() {
            // Routes that bypass the table have outlived the interface.
            let routes = self.changes.iter().filter_map(|change| match change {
                SystemChange::Route(route) => Some(route.dst),
                _ => None,
            });
            route::clear(self.numbers.table, Some(tun.index()), &routes.collect(), netlink)?;
        }
        Ok(())
    }

    /// Installs the guard. If a former run left a guard that no journal lists, only a guard that protects
    /// something may replace it: [`SystemState`] installs it once it knows the policies. Until then the guard
    /// is not recorded, so that an error does not remove the former one.
    fn install_guard(&self, script: &str, journal: &mut Journal) -> Result<(), Error> {
        let is_found = journal.finds_unlisted_guard()?;
        journal.record_protected_traffic(self.desired.protected_traffic())?;
        if is_found && self.desired.protected_traffic().next().is_none() {
            return Ok(());
        }
        if !is_found {
            journal.record_guard()?;
        }
        journal.nft().run(script).map_err(|error| {
            let undone = if journal.is_recovered() { Ok(()) } else { journal.undo() };
            let also = undone.err().map_or(String::new(), |also| format!("; {also}"));
            let what = "the guard against cleartext, without which nothing is protected";
            Error::other(what, format!("{error}{also}"))
        })?;
        journal.record_guard()?;
        journal.drop_former_traffic()
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.changes.iter().try_for_each(|change| writeln!(f, "{change}"))
    }
}

/// Ignores that a rule of a former run exists.
fn ignore_existing(error: std::io::Error) -> std::io::Result<()> {
    if error.raw_os_error() == Some(libc::EEXIST) { Ok(()) } else { Err(error) }
}

/// Sets a kernel parameter, after its former value was recorded.
fn set_parameter(name: &str, value: &str, journal: &mut Journal) -> Result<(), Error> {
    let path = sysctl_path(name);
    let failed = |error| Error::new(format!("sysctl {name}"), error);
    let before = std::fs::read_to_string(&path).map_err(failed)?;
    journal.record(Undo::Sysctl { name: name.into(), value: before.trim().into() })?;
    std::fs::write(path, value).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::rp_filter::rp_filter_name;
    use super::*;
    use crate::netns::Netns;
    use casemate_datapath::spd::{Action, Bundle, PolicyTable, Template};
    use casemate_sa::{AddrRange, Mode, Protocol, Selector, SpdId};
    use casemate_sched::{Class, DscpTable, Rule as ClassRule};

    const NUMBERS: RoutingNumbers = RoutingNumbers { mark: 7, table: 8, priority: 9 };

    fn range(text: &str) -> AddrRange {
        let (addr, len) = text.split_once('/').unwrap();
        AddrRange::prefix(addr.parse().unwrap(), len.parse().unwrap()).unwrap()
    }

    fn policy(src: &str, dst: &str, action: Action) -> Policy {
        Policy { spd: SpdId::MAIN, selector: Selector::between(range(src), range(dst)), action, priority: 0 }
    }

    fn protect(src: Option<&str>) -> Action {
        let src = src.map(|addr| addr.parse().unwrap());
        Action::Protect(Bundle::single(Template {
            protocol: Protocol::Esp,
            mode: Mode::Tunnel,
            src,
            dst: None,
            reqid: 0,
        }))
    }

    fn plan_input<'a>(outbound: &'a [(PolicyId, &'a Policy)]) -> PlanInput<'a> {
        let (inbound, encap_ports, peers) = (&[][..], &[][..], &[][..]);
        PlanInput {
            tun: "tun5",
            tun_mtu: 1400,
            numbers: NUMBERS,
            outbound,
            inbound,
            encap_ports,
            cell_addresses: &[],
            peers,
            former_protected: &[],
            classifier: None,
        }
    }

    /// A table with these policies, in their order.
    fn table(policies: &[Policy]) -> PolicyTable {
        let mut table = PolicyTable::new(100, 1);
        for policy in policies {
            table.insert(policy.clone()).unwrap();
        }
        table
    }

    fn planned(policies: &[Policy], addresses: &[&str]) -> Vec<String> {
        let table = table(policies);
        let policies: Vec<_> = table.iter().collect();
        let addresses = addresses.iter().map(|addr| addr.parse().unwrap()).collect();
        DesiredState::new(&plan_input(&policies), addresses)
            .routes(NUMBERS.table)
            .map(|route| route.to_string())
            .collect()
    }

    #[test]
    fn protected_and_discarded_destinations_are_routed_into_the_tun_with_a_matching_source() {
        let policies = [
            policy("10.1.0.0/16", "10.2.0.0/16", protect(None)),
            policy("fd01::/64", "fd02::/64", protect(None)),
            policy("0.0.0.0/0", "10.3.0.0/16", Action::Discard),
        ];
        let addresses = ["127.0.0.1", "192.0.2.1", "10.1.0.1", "fe80::1", "fd01::1"];
        assert_eq!(
            planned(&policies, &addresses),
            [
                "ip -4 route add 10.2.0.0/16 dev tun5 table 8 scope global src 10.1.0.1",
                "ip -4 route add 10.3.0.0/16 dev tun5 table 8 scope global src 192.0.2.1",
                "ip -6 route add fd02::/64 dev tun5 table 8 src fd01::1",
            ]
        );
        assert_eq!(
            planned(&policies[..1], &[]),
            ["ip -4 route add 10.2.0.0/16 dev tun5 table 8 scope global"]
        );
    }

    #[test]
    fn the_tunnel_address_is_the_preferred_source() {
        let policies = [policy("0.0.0.0/0", "0.0.0.0/0", protect(Some("192.0.2.9")))];
        let routes = planned(&policies, &["10.0.0.1", "192.0.2.9"]);
        assert_eq!(routes, ["ip -4 route add 0.0.0.0/0 dev tun5 table 8 scope global src 192.0.2.9"]);
    }

    #[test]
    fn an_unconditional_bypass_has_a_throw_route() {
        let bypass = policy("0.0.0.0/0", "10.9.0.0/16", Action::Bypass);
        let all = policy("0.0.0.0/0", "0.0.0.0/0", protect(None));
        let in_before = "ip -4 route add 0.0.0.0/0 dev tun5 table 8 scope global";
        let past = "ip -4 route add throw 10.9.0.0/16 table 8";
        assert_eq!(planned(&[bypass.clone(), all.clone()], &[]), [in_before, past]);
        // The order means that everything is protected, so the bypass decides nothing.
        assert_eq!(planned(&[all.clone(), bypass.clone()], &[]), [in_before]);
        // The data path decides about a bypass for some senders or services only.
        let some = policy("10.1.0.0/16", "10.9.0.0/16", Action::Bypass);
        let mut service = bypass.clone();
        service.selector.proto = Some(6);
        assert_eq!(planned(&[some, service, all], &[]), [in_before]);
        // Without a route into the TUN interface no bypass route is needed.
        assert_eq!(planned(&[bypass], &[]), [""; 0]);
    }

    #[test]
    fn the_first_policy_for_a_destination_decides() {
        let addresses = ["192.0.2.1", "10.1.0.1"];
        let narrow = policy("10.1.0.0/16", "10.2.0.0/16", protect(None));
        let wide = policy("0.0.0.0/0", "10.2.0.0/16", protect(None));
        let route = |src| format!("ip -4 route add 10.2.0.0/16 dev tun5 table 8 scope global src {src}");
        assert_eq!(planned(&[narrow.clone(), wide.clone()], &addresses), [route("10.1.0.1")]);
        assert_eq!(planned(&[wide.clone(), narrow], &addresses), [route("192.0.2.1")]);
        let bypass = policy("0.0.0.0/0", "10.2.0.0/16", Action::Bypass);
        assert_eq!(planned(&[bypass.clone(), wide.clone()], &addresses), [""; 0]);
        assert_eq!(planned(&[wide, bypass], &addresses), [route("192.0.2.1")]);
    }

    #[test]
    fn every_change_is_shown_as_a_command() {
        let show = |change: SystemChange| change.to_string();
        assert_eq!(
            show(SystemChange::Tun { name: "tun5".into(), has_queues: false }),
            "ip tuntap add dev tun5 mode tun"
        );
        assert_eq!(
            show(SystemChange::Tun { name: "tun5".into(), has_queues: true }),
            "ip tuntap add dev tun5 mode tun multi_queue"
        );
        assert_eq!(
            show(SystemChange::Up { name: "tun5".into(), mtu: 1400 }),
            "ip link set dev tun5 mtu 1400 up"
        );
        assert_eq!(
            show(SystemChange::Sysctl { name: rp_filter_name("eth0.7"), value: "2" }),
            "sysctl -w net/ipv4/conf/eth0.7/rp_filter=2"
        );
        assert_eq!(
            show(SystemChange::Guard { tun: "t".into(), script: "table\n".into() }),
            "nft -f - <<'END'\ntable\nEND"
        );
    }

    #[test]
    fn rules_come_last_and_only_for_ip_versions_with_routes() {
        let table = table(&[policy("10.1.0.0/16", "10.2.0.0/16", protect(None))]);
        let policies: Vec<_> = table.iter().collect();
        let Ok(mut netlink) = Netlink::open() else { return };
        let plan = Plan::new(&plan_input(&policies), &mut netlink).unwrap();
        let kinds: Vec<_> = plan.changes().iter().map(std::mem::discriminant).collect();
        let [SystemChange::Tun { .. }, SystemChange::Guard { .. }, SystemChange::Up { .. }, ..] =
            plan.changes()
        else {
            panic!("the guard comes before traffic is led anywhere: {plan}");
        };
        assert!(matches!(plan.changes().last(), Some(SystemChange::Rule(Rule { v4: true, .. }))));
        assert_eq!(kinds.iter().filter(|kind| Some(*kind) == kinds.last()).count(), 1);
    }

    #[test]
    fn without_class_queues_there_is_one_queue_and_a_warning() {
        let Some(netns) = Netns::new().map_err(casemate_test_support::skip).ok() else { return };
        let rule = |number: u32| {
            let range = AddrRange::single(IpAddr::from(number.to_be_bytes()));
            ClassRule { selector: Selector::between(range, range), class: Class::Least }
        };
        // More than a program can hold, with any privileges.
        let rules: Vec<_> = (1..=10_000).map(rule).collect();
        let classifier = Classifier::new(rules, DscpTable::ALL_STANDARD);
        let make = |classifier| {
            let mut netlink = Netlink::open().unwrap();
            let mut warnings = Vec::new();
            let tun =
                Tun::claim("tun5", classifier, &mut netlink, &mut |warning| warnings.push(warning)).unwrap();
            (tun.queues().count(), warnings)
        };
        assert_eq!(netns.run(|| make(None)).unwrap(), (1, vec![]));
        let (queues, warnings) = netns.run(|| make(Some(&classifier))).unwrap();
        assert_eq!((queues, warnings.len()), (1, 1));
        assert!(
            warnings[0].contains("share one queue") && warnings[0].contains("too many rules"),
            "{warnings:?}"
        );
    }
}
