//! `casemate run` with a scheduler under overload: voice calls beside bulk traffic.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

#[allow(dead_code, reason = "other tests use the rest")]
mod testnet;

use serde_json::Value;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use testnet::{Host, Side, TestNet};

/// Interval of the packets of a call, and number of calls.
const INTERVAL: Duration = Duration::from_millis(20);
const CALLS: u32 = 10;
/// Length of a G.711 packet: RTP header and 20 ms of audio.
const SOUND: usize = 172;
const EF: u32 = 0xb8;
/// Time without a packet after which the remaining ones count as lost.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The configuration of one side; `more` is added after the connection.
fn conf(side: Side, more: &str) -> String {
    format!(
        "connections {{ peer {{\n local_addrs = {}\n remote_addrs = {}\n local {{\n auth = psk\n }}\n remote {{\n auth = psk\n }}\n \
         children {{ net {{\n local_ts = {}\n remote_ts = {}\n start_action = trap\n }} }} }} }}\n \
         secrets {{ ike {{\n secret = \"a secret of the two\"\n }} }}\n {more}\n",
        side.outer(true),
        side.other().outer(true),
        side.inner(true),
        side.other().inner(true),
    )
}

/// The result of the calls.
#[derive(Debug)]
struct Calls {
    sent: u32,
    /// Delays of the received packets, in ascending order.
    delays: Vec<Duration>,
}

impl Calls {
    fn percentile(&self, percent: usize) -> Duration {
        self.delays[(self.delays.len() - 1) * percent / 100]
    }
}

/// Makes calls from left to right for `time`.
fn call(left: &Host, right: &Host, time: Duration) -> Calls {
    let to = SocketAddr::new(right.side.inner(true), 4_000);
    let receiver = right.run(|| UdpSocket::bind(to)).unwrap();
    receiver.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    // A receiver that is not scheduled for a while must not lose packets.
    socket2::SockRef::from(&receiver).set_recv_buffer_size(1 << 20).unwrap();
    let sender = left.run(|| UdpSocket::bind((left.side.inner(true), 0))).unwrap();
    socket2::SockRef::from(&sender).set_tos_v4(EF).unwrap();
    let start = Instant::now();
    let (sent, is_over) = (AtomicU32::new(0), AtomicBool::new(false));
    let listen = || {
        let (mut delays, mut packet, mut last) = (Vec::new(), [0; SOUND], Instant::now());
        let is_missed =
            |count: usize| !is_over.load(Ordering::Acquire) || count < sent.load(Ordering::Acquire) as usize;
        while is_missed(delays.len()) && last.elapsed() < TIMEOUT {
            if receiver.recv(&mut packet).is_ok() {
                let sent = Duration::from_nanos(u64::from_be_bytes(packet[..8].try_into().unwrap()));
                delays.push(start.elapsed().saturating_sub(sent));
                last = Instant::now();
            }
        }
        delays.sort_unstable();
        delays
    };
    let speak = || {
        while start.elapsed() < time {
            for _ in 0..CALLS {
                let mut packet = [0; SOUND];
                packet[..8].copy_from_slice(&(start.elapsed().as_nanos() as u64).to_be_bytes());
                sender.send_to(&packet, to).unwrap();
            }
            sent.fetch_add(CALLS, Ordering::Release);
            thread::sleep(INTERVAL);
        }
        is_over.store(true, Ordering::Release);
    };
    let delays = thread::scope(|scope| {
        let listening = scope.spawn(listen);
        speak();
        listening.join().unwrap()
    });
    Calls { sent: sent.into_inner(), delays }
}

/// Like [`call`], with as much bulk traffic in the same direction as the sender can produce.
fn call_beside_bulk(left: &Host, right: &Host, time: Duration) -> Calls {
    let to = SocketAddr::new(right.side.inner(true), 9);
    let sender = left.run(|| UdpSocket::bind((left.side.inner(true), 0))).unwrap();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let bulk = || {
            while !is_over.load(Ordering::Relaxed) {
                // Port 9 of the other host is closed, so ICMP errors come back.
                let _ = sender.send_to(&[0; 1_200], to);
            }
        };
        scope.spawn(bulk);
        thread::sleep(Duration::from_millis(100));
        let calls = call(left, right, time);
        is_over.store(true, Ordering::Relaxed);
        calls
    })
}

fn class(status: &Value, name: &str) -> Value {
    let classes = status["classes"].as_array().unwrap();
    classes.iter().find(|class| class["class"] == name).unwrap().clone()
}

/// The delays are printed but not checked, because test machines are busy.
#[test]
fn voice_is_not_dropped_under_overload() {
    let Some(net) = TestNet::build("calls_lose_nothing") else { return };
    let (left, right) = (&net.left, &net.right);
    let _right = right.run_config(&conf(Side::Right, "scheduler {\n}\n"), None);
    let _left = left.run_config(&conf(Side::Left, "scheduler {\n}\n"), None);
    assert!(left.pings(Side::Right.inner(true), 8), "{}", _left.log());
    assert!(!_left.log().contains("share one queue"), "{}", _left.log());
    let idle = call(left, right, Duration::from_millis(500));
    let busy = call_beside_bulk(left, right, Duration::from_secs(2));
    for (name, calls) in [("idle", &idle), ("busy", &busy)] {
        println!(
            "{name}: {} of {} arrived, 99 of 100 in {:?}",
            calls.delays.len(),
            calls.sent,
            calls.percentile(99)
        );
    }
    assert_eq!(idle.delays.len(), idle.sent as usize);
    assert_eq!(busy.delays.len(), busy.sent as usize);
    let status = left.status();
    let voice = class(&status, "low-latency");
    assert!(voice["taken"].as_u64() >= Some(u64::from(idle.sent + busy.sent)), "{voice}");
    assert_eq!((&voice["late"], &voice["full"]), (&0.into(), &0.into()));
    assert!(class(&status, "standard")["taken"].as_u64() > Some(1_000));
    let table = left.stdout_of(env!("CARGO_BIN_EXE_casemate"), &["status"]);
    assert!(table.contains("Classes of outbound packets"), "{table}");
}
