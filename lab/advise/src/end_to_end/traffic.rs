//! Traffic through the tunnel: a stream of UDP packets, pings, and a TCP stream.

use casemate_measure::stats::Spread;
use casemate_testbed::packet_rate::PORT;
use casemate_testbed::veth_pair::{INNER_ADDRS, VethPair};
use casemate_testbed::{Error, Result};
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

/// Length of the IPv4 and UDP headers.
const HEADERS: usize = 28;
/// Time limit of a send while a queue is full.
const SEND_TIMEOUT: Duration = Duration::from_millis(20);
/// Number of echoes and the pause between them. The pause lets the processes fall asleep.
const ECHO_COUNT: usize = 100;
const ECHO_INTERVAL: Duration = Duration::from_millis(5);
/// Time after which an echo counts as lost.
const ECHO_TIMEOUT: Duration = Duration::from_millis(500);
const ECHO_PORT: u16 = 9_001;
const STREAM_PORT: u16 = 9_002;
/// Time without progress after which a stream has failed.
const STREAM_TIMEOUT: Duration = Duration::from_secs(10);
/// Payload of an echo. The packet has 64 bytes.
const ECHO: [u8; 36] = [0x5a; 36];
/// Bytes per write or read.
const CHUNK: usize = 64 << 10;

/// Returns a function that sends packets of these lengths in turn from the first end. Each length is a
/// separate flow.
pub(super) fn sender(sizes: &[usize]) -> io::Result<impl FnMut() + use<>> {
    let flow = |size: &usize| {
        let socket = UdpSocket::bind((INNER_ADDRS[0], 0))?;
        socket.connect((INNER_ADDRS[1], PORT))?;
        socket.set_write_timeout(Some(SEND_TIMEOUT))?;
        Ok((socket, vec![0; size.saturating_sub(HEADERS)]))
    };
    let flows = sizes.iter().map(flow).collect::<io::Result<Vec<_>>>()?;
    let mut turn = 0_usize;
    Ok(move || {
        if let Some((socket, bytes)) = turn.checked_rem(flows.len()).and_then(|which| flows.get(which)) {
            // A packet that is not sent counts as lost.
            let _ = socket.send(bytes);
        }
        turn = turn.wrapping_add(1);
    })
}

/// Median round-trip time in microseconds.
pub(super) fn round_trip(veth: &VethPair) -> Result<f64> {
    let far = veth.run_in(1, || UdpSocket::bind((INNER_ADDRS[1], ECHO_PORT)))?;
    let near = veth.run_in(0, || UdpSocket::bind((INNER_ADDRS[0], 0)))?;
    let times = thread::scope(|scope| {
        scope.spawn(|| reflect(&far));
        send_echoes(&near)
    });
    let times = times.map_err(Error::context("echoes"))?;
    let spread = Spread::of(times).ok_or_else(|| Error::new("no echo was received"))?;
    Ok(spread.median)
}

/// Returns packets to their sender until none arrives any more.
fn reflect(socket: &UdpSocket) {
    let mut bytes = [0; 64];
    let _ = socket.set_read_timeout(Some(ECHO_TIMEOUT));
    while let Ok((len, from)) = socket.recv_from(&mut bytes) {
        // If the packet cannot be sent, the other side counts it as lost.
        let _ = socket.send_to(bytes.get(..len).unwrap_or_default(), from);
    }
}

fn send_echoes(socket: &UdpSocket) -> io::Result<Vec<f64>> {
    socket.set_read_timeout(Some(ECHO_TIMEOUT))?;
    socket.connect((INNER_ADDRS[1], ECHO_PORT))?;
    let (mut bytes, mut times) = ([0; 64], Vec::with_capacity(ECHO_COUNT));
    for _ in 0..ECHO_COUNT {
        let start = Instant::now();
        socket.send(&ECHO)?;
        if socket.recv(&mut bytes).is_ok() {
            times.push(start.elapsed().as_secs_f64() * 1e6);
        }
        thread::sleep(ECHO_INTERVAL);
    }
    Ok(times)
}

/// Throughput of one TCP stream in received Gbit/s.
pub(crate) fn stream(veth: &VethPair, seconds: Duration) -> Result<f64> {
    let listener = veth.run_in(1, || TcpListener::bind((INNER_ADDRS[1], STREAM_PORT)))?;
    let sender = veth.run_in(0, || TcpStream::connect((INNER_ADDRS[1], STREAM_PORT)))?;
    let rate = thread::scope(|scope| {
        sender.set_write_timeout(Some(STREAM_TIMEOUT))?;
        scope.spawn(move || write_for(sender, seconds));
        let (receiver, _) = listener.accept()?;
        receiver.set_read_timeout(Some(STREAM_TIMEOUT))?;
        read_all(receiver)
    });
    rate.map(|bytes_per_second| bytes_per_second * 8.0 / 1e9).map_err(Error::context("stream"))
}

fn write_for(mut stream: TcpStream, seconds: Duration) {
    let (start, chunk) = (Instant::now(), vec![0; CHUNK]);
    // After an error the reader sees the end of the stream.
    while start.elapsed() < seconds && stream.write_all(&chunk).is_ok() {}
}

/// Reads until the end of the stream and returns the rate in bytes per second.
fn read_all(mut stream: TcpStream) -> io::Result<f64> {
    let (mut bytes, mut chunk, start) = (0_u64, vec![0; CHUNK], Instant::now());
    loop {
        match stream.read(&mut chunk)? {
            0 => return Ok(bytes as f64 / start.elapsed().as_secs_f64()),
            len => bytes += len as u64,
        }
    }
}
