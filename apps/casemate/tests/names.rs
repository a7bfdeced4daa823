//! Host names in `swanctl.conf`: they are looked up for each attempt, a look-up blocks nothing else, and a
//! name that is not found ends nothing.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

#[allow(dead_code, reason = "other tests use the rest")]
mod testnet;

use std::fs;
use std::net::{IpAddr, UdpSocket};
use std::os::unix::process::ExitStatusExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use testnet::{Host, ReplacedFile, Running, Side, TestNet, WIRE, eventually};

const A: [u8; 2] = [0, 1];

/// A name server on the right host that has one address for every name: that of the right host, or
/// [`ELSEWHERE`].
struct NameServer {
    /// Number of datagrams that have arrived.
    received: Arc<AtomicUsize>,
    /// Number of queries for IPv4 addresses.
    queries: Arc<AtomicUsize>,
    is_silent: Arc<AtomicBool>,
    is_elsewhere: Arc<AtomicBool>,
}

/// A second address of the right host, without a gateway behind it at first.
const ELSEWHERE: [u8; 4] = [192, 0, 2, 77];

impl NameServer {
    fn start(host: &Host) -> Self {
        let socket = host.run(|| UdpSocket::bind((host.side.outer(true), 53))).unwrap();
        let (queries, is_silent) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
        let is_elsewhere = Arc::<AtomicBool>::default();
        let (count, silent, elsewhere) = (queries.clone(), is_silent.clone(), is_elsewhere.clone());
        let received = Arc::<AtomicUsize>::default();
        let all = received.clone();
        let IpAddr::V4(addr) = host.side.outer(true) else { unreachable!() };
        // The thread ends with the test.
        thread::spawn(move || {
            let mut buffer = [0; 512];
            while let Ok((len, client)) = socket.recv_from(&mut buffer) {
                all.fetch_add(1, Ordering::Relaxed);
                if silent.load(Ordering::Relaxed) {
                    continue;
                }
                let addr = if elsewhere.load(Ordering::Relaxed) { ELSEWHERE } else { addr.octets() };
                if let Some(reply) = reply(&buffer[..len], addr, &count) {
                    let _ = socket.send_to(&reply, client);
                }
            }
        });
        Self { received, queries, is_silent, is_elsewhere }
    }
}

/// The response to a query with one question (RFC 1035 section 4).
fn reply(query: &[u8], addr: [u8; 4], queries: &AtomicUsize) -> Option<Vec<u8>> {
    let name = query.get(12..)?.iter().position(|byte| *byte == 0)? + 13;
    let question = query.get(12..name + 4)?;
    let is_a = question[question.len() - 4..question.len() - 2] == A;
    let mut reply = [&query[..2], &[0x81, 0x80, 0, 1, 0, u8::from(is_a), 0, 0, 0, 0], question].concat();
    if is_a {
        queries.fetch_add(1, Ordering::Relaxed);
        reply.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4]);
        reply.extend(addr);
    }
    Some(reply)
}

/// A connection to `remote`, with this `start_action` and `keys` of the child.
fn conf(side: Side, remote: &str, keys: &str) -> String {
    format!(
        "connections {{\n t {{\n  version = 2\n  local_addrs = {}\n  remote_addrs = {remote}\n  \
         proposals = aes128gcm16-prfsha256-x25519\n  local {{\n   auth = psk\n   id = {side:?}.test\n  }}\n  \
         remote {{\n   auth = psk\n   id = {:?}.test\n  }}\n  children {{\n   c {{\n    {keys}\n    \
         esp_proposals = aes128gcm16\n   }}\n  }}\n }}\n}}\n\
         secrets {{\n ike-1 {{\n  secret = \"a secret of two hosts\"\n }}\n}}\n",
        if remote == "%any" { "%any".to_owned() } else { side.outer(true).to_string() },
        side.other(),
    )
}

/// A tunnel between the inner addresses.
fn tunnel(side: Side, remote: &str, action: &str) -> String {
    let (own, peer) = (side.inner(true), side.other().inner(true));
    let keys = format!("local_ts = {own}/32\n    remote_ts = {peer}/32\n    start_action = {action}");
    conf(side, remote, &keys)
}

/// The file that makes the right host the name server.
fn resolver(host: &Host) -> ReplacedFile {
    let resolver = host.file("resolv.conf");
    let server = Side::Right.outer(true);
    fs::write(&resolver, format!("nameserver {server}\noptions timeout:8 attempts:1\n")).unwrap();
    ReplacedFile { path: "/etc/resolv.conf".into(), by: resolver }
}

