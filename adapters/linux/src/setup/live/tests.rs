use super::*;
use crate::eventually::eventually;
use crate::instance::Instance;
use crate::journal::Remains;
use crate::netfilter::Netfilter;
use crate::netns::Netns;
use crate::nft::Nft;
use crate::nft::tests::Process;
use crate::promises::Promise;
use crate::setup::{GuardState, Wanted};
use casemate_datapath::Direction;
use casemate_datapath::spd::{Action, Bundle, Policy, PolicyId, PolicyTable, Template};
use casemate_sa::{AddrRange, Mode, PortRange, Protocol, Selector};
use std::process::Command;
use std::time::{Duration, Instant};

const TUN: &str = "tun5";
const NUMBERS: Numbers = Numbers { mark: 50_510, table: 50_510, priority: 220 };

/// A network namespace with the policies of an endpoint, and what they made of the system.
struct World {
    outbound: PolicyTable,
    inbound: PolicyTable,
    tun: Tun,
    live: Live,
}

/// Opens a journal. Programs that other tests start at this moment may still hold copies of a lock that was
/// just released.
fn open_journal(instance: &Instance, nft: Nft) -> Journal {
    eventually("the lock of the journal is free", || {
        Journal::open(instance, nft.clone()).inspect_err(|error| println!("{error}")).ok()
    })
}

impl World {
    /// Starts with these policies.
    fn start(outbound: PolicyTable, inbound: PolicyTable) -> Self {
        Self::make((outbound, inbound), &[], Nft::direct())
    }

    /// Starts without policies after a run that had these.
    fn start_holding(held: &[Promise]) -> Self {
        Self::make((PolicyTable::new(10, 1), PolicyTable::new(10, 2)), held, Nft::direct())
    }

    fn make((outbound, inbound): (PolicyTable, PolicyTable), held: &[Promise], nft: Nft) -> Self {
        let mut netlink = Netlink::open().unwrap();
        wait_until_gone(&mut netlink);
        let (out, inn): (Vec<_>, Vec<_>) = (outbound.iter().collect(), inbound.iter().collect());
        let wanted = Wanted {
            tun: TUN,
            tun_mtu: 1400,
            numbers: NUMBERS,
            outbound: &out,
            inbound: &inn,
            encap_ports: &[500, 4500],
            peers: &[],
            held,
            classifier: None,
        };
        let plan = Plan::new(&wanted, &mut netlink).unwrap();
        let tun = Tun::create(TUN, &mut netlink).unwrap();
        let mut journal = open_journal(&Instance::new(TUN).unwrap(), nft);
        plan.apply(&mut journal, &tun, &mut netlink).unwrap();
        let live = Live::new(plan, &tun, journal, netlink).unwrap();
        Self { outbound, inbound, tun, live }
    }

    /// The orderly end; answers what the system was until then.
    fn end(self) -> (Vec<String>, Vec<String>) {
        let system = system();
        self.live.close().unwrap();
        system
    }

