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

/// The most descriptors that an engine has: signals, attendant, bell, TUN, addresses, two receivers, two ports of IKE, and eight ports of
/// two IP versions (`EncapPorts` of the data path).
const MOST: usize = 32;

/// What can be read, or was and is not taken out yet, in the order of [`Front::descriptors`].
pub(super) type Ready = ArrayVec<bool, MOST>;

impl Front {
    /// Tells the kernel what is waited for.
    pub(super) fn watch(&self, common: &Common, attendant: &dyn Attendant) -> Result<Watch, Error> {
        Watch::over(self.descriptors(common, attendant)).map_err(|error| Error::new("epoll", error))
    }

    /// Signals, attendant, bell, TUN, addresses, receivers, ports, ports of IKE.
    fn descriptors<'a>(
        &'a self,
        common: &'a Common,
        attendant: &'a dyn Attendant,
    ) -> impl Iterator<Item = BorrowedFd<'a>> {
        let first = [
            self.signals.as_fd(),
            attendant.wake(),
            common.notes.bell.as_fd(),
            self.tun.as_fd(),
            self.live.as_fd(),
        ];
        let receivers = self.receivers.iter().map(AsFd::as_fd);
        let ports = self.ports.iter().chain(self.ike_ports()).map(AsFd::as_fd);
        first.into_iter().chain(receivers).chain(ports).take(MOST)
    }

    /// What has come and is not taken out yet, in the same order.
    fn left_over(&self) -> Ready {
        let first = [false, false, false, self.tun.has_more(), false];
        let receivers = repeat_n(false, self.receivers.len());
        let ports = self.ports.iter().chain(self.ike_ports()).map(UdpPort::has_more);
        first.into_iter().chain(receivers).chain(ports).take(MOST).collect()
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
            watch.wait(&mut ready, Duration::ZERO).map_err(|error| Error::new("epoll", error))?;
            if ready.contains(&true) {
                return Ok(ready);
            }
            common.finish_waiting();
        }
        watch.wait(&mut ready, timeout).map_err(|error| Error::new("epoll", error))?;
        Ok(ready)
    }

    /// How long there is nothing to do unless something comes.
    fn patience(&self, common: &Common) -> Duration {
        let now = self.clock.now();
        let dummies = self.dummies.as_ref().map(|dummies| dummies.wait(now));
        let due = common.home().endpoint.due().map(|due| due.since(now));
        dummies.into_iter().chain(due).fold(TICK, Duration::min)
    }
}
