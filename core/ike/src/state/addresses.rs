//! MOBIKE in an established IKE SA: what both roles share (RFC 4555 sections 3.5 to 3.9).

use super::established::Phase;
use super::tasks::Pending;
use crate::config::may_move_to;
use crate::context::Step;
use crate::mobike::{self, Cookie2, Mobike};
use crate::nat::{NatDetection, NatStatus, detect};
use crate::state::address_update::{candidates, source_for};
use crate::state::{Established, IkeSa, SaCommon, State, Task};
use crate::transport::Content;
use crate::{Event, Path, StateFault};
use alloc::vec::Vec;
use casemate_wire::ike::{ExchangeType, Notify, NotifyType, WriteError, Writer};
use core::net::{IpAddr, SocketAddr};

/// What the response to an INFORMATIONAL request says of MOBIKE, and what it changes.
#[derive(Default)]
pub(super) struct MobikeAnswer {
    cookie: Option<Vec<u8>>,
    detection: Option<NatDetection>,
    refusal: Option<StateFault>,
    update: Option<AddressUpdate>,
    /// Path to which this host moves because the peer no longer has the address of the present one.
    successor: Option<Path>,
}

/// An accepted UPDATE_SA_ADDRESSES.
struct AddressUpdate {
    path: Path,
    nat: Option<NatStatus>,
}

impl MobikeAnswer {
    pub(super) fn write(&self, out: &mut Writer<'_>) -> Result<(), WriteError> {
        match self.refusal {
            Some(StateFault::UnexpectedNat) => {
                out.notify(&Notify::new(NotifyType::UNEXPECTED_NAT_DETECTED, &[]))?;
            }
            Some(_) => out.notify(&Notify::new(NotifyType::UNACCEPTABLE_ADDRESSES, &[]))?,
            None => self.detection.iter().try_for_each(|detection| detection.write(out))?,
        }
        self.cookie.iter().try_for_each(|cookie| out.notify(&Notify::new(NotifyType::COOKIE2, cookie)))
    }
}

impl IkeSa {
    /// Handles a change of the addresses or routes of this host.
    pub(crate) fn addresses_changed(mut self, step: &mut Step<'_, '_>) -> Self {
        if let State::Established(state) = &mut self.state {
            state.addresses_changed(&mut self.common, step);
        }
        self.start_next_task(step)
    }

    /// Whether the SAs may move.
    pub(crate) fn uses_mobike(&self) -> bool {
        matches!(&self.state, State::Established(state) if state.mobike().is_some())
    }
}

impl Established {
    pub(super) fn mobike(&self) -> Option<&Mobike> {
        self.contents.mobike.as_deref()
    }

    /// Whether the peer has not proved yet that it receives at its new address.
    pub(super) fn is_unverified(&self) -> bool {
        self.mobike().is_some_and(|mobike| mobike.is_unverified)
    }

    /// Whether the peer has chosen an address and not proved yet that it receives there.
    pub(super) fn awaits_route_check(&self) -> bool {
        self.mobike().is_some_and(|mobike| mobike.is_unverified && !mobike.decides)
    }

    /// Whether a CREATE_CHILD_SA request must wait for the check of the peer's address. New Child SAs in
    /// tunnel mode use the former path until then.
    pub(super) fn must_wait_for_route_check(&self, content: &Content<'_>) -> bool {
        let is_tunnel = content.ts_i.is_some() && !content.has_notify(NotifyType::USE_TRANSPORT_MODE);
        self.awaits_route_check() && !is_tunnel
    }

