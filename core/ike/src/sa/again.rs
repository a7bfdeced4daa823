//! What is set up again after it ended or failed, and when: the pauses between attempts.
//!
//! Attempts never follow each other without a pause, and the pauses are bounded, so a configuration that says
//! "keep trying" does, and costs next to nothing.

use super::context::random_below;
use super::{Cx, Effect, Established, Head, Role, Task};
use crate::child::{ChildSa, Stage, Wish};
use crate::config::{Child, Lifespan};
use crate::{ChildId, Down};
use alloc::boxed::Box;
use alloc::sync::Arc;
use casemate_sa::Instant;
use core::time::Duration;

/// The shortest pause; the random part comes on top of it.
const FIRST: Duration = Duration::from_secs(2);
/// The attempt from which on pauses grow no more: 64 s, and up to 128 s with the random part.
const LONGEST: u8 = 5;
/// An SA that lasted so long was in order; what ends sooner may end as soon again.
const SETTLED: Duration = Duration::from_secs(60);

/// When another attempt is made after `attempts` in a row. Each pause is twice as long as the one before. It
/// becomes longer by up to its length at random, so that two peers seldom begin together.
pub(crate) fn retry_at(attempts: u8, cx: &mut Cx<'_, '_>) -> Instant {
    let pause = FIRST.saturating_mul(1_u32.checked_shl(attempts.min(LONGEST).into()).unwrap_or(1));
    let random = random_below(cx.env.rng, pause);
    cx.env.now.after(pause.saturating_add(random))
}

/// How many attempts in a row ended soon, now that one that followed `attempts` ended after `lasted`.
pub(super) fn attempts_after(lasted: Duration, attempts: u8) -> u8 {
    if lasted >= SETTLED { 0 } else { attempts.saturating_add(1) }
}

/// When a new IKE SA is reauthenticated, if it is. As with rekeying, the time is shorter by a random part. If
/// both sides have the same time, the one that began the IKE SA is first: its peer waits longer, by less than
/// the time in which reauthentication must succeed.
pub(super) fn reauth_at(head: &Head, cx: &mut Cx<'_, '_>) -> Option<Instant> {
    let time = head.connection.reauth?;
    let Lifespan { rekey, random, hard } = head.connection.lifespan;
    let tenth = time.checked_div(10).unwrap_or_default();
    let early = random_below(cx.env.rng, random.min(tenth));
    let over = hard.map_or(tenth, |hard| hard.saturating_sub(rekey.unwrap_or(time)));
    let later = match head.role {
        Role::Initiator => Duration::ZERO,
        Role::Responder => tenth.min(over).checked_div(2).unwrap_or_default(),
    };
    Some(cx.env.now.after(time.saturating_sub(early).saturating_add(later)))
}

/// How something ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct End {
    /// Why.
    pub(super) why: Down,
    /// The peer closed it, at the same time as we perhaps: it may be about to set it up itself.
    pub(super) by_peer: bool,
}

impl End {
    /// We closed it, perhaps because the peer had decided so, or found the peer dead.
    pub(super) const fn here(why: Down) -> Self {
        Self { why, by_peer: matches!(why, Down::Peer) }
    }

    /// The peer closed it.
    pub(super) const fn by_peer(why: Down) -> Self {
        Self { why, by_peer: true }
    }

    /// When it is set up again. A peer that may do so itself gets time for it, or both would; so of the two,
    /// the one that began the IKE SA is first.
    pub(super) fn again_at(self, attempts: u8, role: Role, cx: &mut Cx<'_, '_>) -> Instant {
        match self.why {
            Down::Reauth => cx.env.now,
            _ if self.by_peer && role == Role::Responder => retry_at(attempts.saturating_add(1), cx),
            _ if self.by_peer || attempts > 0 => retry_at(attempts, cx),
            _ => cx.env.now,
        }
    }
}

impl Established {
    /// Sets up a Child SA again that ended, if its configuration wants that and no other has its place.
    pub(super) fn bring_back(&mut self, gone: &ChildSa, end: End, cx: &mut Cx<'_, '_>) {
        let lasted = cx.env.now.since(gone.since);
        self.bring_back_after(&gone.config, end, attempts_after(lasted, gone.attempts), cx);
    }

    fn bring_back_after(&mut self, child: &Arc<Child>, end: End, attempts: u8, cx: &mut Cx<'_, '_>) {
        if self.is_open() && child.comes_back_after(end.why) && !self.has(child) {
            let until = end.again_at(attempts, self.link.role(), cx);
            self.tasks.push_back(Task::Child(Box::new(Wish::again(child.clone(), until, attempts))));
        }
    }

    /// The peer has closed the Child SA that was wished for, and what it was to replace.
    pub(super) fn bring_back_wished(&mut self, wish: &Wish, cx: &mut Cx<'_, '_>) {
        self.bring_back_after(&wish.config, End::by_peer(Down::Peer), wish.attempts, cx);
    }

    /// A Child SA that was to be set up again could not be: it is asked for again after a pause, because
    /// nothing else will.
    pub(super) fn ask_again(&mut self, wish: Option<Wish>, cx: &mut Cx<'_, '_>) {
        let Some(Wish { config, attempts, .. }) = wish.filter(|wish| !self.has(&wish.config)) else { return };
        let wish = Wish::again(config, retry_at(attempts, cx), attempts);
        self.tasks.push_back(Task::Child(Box::new(wish)));
    }

    /// The rekeying of a Child SA failed: it is tried again after a pause, for as long as the Child SA lasts.
    pub(super) fn child_rekey_failed(&mut self, old: ChildId, config: &Arc<Child>, cx: &mut Cx<'_, '_>) {
        match self.child(old) {
            Some(child) if child.stage == Stage::Live => {
                child.rekey_at = Some(retry_at(child.failures, cx));
                child.failures = child.failures.saturating_add(1);
            }
            Some(_) => {}
            // The peer closed it meanwhile, and was not told then what follows, because it was being replaced.
            None => self.bring_back_after(config, End::by_peer(Down::Peer), 0, cx),
        }
    }

    /// The IKE SA is to be made anew with authentication: beside it, so that its Child SAs go when there are
    /// others (RFC 7296 section
    /// 2.8.3). It is tried again until it succeeds or the time for that is over.
    ///
    /// A peer that has virtual addresses from us asks for them when it begins the new IKE SA, and we do not
    /// ask it for any: so the old IKE SA is closed for the peer to begin.
    pub(super) fn reauthenticate(&mut self, head: &Head, cx: &mut Cx<'_, '_>) {
        if !self.parentage.leased.is_empty() {
            return self.tasks.push_back(Task::DeleteIke(Down::Reauth));
        }
        cx.effect(Effect::Reauthenticate(head.id));
        let Lifespan { rekey, hard, .. } = head.connection.lifespan;
        if self.reauth_attempts == 0
            && let Some(hard) = hard
        {
            let over = hard.saturating_sub(rekey.or(head.connection.reauth).unwrap_or_default());
            let end = cx.env.now.after(over);
            self.expires_at = Some(self.expires_at.map_or(end, |at| at.min(end)));
            // A successor without authentication would last longer.
            self.rekey_at = None;
        }
        self.reauth_at = Some(retry_at(self.reauth_attempts, cx));
        self.reauth_attempts = self.reauth_attempts.saturating_add(1);
    }

    /// The rekeying of the IKE SA failed: it is tried again in the same way.
    pub(super) fn rekey_failed(&mut self, cx: &mut Cx<'_, '_>) {
        self.rekey_at = Some(retry_at(self.rekey_failures, cx));
        self.rekey_failures = self.rekey_failures.saturating_add(1);
    }
}
