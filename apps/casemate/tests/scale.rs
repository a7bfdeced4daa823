//! `casemate run` with thousands of connections: it loads and reloads them in seconds, and packets of a
//! tunnel arrive meanwhile. Thousands of tunnels come up at once, and metrics count their packets exactly.
//! `cargo test --release -p casemate-app --test scale` does the same with 10,000.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

#[allow(dead_code, reason = "other tests use the rest")]
mod scrape;
#[allow(dead_code, reason = "other tests use the rest")]
mod testnet;
#[allow(dead_code, reason = "other tests use the rest")]
mod vici_client;

use casemate_test_support::Program;
use scrape::Page;
use std::fmt::Write;
use std::fs;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use testnet::{Host, Running, Side, TestNet, WIRE};
use vici_client::Client;

/// Number of connections, and how long they may take to load, and to load again after a change of one.
/// Without optimization, the program is several times slower.
#[cfg(not(debug_assertions))]
const SCALE: (u32, Duration, Duration) = (10_000, Duration::from_secs(10), Duration::from_secs(2));
#[cfg(debug_assertions)]
const SCALE: (u32, Duration, Duration) = (2_000, Duration::from_secs(20), Duration::from_secs(8));

/// Number of tunnels that come up at once, and how long that may take beside other work.
#[cfg(not(debug_assertions))]
const LIVE: (u32, Duration) = (10_000, Duration::from_secs(180));
#[cfg(debug_assertions)]
const LIVE: (u32, Duration) = (1_000, Duration::from_secs(40));

const PORT: u16 = 5_000;

/// Address of a peer that does not exist, and its network.
fn peer(n: u32) -> (String, String) {
    let [_, _, high, low] = n.to_be_bytes();
    (format!("198.18.{high}.{low}"), format!("10.{}.{low}.0/24", 64 + u32::from(high)))
}

/// The connections to those peers, with a trap and a secret each, and the one to the other host.
fn many_connections(lifetime: &str) -> String {
    let mut conf = Side::Left.connection("");
    for n in 0..SCALE.0 {
        let (addr, network) = peer(n);
        writeln!(
            conf,
            "connections {{ c{n} {{\n local_addrs = 192.0.2.1\n remote_addrs = {addr}\n\
             local {{ auth = psk\n id = gateway.test }}\n remote {{ auth = psk\n id = c{n}.test }}\n\
             children {{ net {{ local_ts = 10.1.0.0/16\n remote_ts = {network}\n life_time = {lifetime}\n\
             start_action = trap }} }} }} }}\n\
             secrets {{ ike-{n} {{ id = c{n}.test\n secret = \"the secret of connection {n}\" }} }}"
        )
        .unwrap();
    }
    conf
}

fn add_route_to_peers(host: &Host) {
    host.stdout_of("ip", &["route", "add", "198.18.0.0/15", "via", "192.0.2.2", "dev", WIRE]);
}

/// Sends a packet each millisecond while `action` runs. Returns how many were sent, and how many arrived.
fn traffic_while(net: &TestNet, action: impl FnOnce()) -> (u32, u32) {
    let dst = (Side::Right.inner(true), PORT);
    let receiver = net.right.run(|| UdpSocket::bind(dst)).unwrap();
    receiver.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    let sender = net.left.run(|| UdpSocket::bind((Side::Left.inner(true), 0))).unwrap();
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        let received = scope.spawn(|| {
            let mut buffer = [0; 64];
            std::iter::from_fn(|| receiver.recv(&mut buffer).ok()).fold(0, |count, _| count + 1)
        });
        let sent = scope.spawn(|| {
            let mut sent = 0;
            while !is_done.load(Ordering::Relaxed) {
                sender.send_to(b"a packet of the tunnel", dst).unwrap();
                sent += 1;
                thread::sleep(Duration::from_millis(1));
            }
            sent
        });
        action();
        is_done.store(true, Ordering::Relaxed);
        (sent.join().unwrap(), received.join().unwrap())
    })
}

