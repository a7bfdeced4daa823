//! MOBIKE as the host that decides which addresses the SAs use: the initiator of the first IKE SA (RFC 4555
//! sections 3.5 and 3.10).

use super::tasks::Pending;
use crate::child_sa::ChildSa;
use crate::config::may_move_to;
use crate::context::Step;
use crate::mobike::{self, Cookie2, MAX_ADDRS, Mobike};
use crate::nat::{NatDetection, detect};
use crate::state::{Established, SaCommon, SaContents, Task};
use crate::transport::Content;
use crate::{DownReason, Path, StateFault};
use alloc::vec::Vec;
use casemate_sa::Mode;
use casemate_wire::ike::{ExchangeType, Notify, NotifyType};
use core::net::{IpAddr, SocketAddr};
use core::time::Duration;

/// Number of retransmissions after which the other paths are tried as well.
const RETRANSMISSIONS_ON_ONE_PATH: u32 = 2;
/// Time in which the peer replaces the Child SAs that have the former address of this host.
const REPLACEMENT_DELAY: Duration = Duration::from_secs(2);
/// Number of updates after which a NAT that the peer detects and that is prohibited ends the IKE SA.
const MAX_NAT_REFUSALS: u8 = 3;

impl Established {
    /// Moves to another path if the present one is no longer that of the routes.
    pub(super) fn follow_routes(&mut self, common: &mut SaCommon, step: &mut Step<'_, '_>) {
        let Some(mobike) = self.contents.mobike.as_mut().filter(|mobike| mobike.decides) else { return };
        if let Some(best) = candidates(common, mobike, step).first()
            && *best != common.path
        {
            // The peer may receive on the new path what it has not received on the old one.
            let (now, retransmission) = (step.context.now, step.shared.settings.retransmission);
            self.channel.window.restart_retransmission(now, &retransmission, step.context.rng);
            self.move_to(common, *best, step);
        }
    }

    /// Moves to a path and tells the peer.
    pub(super) fn move_to(&mut self, common: &mut SaCommon, path: Path, step: &mut Step<'_, '_>) {
        let (before, nat) = (core::mem::replace(&mut common.path, path), self.contents.nat);
        self.resend(common, step);
        if !self.is_open() {
            return;
        }
        let is_configured = before.remote.ip() == path.remote.ip()
            || mobike::configured_addrs(&common.connection.remote_addrs, step.context.routes)
                .any(|addr| addr == path.remote.ip());
        if let Some(mobike) = &mut self.contents.mobike {
            mobike.tried.clear();
            if !is_configured {
                mobike.await_check(before, nat);
            }
        }
        self.own_addr_changed(before.local.ip(), path.local.ip(), step);
        self.peer_addr_changed(common, (before.remote.ip(), path.remote.ip()), step);
        if !self.is_unverified() {
            self.contents.dynamic_addrs.peer_proved();
            if before.remote.ip() != path.remote.ip() {
                self.replace_outdated(step);
            }
            self.move_children(common, step);
        }
        self.queue_first(Task::UpdateAddresses);
    }

    /// Handles a new address of this host. Child SAs keep their selectors (RFC 4555 section 1.2: tunnel
    /// mode), unless these have the former address: such Child SAs are rekeyed, if the peer does not replace
    /// them within two seconds. Those in transport mode are left to the peer.
    pub(super) fn own_addr_changed(&mut self, before: IpAddr, now: IpAddr, step: &Step<'_, '_>) {
        if before == now {
            return;
        }
        self.contents.path_search.restart(step.context.now);
        let own = &mut self.contents.dynamic_addrs.local;
        own.iter_mut().filter(|addr| **addr == before).for_each(|addr| *addr = now);
        let SaContents { children, dynamic_addrs, .. } = &mut self.contents;
        let rekey_at = step.context.now.after(REPLACEMENT_DELAY);
        let is_its = |child: &ChildSa| child.agreed.mode == Mode::Tunnel && child.is_outdated(dynamic_addrs);
        for child in children.iter_mut().filter(|child| is_its(child)) {
            child.rekey_at = child.rekey_at.map_or(Some(rekey_at), |at| Some(at.min(rekey_at)));
        }
    }

