//! A TAP interface as a smoltcp device.
//!
//! After an error, the device is not read for a while. Frames that the interface does not accept are
//! lost, as on any link. Both are counted.

use casemate_linux::tap::Tap;
use casemate_wire::invariant::OrBroken;
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::time::{Duration, Instant};
use std::io;

/// Length of an Ethernet header.
const ETHERNET: usize = 14;
/// Pause after a read error.
const PAUSE: Duration = Duration::from_millis(100);

/// Error counters.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct DeviceErrors {
    /// Read errors.
    pub(crate) read_errors: u64,
    /// Frames that could not be written.
    pub(crate) write_errors: u64,
}

/// A TAP interface with buffers for one frame in each direction.
pub struct TapDevice {
    tap: Tap,
    incoming: Box<[u8]>,
    outgoing: Box<[u8]>,
    paused_until: Instant,
    errors: DeviceErrors,
    bytes_transferred: u64,
}

impl TapDevice {
    /// Wraps the interface, whose MTU determines the size of the buffers.
    pub fn new(tap: Tap) -> Self {
        let frame = tap.mtu().saturating_add(ETHERNET);
        let buffer = || vec![0; frame].into();
        Self {
            incoming: buffer(),
            outgoing: buffer(),
            tap,
            paused_until: Instant::ZERO,
            errors: DeviceErrors::default(),
            bytes_transferred: 0,
        }
    }

    /// Bytes transferred so far, in both directions.
    pub const fn bytes_transferred(&self) -> u64 {
        self.bytes_transferred
    }

    pub(crate) const fn errors(&self) -> DeviceErrors {
        self.errors
    }

    /// Whether the device can be polled. During the pause after an error it may be ready all the time.
    pub(crate) fn can_poll(&self, now: Instant) -> bool {
        now >= self.paused_until
    }

    fn read(&mut self, now: Instant) -> Option<usize> {
        if !self.can_poll(now) {
            return None;
        }
        match self.tap.receive(&mut self.incoming) {
            Ok(len) => len,
            Err(_) => {
                self.errors.read_errors = self.errors.read_errors.saturating_add(1);
                self.paused_until = now + PAUSE;
                None
            }
        }
    }
}

impl Device for TapDevice {
    type RxToken<'a> = RxFrame<'a>;
    type TxToken<'a> = TxBuffer<'a>;

    fn receive(&mut self, now: Instant) -> Option<(RxFrame<'_>, TxBuffer<'_>)> {
        let len = self.read(now)?;
        let Self { tap, incoming, outgoing, errors, bytes_transferred, .. } = self;
        *bytes_transferred = bytes_transferred.saturating_add(len as u64);
        Some((
            RxFrame(incoming.get(..len).or_broken_default("a received frame is inside its buffer")),
            TxBuffer { tap, outgoing, errors, bytes_transferred },
        ))
    }

    fn transmit(&mut self, _: Instant) -> Option<TxBuffer<'_>> {
        let Self { tap, outgoing, errors, bytes_transferred, .. } = self;
        Some(TxBuffer { tap, outgoing, errors, bytes_transferred })
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = self.outgoing.len();
        capabilities
    }
}

/// A received frame.
pub struct RxFrame<'a>(&'a [u8]);

impl RxToken for RxFrame<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(self.0)
    }
}

/// The buffer of the next frame to send.
pub struct TxBuffer<'a> {
    tap: &'a mut Tap,
    outgoing: &'a mut [u8],
    errors: &'a mut DeviceErrors,
    bytes_transferred: &'a mut u64,
}

impl TxToken for TxBuffer<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        let Some(frame) = self.outgoing.get_mut(..len).or_report("a sent frame fits the MTU of the device")
        else {
            self.errors.write_errors = self.errors.write_errors.saturating_add(1);
            return f(&mut vec![0; len]);
        };
        let written = f(frame);
        *self.bytes_transferred = self.bytes_transferred.saturating_add(len as u64);
        let sent: io::Result<()> = self.tap.send(frame);
        if sent.is_err() {
            self.errors.write_errors = self.errors.write_errors.saturating_add(1);
        }
        written
    }
}
