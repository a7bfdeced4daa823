//! Packets through the tunnel: paced ones of a mix, one at a time and back, and a stream.

use casemate_measure::spread::Spread;
use casemate_stage::arena::{Arena, BEHIND};
use casemate_stage::paced::PORT;
use casemate_stage::{Error, Result};
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

/// Of IPv4 and UDP.
const HEADERS: usize = 28;
/// How long a full queue may hold the sender up.
const PATIENCE: Duration = Duration::from_millis(20);
/// Echoes, and the pause between them: so long that processes fall asleep in between.
const ECHOES: usize = 100;
const PAUSE: Duration = Duration::from_millis(5);
/// What has not come back after so long is lost.
const LOST: Duration = Duration::from_millis(500);
const ECHO_PORT: u16 = 9_001;
const STREAM_PORT: u16 = 9_002;
/// Payload of an echo, so that the packet has 64 bytes.
const ECHO: [u8; 36] = [0x5a; 36];
/// Bytes that are written and read at once.
const CHUNK: usize = 64 << 10;

/// What sends packets of these lengths in turns, from the first end. Each length is a flow.
pub(super) fn sender(sizes: &[usize]) -> io::Result<impl FnMut() + use<>> {
    let flow = |size: &usize| {
        let socket = UdpSocket::bind((BEHIND[0], 0))?;
        socket.connect((BEHIND[1], PORT))?;
        socket.set_write_timeout(Some(PATIENCE))?;
        Ok((socket, vec![0; size.saturating_sub(HEADERS)]))
    };
    let flows = sizes.iter().map(flow).collect::<io::Result<Vec<_>>>()?;
    let mut turn = 0_usize;
    Ok(move || {
        if let Some((socket, bytes)) = turn.checked_rem(flows.len()).and_then(|which| flows.get(which)) {
            // What is not sent does not arrive.
            let _ = socket.send(bytes);
        }
        turn = turn.wrapping_add(1);
    })
}

/// There and back, in microseconds, the median.
pub(super) fn round_trip(arena: &Arena) -> Result<f64> {
    let far = arena.inside(1, || UdpSocket::bind((BEHIND[1], ECHO_PORT)))?;
    let near = arena.inside(0, || UdpSocket::bind((BEHIND[0], 0)))?;
    let times = thread::scope(|scope| {
        scope.spawn(|| reflect(&far));
        ask(&near)
    });
    let times = times.map_err(Error::in_front("echoes"))?;
    let spread = Spread::of(times).ok_or_else(|| Error::new("no echo came back"))?;
    Ok(spread.median)
}

/// Sends back what comes, until nothing comes any more.
fn reflect(socket: &UdpSocket) {
    let mut bytes = [0; 64];
    let _ = socket.set_read_timeout(Some(LOST));
    while let Ok((len, from)) = socket.recv_from(&mut bytes) {
        // What is not sent back is lost, and the asker notices.
        let _ = socket.send_to(bytes.get(..len).unwrap_or_default(), from);
    }
}

fn ask(socket: &UdpSocket) -> io::Result<Vec<f64>> {
    socket.set_read_timeout(Some(LOST))?;
    socket.connect((BEHIND[1], ECHO_PORT))?;
    let (mut bytes, mut times) = ([0; 64], Vec::with_capacity(ECHOES));
    for _ in 0..ECHOES {
        let start = Instant::now();
        socket.send(&ECHO)?;
        if socket.recv(&mut bytes).is_ok() {
            times.push(start.elapsed().as_secs_f64() * 1e6);
        }
        thread::sleep(PAUSE);
    }
    Ok(times)
}

/// One TCP stream: Gbit/s of what arrives.
pub(super) fn stream(arena: &Arena, seconds: Duration) -> Result<f64> {
    let listener = arena.inside(1, || TcpListener::bind((BEHIND[1], STREAM_PORT)))?;
    let sender = arena.inside(0, || TcpStream::connect((BEHIND[1], STREAM_PORT)))?;
    let rate = thread::scope(|scope| {
        scope.spawn(move || write_for(sender, seconds));
        let (receiver, _) = listener.accept()?;
        read_all(receiver)
    });
    rate.map(|bytes_per_second| bytes_per_second * 8.0 / 1e9).map_err(Error::in_front("stream"))
}

fn write_for(mut stream: TcpStream, seconds: Duration) {
    let (start, chunk) = (Instant::now(), vec![0; CHUNK]);
    // The reader sees the end, whatever the reason.
    while start.elapsed() < seconds && stream.write_all(&chunk).is_ok() {}
}

/// Bytes a second until the stream ends.
fn read_all(mut stream: TcpStream) -> io::Result<f64> {
    let (mut bytes, mut chunk, start) = (0_u64, vec![0; CHUNK], Instant::now());
    loop {
        match stream.read(&mut chunk)? {
            0 => return Ok(bytes as f64 / start.elapsed().as_secs_f64()),
            len => bytes += len as u64,
        }
    }
}
