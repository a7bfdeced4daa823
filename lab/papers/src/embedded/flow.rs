//! Measurements of the paper's four figures over one TCP connection, seen from the host.
//!
//! The host opens every connection and sends a [`Request`] of eight bytes, even if the device then speaks
//! first. The host counts and times everything.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

/// Maximum time without progress of the device. smoltcp waits 1, 2 and 4 s for retransmissions that are lost
/// in turn.
const TIMEOUT: Duration = Duration::from_secs(8);

/// Measured quantity and direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flow {
    /// Figure 5: the host sends a request, the device replies.
    HostAsks,
    /// Figure 6: the device sends a request, the host replies.
    DeviceAsks,
    /// Figure 7: the device sends.
    DeviceSends,
    /// Figure 8: the host sends.
    HostSends,
}

/// All flows, in the order of the paper's figures.
pub(super) const FLOWS: [Flow; 4] = [Flow::HostAsks, Flow::DeviceAsks, Flow::DeviceSends, Flow::HostSends];

/// Result of a measurement.
#[derive(Debug, Clone, Copy)]
pub(super) struct Count {
    /// Number of transactions or bytes.
    pub(super) units: f64,
    pub(super) elapsed: Duration,
    /// Longest time without received data, measured only while the device sends.
    pub(super) pause: Duration,
}

impl Flow {
    /// Whether transactions are counted instead of bytes.
    pub(super) const fn is_latency(self) -> bool {
        matches!(self, Self::HostAsks | Self::DeviceAsks)
    }

    /// Title of the paper's figure.
    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::HostAsks => "Figure 5: latency, from the host to the device",
            Self::DeviceAsks => "Figure 6: latency, from the device to the host",
            Self::DeviceSends => "Figure 7: throughput, from the device to the host",
            Self::HostSends => "Figure 8: throughput, from the host to the device",
        }
    }

    const fn device_role(self) -> Role {
        match self {
            Self::HostAsks => Role::Responder,
            Self::DeviceAsks => Role::Initiator,
            Self::DeviceSends => Role::Sender,
            Self::HostSends => Role::Receiver,
        }
    }

    /// Measures with messages of `size` bytes for this time. Uses up the connection.
    pub(super) fn measure(self, mut stream: TcpStream, size: usize, time: Duration) -> io::Result<Count> {
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        stream.set_nodelay(self.is_latency())?;
        let mut buffer = vec![0x5A; MAX_MESSAGE_LEN];
        stream.write_all(&Request { role: self.device_role(), size }.encode())?;
        let message = buffer.get_mut(..size).unwrap_or_default();
        match self {
            Self::HostAsks => transactions(time, || {
                stream.write_all(message)?;
                stream.read_exact(message)
            }),
            Self::DeviceAsks => transactions(time, || {
                stream.read_exact(message)?;
                stream.write_all(message)
            }),
            Self::HostSends => send_stream(&mut stream, message, time),
            Self::DeviceSends => receive_stream(&mut stream, &mut buffer, time),
        }
    }
}

/// Counts transactions. The first quarter of the time is not counted: the device reads the request, and TCP
/// opens its windows.
fn transactions(time: Duration, mut one: impl FnMut() -> io::Result<()>) -> io::Result<Count> {
    let start = Instant::now();
    one()?;
    while start.elapsed() < time / 4 {
        one()?;
    }
    let (start, mut units) = (Instant::now(), 0.0);
    while start.elapsed() < time * 3 / 4 {
        one()?;
        units += 1.0;
    }
    Ok(Count { units, elapsed: start.elapsed(), pause: Duration::ZERO })
}

/// Sends and counts bytes until the device has read all of them and closes the connection, so that buffered
/// bytes do not count.
fn send_stream(stream: &mut TcpStream, message: &[u8], time: Duration) -> io::Result<Count> {
    let (start, mut units) = (Instant::now(), 0.0);
    while start.elapsed() < time {
        stream.write_all(message)?;
        units += message.len() as f64;
    }
    stream.shutdown(Shutdown::Write)?;
    while read(stream, &mut [0; 64])? > 0 {}
    Ok(Count { units, elapsed: start.elapsed(), pause: Duration::ZERO })
}

