//! `casemate run` with thousands of connections: it loads and reloads them in seconds, and packets of a
//! tunnel arrive meanwhile.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

#[allow(dead_code, reason = "other tests use the rest")]
mod testnet;
#[allow(dead_code, reason = "other tests use the rest")]
mod vici_client;

use std::fmt::Write;
use std::fs;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use testnet::{Host, Side, TestNet, WIRE};
use vici_client::Client;

/// Number of connections, and how long they may take to load, and to load again after a change of one.
/// Without optimization, the program is several times slower.
#[cfg(not(debug_assertions))]
const SCALE: (u32, Duration, Duration) = (10_000, Duration::from_secs(10), Duration::from_secs(2));
#[cfg(debug_assertions)]
const SCALE: (u32, Duration, Duration) = (2_000, Duration::from_secs(20), Duration::from_secs(8));

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