    /// One more Child SA, as long as it takes until the system has it.
    fn one_more(&mut self, n: u16) -> Duration {
        let start = Instant::now();
        self.add_child(n);
        self.live.settle().unwrap();
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

    fn table(&mut self, direction: Direction) -> &mut PolicyTable {
        match direction {
            Direction::Outbound => &mut self.outbound,
            Direction::Inbound => &mut self.inbound,
        }
    }

    fn add(&mut self, direction: Direction, policy: Policy) -> PolicyId {
        let id = self.table(direction).insert(policy.clone()).unwrap();
        self.live.note_policy(&PolicyChange::Added { direction, id, policy });
        id
    }

    fn remove(&mut self, direction: Direction, id: PolicyId) {
        self.table(direction).remove(id).unwrap();
        self.live.note_policy(&PolicyChange::Removed { direction, id });
    }

    /// Waits until the kernel tells of an address, which it does not always do at once.
    fn hear_of_addresses(&mut self) {
        let mut ready = [false];
        let [addresses, _] = self.live.descriptors();
        crate::sys::poll_readable(&[addresses], &mut ready, Duration::from_secs(5)).unwrap();
        assert_eq!(ready, [true], "no word of a change of addresses");
        assert!(self.live.note_others());
    }

    /// The policies in new tables, as somebody has them who starts now.
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

/// Until the interface of a world that ended is not there any more.
fn wait_until_gone(netlink: &mut Netlink) {
    eventually("the TUN interface goes", || netlink.link(TUN).is_err().then_some(()));
}

fn says(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.stderr.is_empty(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The filter and the routes of a namespace, in an order that does not depend on how they came to be.
fn system() -> (Vec<String>, Vec<String>) {
    let table = says("nft", &["--stateless", "list", "table", "inet", "casemate_tun5"]);
    let (_, table) = table.split_once("{\n").unwrap();
    let mut blocks: Vec<String> = table.split("\n\n").map(in_order).collect();
    blocks.sort();
    // Asked for a table that never was, `ip` complains.
    let all = ["-4", "-6"].map(|version| says("ip", &[version, "route", "show", "table", "all"])).concat();
    let ours = format!("table {}", NUMBERS.table);
    let mut lines: Vec<String> = all.lines().filter(|line| line.contains(&ours)).map(str::to_owned).collect();
    lines.sort();
    (blocks, lines)
}

/// A set or a chain; the elements of a set sorted.
fn in_order(block: &str) -> String {
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
    Policy { selector: Selector::between(range(src), range(dst)), action, priority }
}

/// With a protocol and a port or range of ports at the destination.
fn service(policy: Policy, proto: u8, first: u16, last: u16) -> Policy {
    let mut selector = policy.selector;
    (selector.proto, selector.dst_port) = (Some(proto), PortRange::new(first, last).unwrap());
    Policy { selector, ..policy }
}

/// Policies that overlap, contain and equal each other, of every kind.
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

/// Numbers that look random and are the same each time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }
}

/// Two namespaces; where tests may not make any, there is nothing to test.
fn namespaces() -> Option<[Netns; 2]> {
    let made = Netns::new().and_then(|first| Ok([first, Netns::new()?]));
    made.map_err(casemate_left_out::note).ok()
}

/// Switches an address of the host on or off.
fn toggle(there: &mut bool, addr: IpAddr, len: u8) {
    let mut netlink = Netlink::open().unwrap();
    let lo = netlink.link("lo").unwrap().index;
    let act = if *there { Netlink::remove_address } else { Netlink::add_address };
    act(&mut netlink, lo, addr, len).unwrap();
    *there = !*there;
}

#[test]
fn whatever_comes_and_goes_the_system_is_as_after_a_fresh_start() {
    let Some([lived, fresh]) = namespaces() else { return };
    let (universe, mut dice) = (universe(), Dice(0x1234_5678_9abc_def1));
    let addresses: [(IpAddr, u8); 2] = [([10, 9, 0, 1].into(), 32), ("fd09::1".parse().unwrap(), 128)];
    let mut there = [false; 2];
    let mut world = lived.run(World::empty).unwrap();
    let mut standing: Vec<(Direction, PolicyId)> = Vec::new();
    for round in 0..60 {
        // Long walks up, and down again.
        let wanted = dice.below(if round % 3 == 0 { 3 } else { 30 });
        for _ in 0..64 {
            if standing.len() == wanted {
                break;
            }
            if standing.len() > wanted {
                let (direction, id) = standing.swap_remove(dice.below(standing.len()));
                world.remove(direction, id);
            } else {
                let direction = [Direction::Outbound, Direction::Inbound][dice.below(2)];
                let policy = universe[dice.below(universe.len())].clone();
                standing.push((direction, world.add(direction, policy)));
            }
            if dice.below(3) == 0 {
                lived.run(|| world.live.settle()).unwrap().unwrap();
            }
        }
        let which = dice.below(2);
        let (addr, len) = addresses[which];
        let mut here = there[which];
        lived.run(|| toggle(&mut here, addr, len)).unwrap();
        fresh.run(|| toggle(&mut there[which], addr, len)).unwrap();
        world.hear_of_addresses();
        let is = lived.run(|| world.live.settle().map(|()| system())).unwrap().unwrap();
        let (outbound, inbound) = world.copies();
        let listed: Vec<String> =
            outbound.iter().chain(inbound.iter()).map(|(_, policy)| policy.to_string()).collect();
        let should = fresh.run(|| World::start(outbound, inbound).end());
        assert_eq!(is, should.unwrap(), "round {round}: {listed:#?}");
    }
    lived.run(|| world.end()).unwrap();
    assert_eq!(lived.run(|| says("nft", &["list", "ruleset"])).unwrap(), "");
}

#[test]
fn two_that_overlap_or_are_equal_come_and_go_in_any_order() {
    let Some([lived, fresh]) = namespaces() else { return };
    let pairs = [("10.0.0.0/16", "10.0.1.0/24"), ("10.0.1.0/24", "10.0.1.0/24"), ("fd00::/48", "fd00::/64")];
    for (one, other) in pairs {
        let all = if one.contains(':') { "::/0" } else { "0.0.0.0/0" };
        let each = [one, other].map(|dst| service(policy(all, dst, protect(), 10), 6, 443, 443));
        for first_to_go in 0..2 {
            let is = lived.run(|| {
                let mut world = World::empty();
                let ids = each.clone().map(|policy| {
                    let id = world.add(Direction::Outbound, policy);
                    world.live.settle().unwrap();
                    id
                });
                world.remove(Direction::Outbound, ids[first_to_go]);
                world.live.settle().unwrap();
                world.end()
            });
            let should = fresh.run(|| {
                let mut table = PolicyTable::new(10, 1);
                table.insert(each[1 - first_to_go].clone()).unwrap();
                World::start(table, PolicyTable::new(10, 2)).end()
            });
            let (filter, routes) = is.unwrap();
            assert_eq!(routes.len(), 1, "{routes:?}");
            assert_eq!((filter, routes), should.unwrap(), "{one} and {other} without {first_to_go}");
        }
    }
}

/// The kernel counts transactions, so what it counts as one has no moment in between.
#[test]
fn whatever_changes_together_changes_in_one_transaction() {
    let Some([netns, _]) = namespaces() else { return };
    netns
        .run(|| {
            let mut netfilter = Netfilter::open().unwrap();
            let mut world = World::empty();
            let child = |n: u16| {
                let [high, low] = n.to_be_bytes();
                policy("10.9.0.0/16", &format!("10.{}.{low}.1/32", high.saturating_add(1)), protect(), 10)
            };
            let ids: Vec<PolicyId> = (0..3).map(|n| world.add(Direction::Outbound, child(n))).collect();
            let mut settled_in = |world: &mut World, what: &str| {
                let before = netfilter.generation().unwrap();
                world.live.settle().unwrap();
                assert_eq!(netfilter.generation().unwrap().wrapping_sub(before), 1, "{what}");
            };
            settled_in(&mut world, "a new shape");
            world.remove(Direction::Outbound, ids[0]);
            world.add(Direction::Outbound, child(9));
            settled_in(&mut world, "elements");
            world.remove(Direction::Outbound, ids[1]);
            world.add(Direction::Outbound, policy("10.9.0.1/32", "10.1.1.1/32", protect(), 10));
            world.add(Direction::Inbound, child(7));
            settled_in(&mut world, "elements and a new shape");
            (1_000..5_000).for_each(|n| _ = world.add(Direction::Outbound, child(n)));
            settled_in(&mut world, "more elements than fit one message");
            world.add(Direction::Outbound, policy("0.0.0.0/0", "10.77.0.0/16", Action::Bypass, 7));
            settled_in(&mut world, "what passes");
            world.end();
        })
        .unwrap();
}

#[test]
fn a_filter_that_somebody_removed_is_put_up_again_with_the_next_change() {
    let Some([lived, fresh]) = namespaces() else { return };
    let child = |n| policy("10.9.0.0/16", &format!("10.0.1.{n}/32"), protect(), 10);
    let is = lived.run(|| {
        let mut world = World::empty();
        world.add(Direction::Outbound, child(1));
        world.live.settle().unwrap();
        says("nft", &["flush", "ruleset"]);
        world.add(Direction::Outbound, child(2));
        world.live.settle().unwrap();
        world.end()
    });
    let should = fresh.run(|| {
        let mut table = PolicyTable::new(10, 1);
        for n in [1, 2] {
            table.insert(child(n)).unwrap();
        }
        World::start(table, PolicyTable::new(10, 2)).end()
    });
    assert_eq!(is.unwrap(), should.unwrap());
}

/// Has the kernel keep so little for the watch of the guard that a few messages are too many.
fn lose_messages(world: &World) {
    let [_, watch] = world.live.descriptors();
    crate::sys::set_option(watch, libc::SOL_SOCKET, libc::SO_RCVBUF, 0).unwrap();
}

#[test]
fn a_change_of_which_word_was_lost_is_undone() {
    let Some([netns, _]) = namespaces() else { return };
    netns
        .run(|| {
            let mut world = World::empty();
            world.add_child(1);
            world.live.settle().unwrap();
            let before = system();
            lose_messages(&world);
            let chains: String = (0..200).map(|n| format!("add chain inet other c{n}\n")).collect();
            let other = format!("table inet other {{ }}\n{chains}");
            Nft::direct().run(&other).unwrap();
            Nft::direct().run("flush chain inet casemate_tun5 sent\n").unwrap();
            assert_ne!(system(), before);
            world.live.settle().unwrap();
            assert_eq!(system(), before);
            assert_eq!(world.live.sentry().state(), GuardState { stands: true, restored: 1 });
            let lines = world.live.sentry().take_lines().concat();
            assert!(lines.contains("word of changes was lost") && lines.contains("stands again"), "{lines}");
            world.end();
        })
        .unwrap();
}

/// Otherwise a guard with many policies would be put up again for ever.
#[test]
fn a_script_of_ours_of_which_word_was_lost_is_no_change_by_others() {
    let Some([netns, _]) = namespaces() else { return };
    netns
        .run(|| {
            let mut world = World::empty();
            lose_messages(&world);
            for n in 0..2 {
                (n * 4_000..(n + 1) * 4_000).for_each(|n| world.add_child(n));
                world.live.settle().unwrap();
                assert_eq!(world.live.sentry().state(), GuardState { stands: true, restored: 0 });
            }
            world.end();
        })
        .unwrap();
}

#[test]
fn a_guard_that_is_changed_all_the_time_ends_the_start() {
    let Some([netns, _]) = namespaces() else { return };
    netns
        .run(|| {
            let mut world = World::empty();
            let before = system();
            // As if the time were over when it is seen that the guard is changed.
            says("nft", &["add", "rule", "inet", "casemate_tun5", "sent", "counter"]);
            let error = world.live.settle_within(Duration::ZERO).unwrap_err().to_string();
            assert!(error.contains("casemate_tun5") && error.contains("again and again"), "{error}");
            world.live.settle().unwrap();
            assert_eq!(system(), before);
            world.end();
        })
        .unwrap();
}

/// All of the filter, if there is any.
fn filter() -> Vec<String> {
    let all = says("nft", &["--stateless", "list", "ruleset"]);
    let all = all.strip_prefix("table inet casemate_tun5 {").unwrap_or(&all);
    let mut blocks: Vec<String> = all.split("\n\n").map(in_order).collect();
    blocks.sort();
    blocks
}

/// What [`World`] leaves after an error, as the kernel has it, and what is said of it.
fn left_after_an_error(nft: Nft, last: impl FnOnce(&mut World)) -> (Vec<String>, Vec<String>, Remains) {
    let mut world = World::make((PolicyTable::new(10, 1), PolicyTable::new(10, 2)), &[], nft);
    world.add_child(1);
    world.live.settle().unwrap();
    let before = filter();
    last(&mut world);
    let remains = world.live.journal.remains();
    drop(world);
    let after = filter();
    let instance = Instance::new(TUN).unwrap();
    eventually("what is left is removed", || crate::journal::clean_up(&instance).ok());
    let remains = remains.lock().unwrap().clone();
    (before, after, remains)
}

#[test]
fn a_guard_that_does_not_stand_is_put_up_once_more_before_an_error_ends_the_run() {
    let Some([netns, _]) = namespaces() else { return };
    let flush = || drop(says("nft", &["flush", "ruleset"]));
    let at_work = |world: &mut World| {
        says("nft", &["add", "rule", "inet", "casemate_tun5", "sent", "counter"]);
        assert!(!world.live.follow(&mut |error| panic!("{error}")));
    };
    let in_the_pause = |world: &mut World| {
        flush();
        world.live.settle().unwrap();
        flush();
        assert!(!world.live.follow(&mut |error| panic!("{error}")));
        assert!(world.live.wait().is_some(), "it is not the time to put it up");
    };
    netns
        .run(|| {
            let (not_noticed_yet, it_stands) = (|_: &mut World| flush(), |_: &mut World| {});
            let cases: [&dyn Fn(&mut World); 4] = [&not_noticed_yet, &at_work, &in_the_pause, &it_stands];
            for (case, last) in cases.into_iter().enumerate() {
                let (before, after, remains) = left_after_an_error(Nft::direct(), last);
                assert_eq!(after, before, "{case}");
                assert!(matches!(remains, Remains::Guard), "{case}: {remains:?}");
            }
        })
        .unwrap();
}

#[test]
fn what_is_said_of_a_guard_that_cannot_be_put_up_again_is_true() {
    let Some([netns, _]) = namespaces() else { return };
    netns
        .run(|| {
            let run = |flushes: bool| {
                let (nft, process) = Process::start(Duration::from_secs(5));
                left_after_an_error(nft, |_| {
                    process.kill();
                    if flushes {
                        says("nft", &["flush", "ruleset"]);
                    }
                })
            };
            let (before, after, remains) = run(false);
            assert_eq!(after, before);
            assert!(matches!(remains, Remains::Guard), "it needs no program to stay: {remains:?}");
            let (_, after, remains) = run(true);
            assert!(!after.concat().contains("casemate"), "{after:?}");
            let Remains::NoGuard(reason) = remains else { panic!("{remains:?}") };
            assert!(reason.contains("the process that runs nft"), "{reason}");
        })
        .unwrap();
}

/// Nothing but the time is lost when the machine was suspended while `nft` worked.
#[test]
fn a_script_that_takes_long_is_reported_and_followed_when_it_ends() {
    let Some([netns, _]) = namespaces() else { return };
    netns
        .run(|| {
            let (nft, process) = Process::start(Duration::from_secs(5));
            let mut world = World::make((PolicyTable::new(10, 1), PolicyTable::new(10, 2)), &[], nft);
            world.add(Direction::Outbound, policy("10.9.0.0/16", "10.0.1.0/24", protect(), 10));
            process.stop();
            let mut troubles = Vec::new();
            eventually("it is reported", || {
                assert!(!world.live.follow(&mut |error| troubles.push(error.to_string())));
                assert_eq!(world.live.wait(), None, "it is the end of the script that is waited for");
                (!troubles.is_empty()).then_some(())
            });
            assert!(!world.live.follow(&mut |error| troubles.push(error.to_string())));
            process.go_on();
            eventually("the system follows", || {
                world.live.follow(&mut |error| troubles.push(error.to_string())).then_some(())
            });
            assert_eq!(troubles, ["nft: a script has not ended after 5 seconds"]);
            assert_eq!(world.live.sentry().state(), GuardState { stands: true, restored: 0 });
            let (filter, routes) = world.end();
            assert!(filter.concat().contains("10.0.1.0") && routes.concat().contains("10.0.1.0"));
        })
        .unwrap();
}

#[test]
fn what_a_crash_leaves_is_taken_over_by_the_next_start() {
    let Some([netns, _]) = namespaces() else { return };
    let clean = || (says("nft", &["list", "ruleset"]), says("ip", &["rule"]), says("ip", &["-6", "rule"]));
    netns
        .run(|| {
            let before = clean();
            let mut world = World::empty();
            for policy in universe() {
                world.add(Direction::Outbound, policy);
            }
            world.add(Direction::Outbound, policy("0.0.0.0/0", "10.77.0.0/16", Action::Bypass, 7));
            world.live.settle().unwrap();
            let World { live, tun, outbound, .. } = world;
            live.crash();
            drop(tun);
            let mut netlink = Netlink::open().unwrap();
            wait_until_gone(&mut netlink);
            let table = NUMBERS.table.to_string();
            let left = says("ip", &["route", "show", "table", &table]);
            assert_eq!(left.trim_end(), "throw 10.77.0.0/16 proto static");
            assert!(says("nft", &["list", "ruleset"]).contains("casemate_tun5"), "the filter stays");
            let instance = Instance::new(TUN).unwrap();
            let mut journal = open_journal(&instance, Nft::direct());
            assert!(journal.is_adopted());
            assert_eq!(Numbers::claim(&instance, &mut journal, &mut netlink).unwrap(), NUMBERS);
            let inside = outbound.iter().filter(|(_, policy)| policy.action != Action::Bypass);
            let selectors: BTreeSet<String> = inside.map(|(_, policy)| policy.selector.to_string()).collect();
            assert_eq!(journal.former_promises().unwrap().len(), selectors.len());
            drop(journal);
            // Without the filter nothing is held: the kernel says that it is not there.
            let saved = says("nft", &["list", "table", "inet", "casemate_tun5"]);
            says("nft", &["delete", "table", "inet", "casemate_tun5"]);
            let journal = open_journal(&instance, Nft::direct());
            assert_eq!(journal.former_promises().unwrap(), []);
            drop(journal);
            let file = casemate_scratch::Scratch::new("saved-guard");
            std::fs::write(file.file("nft"), saved).unwrap();
            says("nft", &["-f", &file.file("nft").display().to_string()]);
            let (filter, routes) = World::start(PolicyTable::new(10, 1), PolicyTable::new(10, 2)).end();
            assert_eq!(routes, [""; 0], "no way past the table is left");
            assert!(!filter.concat().contains("10.9.0.0"), "{filter:?}");
            assert_eq!(clean(), before);
        })
        .unwrap();
}

#[test]
fn what_was_protected_is_held_until_an_sa_is_up_or_nobody_wants_it() {
    let Some([netns, _]) = namespaces() else { return };
    netns
        .run(|| {
            let held: Vec<_> = [1, 2, 3]
                .map(|n| policy("10.9.0.0/16", &format!("10.0.{n}.0/24"), protect(), 10).selector)
                .map(|selector| (Direction::Outbound, selector))
                .into();
            let holds = |n: u8| {
                let (filter, _) = system();
                filter.concat().contains(&format!("10.9.0.0 . 10.0.{n}.0"))
            };
            let mut world = World::start_holding(&held);
            assert!(holds(1) && holds(2) && holds(3));
            let id = world.add(Direction::Outbound, policy("10.9.0.0/16", "10.0.1.0/24", protect(), 10));
            world.live.settle().unwrap();
            assert!(holds(1) && holds(2) && holds(3));
            world.remove(Direction::Outbound, id);
            world.live.settle().unwrap();
            assert!(!holds(1), "its SA was up, and has gone in good order");
            world.live.scheme.hold_only(|promise| if *promise == held[1] { vec![] } else { vec![*promise] });
            world.live.behind = true;
            world.live.settle().unwrap();
            assert!(!holds(2) && holds(3));
            world.end();
        })
        .unwrap();
}

#[test]
fn instances_that_start_together_get_numbers_of_their_own() {
    let Some([netns, _]) = namespaces() else { return };
    // Half of them keep their files elsewhere, as in a container or as another user.
    let elsewhere = casemate_scratch::Scratch::new("elsewhere");
    let claim = |tun: &str, elsewhere: Option<&std::path::Path>| {
        netns
            .run(|| {
                let mut netlink = Netlink::open().unwrap();
                let instance =
                    elsewhere.map_or_else(|| Instance::new(tun).unwrap(), |path| Instance::at(path, tun));
                let mut journal = open_journal(&instance, Nft::direct());
                (Numbers::claim(&instance, &mut journal, &mut netlink).unwrap(), journal)
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
    // None has set anything up, so nothing is left.
    let rules = || says("ip", &["rule"]).matches("fwmark").count();
    assert_eq!(netns.run(rules).unwrap(), claims.len());
    netns.run(|| drop(claims)).unwrap();
    assert_eq!(netns.run(rules).unwrap(), 0);
}

/// The rule of an instance that crashed may be removed, and another instance gets its numbers.
#[test]
fn numbers_of_a_former_run_that_another_instance_has_now_are_not_taken_over() {
    let Some([netns, _]) = namespaces() else { return };
    let scratch = casemate_scratch::Scratch::new("former-numbers");
    let claim = |tun: &str| {
        let instance = Instance::at(scratch.path(), tun);
        let open = || Journal::open(&instance, Nft::direct()).ok();
        let mut journal = eventually("the lock of the former run goes", open);
        (Numbers::claim(&instance, &mut journal, &mut Netlink::open().unwrap()).unwrap(), journal)
    };
    let rules = || says("ip", &["rule"]).matches("fwmark").count();
    let remove = |numbers: &Numbers| says("ip", &["rule", "del", "pref", &numbers.priority.to_string()]);
    netns
        .run(|| {
            let (former, journal) = claim("tun6");
            journal.abandon();
            let (again, journal) = claim("tun6");
            assert_eq!((again, rules()), (former, 1));
            journal.abandon();
            remove(&former);
            let (again, journal) = claim("tun6");
            assert_eq!((again, rules()), (former, 1), "it is claimed anew");
            journal.abandon();
            remove(&former);
            let (other, others_journal) = claim("tun7");
            assert_eq!(other, former);
            let (again, journal) = claim("tun6");
            assert_ne!(again, other);
            assert_eq!(rules(), 2);
            drop(journal);
            assert_eq!(rules(), 1, "that of the other instance stays");
            drop(others_journal);
            assert_eq!(rules(), 0);
        })
        .unwrap();
}

#[test]
fn with_two_thousand_child_sas_one_more_takes_as_long_as_with_few() {
    let Some([quiet, crowded]) = namespaces() else { return };
    let (mut few, mut many) = (quiet.run(World::empty).unwrap(), crowded.run(World::empty).unwrap());
    for n in 0..1_700 {
        many.add_child(n);
    }
    crowded.run(|| many.live.settle()).unwrap().unwrap();
    // In turns, so that what else the machine does is the same for both.
    let turn = |n| {
        let with_few = quiet.run(|| few.one_more(n)).unwrap();
        (with_few, crowded.run(|| many.one_more(1_700 + n)).unwrap())
    };
    let (with_few, with_many): (Vec<Duration>, Vec<Duration>) = (0..300).map(turn).unzip();
    quiet.run(|| few.live.close().unwrap()).unwrap();
    crowded.run(|| many.live.close().unwrap()).unwrap();
    let median = |mut times: Vec<Duration>| {
        times.sort_unstable();
        times[times.len() / 2]
    };
    let (few, many) = (median(with_few), median(with_many));
    println!("among the first 300: {few:?}; among the last 300: {many:?}");
    assert!(many < few * 2, "few {few:?}, many {many:?}");
}
