//! What the engine waits for.

use super::{Attendant, Engine, TICK};
use crate::udp::UdpPort;
use crate::{Error, sys};
use arrayvec::ArrayVec;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

impl Engine {
    /// Waits for something to do. Signals, attendant, TUN, addresses, receivers, ports, ports of IKE, in this order.
    pub(super) fn wait(&self, attendant: &dyn Attendant) -> Result<ArrayVec<bool, 32>, Error> {
        let mut fds: ArrayVec<BorrowedFd<'_>, 32> = ArrayVec::new();
        fds.push(self.signals.as_fd());
        fds.push(attendant.wake());
        fds.push(self.tun.door().as_fd());
        fds.push(self.live.as_fd());
        let ike = self.ike.iter().flat_map(|ike| &ike.0).map(AsFd::as_fd);
        let others = self.receivers.iter().map(AsFd::as_fd).chain(self.ports.iter().map(AsFd::as_fd));
        // Two receivers, two ports of IKE, and eight ports of two IP versions at most: `EncapPorts` of the data path.
        fds.extend(others.chain(ike).take(fds.remaining_capacity()));
        // The other queues of the TUN interface, which are one with the first here: four at most.
        let doors = fds.len();
        fds.extend(self.tun.queues().skip(1).map(AsFd::as_fd).take(fds.remaining_capacity()));
        let mut ready: ArrayVec<bool, 32> = fds.iter().map(|_| false).collect();
        let now = self.home.now();
        let dummies = self.dummies.as_ref().map(|dummies| dummies.wait(now));
        let due = self.home.endpoint.due().map(|due| due.since(now));
        let mut timeout = dummies.into_iter().chain(due).fold(TICK, Duration::min);
        // What has come already and is not taken out yet, in the same order.
        let more = [false, false, self.source.has_more(), false].into_iter();
        let ike_ports = self.ike.iter().flat_map(|ike| &ike.0);
        let ports = self.ports.iter().chain(ike_ports).map(UdpPort::has_more);
        let more = more.chain(self.receivers.iter().map(|_| false)).chain(ports);
        let more: ArrayVec<bool, 32> = more.take(ready.len()).collect();
        if more.contains(&true) {
            timeout = Duration::ZERO;
        }
        sys::poll_readable(&fds, &mut ready, timeout).map_err(|error| Error::new("poll", error))?;
        let any_queue = ready.drain(doors..).fold(false, |any, ready| any | ready);
        ready.iter_mut().zip(more).for_each(|(ready, more)| *ready |= more);
        if let Some(tun) = ready.get_mut(2) {
            *tun |= any_queue;
        }
        Ok(ready)
    }
}