/// Receives and counts bytes after the first quarter of the time.
fn receive_stream(stream: &mut TcpStream, buffer: &mut [u8], time: Duration) -> io::Result<Count> {
    let ended = || io::Error::new(io::ErrorKind::UnexpectedEof, "the device closed the connection");
    let start = Instant::now();
    while start.elapsed() < time / 4 {
        if read(stream, buffer)? == 0 {
            return Err(ended());
        }
    }
    let start = Instant::now();
    let (mut units, mut last, mut pause) = (0.0, start, Duration::ZERO);
    while last - start < time * 3 / 4 {
        let len = read(stream, buffer)?;
        if len == 0 {
            return Err(ended());
        }
        let now = Instant::now();
        (units, pause, last) = (units + len as f64, pause.max(now - last), now);
    }
    Ok(Count { units, elapsed: last - start, pause })
}

/// Reads available bytes; 0 at the end. Retries after an interruption.
fn read(stream: &mut TcpStream, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match stream.read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

impl fmt::Display for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::HostAsks => "the host asks",
            Self::DeviceAsks => "the device asks",
            Self::DeviceSends => "the device sends",
            Self::HostSends => "the host sends",
        })
    }
}

/// TCP port of the device.
pub(super) const PORT: u16 = 5_002;
/// Length of a request: role, three zero bytes, and the message size (big-endian).
pub(super) const LEN: usize = 8;
/// Maximum length of a message in bytes.
pub(super) const MAX_MESSAGE_LEN: usize = 16_384;

/// Role of the device until the host closes the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// Replies to every message with one of the same size.
    Responder,
    /// Sends a message, waits for a reply of the same size, and repeats.
    Initiator,
    /// Reads until the host has sent everything, then closes.
    Receiver,
    /// Sends one message after another.
    Sender,
}

/// Request of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) role: Role,
    /// Length of a message in bytes, from 1 to [`MAX_MESSAGE_LEN`].
    pub(super) size: usize,
}

const ROLES: [(u8, Role); 4] =
    [(b'A', Role::Responder), (b'Q', Role::Initiator), (b'T', Role::Receiver), (b'G', Role::Sender)];

impl Request {
    pub(super) fn encode(self) -> [u8; LEN] {
        let letter = ROLES.iter().find(|(_, duty)| *duty == self.role).map_or(0, |(letter, _)| *letter);
        let [_, _, _, _, a, b, c, d] = (self.size as u64).to_be_bytes();
        [letter, 0, 0, 0, a, b, c, d]
    }

    /// Parses a request; `None` if it is invalid.
    pub(super) fn decode(bytes: [u8; LEN]) -> Option<Self> {
        let [letter, 0, 0, 0, a, b, c, d] = bytes else { return None };
        let (_, duty) = ROLES.iter().find(|(known, _)| *known == letter)?;
        let size = u32::from_be_bytes([a, b, c, d]) as usize;
        (1..=MAX_MESSAGE_LEN).contains(&size).then_some(Self { role: *duty, size })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_round_trip() {
        for (_, duty) in ROLES {
            for size in [1, 1_000, MAX_MESSAGE_LEN] {
                let request = Request { role: duty, size };
                assert_eq!(Request::decode(request.encode()), Some(request));
            }
        }
        assert_eq!(Request { role: Role::Initiator, size: 258 }.encode(), [b'Q', 0, 0, 0, 0, 0, 1, 2]);
        let no_orders = [
            [b'X', 0, 0, 0, 0, 0, 0, 1],
            [b'A', 1, 0, 0, 0, 0, 0, 1],
            [b'A'; 8],
            [b'A', 0, 0, 0, 0, 0, 0, 0],
        ];
        for wrong in no_orders {
            assert_eq!(Request::decode(wrong), None, "{wrong:?}");
        }
        assert_eq!(Request::decode([b'A', 0, 0, 0, 0, 0, 0x40, 1]), None);
    }
}
