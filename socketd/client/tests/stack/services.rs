//! Services over the server, and the TCP throughput from an application through the server to the peer, with
//! and without IPsec. The throughput is a measurement, not a test.

use crate::harness::{Harness, PEER, STACK};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

/// An HTTP server, a TCP echo service and a UDP echo service in separate processes, at the same time and
/// through IPsec.
#[test]
fn several_applications_behind_ipsec() {
    let Some(mut harness) = Harness::protected("several", &[]) else { return };
    let _applications =
        [harness.ready("echo", "7000"), harness.ready("page", "8080"), harness.ready("datagrams", "5000")];
    // The first packet triggers the IKE negotiation.
    harness.echoes(7_000, 10);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| harness.echoes(7_000, 300_000));
        }
        scope.spawn(|| (0..10).for_each(|_| assert!(page(&harness).ends_with("another process\n"))));
        scope.spawn(|| datagrams(&harness));
    });
    // An application that connects to the peer.
    let listener = harness.at_peer(|| TcpListener::bind(SocketAddr::new(PEER, 9_000))).unwrap();
    let fetch = harness.application("fetch", &format!("{PEER}:9000"));
    let (mut stream, from) = listener.accept().unwrap();
    assert_eq!(from.ip(), STACK);
    let mut line = String::new();
    stream.read_to_string(&mut line).unwrap();
    stream.write_all(b"and an answer\n").unwrap();
    drop(stream);
    assert_eq!((line.as_str(), fetch.line().as_str()), ("a line\n", "and an answer"));
    assert!(harness.server.stop());
    let summary = harness.server.await_line("casemate:");
    assert!(summary.starts_with("casemate: 4 applications, 0 refused, 0 violated the protocol"), "{summary}");
}

fn page(harness: &Harness) -> String {
    let mut stream = harness.connect(8_080);
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    assert!(page.starts_with("HTTP/1.0 200 OK\r\n"), "{page}");
    page
}

fn datagrams(harness: &Harness) {
    let socket = harness.at_peer(|| UdpSocket::bind(SocketAddr::new(PEER, 0))).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    for len in [0, 1, 500, 1_400, 1_900] {
        let data: Vec<u8> = (0..len).map(|at| at as u8).collect();
        socket.send_to(&data, SocketAddr::new(STACK, 5_000)).unwrap();
        let mut back = [0; 2_000];
        let (count, from) = loop {
            match socket.recv_from(&mut back) {
                // A signal interrupts a call that has a timeout (signal(7)).
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                received => break received.unwrap(),
            }
        };
        assert!(back[..count] == data && from == SocketAddr::new(STACK, 5_000), "{len}");
    }
}

/// After an outage that loses the context of header compression, the server sends feedback although it has
/// nothing else to send: one request is lost.
#[test]
fn requests_have_responses_after_an_outage() {
    let Some(harness) = Harness::compressed("outage") else { return };
    let _application = harness.ready("datagrams", "5000");
    let socket = harness.at_peer(|| UdpSocket::bind(SocketAddr::new(PEER, 0))).unwrap();
    let mut number = 0_u32;
    let mut send = || {
        number += 1;
        // While the link loses packets, sending may fail.
        let _ = socket.send_to(&number.to_be_bytes(), SocketAddr::new(STACK, 5_000));
        number
    };
    let mut has_response = |wait: Duration| {
        let (number, mut back) = (send(), [0; 4]);
        socket.set_read_timeout(Some(wait)).unwrap();
        let end = Instant::now() + wait;
        while Instant::now() < end {
            if socket.recv_from(&mut back).is_ok() && back == number.to_be_bytes() {
                return true;
            }
        }
        false
    };
    // IKE negotiates the Child SA.
    assert!((0..10).any(|_| has_response(Duration::from_secs(1))));
    // The compressor repeats all headers by itself after 64 packets.
    (0..20).for_each(|_| assert!(has_response(Duration::from_secs(5))));
    harness.during_outage(|| (0..20).for_each(|_| assert!(!has_response(Duration::from_millis(20)))));
    let after: Vec<bool> = (0..6).map(|_| has_response(Duration::from_secs(2))).collect();
    assert_eq!(after, [false, true, true, true, true, true]);
}

/// Packets in clear text are dropped if the policy requires protection.
#[test]
fn unprotected_packets_are_dropped() {
    let Some(mut harness) = Harness::protected("clear-text", &[]) else { return };
    let _echo = harness.ready("echo", "7000");
    harness.echoes(7_000, 1_000);
    assert!(harness.peer.take().unwrap().stop());
    let connect = || {
        let to = SocketAddr::new(STACK, 7_000);
        std::net::TcpStream::connect_timeout(&to, Duration::from_millis(700))
    };
    assert!(harness.at_peer(connect).is_err());
}

/// A port has one owner, and ports below 1024 need a grant.
#[test]
fn ports_and_grants() {
    let Some(harness) = Harness::clear("ports", &["--grant", "4000000000=1-1023"]) else { return };
    let _first = harness.ready("echo", "7000");
    assert_eq!(harness.application("echo", "7000").line(), "echo: the port is in use");
    let refusal = harness.application("echo", "80").line();
    assert!(refusal.starts_with("echo: the application may not use the port"), "{refusal}");
    let granted = Harness::clear("granted", &["--grant", "0=80"]).unwrap();
    granted.ready("echo", "80");
}

const TIME: Duration = Duration::from_secs(3);

/// Returns the throughput in Mbit/s, measured at the peer.
fn pour(harness: &Harness) -> f64 {
    let sink = harness.at_peer(|| TcpListener::bind(SocketAddr::new(PEER, 9_000))).unwrap();
    let _pour = harness.application("pour", &format!("{PEER}:9000"));
    let (mut stream, _) = sink.accept().unwrap();
    let (mut buffer, mut bytes, begin) = (vec![0; 1 << 20], 0, Instant::now());
    while begin.elapsed() < TIME {
        bytes += stream.read(&mut buffer).unwrap();
    }
    bytes as f64 * 8.0 / 1e6 / begin.elapsed().as_secs_f64()
}

#[test]
#[ignore = "a measurement: `cargo xtask bench stack` runs it"]
fn speed() {
    let (Some(clear), Some(protected)) =
        (Harness::clear("speed-clear", &[]), Harness::protected("speed-esp", &[]))
    else {
        return;
    };
    for _ in 0..3 {
        let (plain, esp) = (pour(&clear), pour(&protected));
        println!("plain {plain:.0} Mbit/s, protected {esp:.0} Mbit/s: {:.2}", esp / plain);
    }
}
