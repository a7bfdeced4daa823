//! The device, the host and the cable between them, in time that the device's instructions make.

use super::Clock;
use super::application::Flow;
use super::host::Host;
use crate::packets::{LEFT, RIGHT};
use crate::wire::{Above, End};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::IpAddr;
use smoltcp::time::Instant;

/// What a packet takes from one end to the other, in [`Ticks`].
const DELAY: Ticks = 50 * MICROSECOND;
/// How long the device sleeps where nothing is on its way.
const NAP: Ticks = 1_000 * MICROSECOND;
/// A microsecond of the paper's device: 700 instructions, if each takes a cycle of its 700 MHz.
const MICROSECOND: Ticks = 717;
/// Messages of the host while the device does one thing: it is much faster.
const TURNS: usize = 64;
/// More turns than anything takes.
const MOST_TURNS: usize = 1 << 20;

/// Time: what the device's clock says for an instruction is 1.024 of these.
type Ticks = u64;

/// A measurement under way.
pub(super) struct Scene<D> {
    device: Host<D>,
    host: Host<D>,
    there: Cable,
    back: Cable,
    clock: Clock,
    now: Ticks,
    /// What the device has worked.
    spent: Ticks,
    /// IP's number of what the device's packets go as: TCP, AH or ESP.
    pub(super) protocol: Option<u8>,
}

/// Packets on their way, each with the time when it is there.
#[derive(Default)]
struct Cable(VecDeque<(Ticks, Vec<u8>)>);

impl<D: Above> Scene<D> {
    /// Makes both hosts, each from its own address and the other's, and begins a connection. `None` if the stack takes no part of that.
    pub(super) fn new(
        clock: Clock,
        (flow, size): (Flow, usize),
        mut end: impl FnMut(IpAddr, IpAddr) -> Option<D>,
    ) -> Option<Self> {
        let [device, host] = flow.applications(size);
        let mut device = Host::new(end(LEFT, RIGHT)?, LEFT, device);
        let mut host = Host::new(end(RIGHT, LEFT)?, RIGHT, host);
        device.listen()?;
        host.connect(LEFT)?;
        let (there, back) = (Cable::default(), Cable::default());
        Some(Self { device, host, there, back, clock, now: 0, spent: 0, protocol: None })
    }

    /// Goes on until this end has read so many bytes in all. Answers what the device has worked so far, and what was read. `None` if it does not come to that.
    pub(super) fn until(&mut self, reader: Reader, bytes: usize) -> Option<(Ticks, usize)> {
        for _ in 0..MOST_TURNS {
            let heard = match reader {
                Reader::Device => self.device.application.heard,
                Reader::Host => self.host.application.heard,
            };
            if heard >= bytes {
                return Some((self.spent, heard));
            }
            self.step();
        }
        None
    }

    /// Everything that the host can do, and one turn of the device. If that had nothing to do, time goes on to where it has.
    fn step(&mut self) {
        let now = Instant::from_micros(i64::try_from(self.now / MICROSECOND).unwrap_or(i64::MAX));
        self.there.deliver(self.now, self.host.wire());
        for _ in 0..TURNS {
            if !self.host.turn(now) {
                break;
            }
        }
        self.back.take(self.now, self.host.wire());
        self.back.deliver(self.now, self.device.wire());
        let before = (self.clock.microseconds)();
        let has_worked = self.device.turn(now);
        let took = Ticks::from((self.clock.microseconds)().wrapping_sub(before));
        if has_worked {
            self.spent += took;
            self.now += took;
        } else {
            let next = self.there.next().into_iter().chain(self.back.next()).min();
            self.now = next.unwrap_or(self.now + NAP);
        }
        self.protocol = self.device.wire().protocol_of_next().or(self.protocol);
        self.there.take(self.now, self.device.wire());
    }
}

/// Whose reading counts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Reader {
    Device,
    Host,
}

impl Cable {
    fn take(&mut self, now: Ticks, from: &mut End) {
        self.0.extend(from.sent().map(|packet| (now + DELAY, packet)));
    }

    fn deliver(&mut self, now: Ticks, to: &mut End) {
        while self.next().is_some_and(|due| due <= now) {
            if let Some((_, packet)) = self.0.pop_front() {
                to.arrive(packet);
            }
        }
    }

    /// When the first of them is there.
    fn next(&self) -> Option<Ticks> {
        self.0.front().map(|(due, _)| *due)
    }
}
