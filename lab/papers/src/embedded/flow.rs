//! The measurements of the paper's four figures, from the host's side of one connection.

use super::order::{Duty, LONGEST, Order};
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

/// How long the device may be silent.
const PATIENCE: Duration = Duration::from_secs(3);

/// What is measured, and who begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flow {
    /// Figure 5: the host asks, the device answers.
    HostAsks,
    /// Figure 6: the device asks.
    DeviceAsks,
    /// Figure 7: the device sends.
    DeviceSends,
    /// Figure 8: the host sends.
    HostSends,
}

/// In the order of the paper's figures.
pub(super) const FLOWS: [Flow; 4] = [Flow::HostAsks, Flow::DeviceAsks, Flow::DeviceSends, Flow::HostSends];

/// What came of a measurement.
#[derive(Debug, Clone, Copy)]
pub(super) struct Count {
    /// Transactions, or bytes.
    pub(super) units: f64,
    pub(super) elapsed: Duration,
    /// The longest time in which nothing came; of what the device sends only.
    pub(super) pause: Duration,
}

impl Flow {
    /// Whether transactions are counted, and not bytes.
    pub(super) const fn is_latency(self) -> bool {
        matches!(self, Self::HostAsks | Self::DeviceAsks)
    }

    /// Who moves how much.
    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::HostAsks => "Figure 5: latency, from the host to the device",
            Self::DeviceAsks => "Figure 6: latency, from the device to the host",
            Self::DeviceSends => "Figure 7: throughput, from the device to the host",
            Self::HostSends => "Figure 8: throughput, from the host to the device",
        }
    }

    const fn duty(self) -> Duty {
        match self {
            Self::HostAsks => Duty::Answer,
            Self::DeviceAsks => Duty::Ask,
            Self::DeviceSends => Duty::Give,
            Self::HostSends => Duty::Take,
        }
    }

    /// Measures with messages of `size` bytes, for so long, over a connection that is used up by it.
    pub(super) fn measure(self, mut stream: TcpStream, size: usize, time: Duration) -> io::Result<Count> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.set_nodelay(self.is_latency())?;
        let mut buffer = vec![0x5A; LONGEST];
        stream.write_all(&Order { duty: self.duty(), size }.encode())?;
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
            Self::HostSends => pour(&mut stream, message, time),
            Self::DeviceSends => drink(&mut stream, &mut buffer, time),
        }
    }
}

/// The first quarter is not counted: the device reads the order, and the stacks find out how much the other one takes.
fn transactions(time: Duration, mut one: impl FnMut() -> io::Result<()>) -> io::Result<Count> {
    let begun = Instant::now();
    one()?;
    while begun.elapsed() < time / 4 {
        one()?;
    }
    let (begun, mut units) = (Instant::now(), 0.0);
    while begun.elapsed() < time * 3 / 4 {
        one()?;
        units += 1.0;
    }
    Ok(Count { units, elapsed: begun.elapsed(), pause: Duration::ZERO })
}

/// Counts until the device has read everything and closes, so that no buffer counts as delivered.
fn pour(stream: &mut TcpStream, message: &[u8], time: Duration) -> io::Result<Count> {
    let (begun, mut units) = (Instant::now(), 0.0);
    while begun.elapsed() < time {
        stream.write_all(message)?;
        units += message.len() as f64;
    }
    stream.shutdown(Shutdown::Write)?;
    while read(stream, &mut [0; 64])? > 0 {}
    Ok(Count { units, elapsed: begun.elapsed(), pause: Duration::ZERO })
}

/// Counts what comes after the first quarter of the time.
fn drink(stream: &mut TcpStream, buffer: &mut [u8], time: Duration) -> io::Result<Count> {
    let ended = || io::Error::new(io::ErrorKind::UnexpectedEof, "the device closed the connection");
    let begun = Instant::now();
    while begun.elapsed() < time / 4 {
        if read(stream, buffer)? == 0 {
            return Err(ended());
        }
    }
    let begun = Instant::now();
    let (mut units, mut last, mut pause) = (0.0, begun, Duration::ZERO);
    while last - begun < time * 3 / 4 {
        let len = read(stream, buffer)?;
        if len == 0 {
            return Err(ended());
        }
        let now = Instant::now();
        (units, pause, last) = (units + len as f64, pause.max(now - last), now);
    }
    Ok(Count { units, elapsed: last - begun, pause })
}

/// What is there; 0 at the end. A process that was stopped for a while goes on.
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
