//! What the engine's own thread does beside packets: IKE, notices, counters, and what depends on time alone.

use super::common::Common;
use super::front::Front;
use super::told::Told;
use super::{Attendant, Home, Trouble};
use crate::ike::Letter;
use crate::setup::Live;
use crate::{Error, ike};
use casemate::{Endpoint, Notice};
use casemate_datapath::SaStatus;
use casemate_ike::{Event, IkeSaId, Path, Transmit};
use casemate_sa::{Instant, Protocol};
use std::sync::MutexGuard;
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
            && self.live.wait() != Some(Duration::ZERO)
            && !endpoint.datapath().has_events()
            && endpoint.due().is_none_or(|due| due > now)
            && !self.ledger.as_ref().is_some_and(|ledger| ledger.has_work(sealed, unreserved))
    }

    /// Everything beside packets.
    ///
    /// The system follows policies while packets move: the endpoint is not locked, and nobody waits for
    /// `nft`. What is for peers and for the attendant waits until the system has followed: a peer may use a
    /// Child SA as soon as it hears of it.
    pub(super) fn look_after(
        &mut self,
        letters: Vec<Letter>,
        common: &Common,
        attendant: &mut dyn Attendant,
    ) -> Result<(), Error> {
        let now = self.batch.now;
        let (sealed, unreserved) = common.notes.take_tally();
        let mut home = common.home();
        for (path, mut message) in letters {
            home.with(|endpoint, means| endpoint.receive_ike(&mut message, path, means));
        }
        home.with(Endpoint::serve);
        let datapath = home.endpoint.datapath_mut();
        let kept = self.ledger.as_mut().and_then(|ledger| ledger.keep(datapath, sealed, unreserved));
        self.gather(home, common, attendant);
        if let Err(error) = self.hold(common) {
            attendant.trouble(Trouble::Policies, error.to_string());
        }
        if let Some(Err(error)) = kept {
            attendant.trouble(Trouble::Counters, format!("counters could not be written down: {error}"));
        }
        self.follow(common, attendant);
        if let Some(trouble) = common.notes.take_trouble() {
            attendant.trouble(Trouble::Sending, trouble);
        }
        if now.since(self.last_tick) >= TICK {
            self.last_tick = now;
            self.tick(common, now);
            self.raw.review(now).into_iter().for_each(|what| attendant.trouble(Trouble::Link, what));
        }
        // Without it the guard cannot follow policies any more. It stays as it is when the run ends.
        self.live.check()?;
        match &self.ledger {
            Some(ledger) if ledger.has_ended() => Err(Error::other("counters", "their thread has ended")),
            _ => Ok(()),
        }
    }

    /// Leads traffic where the policies say, before packets move. An error if the filter could not be made.
    pub(super) fn settle(&mut self, common: &Common, attendant: &mut dyn Attendant) -> Result<(), Error> {
        self.gather(common.home(), common, attendant);
        self.hold(common)?;
        self.live.settle()?;
        self.follow(common, attendant);
        Ok(())
    }

    /// Takes what the endpoint has for the system, for peers and for the attendant.
    fn gather(&mut self, mut home: MutexGuard<'_, Home>, common: &Common, attendant: &mut dyn Attendant) {
        let fresh: Vec<Notice> = std::iter::from_fn(|| home.endpoint.next_notice()).collect();
        let about: Vec<Option<SaStatus>> = fresh.iter().map(|notice| home.endpoint.sa_of(notice)).collect();
        while let Some(transmit) = home.endpoint.next_transmit() {
            // Peers repeat what is not answered, and so do we.
            if self.outbox.len() < MAX_OUTBOX {
                self.outbox.push(transmit);
            }
        }
        let connections = self.live.holds_any().then(|| home.endpoint.ike().connections().to_vec());
        drop(home);
        for (notice, sa) in fresh.into_iter().zip(about) {
            if Told::must_wait(&notice) {
                heed(&mut self.live, &notice, common, attendant);
                self.told.push(notice);
            } else {
                attendant.notice(&notice, sa.as_ref());
            }
        }
        if let Some(connections) = connections {
            self.live.hold_for(&connections);
        }
    }

    /// Has the data path discard what is held for a former run, before a route leads it there.
    fn hold(&mut self, common: &Common) -> Result<(), Error> {
        let Some(held) = self.live.take_held() else { return Ok(()) };
        let done = self.discards.follow(&held, common.home().endpoint.datapath_mut());
        done.map_err(|error| Error::other("policies for what a former run protected", error.to_string()))
    }

    /// Has the system follow, and tells those who wait for that.
    fn follow(&mut self, common: &Common, attendant: &mut dyn Attendant) {
        let follows = self.live.follow(&mut |error| {
            let what = format!("the system does not follow the policies: {error}");
            attendant.trouble(Trouble::Policies, what)
        });
        self.live.sentry().take_lines().into_iter().for_each(|line| attendant.trouble(Trouble::Guard, line));
        if !follows {
            return;
        }
        common.home().endpoint.datapath_mut().set_hosts(self.live.addresses());
        let outbox = std::mem::take(&mut self.outbox);
        self.send_letters(outbox, common, &mut |what| attendant.trouble(Trouble::Sending, what));
        let (told, lost) = self.told.take();
        // Whoever is told that something stands may use it at once.
        told.iter().for_each(|notice| attendant.notice(notice, None));
        if lost > 0 {
            let what = format!("{lost} notices were dropped while the system did not follow");
            attendant.trouble(Trouble::Policies, what);
        }
        attendant.settled();
    }

    /// Sends what IKE has to say.
    fn send_letters(&self, letters: Vec<Transmit>, common: &Common, trouble: &mut dyn FnMut(String)) {
        for transmit in letters {
            let past = (&*self.raw, common.idents.next());
            if let Err(error) = ike::send(&self.senders, past, self.batch.now, &transmit) {
                let Path { local, remote } = transmit.path;
                trouble(format!("IKE message from {local} to {remote}: {error}"));
            }
        }
    }

    fn tick(&mut self, common: &Common, now: Instant) {
        common.exit.visit(|exit| exit.expire(now, common));
        common.entry.visit(|entry| entry.expire(now, common));
        let mut home = common.home();
        let datapath = home.endpoint.datapath_mut();
        self.keepalives.send_due(datapath, now);
    }

    /// Ends a run: tells peers, gives back counters that are not used. Everything that was changed in the
    /// system is taken back if the end is `orderly`; otherwise it stays, the guard too.
    pub(super) fn close(mut self, orderly: bool, common: &Common) -> Result<(), Error> {
        if !orderly {
            // Before anything that takes time.
            self.live.leave();
        }
        let mut home = common.home();
        // An answer is not waited for: a peer that does not hear it finds out by itself.
        let all: Vec<IkeSaId> = home.endpoint.ike().status().map(|sa| sa.id).collect();
        for ike in all {
            home.with(|endpoint, means| endpoint.terminate(ike, means));
        }
        let mut letters = std::mem::take(&mut self.outbox);
        letters.extend(std::iter::from_fn(|| home.endpoint.next_transmit()));
        self.send_letters(letters, common, &mut |_| {});
        let closed = match self.ledger.take() {
            None => Ok(()),
            Some(ledger) => ledger
                .close(home.endpoint.datapath_mut())
                .map_err(|error| Error::other("counters", error.to_string())),
        };
        if orderly { closed.and(self.live.close()) } else { closed }
    }
}

/// IKE messages that wait while the system does not follow.
const MAX_OUTBOX: usize = 4_096;

/// Notes what the system has to follow, and listens where Child SAs receive.
fn heed(live: &mut Live, notice: &Notice, common: &Common, attendant: &mut dyn Attendant) {
    match notice {
        Notice::Policy(change) => live.note_policy(change),
        Notice::Ike(event) => {
            if let Event::ChildUp(up) = event {
                common.listen(up.inbound.dst);
                if up.outbound.transform.protocol() == Protocol::Ah && up.outbound.src.is_ipv4() {
                    common.idents.come_first();
                }
            }
            if let Err(error) = live.note_event(event) {
                attendant.trouble(Trouble::Policies, error.to_string());
            }
        }
        Notice::Datapath(_) | Notice::NotHeld { .. } | Notice::NotInstalled { .. } => {}
    }
}
