//! TCP throughput from an application through the server to the peer, with and without IPsec. A
//! measurement, not a test.

use crate::harness::{Harness, PEER};
use std::io::Read;
use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

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
