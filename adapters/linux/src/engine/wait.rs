//! What the engine waits for.

use super::chores::TICK;
use super::common::Common;
use super::front::Front;
use super::{Attendant, Error};
use crate::sys::Watch;
use crate::udp::UdpPort;
use arrayvec::ArrayVec;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// What only the engine's own thread looks after: signals, attendant, bell, what others change, the ports of IKE
/// alone, which are one, and the end of what `nft` does.
const OWN: usize = 6;
/// The place of what others change in the system.
const OTHERS: usize = 3;
/// The place of the ports of IKE.
const IKE: usize = 4;
/// The most inlets that an engine has: TUN, four receivers, and two sockets of two IP versions for each of eight ports (`EncapPorts` of the
/// data path).
const INLETS: usize = 1 + 4 + 2 * 2 * 8;

/// What can be read, or was and is not taken out yet: what is the own thread's, then the inlets.
pub(super) struct Ready(ArrayVec<bool, { OWN + INLETS }>);

impl Ready {
    /// What can be read at once of all that helpers read.
    pub(super) fn now(common: &Common, watch: &Watch) -> Result<Self, Error> {
        let mut ready = Self::left_over([false; OWN], common);
        ready.look(watch, Duration::ZERO)?;
        Ok(ready)
    }

    /// What is left over, whatever the descriptors say.
    fn left_over(own: [bool; OWN], common: &Common) -> Self {
        let intake = common.intake();
        let all = own.into_iter().chain(intake.left_over());
        Self(all.take(OWN + INLETS).collect())
    }

    /// Looks what can be read.
    fn look(&mut self, watch: &Watch, timeout: Duration) -> Result<(), Error> {
        watch.wait(&mut self.0, timeout).map_err(|error| Error::new("epoll", error))
    }

    /// Signals, attendant, bell, what others change, the ports of IKE, and the bell of what follows policies.
    pub(super) fn own(&self) -> [bool; OWN] {
        self.0.first_chunk().copied().unwrap_or_default()
    }

    /// The inlets that are ready.
    pub(super) fn inlets(&self) -> impl Iterator<Item = usize> {
        let inlets = self.0.iter().skip(OWN).enumerate();
        inlets.filter_map(|(inlet, ready)| ready.then_some(inlet))
    }
}

impl Front {
    /// Tells the kernel what is waited for.
    pub(super) fn watch(&self, common: &Common, attendant: &dyn Attendant) -> Result<Watch, Error> {
        let first: [BorrowedFd<'_>; OTHERS] =
            [self.signals.as_fd(), attendant.wake(), common.notes.bell.as_fd()];
        let others = self.live.descriptors().map(|fd| (OTHERS, fd));
        let ike = self.ike_ports().map(|port| (IKE, port.as_fd()));
        let followed = std::iter::once((IKE + 1, self.live.bell().as_fd()));
        let intake = common.intake();
        let inlets = intake.descriptors().take_while(|(inlet, _)| *inlet < INLETS);
        let inlets = inlets.map(|(inlet, fd)| (OWN.saturating_add(inlet), fd));
        let all = first.into_iter().enumerate().chain(others).chain(ike).chain(followed).chain(inlets);
        Watch::over(all).map_err(|error| Error::new("epoll", error))
    }

    /// Waits for something to do, with nothing left undone.
    pub(super) fn wait(&self, common: &Common, watch: &Watch) -> Result<Ready, Error> {
        let ike = self.ike_ports().any(UdpPort::has_more);
        let mut ready = Ready::left_over([false, false, false, false, ike, false], common);
        let timeout = if ready.0.contains(&true) { Duration::ZERO } else { self.patience(common) };
        ready.look(watch, timeout)?;
        Ok(ready)
    }

    fn ike_ports(&self) -> impl Iterator<Item = &UdpPort> {
        self.ike.iter().flat_map(|ike| &ike.0)
    }

    /// How long there is nothing to do unless something comes.
    fn patience(&self, common: &Common) -> Duration {
        let now = self.clock.now();
        let dummies = self.dummies.as_ref().map(|dummies| dummies.wait(now));
        let due = common.home().endpoint.due().map(|due| due.since(now));
        dummies.into_iter().chain(due).chain(self.live.wait()).fold(TICK, Duration::min)
    }
}
