//! The addresses of this host as the peer knows them (RFC 4555 section 3.6), and what follows when they
//! change. Both roles tell the peer; the host that decides moves the SAs (section 3.5).

use super::tasks::Pending;
use crate::context::Step;
use crate::mobike;
use crate::state::address_update::candidates;
use crate::state::{Established, SaCommon, Task};
use crate::{Path, StateFault};
use casemate_wire::ike::ExchangeType;

impl Established {
    /// Handles a change of the addresses or routes of this host.
    pub(super) fn addresses_changed(&mut self, common: &mut SaCommon, step: &mut Step<'_, '_>) {
        match &mut self.contents.mobike {
            Some(mobike) if mobike.decides => {
                mobike.refused.clear();
                self.follow_routes(common, step);
            }
            Some(_) => self.leave_lost_addr(common, step),
            None => return,
        }
        self.announce_if_changed(common, step);
    }

    /// As the host that does not decide, leaves an address that this host no longer has. RFC 4555 section 3.5
    /// allows that before the peer has moved.
    fn leave_lost_addr(&mut self, common: &mut SaCommon, step: &mut Step<'_, '_>) {
        let Some(mobike) = self.contents.mobike.as_mut() else { return };
        if step.context.routes.has_addr(common.path.local.ip()) {
            return;
        }
        let paths = candidates(common, mobike, step);
        if paths.contains(&common.path) {
            return;
        }
        let Some(path) = paths.iter().find(|path| path.remote == common.path.remote) else {
            // Only other addresses of the peer can be reached. The announcement is sent to them, and the peer
            // decides.
            if !paths.is_empty() {
                self.queue_first(Task::AnnounceAddresses);
            }
            return;
        };
        let before = core::mem::replace(&mut common.path, *path);
        self.channel.resend(common, step);
        self.own_addr_changed(before.local.ip(), path.local.ip(), step);
        if !self.is_unverified() {
            self.move_children(common, step);
        }
    }

    /// Queues an announcement if the peer does not know the present addresses and this host can send.
    pub(super) fn announce_if_changed(&mut self, common: &SaCommon, step: &Step<'_, '_>) {
        let Some(mobike) = self.mobike() else { return };
        let routes = step.context.routes;
        let is_known = mobike.announced == mobike::own_set(common, routes);
        // UPDATE_SA_ADDRESSES contains the list as well.
        let is_told = self.tasks.iter().any(|task| matches!(task, Task::UpdateAddresses));
        if self.is_open() && !is_known && !is_told && routes.has_addr(common.path.local.ip()) {
            self.queue_first(Task::AnnounceAddresses);
        }
    }

    /// Notes that a message with the present addresses was sent.
    pub(super) fn note_announced(&mut self, common: &SaCommon, step: &Step<'_, '_>) {
        let announced = mobike::own_set(common, step.context.routes);
        if let Some(mobike) = &mut self.contents.mobike {
            mobike.announced = announced;
        }
    }

    /// Sends the list of the additional addresses.
    pub(super) fn request_announcement(
        &mut self,
        common: &SaCommon,
        step: &mut Step<'_, '_>,
    ) -> Result<Option<Pending>, StateFault> {
        let Some(mobike) = self.mobike() else { return Ok(None) };
        let (path, routes, has_nat_traversal) = (common.path, step.context.routes, mobike.has_nat_traversal);
        let addrs = mobike::own_addrs(&common.connection, path, routes);
        let sent = self.channel.send_request(common, ExchangeType::INFORMATIONAL, step, &|out| {
            if !has_nat_traversal {
                mobike::write_no_nats(path, out)?;
            }
            mobike::write_list(&addrs, out)
        });
        sent.map_err(|_| StateFault::Provider)?;
        self.note_announced(common, step);
        if !routes.has_addr(path.local.ip()) {
            self.send_on_other_paths(common, step);
        }
        Ok(Some(Pending::AnnounceAddresses { path }))
    }

    /// Handles the response to an announcement that was first sent on `sent_on`. The list of addresses goes
    /// with the source address of its message, so a list that was sent from several addresses is sent again
    /// (RFC 4555 section 3.6).
    pub(super) fn on_announcement_response(&mut self, common: &SaCommon, sent_on: Path, step: &Step<'_, '_>) {
        let Some(mobike) = &mut self.contents.mobike else { return };
        let is_other = |path: &Path| path.local.ip() != sent_on.local.ip();
        if core::mem::take(&mut mobike.tried).iter().any(is_other) || is_other(&common.path) {
            mobike.announced.clear();
            self.announce_if_changed(common, step);
        }
    }
}
