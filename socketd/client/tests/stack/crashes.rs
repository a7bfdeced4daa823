//! Applications that crash or misbehave, the limits of the server, its end, and its keys, which only the
//! server process has.

use crate::harness::{Harness, PEER, SECRET, echo};
use casemate_test_support::Program;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::FileExt;
use std::thread;
use std::time::{Duration, Instant};

/// Applications are killed at arbitrary moments. Another application is not affected and loses no data.
#[test]
fn killed_applications_do_not_affect_others() {
    let Some(mut harness) = Harness::protected("killed", &[]) else { return };
    let _echo = harness.ready("echo", "7000");
    harness.echoes(7_000, 10);
    let steady = harness.connect(7_000);
    let steady = thread::spawn(move || echo(steady, 3_000_000));
    let sink = harness.at_peer(|| TcpListener::bind(SocketAddr::new(PEER, 9_000))).unwrap();
    for _ in 0..6 {
        let mut half = harness.ready("half", "7100");
        let mut pour = harness.application("pour", &format!("{PEER}:9000"));
        let (mut stream, _) = sink.accept().unwrap();
        let mut taken = vec![0; 100_000];
        stream.read_exact(&mut taken).unwrap();
        pour.crash();
        half.crash();
        // The connection is reset, not only silent.
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let end = std::io::copy(&mut stream, &mut std::io::sink()).map_err(|error| error.kind());
        assert_eq!(end, Err(std::io::ErrorKind::ConnectionReset));
        harness.server.await_line("application");
    }
    steady.join().unwrap();
    // The ports are free, and the limit of applications is not used up.
    let again = harness.ready("echo", "7100");
    harness.echoes(7_100, 10_000);
    drop(again);
    assert!(harness.server.stop());
}

/// The server writes its log from a thread of its own, so a pipe that is full does not stop it.
#[test]
fn a_log_that_is_not_read_does_not_stop_the_server() {
    let (reader, mut writer) = std::io::pipe().unwrap();
    let Some(mut harness) = Harness::unread("unread", writer.try_clone().unwrap()) else { return };
    // The thread waits for room, and ends with the reader.
    let filler = thread::spawn(move || while writer.write(&[b'.'; 4_096]).is_ok() {});
    thread::sleep(Duration::from_millis(500));
    let echo = harness.ready("echo", "7000");
    harness.echoes(7_000, 10_000);
    drop(echo);
    assert!(harness.server.is_alive() && harness.server.stop());
    drop(reader);
    filler.join().unwrap();
}

/// Several applications write random words to their memory.
#[test]
fn corrupted_memory_does_not_affect_others() {
    let Some(mut harness) = Harness::protected("scribble", &[]) else { return };
    let _echo = harness.ready("echo", "7000");
    harness.echoes(7_000, 10);
    let steady = harness.connect(7_000);
    let steady = thread::spawn(move || echo(steady, 2_000_000));
    for round in 0..10u32 {
        let mad: Vec<_> =
            (0..3).map(|n| harness.ready("scribble", &format!("{}", (round * 3 + n + 1) * 0x9E37))).collect();
        thread::sleep(Duration::from_millis(50));
        drop(mad);
    }
    steady.join().unwrap();
    harness.echoes(7_000, 100_000);
    assert!(harness.server.is_alive() && harness.server.stop());
    let summary = harness.server.await_line("casemate:");
    let part = summary.split([',', ';']).find_map(|part| part.strip_suffix(" violated the protocol"));
    let broken: u32 = part.and_then(|count| count.trim().parse().ok()).unwrap();
    assert!(broken > 10, "{summary}");
}

/// All waiting requests fail immediately when the server dies.
#[test]
fn the_end_of_the_server_is_reported_as_an_error() {
    let Some(mut harness) = Harness::clear("end", &[]) else { return };
    let mut waiting = [harness.ready("echo", "7000"), harness.ready("datagrams", "5000")];
    let sink = harness.at_peer(|| TcpListener::bind(SocketAddr::new(PEER, 9_000))).unwrap();
    let busy = harness.ready("pour", &format!("{PEER}:9000"));
    let _stream = sink.accept().unwrap();
    let begin = Instant::now();
    harness.server.crash();
    for application in waiting.iter_mut() {
        assert!(application.line().ends_with("the stack server has ended"));
    }
    assert!(busy.line().ends_with("the stack server has ended"));
    assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
    // A later connection fails.
    assert!(casemate_socketd_client::Session::connect(harness.socket()).is_err());
}