#[test]
fn file_with_thousands_of_connections_loads_and_reloads_without_losing_a_packet() {
    let Some(net) = TestNet::build("file_with_thousands_of_connections") else { return };
    let (count, load, reload) = SCALE;
    add_route_to_peers(&net.left);
    let _right = net.right.run_config(&Side::Right.connection(""), None);
    let start = Instant::now();
    let _left = net.left.run_config(&many_connections("1h"), None);
    let loaded = start.elapsed();
    net.left.wait_until(|_| net.left.pings_at_once(Side::Right.inner(true), 10));
    fs::write(net.left.file("conf"), many_connections("2h")).unwrap();
    let mut reloaded = Duration::ZERO;
    let (sent, received) = traffic_while(&net, || {
        let start = Instant::now();
        let output = net.left.casemate(&["reload"]);
        reloaded = start.elapsed();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    });
    println!(
        "{count} connections: start {loaded:?}, reload {reloaded:?}, {received} of {sent} packets arrived"
    );
    assert_eq!(received, sent);
    assert!(loaded < load && reloaded < reload, "{loaded:?} {reloaded:?}");
}

#[test]
fn client_loads_thousands_of_connections_and_changes_one() {
    let Some(net) = TestNet::build("client_loads_thousands_of_connections") else { return };
    let (count, load, reload) = SCALE;
    add_route_to_peers(&net.left);
    let _left = net.left.run_vici(&[]);
    let mut client = Client::connect(&net.left.file("vici"));
    let load_one = |client: &mut Client, n: u32, lifetime: &str| {
        let (addr, network) = peer(n);
        client.succeed("load-conn", |message| {
            message.section(&format!("c{n}"), |section| {
                section.list("local_addrs", ["192.0.2.1"]);
                section.list("remote_addrs", [addr]);
                for (side, id) in [("local", "gateway.test".into()), ("remote", format!("c{n}.test"))] {
                    section.section(side, |section| {
                        section.value("auth", "psk");
                        section.value("id", id);
                    });
                }
                section.section("children", |children| {
                    children.section("net", |child| {
                        child.list("local_ts", ["10.1.0.0/16"]);
                        child.list("remote_ts", [network]);
                        child.value("life_time", lifetime);
                        child.value("start_action", "trap");
                    });
                });
            });
        });
    };
    let names = |client: &mut Client| client.command("get-conns", |_| {}).message.list("conns").len();
    let start = Instant::now();
    (0..count).for_each(|n| load_one(&mut client, n, "1h"));
    // A command that reads waits for the changes before it.
    assert_eq!(names(&mut client), count as usize);
    let loaded = start.elapsed();
    let start = Instant::now();
    load_one(&mut client, count / 2, "2h");
    assert_eq!(names(&mut client), count as usize);
    let changed = start.elapsed();
    println!("{count} connections: loaded in {loaded:?}, one changed in {changed:?}");
    assert!(loaded < load && changed < reload, "{loaded:?} {changed:?}");
}

/// The connections of one side for tunnels from addresses of [`peer`] on the left to the right, with a secret
/// each. The left side starts all of them at once.
fn live_connections(side: Side) -> String {
    let (right, right_net, start) = ("192.0.2.2".to_owned(), "10.2.0.0/16".to_owned(), side == Side::Left);
    let mut conf = String::new();
    for n in 0..LIVE.0 {
        let (addr, network) = peer(n);
        let (left, right) = ((addr, network, format!("c{n}.test")), (&right, &right_net, "gateway.test"));
        let ends = [(&left.0, &left.1, left.2.as_str()), (right.0, right.1, right.2)];
        let [local, remote] = if side == Side::Left { ends } else { [ends[1], ends[0]] };
        writeln!(
            conf,
            "connections {{ c{n} {{\n local_addrs = {}\n remote_addrs = {}\n\
             local {{ auth = psk\n id = {} }}\n remote {{ auth = psk\n id = {} }}\n\
             children {{ net {{ local_ts = {}\n remote_ts = {}\n start_action = {} }} }} }} }}\n\
             secrets {{ ike-{n} {{ id = c{n}.test\n secret = \"the secret of connection {n}\" }} }}",
            local.0,
            remote.0,
            local.2,
            remote.2,
            local.1,
            remote.1,
            if start { "start" } else { "none" },
        )
        .unwrap();
    }
    conf
}