    /// Whether a liveness check also has to update the addresses, because a NAT in front of this host may
    /// have forgotten its mapping (RFC 4555 section 3.8).
    pub(super) fn updates_to_check_liveness(&self) -> bool {
        self.contents.nat.local && self.mobike().is_some_and(|mobike| mobike.decides)
    }

    /// Sends UPDATE_SA_ADDRESSES.
    pub(super) fn request_update(
        &mut self,
        common: &SaCommon,
        step: &mut Step<'_, '_>,
    ) -> Result<Option<Pending>, StateFault> {
        let Some(mobike) = self.mobike() else { return Ok(None) };
        let (path, providers) = (common.path, step.context.providers);
        let detection = match mobike.has_nat_traversal {
            true => Some(NatDetection::new(common.spis(), path, mobike.forces_encap(), providers)?),
            false => None,
        };
        let addrs = mobike::own_addrs(&common.connection, path, step.context.routes);
        let cookie = Self::new_cookie2(step);
        let sent = self.channel.send_request(common, ExchangeType::INFORMATIONAL, step, &|out| {
            out.notify(&Notify::new(NotifyType::UPDATE_SA_ADDRESSES, &[]))?;
            match &detection {
                Some(detection) => detection.write(out)?,
                None => mobike::write_no_nats(path, out)?,
            }
            mobike::write_list(&addrs, out)?;
            cookie.write(out)
        });
        sent.map_err(|_| StateFault::Provider)?;
        self.note_announced(common, step);
        Ok(Some(Pending::UpdateAddresses { path: Some(path), cookie }))
    }

    /// Handles the response to UPDATE_SA_ADDRESSES.
    pub(super) fn on_update_response(
        &mut self,
        common: &mut SaCommon,
        sent_on: Option<Path>,
        cookie: Cookie2,
        content: &Content<'_>,
        step: &mut Step<'_, '_>,
    ) {
        if sent_on != Some(common.path) {
            // This host has moved again, or the request was sent on several paths.
            self.queue_first(Task::UpdateAddresses);
            return;
        }
        match content.error() {
            Some(NotifyType::UNACCEPTABLE_ADDRESSES) => return self.on_refused_path(common, step),
            Some(NotifyType::UNEXPECTED_NAT_DETECTED) => return self.on_unexpected_nat(),
            _ => {}
        }
        if !self.check_cookie2(cookie, content, common, step) {
            return;
        }
        let nat_before = self.contents.nat;
        match detect(content, common.spis(), common.path, step.context.providers) {
            Ok(nat) => self.set_nat(nat),
            Err(fault) => step.sa_fault(fault.into(), common.path, common),
        }
        let Some(mobike) = &mut self.contents.mobike else { return };
        mobike.nat_refusals = 0;
        let was_unverified = mobike.is_unverified;
        self.peer_addr_checked(common, step);
        if was_unverified || nat_before != self.contents.nat {
            self.move_children(common, step);
        }
    }

    /// The peer does not accept the path: tries the next one, and closes the IKE SA after the last one.
    fn on_refused_path(&mut self, common: &mut SaCommon, step: &mut Step<'_, '_>) {
        let Some(mobike) = &mut self.contents.mobike else { return };
        mobike.refused.push(common.path);
        match candidates(common, mobike, step).first() {
            Some(next) => self.move_to(common, *next, step),
            None => {
                let reason = DownReason::Refused(NotifyType::UNACCEPTABLE_ADDRESSES);
                self.tasks.push_front(Task::DeleteIke(reason));
            }
        }
    }

    /// The peer has detected a NAT, which is prohibited. An attacker may have changed one packet, so the
    /// update is repeated.
    fn on_unexpected_nat(&mut self) {
        let Some(mobike) = &mut self.contents.mobike else { return };
        mobike.nat_refusals = mobike.nat_refusals.saturating_add(1);
        if mobike.nat_refusals < MAX_NAT_REFUSALS {
            self.queue_first(Task::UpdateAddresses);
        } else {
            let reason = DownReason::Refused(NotifyType::UNEXPECTED_NAT_DETECTED);
            self.tasks.push_front(Task::DeleteIke(reason));
        }
    }

