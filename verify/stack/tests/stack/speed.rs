//! Bulk TCP from an application through the server to the peer, plain and protected. Not a test.

use crate::lab::{Lab, PEER};
use std::io::Read;
use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

const TIME: Duration = Duration::from_secs(3);

/// Mbit/s at the peer.
fn pour(lab: &Lab) -> f64 {
    let sink = lab.at_peer(|| TcpListener::bind(SocketAddr::new(PEER, 9_000))).unwrap();
    let _pour = lab.application("pour", &format!("{PEER}:9000"));
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
    let (Some(clear), Some(protected)) = (Lab::clear("speed-clear", &[]), Lab::protected("speed-esp", &[]))
    else {
        return;
    };
    for _ in 0..3 {
        let (plain, esp) = (pour(&clear), pour(&protected));
        println!("plain {plain:.0} Mbit/s, protected {esp:.0} Mbit/s: {:.2}", esp / plain);
    }
}
