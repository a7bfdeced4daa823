mod lost_routes;
mod removed_routing;

use super::*;
use crate::instance::Instance;
use crate::journal::Leftovers;
use crate::netfilter::Netfilter;
use crate::netns::Netns;
use crate::nft::Nft;
use crate::nft::tests::Process;
use crate::protected_traffic::ProtectedSelector;
use crate::setup::{GuardState, PlanInput};
use casemate_datapath::Direction;
use casemate_datapath::spd::{Action, Bundle, Policy, PolicyId, PolicyTable, Template};
use casemate_sa::{AddrRange, Mode, PortRange, Protocol, Selector, SpdId};
use casemate_test_support::TestRng;
use casemate_test_support::eventually;
use std::process::Command;
use std::time::{Duration, Instant};

const TUN: &str = "tun5";
const NUMBERS: RoutingNumbers = RoutingNumbers { mark: 50_510, table: 50_510, priority: 220 };

/// A network namespace with the policies of an endpoint and the system state that they led to.
struct Host {
    outbound: PolicyTable,
    inbound: PolicyTable,
    tun: Tun,
    state: SystemState,
}

/// Opens a journal. Programs that other tests are starting may still hold copies of a lock that was just
/// released.
fn open_journal(instance: &Instance, nft: Nft) -> Journal {
    eventually("the lock of the journal is free", || {
        Journal::open(instance, nft.clone()).inspect_err(|error| println!("{error}")).ok()
    })
}

impl Host {
    /// Starts with these policies.
    fn start(outbound: PolicyTable, inbound: PolicyTable) -> Self {
        Self::make(outbound, inbound, &[], Nft::direct())
    }

    /// Starts without policies after a run that protected this traffic.
    fn start_with_former(former: &[ProtectedSelector]) -> Self {
        Self::make(PolicyTable::new(10, 1), PolicyTable::new(10, 2), former, Nft::direct())
    }

    fn make(outbound: PolicyTable, inbound: PolicyTable, former: &[ProtectedSelector], nft: Nft) -> Self {
        let mut netlink = Netlink::open().unwrap();
        wait_until_gone(&mut netlink);
        let (out, inn): (Vec<_>, Vec<_>) = (outbound.iter().collect(), inbound.iter().collect());
        let input = PlanInput {
            tun: TUN,
            tun_mtu: 1400,
            numbers: NUMBERS,
            outbound: &out,
            inbound: &inn,
            encap_ports: &[500, 4500],
            cell_addresses: &[],
            peers: &[],
            former_protected: former,
            classifier: None,
        };
        let plan = Plan::new(&input, &mut netlink).unwrap();
        let tun = Tun::create(TUN, &mut netlink).unwrap();
        let mut journal = open_journal(&Instance::new(TUN).unwrap(), nft);
        plan.apply(&mut journal, &tun, &mut netlink).unwrap();
        let state = SystemState::new(plan, &tun, journal, netlink).unwrap();
        Self { outbound, inbound, tun, state }
    }

    /// Ends in an orderly way. Returns the state of the system before the end.
    fn end(self) -> (Vec<String>, Vec<String>) {
        let system = system();
        self.state.close().unwrap();
        system
    }

    /// Adds a Child SA. Returns how long it takes until the system has it.
    fn time_to_add(&mut self, n: u16) -> Duration {
        let start = Instant::now();
        self.add_child(n);
        self.state.reconcile_blocking().unwrap();
        start.elapsed()
    }

    fn add_child(&mut self, n: u16) {
        let [high, low] = n.to_be_bytes();
        let dst = format!("10.{high}.{low}.1/32");
        self.add(Direction::Outbound, policy("10.99.2.0/24", &dst, protect(), 10));
        self.add(Direction::Inbound, policy(&dst, "10.99.2.0/24", protect(), 10));
    }

    fn empty() -> Self {
        Self::start(PolicyTable::new(10_000, 1), PolicyTable::new(10_000, 2))
    }

    /// Adds virtual addresses, as after an event of IKE.
    fn assign(&mut self, addrs: &[IpAddr]) {
        self.state.virtual_addrs.assign(addrs);
        self.state.change_addresses(addrs, Netlink::add_address).unwrap();
    }