/// Starts Casemate with the right host as name server.
fn start(host: &Host, conf: &str) -> Running {
    host.run_config_with_nft(conf, &resolver(host))
}

fn initiates(host: &Host) {
    let output = host.casemate(&["initiate", "c"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn silent_name_server_delays_nothing_else() {
    let Some(net) = TestNet::build("a_name_server_that_does_not_answer") else { return };
    let server = NameServer::start(&net.right);
    let right = net.right.run_config(&tunnel(Side::Right, "%any", "none"), None);
    let left = start(&net.left, &tunnel(Side::Left, "gateway.test", "none"));
    initiates(&net.left);
    assert!(net.left.pings(Side::Right.inner(true), 100));
    server.is_silent.store(true, Ordering::Relaxed);
    assert!(net.left.casemate(&["reload"]).status.success(), "{}", left.log());
    assert!(net.left.pings_first_time(Side::Right.inner(true), 100), "a reload changes nothing");
    assert!(net.left.casemate(&["terminate", "t"]).status.success());
    // A look-up was at most two seconds ago.
    thread::sleep(Duration::from_millis(2_100));
    thread::scope(|scope| {
        let initiate = scope.spawn(|| net.left.casemate(&["initiate", "c"]));
        thread::sleep(Duration::from_millis(500));
        assert!(net.left.casemate(&["status"]).status.success());
        assert!(!initiate.is_finished(), "the look-up has ended: {}", left.log());
        server.is_silent.store(false, Ordering::Relaxed);
        // The system's resolver asks again after its own time.
        let output = initiate.join().unwrap();
        // It fails if that was its last attempt; then the former address is used.
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    });
    assert!(net.left.pings(Side::Right.inner(true), 100));
    assert!(left.stop().success() && right.stop().success());
}

/// The name server answers some time after the start, as at boot.
#[test]
fn unknown_name_ends_nothing_and_is_looked_up_again() {
    let Some(net) = TestNet::build("a_name_that_is_unknown_at_first") else { return };
    let right = net.right.run_config(&tunnel(Side::Right, "%any", "none"), None);
    // Nothing serves names, so each look-up fails at once.
    let left = start(&net.left, &tunnel(Side::Left, "gateway.test", "start"));
    eventually("the log names the host", || left.log().contains("gateway.test: no address was found"));
    let output = net.left.casemate(&["initiate", "c"]);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && stderr.contains("no address was found"), "{stderr}");
    assert!(net.left.casemate(&["reload"]).status.success(), "{}", left.log());
    let _server = NameServer::start(&net.right);
    eventually("the tunnel is up", || net.left.pings_at_once(Side::Right.inner(true), 8));
    assert!(left.stop().success() && right.stop().success());
}

/// A peer with a dynamic address: its name is looked up for each attempt.
#[test]
fn each_attempt_uses_the_current_address() {
    let Some(net) = TestNet::build("a_peer_whose_address_changes") else { return };
    let server = NameServer::start(&net.right);
    net.right.stdout_of("ip", &["address", "add", "192.0.2.77/24", "dev", WIRE]);
    let right = net.right.run_config(&tunnel(Side::Right, "%any", "none"), None);
    let left = start(&net.left, &tunnel(Side::Left, "gateway.test", "none"));
    for (elsewhere, addr) in [(false, "192.0.2.2"), (true, "192.0.2.77")] {
        server.is_elsewhere.store(elsewhere, Ordering::Relaxed);
        initiates(&net.left);
        let status = net.left.status();
        assert_eq!(status["ike_sas"][0]["remote"], format!("{addr}:4500"), "{status}");
        assert!(net.left.pings(Side::Right.inner(true), 100));
        assert!(net.left.casemate(&["terminate", "t"]).status.success());
        thread::sleep(Duration::from_millis(2_100));
    }
    assert!(left.stop().success() && right.stop().success());
}

/// A trap for the peer itself blocks the traffic as soon as the address is known, and follows it.
#[test]
fn trap_follows_the_address_of_its_peer() {
    let Some(net) = TestNet::build("a_trap_for_a_peer_with_a_name") else { return };
    let server = NameServer::start(&net.right);
    let left = start(&net.left, &conf(Side::Left, "gateway.test", "mode = transport\n start_action = trap"));
    let blocked = |addr: IpAddr| !net.left.pings_at_once(addr, 8);
    let (first, second) = (Side::Right.outer(true), IpAddr::from(ELSEWHERE));
    eventually("the address is known", || blocked(first));
    net.right.stdout_of("ip", &["address", "add", "192.0.2.77/24", "dev", WIRE]);
    assert!(net.left.pings(second, 8), "only the traffic with the peer is blocked");
    assert!(left.log().contains("no address is known yet"), "{}", left.log());
    server.is_elsewhere.store(true, Ordering::Relaxed);
    assert!(left.stop().success());
}

/// Each start asks the name server, also behind the guard of a run that crashed.
#[test]
fn name_is_looked_up_behind_an_older_guard() {
    let Some(net) = TestNet::build("each_start_looks_a_name_up") else { return };
    let server = NameServer::start(&net.right);
    let right = net.right.run_config(&tunnel(Side::Right, "%any", "none"), None);
    for round in 1..=3 {
        let left = start(&net.left, &tunnel(Side::Left, "gateway.test", "none"));
        assert_eq!(left.log().contains("took over the guard"), round > 1, "{}", left.log());
        assert!(!left.log().contains("a reload will fail"), "{}", left.log());
        initiates(&net.left);
        assert_eq!(server.queries.load(Ordering::Relaxed), round, "{}", left.log());
        assert!(net.left.pings(Side::Right.inner(true), 100));
        left.crash();
    }
    assert!(right.stop().success());
}

/// A dry run looks all names up at the same time, and a signal ends it.
#[test]
fn dry_run_does_not_wait_for_each_name() {
    const COUNT: usize = 5;
    let Some(net) = TestNet::build("dry_run_with_a_silent_name_server") else { return };
    let server = NameServer::start(&net.right);
    server.is_silent.store(true, Ordering::Relaxed);
    let all: Vec<String> = (0..COUNT).map(|number| format!("gateway-{number}.test")).collect();
    let conf = tunnel(Side::Left, &all.join(", "), "trap");
    let begin = Instant::now();
    let mut run = net.left.start_dry_run(&conf, &resolver(&net.left));
    let asked = Arc::clone(&server.received);
    eventually("all names are looked up", || asked.load(Ordering::Relaxed) >= COUNT);
    assert!(run.exit_status().is_none());
    let status = run.stop(Duration::from_secs(2));
    assert_eq!(status.signal(), Some(15), "SIGTERM ends it");
    // The system's resolver waits eight seconds for a name.
    let output = net.left.start_dry_run(&conf, &resolver(&net.left)).output(Duration::from_secs(60));
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && begin.elapsed() < Duration::from_secs(20), "{errors}");
    for name in all {
        assert!(errors.contains(&format!("{name}: no address was found")), "{errors}");
    }
}

/// A gateway redirects its client to a name. A name that leads back to the same gateway changes nothing.
#[test]
fn redirect_to_the_name_of_a_gateway() {
    let Some(net) = TestNet::build("redirect_to_a_name") else { return };
    let server = NameServer::start(&net.right);
    net.right.stdout_of("ip", &["address", "add", "192.0.2.77/24", "dev", WIRE]);
    let right = net.right.run_config(&tunnel(Side::Right, "%any", "none"), None);
    let left = start(&net.left, &tunnel(Side::Left, "192.0.2.2", "none"));
    initiates(&net.left);
    let both = || format!("{}{}", left.log(), right.log());
    let redirect = |name: &str| net.right.casemate(&["redirect", "t", name]);
    let gateways = || {
        let status = net.left.status();
        let all = status["ike_sas"].as_array().unwrap().iter();
        all.map(|sa| sa["remote"].as_str().unwrap_or_default().to_owned()).collect::<Vec<_>>()
    };
    let refused = redirect("not a name");
    assert!(!refused.status.success());
    assert!(redirect("same.test").status.success(), "{}", both());
    eventually("the fault is logged", || left.log().contains("redirect-gateway"));
    assert!(left.log().contains("redirected by 192.0.2.2 to same.test"), "{}", both());
    assert!(gateways().iter().all(|remote| remote.starts_with("192.0.2.2:")), "{:?}", gateways());
    assert!(net.left.pings(Side::Right.inner(true), 100), "{}", both());
    server.is_elsewhere.store(true, Ordering::Relaxed);
    assert!(redirect("other.test").status.success(), "{}", both());
    eventually("the client is at the other address", || {
        gateways().len() == 1 && gateways()[0].starts_with("192.0.2.77:")
    });
    assert!(net.left.pings(Side::Right.inner(true), 100), "{}", both());
    assert!(left.stop().success() && right.stop().success());
}