#[test]
fn limits_of_sockets_and_applications_are_enforced() {
    let Some(mut harness) =
        Harness::clear("full", &["--sockets", "40", "--applications", "3", "--buffer", "16"])
    else {
        return;
    };
    assert_eq!(harness.application("hoard", "").line(), "40 sockets, then QuotaExceeded");
    harness.server.await_line("application 1: ended");
    let mut idle = [harness.ready("idle", ""), harness.ready("idle", ""), harness.ready("idle", "")];
    let refused = casemate_socketd_client::Session::connect(harness.socket()).err().map(|error| error.kind());
    assert_eq!(refused, Some(std::io::ErrorKind::QuotaExceeded));
    idle[1].crash();
    harness.server.await_line("application 3: ended");
    let _echo = harness.ready("echo", "7000");
    harness.echoes(7_000, 1_000);
    assert!(harness.server.stop());
    let summary = harness.server.await_line("casemate:");
    assert!(summary.starts_with("casemate: 5 applications, 1 refused, 0 violated the protocol"), "{summary}");
}

/// The interface goes down and up again. No process ends, and requests made meanwhile wait.
#[test]
fn the_stack_survives_an_interface_that_goes_down() {
    let Some(mut harness) = Harness::clear("stopped", &[]) else { return };
    let _echo = harness.ready("echo", "7000");
    harness.echoes(7_000, 1_000);
    let switch = |word: &str| {
        let ip = Program::new("ip").args(["link", "set", "stack0", word]);
        let output = ip.output_with(|command| harness.netns.spawn(command));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    switch("down");
    let fetch = harness.application("fetch", "192.0.2.2:9000");
    assert_eq!(fetch.line(), "fetch: timed out");
    switch("up");
    harness.at_peer(|| {
        let mut netlink = casemate_linux::netlink::Netlink::open().unwrap();
        let link = netlink.link("stack0").unwrap();
        // The kernel may have kept the address.
        let _ = netlink.add_address(link.index, crate::harness::PEER, 24);
    });
    harness.echoes(7_000, 1_000);
    assert!(harness.server.stop());
}

/// Returns all keys: the pre-shared key, and the keys of the SAs, which the peer has saved.
fn keys(harness: &Harness) -> Vec<Vec<u8>> {
    let states = fs::read_to_string(harness.scratch.file("keys/states.xfrm")).unwrap();
    let hex =
        states.split_whitespace().filter_map(|word| word.strip_prefix("0x")).filter(|word| word.len() >= 32);
    let bytes = |hex: &str| -> Vec<u8> {
        (0..hex.len() / 2).map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap()).collect()
    };
    let mut keys: Vec<Vec<u8>> = hex.map(bytes).collect();
    assert!(keys.len() >= 2, "{} keys of SAs", keys.len());
    keys.push(SECRET.as_bytes().to_vec());
    keys
}

/// Returns all readable memory of a process, shared memory included. Requires root.
fn memory(process: u32) -> Vec<u8> {
    let maps = fs::read_to_string(format!("/proc/{process}/maps")).unwrap();
    let file = File::open(format!("/proc/{process}/mem")).unwrap();
    let mut all = Vec::new();
    for line in maps.lines().filter(|line| line.split(' ').nth(1).is_some_and(|mode| mode.starts_with('r'))) {
        let (from, to) = line.split(' ').next().unwrap().split_once('-').unwrap();
        let number = |hex| u64::from_str_radix(hex, 16).unwrap();
        let mut part = vec![0; (number(to) - number(from)) as usize];
        // Pages of the kernel, such as vvar, cannot be read this way.
        if file.read_exact_at(&mut part, number(from)).is_ok() {
            all.extend(part);
        }
    }
    all
}

/// Returns how many of the keys are in the memory. Compares the first 16 bytes only, so that the data
/// that follows a key does not matter.
fn found(memory: &[u8], keys: &[Vec<u8>]) -> usize {
    let is_there = |key: &[u8]| memory.windows(16).any(|part| part == &key[..16]);
    keys.iter().filter(|key| is_there(key)).count()
}

#[test]
fn applications_have_no_keys() {
    let Some(harness) = Harness::protected("keys", &[]) else { return };
    let echo = harness.ready("echo", "7000");
    harness.echoes(7_000, 200_000);
    let keys = keys(&harness);
    // The search works: the server has at least the pre-shared key.
    assert!(found(&memory(harness.server.pid()), &keys) >= 1);
    let application = memory(echo.pid());
    assert!(application.len() > 1 << 20);
    // Data that went through the rings is found too: the search covers shared memory.
    let echoed: Vec<u8> = (700..716).map(|at| (at / 7) as u8).collect();
    assert_eq!(found(&application, &[echoed]), 1);
    assert_eq!(found(&application, &keys), 0);
}

/// A process of the same user without capabilities cannot read the server's memory.
#[test]
fn the_memory_of_the_server_is_not_accessible() {
    let Some(harness) = Harness::clear("closed", &[]) else { return };
    let process = harness.server.pid().to_string();
    assert_eq!(harness.application("look", &process).line(), "own true, other Some(PermissionDenied)");
    // The protection is set by the server: the memory of an application is accessible.
    let other = harness.ready("idle", "");
    assert_eq!(harness.application("look", &other.pid().to_string()).line(), "own true, other None");
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    for line in ["CapEff:\t0000000000000000", "CapPrm:\t0000000000000000", "NoNewPrivs:\t1"] {
        assert!(status.contains(line), "{line}: {status}");
    }
}
