//! What the engine's own thread does beside packets: IKE, notices, counters, and what depends on time alone.

use super::common::Common;
use super::front::Front;
use super::{Attendant, Home};
use crate::ike::Letter;
use crate::{Error, ike};
use casemate::{Endpoint, Notice};
use casemate_datapath::DropReason;
use casemate_ike::{Event, IkeSaId, Path};
use casemate_sa::{Instant, Protocol};
use std::time::Duration;

/// How often what depends on time alone is looked after.
pub(super) const TICK: Duration = Duration::from_secs(1);

impl Front {
    /// Whether there is nothing to do beside packets, which is so after most of them. To find out is much less than to look after everything
    /// with code that has gone cold, while the answer to a lone packet may be on its way.
    pub(super) fn is_at_rest(&self, common: &Common) -> bool {
        let now = self.batch.now;
        let (sealed, unreserved) = common.notes.tally();
        let home = common.home();
        let endpoint = home.endpoint();
        now.since(self.last_tick) < TICK
            && !endpoint.datapath().has_events()
            && endpoint.due().is_none_or(|due| due > now)
            && !self.ledger.as_ref().is_some_and(|ledger| ledger.has_work(sealed, unreserved))
    }

    /// Everything beside packets.
    pub(super) fn look_after(
        &mut self,
        letters: Vec<Letter>,
        common: &Common,
        attendant: &mut dyn Attendant,
    ) {
        let now = self.batch.now;
        let (sealed, unreserved) = common.notes.take_tally();
        let mut home = common.home();
        for (path, mut message) in letters {
            home.with(|endpoint, means| endpoint.receive_ike(&mut message, path, means));
        }
        home.with(Endpoint::serve);
        let notices = self.follow_notices(&mut home, common, attendant);
        // A peer may use a Child SA as soon as it hears of it: what leads there stands before.
        self.send_letters(&mut home, &mut |what| attendant.trouble(what));
        let datapath = home.endpoint.datapath_mut();
        let kept = self.ledger.as_mut().and_then(|ledger| ledger.keep(datapath, sealed, unreserved));
        if let Some(Err(error)) = kept {
            attendant.trouble(format!("counters could not be written down: {error}"));
        }
        // Whoever is told that something stands may use it at once.
        notices.iter().for_each(|notice| attendant.notice(&home.endpoint, notice));
        drop(home);
        if let Some(trouble) = common.notes.take_trouble() {
            attendant.trouble(trouble);
        }
        if now.since(self.last_tick) >= TICK {
            self.last_tick = now;
            self.tick(common, now);
        }
    }

    /// Leads traffic where the policies say.
    pub(super) fn settle(&mut self, common: &Common, attendant: &mut dyn Attendant) {
        let mut home = common.home();
        let notices = self.follow_notices(&mut home, common, attendant);
        notices.iter().for_each(|notice| attendant.notice(&home.endpoint, notice));
    }

    /// Does in the system what the endpoint reports; answers that.
    fn follow_notices(
        &mut self,
        home: &mut Home,
        common: &Common,
        attendant: &mut dyn Attendant,
    ) -> Vec<Notice> {
        let notices: Vec<Notice> = std::iter::from_fn(|| home.endpoint.next_notice()).collect();
        notices.iter().for_each(|notice| self.heed(notice, common, attendant));
        if let Err(error) = self.live.settle() {
            attendant.trouble(format!("the system does not follow the policies: {error}"));
        }
        attendant.settled();
        notices
    }

    /// Notes what the system has to follow, and listens where Child SAs receive.
    fn heed(&mut self, notice: &Notice, common: &Common, attendant: &mut dyn Attendant) {
        match notice {
            Notice::Policy(change) => self.live.note_policy(change),
            Notice::Ike(event) => {
                if let Event::ChildUp(up) = event {
                    common.listen(up.inbound.dst);
                    if up.outbound.transform.protocol() == Protocol::Ah && up.outbound.src.is_ipv4() {
                        common.idents.come_first();
                    }
                }
                if let Err(error) = self.live.note_event(event) {
                    attendant.trouble(error.to_string());
                }
            }
            Notice::Datapath(_) | Notice::NotInstalled { .. } => {}
        }
    }

    /// Sends what IKE has to say.
    fn send_letters(&self, home: &mut Home, trouble: &mut dyn FnMut(String)) {
        while let Some(transmit) = home.endpoint.next_transmit() {
            if let Err(error) = ike::send(&self.senders, &transmit) {
                let Path { local, remote } = transmit.path;
                trouble(format!("IKE message from {local} to {remote}: {error}"));
            }
        }
    }

    fn tick(&mut self, common: &Common, now: Instant) {
        let late = common.exit.visit(|exit| exit.expire(now));
        let late = common.entry.visit(|entry| entry.expire(now)).saturating_add(late);
        let mut home = common.home();
        let datapath = home.endpoint.datapath_mut();
        for _ in 0..late {
            datapath.note_drop(now, DropReason::FragmentTimeout, &[]);
        }
        self.keepalives.send_due(datapath, now);
    }

    /// Ends an orderly run.
    pub(super) fn close(mut self, common: &Common) -> Result<(), Error> {
        let mut home = common.home();
        // An answer is not waited for: a peer that does not hear it finds out by itself.
        let all: Vec<IkeSaId> = home.endpoint.ike().status().map(|sa| sa.id).collect();
        for ike in all {
            home.with(|endpoint, means| endpoint.terminate(ike, means));
        }
        self.send_letters(&mut home, &mut |_| {});
        match self.ledger.take() {
            None => Ok(()),
            Some(ledger) => ledger
                .close(home.endpoint.datapath_mut())
                .map_err(|error| Error::other("counters", error.to_string())),
        }
    }
}
