//! Applications that crash or misbehave, and the end of the server.

use crate::harness::{Harness, PEER, echo};
use std::io::Read;
use std::net::{SocketAddr, TcpListener};
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
