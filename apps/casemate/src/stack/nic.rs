//! A TAP interface as smoltcp sees it.
//!
//! A device that fails is not asked for a while, and what it does not take is lost, as on any wire; both are counted.

use casemate_linux::tap::Tap;
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::time::{Duration, Instant};
use std::io;

/// Length of an Ethernet header.
const ETHERNET: usize = 14;
/// How long a device that has failed is left alone.
const PAUSE: Duration = Duration::from_millis(100);

/// What went wrong so far.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Trouble {
    /// Times that the device failed when it was read.
    pub(crate) reading: u64,
    /// Frames that it did not take.
    pub(crate) writing: u64,
}

pub(crate) struct Nic {
    tap: Tap,
    incoming: Box<[u8]>,
    outgoing: Box<[u8]>,
    paused_until: Instant,
    trouble: Trouble,
    carried: u64,
}

impl Nic {
    pub(crate) fn new(tap: Tap) -> Self {
        let frame = tap.mtu().saturating_add(ETHERNET);
        let buffer = || vec![0; frame].into();
        Self {
            incoming: buffer(),
            outgoing: buffer(),
            tap,
            paused_until: Instant::ZERO,
            trouble: Trouble::default(),
            carried: 0,
        }
    }

    /// Bytes of frames so far, in both directions.
    pub(crate) const fn carried(&self) -> u64 {
        self.carried
    }

    pub(crate) const fn trouble(&self) -> Trouble {
        self.trouble
    }

    /// Whether it makes sense to wait for the device: while it is left alone it may be ready all the time.
    pub(crate) fn is_awake(&self, now: Instant) -> bool {
        now >= self.paused_until
    }

    fn read(&mut self, now: Instant) -> Option<usize> {
        if !self.is_awake(now) {
            return None;
        }
        match self.tap.receive(&mut self.incoming) {
            Ok(len) => len,
            Err(_) => {
                self.trouble.reading = self.trouble.reading.saturating_add(1);
                self.paused_until = now + PAUSE;
                None
            }
        }
    }
}

impl Device for Nic {
    type RxToken<'a> = Received<'a>;
    type TxToken<'a> = Room<'a>;

    fn receive(&mut self, now: Instant) -> Option<(Received<'_>, Room<'_>)> {
        let len = self.read(now)?;
        let Self { tap, incoming, outgoing, trouble, carried, .. } = self;
        *carried = carried.saturating_add(len as u64);
        Some((Received(incoming.get(..len).unwrap_or_default()), Room { tap, outgoing, trouble, carried }))
    }

    fn transmit(&mut self, _: Instant) -> Option<Room<'_>> {
        let Self { tap, outgoing, trouble, carried, .. } = self;
        Some(Room { tap, outgoing, trouble, carried })
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = self.outgoing.len();
        capabilities
    }
}

/// A frame that came.
pub(crate) struct Received<'a>(&'a [u8]);

impl RxToken for Received<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(self.0)
    }
}

/// Room for a frame.
pub(crate) struct Room<'a> {
    tap: &'a mut Tap,
    outgoing: &'a mut [u8],
    trouble: &'a mut Trouble,
    carried: &'a mut u64,
}

impl TxToken for Room<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        // The guard and smoltcp send nothing longer than the device says it takes.
        let Some(frame) = self.outgoing.get_mut(..len) else {
            self.trouble.writing = self.trouble.writing.saturating_add(1);
            return f(&mut vec![0; len]);
        };
        let written = f(frame);
        *self.carried = self.carried.saturating_add(len as u64);
        let sent: io::Result<()> = self.tap.send(frame);
        if sent.is_err() {
            self.trouble.writing = self.trouble.writing.saturating_add(1);
        }
        written
    }
}