    fn table(&mut self, direction: Direction) -> &mut PolicyTable {
        match direction {
            Direction::Outbound => &mut self.outbound,
            Direction::Inbound => &mut self.inbound,
        }
    }

    fn add(&mut self, direction: Direction, policy: Policy) -> PolicyId {
        let id = self.table(direction).insert(policy.clone()).unwrap();
        self.state.note_policy(&PolicyChange::Added { direction, id, policy });
        id
    }

    fn remove(&mut self, direction: Direction, id: PolicyId) {
        self.table(direction).remove(id).unwrap();
        self.state.note_policy(&PolicyChange::Removed { direction, id });
    }

    /// Waits until the kernel reports a change of addresses, which may take a moment.
    fn wait_for_address_change(&mut self) {
        let mut ready = [false];
        let [addresses, _, _] = self.state.descriptors();
        crate::sys::poll_readable(&[addresses], &mut ready, Duration::from_secs(5)).unwrap();
        assert_eq!(ready, [true], "no message about a change of addresses");
        assert!(self.state.read_system_changes());
    }

    /// The policies in new tables, as after a new start.
    fn copies(&self) -> (PolicyTable, PolicyTable) {
        let copy = |table: &PolicyTable| {
            let mut copy = PolicyTable::new(10_000, 3);
            for (_, policy) in table.iter() {
                copy.insert(policy.clone()).unwrap();
            }
            copy
        };
        (copy(&self.outbound), copy(&self.inbound))
    }
}

/// Waits until the interface of a test that ended is gone.
fn wait_until_gone(netlink: &mut Netlink) {
    eventually("the TUN interface is removed", || netlink.link(TUN).is_err().then_some(()));
}