fn run_with_metrics(host: &Host, conf: &str) -> Running {
    fs::write(host.file("conf"), conf).unwrap();
    let program = Program::new(env!("CARGO_BIN_EXE_casemate")).args(["run", "--config"]);
    let metrics = format!("unix:{}", host.file("metrics").display());
    host.start(program.arg(host.file("conf")).args(["--metrics", &metrics]))
}

/// The page, and how long it took.
fn timed_scrape(host: &Host) -> (Duration, Page) {
    let start = Instant::now();
    let text = scrape::get(&host.file("metrics"), "text/plain");
    (start.elapsed(), Page::parse(&text))
}

/// The sum of all series of a family.
fn sum(page: &Page, family: &str) -> f64 {
    let of_family = |series: &&str| series.split('{').next() == Some(family);
    page.series().filter(of_family).filter_map(|series| page.number(series)).sum()
}

#[test]
fn thousands_of_tunnels_come_up_at_once_and_are_counted_exactly() {
    let Some(net) = TestNet::build("scale_live") else { return };
    let (count, patience) = LIVE;
    for network in ["198.18.0.0/15", "10.64.0.0/10"] {
        net.left.stdout_of("ip", &["route", "add", "local", network, "dev", "lo"]);
    }
    net.right.stdout_of("ip", &["route", "add", "198.18.0.0/15", "via", "192.0.2.1", "dev", WIRE]);
    let right = run_with_metrics(&net.right, &live_connections(Side::Right));
    let left = run_with_metrics(&net.left, &live_connections(Side::Left));
    let start = Instant::now();
    let hosts = [(&net.left, &left), (&net.right, &right)];
    while hosts.iter().any(|(host, _)| sum(&timed_scrape(host).1, "casemate_child_sas") < f64::from(count)) {
        assert!(start.elapsed() < patience, "not all of {count} tunnels are up after {patience:?}");
        thread::sleep(Duration::from_millis(200));
    }
    println!("{count} tunnels: up after {:?}", start.elapsed());

    let dst = (Side::Right.inner(true), PORT);
    let _receiver = net.right.run(|| UdpSocket::bind(dst)).unwrap();
    let sent = [(0, 1), (1, 7), (count / 2, 30), (count - 1, 200)];
    for (n, packets) in sent {
        let src = peer(n).1.replace(".0/24", ".1");
        let sender = net.left.run(|| UdpSocket::bind((src.as_str(), 0))).unwrap();
        for _ in 0..packets {
            sender.send_to(b"a packet of the tunnel", dst).unwrap();
        }
    }
    let all: u64 = sent.iter().map(|(_, packets)| packets).sum();
    for ((host, running), direction) in hosts.into_iter().zip(["out", "in"]) {
        testnet::eventually("all packets are counted", || {
            sum(&timed_scrape(host).1, "casemate_child_packets_total") == all as f64
        });
        let before = running.resident_kib();
        let scrapes: Vec<(Duration, Page)> = (0..10).map(|_| timed_scrape(host)).collect();
        let after = running.resident_kib();
        // Other programs may delay a scrape.
        let (took, page) = scrapes.iter().min_by_key(|(took, _)| *took).unwrap();
        for (n, packets) in sent {
            let series = format!(
                "casemate_child_packets_total{{connection=\"c{n}\",child=\"net\",direction=\"{direction}\"}}"
            );
            assert_eq!(page.get(&series), Some(packets), "{series}");
        }
        println!("scraped in {took:?}; memory {before} KiB, after ten more scrapes {after} KiB");
        assert!(*took < Duration::from_secs(1), "{took:?}");
        assert!(after < before + 4_096, "the memory grew from {before} to {after} KiB");
    }
}