    /// Decides what an INFORMATIONAL request that arrived on `path` changes.
    pub(super) fn answer_mobike(
        &mut self,
        common: &SaCommon,
        content: &Content<'_>,
        path: Path,
        step: &Step<'_, '_>,
    ) -> Result<MobikeAnswer, StateFault> {
        let mut answer =
            MobikeAnswer { cookie: mobike::cookie2(content).map(Vec::from), ..MobikeAnswer::default() };
        let is_open = self.phase == Phase::Open;
        let Some(mobike) = self.contents.mobike.as_mut().filter(|_| is_open) else { return Ok(answer) };
        let announced = mobike::announced_addrs(content);
        let updates = content.has_notify(NotifyType::UPDATE_SA_ADDRESSES) && !mobike.decides;
        if (updates || announced.is_some()) && mobike::has_passed_prohibited_nat(content, path) {
            answer.refusal = Some(StateFault::UnexpectedNat);
            return Ok(answer);
        }
        if updates && !common.connection.may_move_to(path, step.context.routes) {
            answer.refusal = Some(StateFault::UnacceptableAddresses);
            return Ok(answer);
        }
        if let Some(addrs) = announced {
            // The source of the message belongs to the list (RFC 4555 section 3.6).
            mobike.peer_addrs = core::iter::once(path.remote.ip()).chain(addrs).collect();
            answer.successor = successor(common, mobike, path, step);
        }
        let (spis, providers) = (common.spis(), step.context.providers);
        let nat = detect(content, spis, path, providers)?;
        if nat.is_some() {
            answer.detection = Some(NatDetection::new(spis, path, mobike.forces_encap(), providers)?);
        }
        answer.update = updates.then_some(AddressUpdate { path, nat });
        Ok(answer)
    }

    /// Applies what was decided, after the response was sent.
    pub(super) fn apply_mobike(
        &mut self,
        common: &mut SaCommon,
        answer: MobikeAnswer,
        path: Path,
        step: &mut Step<'_, '_>,
    ) {
        if let Some(fault) = answer.refusal {
            step.sa_fault(fault.into(), path, common);
        }
        if let Some(path) = answer.successor {
            self.move_to(common, path, step);
        }
        let Some(AddressUpdate { path, nat }) = answer.update else { return };
        let nat_before = self.contents.nat;
        self.set_nat(nat);
        if common.path == path {
            if nat_before != self.contents.nat && !self.is_unverified() {
                self.move_children(common, step);
            }
            return;
        }
        self.follow_path(common, path, nat_before, step);
    }

    /// As the host that does not decide, uses another path. Its remote address is checked first. The Child
    /// SAs have been at the present path with `nat_before`.
    pub(super) fn follow_path(
        &mut self,
        common: &mut SaCommon,
        path: Path,
        nat_before: NatStatus,
        step: &mut Step<'_, '_>,
    ) {
        let before = core::mem::replace(&mut common.path, path);
        self.resend(common, step);
        self.own_addr_changed(before.local.ip(), path.local.ip(), step);
        let Some(mobike) = &mut self.contents.mobike else { return };
        if before.remote.ip() != path.remote.ip() {
            mobike.await_check(before, nat_before);
            self.peer_addr_changed(common, (before.remote.ip(), path.remote.ip()), step);
            match self.pending {
                Some(Pending::CheckRoute { .. }) => self.queue_another_check(),
                _ => self.queue_first(Task::CheckRoute),
            }
        }
        if !self.is_unverified() {
            self.move_children(common, step);
        }
        self.announce_if_changed(common, step);
    }

    /// Sends the outstanding request on the present path as well. The host there learns its cookie, so that
    /// the response will not prove where the peer receives.
    pub(super) fn resend(&mut self, common: &SaCommon, step: &mut Step<'_, '_>) {
        self.channel.resend(common, step);
        self.forget_path_of_cookie();
    }

    /// Notes that the cookie of the outstanding request was sent on several paths.
    pub(super) const fn forget_path_of_cookie(&mut self) {
        if let Some(Pending::CheckRoute { path, .. } | Pending::UpdateAddresses { path, .. }) =
            &mut self.pending
        {
            *path = None;
        }
    }

    /// Notes that the peer has proved that it receives at the address of the path.
    pub(super) fn peer_addr_checked(&mut self, common: &SaCommon, step: &Step<'_, '_>) {
        let former = self.contents.mobike.as_mut().and_then(|mobike| mobike.checked());
        self.contents.dynamic_addrs.peer_proved();
        if former.is_some_and(|former| former.remote.ip() != common.path.remote.ip()) {
            self.replace_outdated(step);
        }
    }

    /// Applies the result of NAT detection; `None` if the peer detects no NATs.
    pub(super) fn set_nat(&mut self, detected: Option<NatStatus>) {
        let Some(mut nat) = detected else { return };
        if self.mobike().is_some_and(Mobike::forces_encap) {
            nat.force_local();
        }
        self.contents.nat = nat;
    }

