//! `casemate run` with the section `scheduler`, when more comes than it can protect: calls beside bulk traffic.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

#[allow(dead_code, reason = "other tests use the rest")]
mod lab;

use lab::{Host, Lab, Side};
use serde_json::Value;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Time between the packets of a call, and how many there are of the calls together in that time.
const INTERVAL: Duration = Duration::from_millis(20);
const CALLS: u32 = 10;
/// A G.711 packet: RTP header and 20 ms of sound.
const SOUND: usize = 172;
const EF: u32 = 0xb8;
/// Silence after which the rest is lost.
const PATIENCE: Duration = Duration::from_secs(5);

/// One side's configuration; `more` stands beside the connection.
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

/// What became of the calls.
#[derive(Debug)]
struct Calls {
    sent: u32,
    /// How long the packets that arrived were under way, the shortest first.
    delays: Vec<Duration>,
}

impl Calls {
    fn percentile(&self, percent: usize) -> Duration {
        self.delays[(self.delays.len() - 1) * percent / 100]
    }
}

/// Calls from left to right, for so long.
fn call(left: &Host, right: &Host, time: Duration) -> Calls {
    let to = SocketAddr::new(right.side.inner(true), 4_000);
    let receiver = right.run(|| UdpSocket::bind(to)).unwrap();
    receiver.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    // A listener that has no processor for a while shall not be the one who loses them.
    socket2::SockRef::from(&receiver).set_recv_buffer_size(1 << 20).unwrap();
    let sender = left.run(|| UdpSocket::bind((left.side.inner(true), 0))).unwrap();
    socket2::SockRef::from(&sender).set_tos_v4(EF).unwrap();
    let start = Instant::now();
    let (sent, is_over) = (AtomicU32::new(0), AtomicBool::new(false));
    let listen = || {
        let (mut delays, mut packet, mut last) = (Vec::new(), [0; SOUND], Instant::now());
        let is_missed =
            |count: usize| !is_over.load(Ordering::Acquire) || count < sent.load(Ordering::Acquire) as usize;
        while is_missed(delays.len()) && last.elapsed() < PATIENCE {
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

/// The same while as much other traffic goes the same way as the sender can make.
fn call_beside_bulk(left: &Host, right: &Host, time: Duration) -> Calls {
    let to = SocketAddr::new(right.side.inner(true), 9);
    let sender = left.run(|| UdpSocket::bind((left.side.inner(true), 0))).unwrap();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let bulk = || {
            while !is_over.load(Ordering::Relaxed) {
                // Nobody listens at port 9 of the other host, and its ICMP errors come back.
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

/// How long packets wait is told and not judged here: the machine that runs tests is busy.
#[test]
fn calls_lose_nothing_beside_more_than_can_be_protected() {
    let Some(lab) = Lab::build("calls_lose_nothing") else { return };
    let (left, right) = (&lab.left, &lab.right);
    let _right = right.negotiate(&conf(Side::Right, "scheduler {\n}\n"), None);
    let _left = left.negotiate(&conf(Side::Left, "scheduler {\n}\n"), None);
    assert!(left.hears(Side::Right.inner(true), 8), "{}", _left.said());
    assert!(!_left.said().contains("share one queue"), "{}", _left.said());
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
    let table = left.says(env!("CARGO_BIN_EXE_casemate"), &["status"]);
    assert!(table.contains("Classes of packets out"), "{table}");
}