fn run_program(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.stderr.is_empty(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The filter and the routes of a namespace, in an order that does not depend on their history.
fn system() -> (Vec<String>, Vec<String>) {
    let table = run_program("nft", &["--stateless", "list", "table", "inet", "casemate_tun5"]);
    let (_, table) = table.split_once("{\n").unwrap();
    let mut blocks: Vec<String> = table.split("\n\n").map(sorted).collect();
    blocks.sort();
    // `ip` prints an error for a table that never existed, so this lists all tables.
    let all =
        ["-4", "-6"].map(|version| run_program("ip", &[version, "route", "show", "table", "all"])).concat();
    let ours = format!("table {}", NUMBERS.table);
    let mut lines: Vec<String> = all.lines().filter(|line| line.contains(&ours)).map(str::to_owned).collect();
    lines.sort();
    (blocks, lines)
}

/// A set or a chain; the elements of a set are sorted.
fn sorted(block: &str) -> String {
    let words = block.split_whitespace().collect::<Vec<_>>().join(" ").replace("} }", "}");
    let Some((head, elements)) = words.split_once("elements = {") else { return words };
    let mut elements: Vec<&str> = elements.trim_end_matches(" }").split(',').map(str::trim).collect();
    elements.sort_unstable();
    format!("{head} {}", elements.join(", "))
}

fn range(text: &str) -> AddrRange {
    match text.split_once('-') {
        Some((first, last)) => AddrRange::new(first.parse().unwrap(), last.parse().unwrap()).unwrap(),
        None => {
            let (addr, len) = text.split_once('/').unwrap();
            AddrRange::prefix(addr.parse().unwrap(), len.parse().unwrap()).unwrap()
        }
    }
}

fn protect() -> Action {
    let (protocol, mode) = (Protocol::Esp, Mode::Tunnel);
    Action::Protect(Bundle::single(Template { protocol, mode, src: None, dst: None, reqid: 0 }))
}

fn policy(src: &str, dst: &str, action: Action, priority: u32) -> Policy {
    Policy { spd: SpdId::MAIN, selector: Selector::between(range(src), range(dst)), action, priority }
}

/// The policy with a protocol and a destination port or range of ports.
fn service(policy: Policy, proto: u8, first: u16, last: u16) -> Policy {
    let mut selector = policy.selector;
    (selector.proto, selector.dst_port) = (Some(proto), PortRange::new(first, last).unwrap());
    Policy { spd: SpdId::MAIN, selector, ..policy }
}

/// Policies of every kind that overlap, contain and equal each other.
fn universe() -> Vec<Policy> {
    let all = "0.0.0.0/0";
    let net = |dst: &str| policy("10.9.0.0/16", dst, protect(), 10);
    vec![
        net("10.0.0.0/16"),
        net("10.0.1.0/24"),
        net("10.0.1.0/24"),
        net("10.0.2.0/24"),
        net("10.0.3.0/24"),
        net("10.0.1.7/32"),
        net("10.0.0.1-10.0.0.9"),
        net("0.0.0.0/0"),
        policy(all, "10.0.1.0/24", protect(), 11),
        policy(all, all, protect(), 30),
        policy(all, "10.0.0.0/16", Action::Discard, 9),
        service(net("10.0.1.0/24"), 6, 443, 443),
        service(net("10.0.1.0/24"), 17, 443, 443),
        service(net("10.0.1.0/24"), 17, 500, 500),
        service(net("10.0.1.0/24"), 17, 443, 450),
        service(policy(all, all, protect(), 12), 132, 36412, 36412),
        service(net("10.0.1.0/24"), 1, 0, 0),
        policy(all, "10.0.0.0/16", Action::Bypass, 10),
        policy(all, "10.0.1.0/24", Action::Bypass, 20),
        policy("10.9.0.0/16", "10.0.1.0/24", Action::Bypass, 5),
        policy("10.9.0.0/16", "10.0.3.0/25", Action::Bypass, 5),
        policy("10.9.0.0/16", "10.0.3.0/25", Action::Bypass, 15),
        policy("fd09::/64", "fd00::/48", protect(), 10),
        policy("fd09::/64", "fd00::/64", protect(), 10),
        policy("fd09::/64", "fd00:0:0:1::/64", protect(), 10),
        policy("::/0", "fd00::1/128", Action::Discard, 10),
        service(policy("fd09::/64", "fd00::/64", protect(), 8), 6, 80, 80),
        service(policy("::/0", "::/0", protect(), 8), 58, 0, 0),
        policy("::/0", "fd00::/64", Action::Bypass, 10),
        policy("::/0", "fd00:1::/64", Action::Bypass, 30),
    ]
}

/// Two namespaces; `None` where tests may not make any.
fn namespaces() -> Option<[Netns; 2]> {
    let made = Netns::new().and_then(|first| Ok([first, Netns::new()?]));
    made.map_err(casemate_test_support::skip).ok()
}

/// Adds an address of the host, or removes it.
fn toggle(there: &mut bool, addr: IpAddr, len: u8) {
    let mut netlink = Netlink::open().unwrap();
    let lo = netlink.link("lo").unwrap().index;
    let act = if *there { Netlink::remove_address } else { Netlink::add_address };
    act(&mut netlink, lo, addr, len).unwrap();
    *there = !*there;
}

#[test]
fn after_any_changes_the_system_is_as_after_a_fresh_start() {
    let Some([changed, fresh]) = namespaces() else { return };
    let (universe, mut rng) = (universe(), TestRng::new(1));
    let addresses: [(IpAddr, u8); 2] = [([10, 9, 0, 1].into(), 32), ("fd09::1".parse().unwrap(), 128)];
    let mut there = [false; 2];
    let mut host = changed.run(Host::empty).unwrap();
    let mut standing: Vec<(Direction, PolicyId)> = Vec::new();
    for round in 0..60 {
        // Long phases of growth, and of decline.
        let target_len = rng.below(if round % 3 == 0 { 3 } else { 30 });
        for _ in 0..64 {
            if standing.len() == target_len {
                break;
            }
            if standing.len() > target_len {
                let (direction, id) = standing.swap_remove(rng.below(standing.len()));
                host.remove(direction, id);
            } else {
                let direction = [Direction::Outbound, Direction::Inbound][rng.below(2)];
                let policy = universe[rng.below(universe.len())].clone();
                standing.push((direction, host.add(direction, policy)));
            }
            if rng.below(3) == 0 {
                changed.run(|| host.state.reconcile_blocking()).unwrap().unwrap();
            }
        }
        let which = rng.below(2);
        let (addr, len) = addresses[which];
        let mut here = there[which];
        changed.run(|| toggle(&mut here, addr, len)).unwrap();
        fresh.run(|| toggle(&mut there[which], addr, len)).unwrap();
        host.wait_for_address_change();
        let actual = changed.run(|| host.state.reconcile_blocking().map(|()| system())).unwrap().unwrap();
        let (outbound, inbound) = host.copies();
        let listed: Vec<String> =
            outbound.iter().chain(inbound.iter()).map(|(_, policy)| policy.to_string()).collect();
        let expected = fresh.run(|| Host::start(outbound, inbound).end());
        assert_eq!(actual, expected.unwrap(), "round {round}: {listed:#?}");
    }
    changed.run(|| host.end()).unwrap();
    assert_eq!(changed.run(|| run_program("nft", &["list", "ruleset"])).unwrap(), "");
}

#[test]
fn overlapping_and_equal_policies_can_be_removed_in_any_order() {
    let Some([changed, fresh]) = namespaces() else { return };
    let pairs = [("10.0.0.0/16", "10.0.1.0/24"), ("10.0.1.0/24", "10.0.1.0/24"), ("fd00::/48", "fd00::/64")];
    for (one, other) in pairs {
        let all = if one.contains(':') { "::/0" } else { "0.0.0.0/0" };
        let each = [one, other].map(|dst| service(policy(all, dst, protect(), 10), 6, 443, 443));
        for first_to_go in 0..2 {
            let actual = changed.run(|| {
                let mut host = Host::empty();
                let ids = each.clone().map(|policy| {
                    let id = host.add(Direction::Outbound, policy);
                    host.state.reconcile_blocking().unwrap();
                    id
                });
                host.remove(Direction::Outbound, ids[first_to_go]);
                host.state.reconcile_blocking().unwrap();
                host.end()
            });
            let expected = fresh.run(|| {
                let mut table = PolicyTable::new(10, 1);
                table.insert(each[1 - first_to_go].clone()).unwrap();
                Host::start(table, PolicyTable::new(10, 2)).end()
            });
            let (filter, routes) = actual.unwrap();
            assert_eq!(routes.len(), 1, "{routes:?}");
            assert_eq!((filter, routes), expected.unwrap(), "{one} and {other} without {first_to_go}");
        }
    }
}

/// The kernel counts transactions, so a change that counts as one has no intermediate state.
#[test]
fn changes_made_together_are_one_transaction() {
    let Some([netns, _]) = namespaces() else { return };
    netns
        .run(|| {
            let mut netfilter = Netfilter::open().unwrap();
            let mut host = Host::empty();
            let child = |n: u16| {
                let [high, low] = n.to_be_bytes();
                policy("10.9.0.0/16", &format!("10.{}.{low}.1/32", high.saturating_add(1)), protect(), 10)
            };
            let ids: Vec<PolicyId> = (0..3).map(|n| host.add(Direction::Outbound, child(n))).collect();
            let mut settled_in = |host: &mut Host, what: &str| {
                let before = netfilter.generation().unwrap();
                host.state.reconcile_blocking().unwrap();
                assert_eq!(netfilter.generation().unwrap().wrapping_sub(before), 1, "{what}");
            };
            settled_in(&mut host, "a new shape");
            host.remove(Direction::Outbound, ids[0]);
            host.add(Direction::Outbound, child(9));
            settled_in(&mut host, "elements");
            host.remove(Direction::Outbound, ids[1]);
            host.add(Direction::Outbound, policy("10.9.0.1/32", "10.1.1.1/32", protect(), 10));
            host.add(Direction::Inbound, child(7));
            settled_in(&mut host, "elements and a new shape");
            (1_000..5_000).for_each(|n| _ = host.add(Direction::Outbound, child(n)));
            settled_in(&mut host, "more elements than fit one message");
            host.add(Direction::Outbound, policy("0.0.0.0/0", "10.77.0.0/16", Action::Bypass, 7));
            settled_in(&mut host, "what passes");
            host.end();
        })
        .unwrap();
}

#[test]
fn a_removed_filter_is_reinstalled_with_the_next_change() {
    let Some([changed, fresh]) = namespaces() else { return };
    let child = |n| policy("10.9.0.0/16", &format!("10.0.1.{n}/32"), protect(), 10);
    let actual = changed.run(|| {
        let mut host = Host::empty();
        host.add(Direction::Outbound, child(1));
        host.state.reconcile_blocking().unwrap();
        run_program("nft", &["flush", "ruleset"]);
        host.add(Direction::Outbound, child(2));
        host.state.reconcile_blocking().unwrap();
        host.end()
    });
    let expected = fresh.run(|| {
        let mut table = PolicyTable::new(10, 1);
        for n in [1, 2] {
            table.insert(child(n)).unwrap();
        }
        Host::start(table, PolicyTable::new(10, 2)).end()
    });
    assert_eq!(actual.unwrap(), expected.unwrap());
}

/// Makes the receive buffer of the guard monitor so small that a few messages overflow it.
fn lose_messages(host: &Host) {
    let [_, _, watch] = host.state.descriptors();
    crate::sys::set_option(watch, libc::SOL_SOCKET, libc::SO_RCVBUF, 0).unwrap();
}

#[test]
fn a_change_by_others_is_undone_even_if_its_message_is_lost() {
    let Some([netns, _]) = namespaces() else { return };
    netns
        .run(|| {
            let mut host = Host::empty();
            host.add_child(1);
            host.state.reconcile_blocking().unwrap();
            let before = system();
            lose_messages(&host);
            let chains: String = (0..200).map(|n| format!("add chain inet other c{n}\n")).collect();
            let other = format!("table inet other {{ }}\n{chains}");
            Nft::direct().run(&other).unwrap();
            Nft::direct().run("flush chain inet casemate_tun5 sent\n").unwrap();
            assert_ne!(system(), before);
            host.state.reconcile_blocking().unwrap();
            assert_eq!(system(), before);
            assert_eq!(host.state.guard_monitor().state(), GuardState { stands: true, restored: 1 });
            let lines = host.state.guard_monitor().take_messages().concat();
            assert!(
                lines.contains("messages of the kernel about changes were lost")
                    && lines.contains("was restored"),
                "{lines}"
            );
            host.end();
        })
        .unwrap();
}

/// Otherwise a guard with many policies would be reinstalled for ever.
#[test]
fn our_own_script_is_no_change_by_others_even_if_its_message_is_lost() {
    let Some([netns, _]) = namespaces() else { return };
    netns
        .run(|| {
            let mut host = Host::empty();
            lose_messages(&host);
            for n in 0..2 {
                (n * 4_000..(n + 1) * 4_000).for_each(|n| host.add_child(n));
                host.state.reconcile_blocking().unwrap();
                assert_eq!(host.state.guard_monitor().state(), GuardState { stands: true, restored: 0 });
            }
            host.end();
        })
        .unwrap();
}

#[test]
fn a_guard_that_is_changed_repeatedly_ends_the_start() {
    let Some([netns, _]) = namespaces() else { return };
    netns
        .run(|| {
            let mut host = Host::empty();
            let before = system();
            // The time limit is zero, so it is over when the change is detected.
            run_program("nft", &["add", "rule", "inet", "casemate_tun5", "sent", "counter"]);
            let error = host.state.reconcile_within(Duration::ZERO).unwrap_err().to_string();
            assert!(error.contains("casemate_tun5") && error.contains("again and again"), "{error}");
            host.state.reconcile_blocking().unwrap();
            assert_eq!(system(), before);
            host.end();
        })
        .unwrap();
}

/// The whole filter, if there is one.
fn filter() -> Vec<String> {
    let all = run_program("nft", &["--stateless", "list", "ruleset"]);
    let all = all.strip_prefix("table inet casemate_tun5 {").unwrap_or(&all);
    let mut blocks: Vec<String> = all.split("\n\n").map(sorted).collect();
    blocks.sort();
    blocks
}

/// What remains after an error: the filter before, the filter after, and what the journal reports.
fn left_after_an_error(nft: Nft, last: impl FnOnce(&mut Host)) -> (Vec<String>, Vec<String>, Leftovers) {
    let mut host = Host::make(PolicyTable::new(10, 1), PolicyTable::new(10, 2), &[], nft);
    host.add_child(1);
    host.state.reconcile_blocking().unwrap();
    let before = filter();
    last(&mut host);
    let remains = host.state.journal.leftovers();
    drop(host);
    let after = filter();
    let instance = Instance::new(TUN).unwrap();
    eventually("the clean-up succeeds", || crate::journal::clean_up(&instance).ok());
    let remains = remains.lock().unwrap().clone();
    (before, after, remains)
}

#[test]
fn a_missing_guard_is_reinstalled_before_an_error_ends_the_run() {
    let Some([netns, _]) = namespaces() else { return };
    let flush = || drop(run_program("nft", &["flush", "ruleset"]));
    let at_work = |host: &mut Host| {
        run_program("nft", &["add", "rule", "inet", "casemate_tun5", "sent", "counter"]);
        assert!(!host.state.reconcile(&mut |error| panic!("{error}")));
    };
    let in_the_pause = |host: &mut Host| {
        flush();
        host.state.reconcile_blocking().unwrap();
        flush();
        assert!(!host.state.reconcile(&mut |error| panic!("{error}")));
        assert!(host.state.time_to_retry().is_some(), "it is too early to install the guard");
    };
    netns
        .run(|| {
            let (not_noticed_yet, it_stands) = (|_: &mut Host| flush(), |_: &mut Host| {});
            let cases: [&dyn Fn(&mut Host); 4] = [&not_noticed_yet, &at_work, &in_the_pause, &it_stands];
            for (case, last) in cases.into_iter().enumerate() {
                let (before, after, remains) = left_after_an_error(Nft::direct(), last);
                assert_eq!(after, before, "{case}");
                assert!(matches!(remains, Leftovers::GuardStands), "{case}: {remains:?}");
            }
        })
        .unwrap();
}

#[test]
fn the_report_on_a_guard_that_cannot_be_reinstalled_is_correct() {
    let Some([netns, _]) = namespaces() else { return };
    netns
        .run(|| {
            let run = |flushes: bool| {
                let (nft, process) = Process::start(Duration::from_secs(5));
                left_after_an_error(nft, |_| {
                    process.kill();
                    if flushes {
                        run_program("nft", &["flush", "ruleset"]);
                    }
                })
            };
            let (before, after, remains) = run(false);
            assert_eq!(after, before);
            assert!(
                matches!(remains, Leftovers::GuardStands),
                "the guard stays without the process: {remains:?}"
            );
            let (_, after, remains) = run(true);
            assert!(!after.concat().contains("casemate"), "{after:?}");
            let Leftovers::GuardMissing(reason) = remains else { panic!("{remains:?}") };
            assert!(reason.contains("the process that runs nft"), "{reason}");
        })
        .unwrap();
}

/// A machine that was suspended while `nft` worked loses only time.
#[test]
fn a_slow_script_is_reported_and_takes_effect_when_it_ends() {
    let Some([netns, _]) = namespaces() else { return };
    netns
        .run(|| {
            let (nft, process) = Process::start(Duration::from_secs(5));
            let mut host = Host::make(PolicyTable::new(10, 1), PolicyTable::new(10, 2), &[], nft);
            host.add(Direction::Outbound, policy("10.9.0.0/16", "10.0.1.0/24", protect(), 10));
            process.stop();
            let mut problems = Vec::new();
            eventually("the delay is reported", || {
                assert!(!host.state.reconcile(&mut |error| problems.push(error.to_string())));
                assert_eq!(host.state.time_to_retry(), None, "only the end of the script is awaited");
                (!problems.is_empty()).then_some(())
            });
            assert!(!host.state.reconcile(&mut |error| problems.push(error.to_string())));
            process.go_on();
            eventually("the change takes effect", || {
                host.state.reconcile(&mut |error| problems.push(error.to_string())).then_some(())
            });
            assert_eq!(problems, ["nft: a script has not ended after 5 seconds"]);
            assert_eq!(host.state.guard_monitor().state(), GuardState { stands: true, restored: 0 });
            let (filter, routes) = host.end();
            assert!(filter.concat().contains("10.0.1.0") && routes.concat().contains("10.0.1.0"));
        })
        .unwrap();
}

#[test]
fn the_next_start_takes_over_what_a_crash_left() {
    let Some([netns, _]) = namespaces() else { return };
    let clean = || {
        (
            run_program("nft", &["list", "ruleset"]),
            run_program("ip", &["rule"]),
            run_program("ip", &["-6", "rule"]),
        )
    };
    netns
        .run(|| {
            let before = clean();
            let mut host = Host::empty();
            for policy in universe() {
                host.add(Direction::Outbound, policy);
            }
            host.add(Direction::Outbound, policy("0.0.0.0/0", "10.77.0.0/16", Action::Bypass, 7));
            host.state.reconcile_blocking().unwrap();
            let Host { state, tun, outbound, .. } = host;
            state.crash();
            drop(tun);
            let mut netlink = Netlink::open().unwrap();
            wait_until_gone(&mut netlink);
            let table = NUMBERS.table.to_string();
            let left = run_program("ip", &["route", "show", "table", &table]);
            assert_eq!(left.trim_end(), "throw 10.77.0.0/16 proto static");
            assert!(run_program("nft", &["list", "ruleset"]).contains("casemate_tun5"), "the filter stays");
            let instance = Instance::new(TUN).unwrap();
            let mut journal = open_journal(&instance, Nft::direct());
            assert!(journal.is_recovered());
            assert_eq!(RoutingNumbers::claim(&instance, &mut journal, &mut netlink).unwrap(), NUMBERS);
            let inside = outbound.iter().filter(|(_, policy)| policy.action != Action::Bypass);
            let selectors: BTreeSet<String> = inside.map(|(_, policy)| policy.selector.to_string()).collect();
            assert_eq!(journal.former_protected_traffic().unwrap().len(), selectors.len());
            drop(journal);
            // Without the filter no traffic is blocked.
            let saved = run_program("nft", &["list", "table", "inet", "casemate_tun5"]);
            run_program("nft", &["delete", "table", "inet", "casemate_tun5"]);
            let journal = open_journal(&instance, Nft::direct());
            assert_eq!(journal.former_protected_traffic().unwrap(), []);
            drop(journal);
            let file = casemate_test_support::TempDir::new("saved-guard").unwrap();
            std::fs::write(file.file("nft"), saved).unwrap();
            run_program("nft", &["-f", &file.file("nft").display().to_string()]);
            let (filter, routes) = Host::start(PolicyTable::new(10, 1), PolicyTable::new(10, 2)).end();
            assert_eq!(routes, [""; 0], "no throw route is left");
            assert!(!filter.concat().contains("10.9.0.0"), "{filter:?}");
            assert_eq!(clean(), before);
        })
        .unwrap();
}

#[test]
fn former_traffic_stays_blocked_until_an_sa_is_up_or_it_is_not_configured() {
    let Some([netns, _]) = namespaces() else { return };
    netns
        .run(|| {
            let former: Vec<_> = [1, 2, 3]
                .map(|n| policy("10.9.0.0/16", &format!("10.0.{n}.0/24"), protect(), 10).selector)
                .map(|selector| ProtectedSelector { direction: Direction::Outbound, selector })
                .into();
            let is_blocked = |n: u8| {
                let (filter, _) = system();
                filter.concat().contains(&format!("10.9.0.0 . 10.0.{n}.0"))
            };
            let mut host = Host::start_with_former(&former);
            assert!(is_blocked(1) && is_blocked(2) && is_blocked(3));
            let id = host.add(Direction::Outbound, policy("10.9.0.0/16", "10.0.1.0/24", protect(), 10));
            host.state.reconcile_blocking().unwrap();
            assert!(is_blocked(1) && is_blocked(2) && is_blocked(3));
            host.remove(Direction::Outbound, id);
            host.state.reconcile_blocking().unwrap();
            assert!(!is_blocked(1), "its SA was up, and its policy was removed");
            let desired = &mut host.state.desired;
            desired.narrow_former_traffic(|kept| if *kept == former[1] { vec![] } else { vec![*kept] });
            host.state.is_stale = true;
            host.state.reconcile_blocking().unwrap();
            assert!(!is_blocked(2) && is_blocked(3));
            host.end();
        })
        .unwrap();
}

#[test]
fn instances_that_start_together_get_different_numbers() {
    let Some([netns, _]) = namespaces() else { return };
    // Half of the instances keep their files in another directory, as in a container or as another user.
    let elsewhere = casemate_test_support::TempDir::new("elsewhere").unwrap();
    let claim = |tun: &str, elsewhere: Option<&std::path::Path>| {
        netns
            .run(|| {
                let mut netlink = Netlink::open().unwrap();
                let instance =
                    elsewhere.map_or_else(|| Instance::new(tun).unwrap(), |path| Instance::at(path, tun));
                let mut journal = open_journal(&instance, Nft::direct());
                (RoutingNumbers::claim(&instance, &mut journal, &mut netlink).unwrap(), journal)
            })
            .unwrap()
    };
    let claims = std::thread::scope(|scope| {
        let (claim, elsewhere) = (&claim, elsewhere.path());
        let start =
            move |n| scope.spawn(move || claim(&format!("tun{n}"), Some(elsewhere).filter(|_| n % 2 == 0)));
        let threads: Vec<_> = (0..6).map(start).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    let tables: BTreeSet<u32> = claims.iter().map(|(numbers, _)| numbers.table).collect();
    assert_eq!(tables.len(), claims.len(), "{claims:?}");
    // No instance has set anything up, so nothing is left.
    let rules = || run_program("ip", &["rule"]).matches("fwmark").count();
    assert_eq!(netns.run(rules).unwrap(), claims.len());
    netns.run(|| drop(claims)).unwrap();
    assert_eq!(netns.run(rules).unwrap(), 0);
}

/// The rule of an instance that crashed may be removed, and then another instance gets its numbers.
#[test]
fn numbers_that_another_instance_has_claimed_are_not_taken_over() {
    let Some([netns, _]) = namespaces() else { return };
    let scratch = casemate_test_support::TempDir::new("former-numbers").unwrap();
    let claim = |tun: &str| {
        let instance = Instance::at(scratch.path(), tun);
        let open = || Journal::open(&instance, Nft::direct()).ok();
        let mut journal = eventually("the lock of the former run goes", open);
        (RoutingNumbers::claim(&instance, &mut journal, &mut Netlink::open().unwrap()).unwrap(), journal)
    };
    let rules = || run_program("ip", &["rule"]).matches("fwmark").count();
    let remove =
        |numbers: &RoutingNumbers| run_program("ip", &["rule", "del", "pref", &numbers.priority.to_string()]);
    netns
        .run(|| {
            let (former, journal) = claim("tun6");
            journal.abandon();
            let (again, journal) = claim("tun6");
            assert_eq!((again, rules()), (former, 1));
            journal.abandon();
            remove(&former);
            let (again, journal) = claim("tun6");
            assert_eq!((again, rules()), (former, 1), "the numbers are claimed again");
            journal.abandon();
            remove(&former);
            let (other, others_journal) = claim("tun7");
            assert_eq!(other, former);
            let (again, journal) = claim("tun6");
            assert_ne!(again, other);
            assert_eq!(rules(), 2);
            drop(journal);
            assert_eq!(rules(), 1, "the rule of the other instance stays");
            drop(others_journal);
            assert_eq!(rules(), 0);
        })
        .unwrap();
}

#[test]
fn adding_a_child_sa_takes_no_longer_with_two_thousand_child_sas() {
    let Some([quiet, crowded]) = namespaces() else { return };
    let (mut few, mut many) = (quiet.run(Host::empty).unwrap(), crowded.run(Host::empty).unwrap());
    for n in 0..1_700 {
        many.add_child(n);
    }
    crowded.run(|| many.state.reconcile_blocking()).unwrap().unwrap();
    // Alternates, so that other load of the machine affects both equally.
    let turn = |n| {
        let with_few = quiet.run(|| few.time_to_add(n)).unwrap();
        (with_few, crowded.run(|| many.time_to_add(1_700 + n)).unwrap())
    };
    let (with_few, with_many): (Vec<Duration>, Vec<Duration>) = (0..300).map(turn).unzip();
    quiet.run(|| few.state.close().unwrap()).unwrap();
    crowded.run(|| many.state.close().unwrap()).unwrap();
    let median = |mut times: Vec<Duration>| {
        times.sort_unstable();
        times[times.len() / 2]
    };
    let (few, many) = (median(with_few), median(with_many));
    println!("among the first 300: {few:?}; among the last 300: {many:?}");
    assert!(many < few * 2, "few {few:?}, many {many:?}");
}
