//! The control socket against clients that mean no good.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

#[allow(dead_code, reason = "other tests use the rest")]
mod lab;

use casemate_linux::Error;
use casemate_linux::instance::Instance;
use lab::{Host, Lab, Running};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

/// How many clients the instance hears at a time, and how long it waits for a request.
const CLIENTS: usize = 32;
const PATIENCE: Duration = Duration::from_secs(2);
/// What a busy machine may add to a time.
const GRACE: Duration = Duration::from_secs(20);

struct Target<'l> {
    host: &'l Host,
    socket: PathBuf,
    running: Running,
}

impl<'l> Target<'l> {
    fn start(host: &'l Host) -> Self {
        let running = host.protect("ip xfrm policy add dst 10.99.0.0/16 dir out action block\n");
        let socket = host.run(|| Ok::<_, Error>(Instance::new(lab::TUN)?.socket())).unwrap();
        Self { host, socket, running }
    }

    fn connect(&self) -> UnixStream {
        let client = UnixStream::connect(&self.socket).unwrap();
        client.set_read_timeout(Some(PATIENCE + GRACE)).unwrap();
        client.set_write_timeout(Some(PATIENCE + GRACE)).unwrap();
        client
    }

    /// What it answers to these bytes; the client may be left before it has said everything.
    fn answer(&self, bytes: &[u8]) -> Vec<u8> {
        let mut client = self.connect();
        let _ = client.write_all(bytes);
        let _ = client.shutdown(std::net::Shutdown::Write);
        read_all(&mut client)
    }

    /// The same as soon as it has a place for one more client: places of clients who left are not free at once.
    fn gets_well(&mut self) {
        let start = Instant::now();
        while !self.host.casemate(&["status"]).status.success() {
            assert!(start.elapsed() < PATIENCE + GRACE, "no place came free: {}", self.running.said());
            thread::sleep(Duration::from_millis(50));
        }
        self.is_well();
    }

    fn is_well(&mut self) {
        assert!(self.running.child.try_wait().unwrap().is_none(), "it ended: {}", self.running.said());
        assert_eq!(self.host.status()["policies"].as_array().map(Vec::len), Some(1));
        assert!(!self.running.said().contains("panicked"), "{}", self.running.said());
    }

    /// Memory that it has in use, in KiB.
    fn memory(&self) -> usize {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.running.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }
}

/// Everything up to the end, or to the reset by a host that has not read all that it was sent.
fn read_all(client: &mut UnixStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    match client.read_to_end(&mut bytes) {
        Err(error) if error.kind() != ErrorKind::ConnectionReset => panic!("{error}"),
        _ => bytes,
    }
}

/// CVE-2018-5388 of strongSwan: a length in a message to its control socket was believed, and memory was allocated or read by it.
#[test]
fn strongswan_2018_5388_no_length_and_no_bytes_harm_the_control_socket() {
    let Some(lab) = Lab::build("strongswan_2018_5388") else { return };
    let mut target = Target::start(&lab.left);
    target.is_well();
    let before = target.memory();
    let mut hostile: Vec<Vec<u8>> = vec![
        vec![],
        vec![b'\n'],
        vec![0; 4],
        // Messages of strongSwan's own protocol, with lengths that are huge, too short, and not all there.
        [&u32::MAX.to_be_bytes()[..], &[0, 5], b"stats"].concat(),
        [&0x8000_0000u32.to_be_bytes()[..], &[0, 0]].concat(),
        [&1u32.to_be_bytes()[..], &[0, 255], b"version"].concat(),
        vec![b'{'; 100_000],
        vec![b'['; 4_000],
        [vec![b'['; 4_000], vec![b'\n']].concat(),
        [&b"{\"do\": \"initiate\", \"name\": \""[..], &vec![b'a'; 1 << 20], b"\"}\n"].concat(),
        b"{\"do\": \"status\"".to_vec(),
        b"{\"do\": \"status\"}\xff\n".to_vec(),
        b"{\"do\": \"terminate\", \"name\": \"\\u0000\\ud800\"}\n".to_vec(),
        b"{\"do\": 1e999999999}\n".to_vec(),
        vec![0xff; 5_000],
    ];
    // Numbers that look random: whatever they are, they are the same in each run.
    let mut state = 0x5388u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    };
    for _ in 0..200 {
        let len = usize::from(next()) * 8;
        hostile.push((0..len).map(|_| next()).collect());
    }
    for bytes in &hostile {
        let answer = target.answer(bytes);
        assert!(answer.is_empty(), "{} to {:?}", String::from_utf8_lossy(&answer), bytes.get(..40));
    }
    // A name that is nobody's is a request like others, and answered.
    let answer = target.answer(b"{\"do\": \"terminate\", \"name\": \"$(reboot)\\n\"}\n");
    assert!(String::from_utf8(answer).unwrap().starts_with("{\"error\":"));
    target.is_well();
    let grown = target.memory().saturating_sub(before);
    assert!(grown < 8_192, "{grown} KiB more than before");
    assert!(target.running.stop().success());
}

#[test]
fn slow_clients_lose_their_places() {
    let Some(lab) = Lab::build("slow_clients_lose_their_places") else { return };
    let mut target = Target::start(&lab.left);
    let start = Instant::now();
    // They fill every place, and write one byte after the other, each of them in time.
    let slow: Vec<UnixStream> = (0..CLIENTS).map(|_| target.connect()).collect();
    // They are let in as they came.
    let turned_away = read_all(&mut target.connect());
    assert!(turned_away.is_empty());
    let mut open: Vec<&UnixStream> = slow.iter().collect();
    while !open.is_empty() && start.elapsed() < PATIENCE + GRACE {
        open.retain(|client| (&mut &**client).write_all(b" ").is_ok());
        thread::sleep(Duration::from_millis(100));
    }
    assert!(open.is_empty(), "{} still have their places", open.len());
    target.is_well();
    // Nor does one that never reads keep its place, or hold anything up.
    let deaf: Vec<UnixStream> = (0..CLIENTS * 4)
        .map(|_| {
            let mut client = target.connect();
            let _ = client.write_all(b"{\"do\": \"status\"}\n");
            client
        })
        .collect();
    target.gets_well();
    drop(deaf);
    assert!(target.running.stop().success());
}
