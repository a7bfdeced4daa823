//! What the engine waits for.

use super::Attendant;
use super::chores::TICK;
use super::common::Common;
use super::front::Front;
use crate::Error;
use crate::sys::Watch;
use crate::udp::UdpPort;
use arrayvec::ArrayVec;
use std::iter::repeat_n;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// The most descriptors that an engine has: signals, attendant, bell, TUN, addresses, four receivers, two sockets of two IP versions for each of
/// eight ports (`EncapPorts` of the data path), two ports of IKE, and four more queues of the TUN interface.
const MOST: usize = 5 + 4 + 2 * 2 * 8 + 2 + 4;

/// Where the TUN interface stands among them.
const TUN: usize = 3;

/// What can be read, or was and is not taken out yet, in the order of [`Front::descriptors`].
pub(super) type Ready = ArrayVec<bool, MOST>;

impl Front {
    /// Tells the kernel what is waited for.
    pub(super) fn watch(&self, common: &Common, attendant: &dyn Attendant) -> Result<Watch, Error> {
        Watch::over(self.descriptors(common, attendant)).map_err(|error| Error::new("epoll", error))
    }

    /// Signals, attendant, bell, TUN, addresses, receivers, ports, ports of IKE, and the other queues of TUN.
    fn descriptors<'a>(
        &'a self,
        common: &'a Common,
        attendant: &'a dyn Attendant,
    ) -> impl Iterator<Item = BorrowedFd<'a>> {
        let first = [
            self.signals.as_fd(),
            attendant.wake(),
            common.notes.bell.as_fd(),
            self.tun.door().as_fd(),
            self.live.as_fd(),
        ];
        let receivers = self.receivers.iter().map(AsFd::as_fd);
        let ports = self.ports.iter().chain(self.ike_ports()).map(AsFd::as_fd);
        let queues = self.tun.queues().skip(1).map(AsFd::as_fd);
        first.into_iter().chain(receivers).chain(ports).chain(queues).take(MOST)
    }

    /// What has come and is not taken out yet, in the same order.
    fn left_over(&self) -> Ready {
        let first = [false, false, false, self.source.has_more(), false];
        let receivers = repeat_n(false, self.receivers.len());
        let ports = self.ports.iter().chain(self.ike_ports()).map(UdpPort::has_more);
        let queues = self.tun.queues().skip(1).map(|_| false);
        first.into_iter().chain(receivers).chain(ports).chain(queues).take(MOST).collect()
    }

    pub(super) fn ike_ports(&self) -> impl Iterator<Item = &UdpPort> {
        self.ike.iter().flat_map(|ike| &ike.0)
    }

    /// Waits for something to do, with nothing left undone.
    pub(super) fn wait(&self, common: &Common, watch: &Watch) -> Result<Ready, Error> {
        let mut ready = self.left_over();
        let timeout = if ready.contains(&true) { Duration::ZERO } else { self.patience(common) };
        if common.crew.has_waiting() {
            // Mostly more has come, and there is no time for what was given away.
            self.look(watch, &mut ready, Duration::ZERO)?;
            if ready.contains(&true) {
                return Ok(ready);
            }
            common.finish_waiting();
        }
        self.look(watch, &mut ready, timeout)?;
        Ok(ready)
    }

    /// Looks what can be read. All queues of the TUN interface are one.
    fn look(&self, watch: &Watch, ready: &mut Ready, timeout: Duration) -> Result<(), Error> {
        watch.wait(ready, timeout).map_err(|error| Error::new("epoll", error))?;
        let queues = ready.len().saturating_sub(self.tun.queues().skip(1).count());
        let any_queue = ready.iter().skip(queues).any(|ready| *ready);
        if let Some(tun) = ready.get_mut(TUN) {
            *tun |= any_queue;
        }
        Ok(())
    }

    /// How long there is nothing to do unless something comes.
    fn patience(&self, common: &Common) -> Duration {
        let now = self.clock.now();
        let dummies = self.dummies.as_ref().map(|dummies| dummies.wait(now));
        let due = common.home().endpoint.due().map(|due| due.since(now));
        dummies.into_iter().chain(due).fold(TICK, Duration::min)
    }
}