    /// Sends the outstanding request on the other paths as well, if the peer has not responded to several
    /// transmissions. The host that does not decide does so with announcements only (RFC 4555 section 3.6).
    pub(super) fn try_other_paths(&mut self, common: &SaCommon, step: &mut Step<'_, '_>) {
        if self.channel.window.retransmissions() < RETRANSMISSIONS_ON_ONE_PATH {
            return;
        }
        let is_announcement = matches!(self.pending, Some(Pending::AnnounceAddresses { .. }));
        if is_announcement || self.mobike().is_some_and(|mobike| mobike.decides) {
            self.send_on_other_paths(common, step);
        }
    }

    /// Sends the outstanding request on the paths besides the present one.
    pub(super) fn send_on_other_paths(&mut self, common: &SaCommon, step: &mut Step<'_, '_>) {
        let Some(mobike) = self.contents.mobike.as_mut() else { return };
        mobike.tried = candidates(common, mobike, step);
        mobike.tried.retain(|path| *path != common.path);
        for path in &mobike.tried {
            step.send(*path, self.channel.window.outstanding_datagrams());
        }
        if !mobike.tried.is_empty() {
            self.forget_path_of_cookie();
        }
    }

    /// Moves to the path on which the peer has responded, if it is one of those that were tried. The host
    /// that does not decide does so only if it has lost its address (RFC 4555 section 3.5): charon 5.9.8
    /// responds to the announcement and moves, and sends no UPDATE_SA_ADDRESSES.
    pub(super) fn move_to_answering_path(
        &mut self,
        common: &mut SaCommon,
        path: Path,
        step: &mut Step<'_, '_>,
    ) {
        let Some(mobike) = &mut self.contents.mobike else { return };
        let is_tried = mobike.tried.contains(&path);
        if mobike.decides {
            mobike.tried.clear();
            if is_tried {
                self.move_to(common, path, step);
            }
        } else if is_tried && !step.context.routes.has_addr(common.path.local.ip()) {
            self.follow_path(common, path, self.contents.nat, step);
        }
    }
}

/// The paths that the routes allow and that the peer has not refused, in order of preference: to the present
/// address of the peer, to its configured ones, and to those that it has announced, if `remote_addrs` allows
/// them.
pub(super) fn candidates(common: &SaCommon, mobike: &Mobike, step: &Step<'_, '_>) -> Vec<Path> {
    let (connection, routes) = (&common.connection, step.context.routes);
    let configured = mobike::configured_addrs(&connection.remote_addrs, routes);
    let may_use = |addr: &IpAddr| may_move_to(&connection.remote_addrs, *addr, routes);
    let announced = mobike.peer_addrs.iter().copied().filter(may_use);
    let remotes = core::iter::once(common.path.remote.ip()).chain(configured).chain(announced);
    let mut paths: Vec<Path> = Vec::new();
    for remote in remotes {
        let Some(local) = source_for(common, remote, step) else { continue };
        let path = Path {
            local: SocketAddr::new(local, common.path.local.port()),
            remote: SocketAddr::new(remote, common.path.remote.port()),
        };
        if paths.len() < MAX_ADDRS && !paths.contains(&path) && !mobike.refused.contains(&path) {
            paths.push(path);
        }
    }
    paths
}

/// The source address for `remote`: that of the route if the connection names it, else the first configured
/// one of the IP version that this host still has, else that of the route if the SAs may move to it.
pub(super) fn source_for(common: &SaCommon, remote: IpAddr, step: &Step<'_, '_>) -> Option<IpAddr> {
    let (patterns, routes) = (&common.connection.local_addrs, step.context.routes);
    let is_same_version = |addr: &IpAddr| addr.is_ipv4() == remote.is_ipv4();
    let source = routes.source_for(remote).filter(is_same_version)?;
    if patterns.iter().any(|pattern| pattern.matches(source, routes)) {
        return Some(source);
    }
    let mut configured = mobike::configured_addrs(patterns, routes).filter(is_same_version);
    let kept = configured.find(|addr| routes.has_addr(*addr));
    kept.or_else(|| Some(source).filter(|source| may_move_to(patterns, *source, routes)))
}