    /// Moves the Child SAs to the path of the IKE SA.
    pub(super) fn move_children(&self, common: &SaCommon, step: &mut Step<'_, '_>) {
        step.event(Event::PathChanged {
            ike: common.id,
            children: self.children_in_use(),
            path: common.path,
            udp_encap: self.contents.nat.any(),
        });
    }

    /// Queues a task before the others, once.
    pub(super) fn queue_first(&mut self, task: Task) {
        self.queue_at(0, task);
    }

    /// Queues another check of the peer's address. A peer that moves before each response must not delay
    /// other tasks for ever, so one of them comes first: a Delete, or else the one that has waited longest.
    fn queue_another_check(&mut self) {
        let is_delete = |task: &Task| matches!(task, Task::DeleteIke(_) | Task::DeleteChild(..));
        let delete = self.tasks.iter().position(is_delete).and_then(|at| self.tasks.remove(at));
        delete.into_iter().for_each(|delete| self.tasks.push_front(delete));
        self.queue_at(1, Task::CheckRoute);
    }

    /// Queues a task after this number of others, once.
    fn queue_at(&mut self, place: usize, task: Task) {
        let is_same = |queued: &Task| core::mem::discriminant(queued) == core::mem::discriminant(&task);
        if !self.tasks.iter().any(is_same) {
            self.tasks.insert(place.min(self.tasks.len()), task);
        }
    }

    /// A new COOKIE2.
    pub(super) fn new_cookie2(step: &mut Step<'_, '_>) -> Cookie2 {
        let mut cookie = [0; 16];
        step.context.rng.secret(&mut cookie);
        Cookie2(cookie)
    }

    /// Asks the peer to prove that it receives at its new address (RFC 4555 section 3.7).
    pub(super) fn request_route_check(
        &mut self,
        common: &SaCommon,
        step: &mut Step<'_, '_>,
    ) -> Result<Option<Pending>, StateFault> {
        if !self.is_unverified() {
            return Ok(None);
        }
        let cookie = Self::new_cookie2(step);
        let sent =
            self.channel.send_request(common, ExchangeType::INFORMATIONAL, step, &|out| cookie.write(out));
        sent.map_err(|_| StateFault::Provider)?;
        Ok(Some(Pending::CheckRoute { path: Some(common.path), cookie }))
    }

    /// Handles the response to a return routability check.
    pub(super) fn on_route_check_response(
        &mut self,
        common: &SaCommon,
        sent_on: Option<Path>,
        cookie: Cookie2,
        content: &Content<'_>,
        step: &mut Step<'_, '_>,
    ) {
        if !self.check_cookie2(cookie, content, common, step) {
            return;
        }
        if sent_on != Some(common.path) {
            // The request was sent on several paths, and the response does not tell on which one it arrived.
            self.queue_another_check();
            return;
        }
        self.peer_addr_checked(common, step);
        self.move_children(common, step);
    }

    /// Whether the response repeats our COOKIE2. If not, the IKE SA is closed.
    pub(super) fn check_cookie2(
        &mut self,
        cookie: Cookie2,
        content: &Content<'_>,
        common: &SaCommon,
        step: &mut Step<'_, '_>,
    ) -> bool {
        let is_repeated = cookie.is_repeated_by(content);
        if !is_repeated {
            let fault = StateFault::Cookie2.into();
            step.sa_fault(fault, common.path, common);
            self.tasks.push_front(Task::DeleteIke(crate::DownReason::Fault(fault)));
        }
        is_repeated
    }
}

/// Where the host that decides moves when the peer no longer has the address of the present path: to the
/// address from which its list has arrived on `path`, else to another one of the list. `None` if it stays.
fn successor(common: &SaCommon, mobike: &Mobike, path: Path, step: &Step<'_, '_>) -> Option<Path> {
    let is_listed = |addr: IpAddr| mobike.peer_addrs.contains(&addr);
    if !mobike.decides || is_listed(common.path.remote.ip()) {
        return None;
    }
    let remote_addrs = &common.connection.remote_addrs;
    if may_move_to(remote_addrs, path.remote.ip(), step.context.routes)
        && let Some(source) = source_for(common, path.remote.ip(), step)
    {
        return Some(Path { local: SocketAddr::new(source, path.local.port()), ..path });
    }
    candidates(common, mobike, step).into_iter().find(|path| is_listed(path.remote.ip()))
}
