//! Applications that end, or go mad; and the end of the server.

use crate::lab::{Lab, PEER, echo};
use std::io::Read;
use std::net::{SocketAddr, TcpListener};
use std::thread;
use std::time::{Duration, Instant};

/// Applications are killed in the middle of everything, again and again; another one is served on, and loses nothing.
#[test]
fn those_who_are_killed_take_nobody_along() {
    let Some(mut lab) = Lab::protected("killed", &[]) else { return };
    let _echo = lab.ready("echo", "7000");
    lab.echoes(7_000, 10);
    let steady = lab.connect(7_000);
    let steady = thread::spawn(move || echo(steady, 3_000_000));
    let sink = lab.at_peer(|| TcpListener::bind(SocketAddr::new(PEER, 9_000))).unwrap();
    for _ in 0..6 {
        let mut half = lab.ready("half", "7100");
        let mut pour = lab.application("pour", &format!("{PEER}:9000"));
        let (mut stream, _) = sink.accept().unwrap();
        let mut taken = vec![0; 100_000];
        stream.read_exact(&mut taken).unwrap();
        pour.crash();
        half.crash();
        // The connection is broken off, and not merely silent.
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let end = std::io::copy(&mut stream, &mut std::io::sink()).map_err(|error| error.kind());
        assert_eq!(end, Err(std::io::ErrorKind::ConnectionReset));
        lab.server.await_line("application");
    }
    steady.join().unwrap();
    // Ports are free, and the server has a place for everybody.
    let again = lab.ready("echo", "7100");
    lab.echoes(7_100, 10_000);
    drop(again);
    assert!(lab.server.stop());
}

/// Several write anything into their memory, at any moment.
#[test]
fn those_who_scribble_harm_nobody() {
    let Some(mut lab) = Lab::protected("scribble", &[]) else { return };
    let _echo = lab.ready("echo", "7000");
    lab.echoes(7_000, 10);
    let steady = lab.connect(7_000);
    let steady = thread::spawn(move || echo(steady, 2_000_000));
    for round in 0..10u32 {
        let mad: Vec<_> =
            (0..3).map(|n| lab.ready("scribble", &format!("{}", (round * 3 + n + 1) * 0x9E37))).collect();
        thread::sleep(Duration::from_millis(50));
        drop(mad);
    }
    steady.join().unwrap();
    lab.echoes(7_000, 100_000);
    assert!(lab.server.is_alive() && lab.server.stop());
    let summary = lab.server.await_line("casemate:");
    let part = summary.split([',', ';']).find_map(|part| part.strip_suffix(" broke the rules"));
    let broken: u32 = part.and_then(|count| count.trim().parse().ok()).unwrap();
    assert!(broken > 10, "{summary}");
}

/// Whoever waits for the server when it dies is told, at once.
#[test]
fn the_end_of_the_server_is_an_error() {
    let Some(mut lab) = Lab::clear("end", &[]) else { return };
    let mut waiting = [lab.ready("echo", "7000"), lab.ready("datagrams", "5000")];
    let sink = lab.at_peer(|| TcpListener::bind(SocketAddr::new(PEER, 9_000))).unwrap();
    let busy = lab.ready("pour", &format!("{PEER}:9000"));
    let _stream = sink.accept().unwrap();
    let begin = Instant::now();
    lab.server.crash();
    for application in waiting.iter_mut() {
        assert!(application.line().ends_with("the stack server has ended"));
    }
    assert!(busy.line().ends_with("the stack server has ended"));
    assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
    // A later one finds nobody, and a new server takes the place.
    assert!(casemate_shm::Stack::connect(lab.socket()).is_err());
}
