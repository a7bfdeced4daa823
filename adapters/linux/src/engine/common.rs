//! What the engine's threads share.

use super::awake;
use super::batch::Batch;
use super::crew::Crew;
use super::door::Door;
use super::entry::Entry;
use super::exit::Exit;
use super::home::Home;
use super::intake::Intake;
use super::set_ident_if_zero;
use crate::ike::Letter;
use crate::sys::Bell;
use crate::tun::TunWriter;
use casemate::path::Lender;
use casemate_crypto::Rng;
use casemate_datapath::{Datapath, DropReason};
use casemate_sa::Instant;
use casemate_wire::packet::Packet;
use std::collections::HashSet;
use std::iter::repeat_with;
use std::mem;
use std::net::IpAddr;
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};

/// Batches that can be left at a door, for each helper.
const SPARES: usize = 2;

/// What the engine's threads share. Who has the [`intake`](Common::intake), or is at a door, may ask for [`home`](Common::home). Who has home
/// asks for neither of them, and who is at a door does not ask for the intake.
pub(super) struct Common {
    intake: Mutex<Intake>,
    home: Mutex<Home>,
    pub(super) exit: Door<Exit, Box<Batch>>,
    pub(super) entry: Door<Entry, Box<Batch>>,
    pub(super) tun: TunWriter,
    /// Where the inbound SAs end.
    ours: RwLock<HashSet<IpAddr>>,
    pub(super) idents: Idents,
    pub(super) notes: Notes,
    pub(super) crew: Crew,
}

impl Common {
    pub(super) fn new(
        (intake, home): (Intake, Home),
        (exit, entry): (Exit, Entry),
        tun: TunWriter,
        ours: HashSet<IpAddr>,
        (idents, bell): (Idents, Bell),
        helpers: usize,
    ) -> Self {
        let spares = || repeat_with(Batch::new).take(helpers.saturating_mul(SPARES)).collect();
        Self {
            intake: Mutex::new(intake),
            home: Mutex::new(home),
            exit: Door::new(exit, spares()),
            entry: Door::new(entry, spares()),
            tun,
            ours: RwLock::new(ours),
            idents,
            notes: Notes::new(bell),
            crew: Crew::new(),
        }
    }

    /// Does a helper's work. A panic ends the run as an error: the batch in hand is lost, and one thread less is left.
    pub(super) fn watch_over(&self, work: impl FnOnce()) {
        if panic::catch_unwind(AssertUnwindSafe(work)).is_err() {
            self.notes.lost_a_thread.store(true, Ordering::Relaxed);
            self.notes.bell.ring();
        }
    }

    /// Where packets are read.
    pub(super) fn intake(&self) -> MutexGuard<'_, Intake> {
        awake::until(|| self.intake.try_lock().ok())
            .unwrap_or_else(|| self.intake.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The data path and IKE.
    pub(super) fn home(&self) -> MutexGuard<'_, Home> {
        self.home.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether nobody has the endpoint locked.
    #[cfg(test)]
    pub(super) fn is_home_free(&self) -> bool {
        self.home.try_lock().is_ok()
    }

    /// The same while nobody else is about.
    pub(super) fn home_mut(&mut self) -> &mut Home {
        self.home.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where the inbound SAs end.
    pub(super) fn ours(&self) -> RwLockReadGuard<'_, HashSet<IpAddr>> {
        self.ours.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Protected packets may arrive at this address, too.
    pub(super) fn listen(&self, addr: IpAddr) {
        self.ours.write().unwrap_or_else(PoisonError::into_inner).insert(addr);
    }

    /// Counts a drop.
    #[cold]
    pub(super) fn note_drop(&self, now: Instant, reason: DropReason, packet: &[u8]) {
        self.home().endpoint.datapath_mut().note_drop(now, reason, packet);
    }
}

/// The data path for the packet path, behind its lock.
pub(super) struct Locked<'c>(pub(super) &'c Common);

impl Lender for Locked<'_> {
    fn lend<T>(&mut self, act: impl FnOnce(&mut Datapath, &mut dyn Rng) -> T) -> T {
        let mut home = self.0.home();
        let Home { endpoint, rng, .. } = &mut *home;
        act(endpoint.datapath_mut(), rng)
    }
}

/// What comes up on the way and is for the engine's own thread.
pub(super) struct Notes {
    sealed: AtomicU64,
    unreserved: AtomicBool,
    trouble: Mutex<Option<String>>,
    lost_a_thread: AtomicBool,
    /// IKE messages that came among other packets.
    letters: Mutex<Vec<Letter>>,
    /// Rings when there is something that cannot wait until packets wake the engine.
    pub(super) bell: Bell,
}

impl Notes {
    fn new(bell: Bell) -> Self {
        Self {
            sealed: AtomicU64::new(0),
            unreserved: AtomicBool::new(false),
            trouble: Mutex::default(),
            lost_a_thread: AtomicBool::new(false),
            letters: Mutex::default(),
            bell,
        }
    }

    /// Whether a helper has panicked.
    pub(super) fn has_lost_a_thread(&self) -> bool {
        self.lost_a_thread.load(Ordering::Relaxed)
    }

    /// Packets were sealed.
    pub(super) fn sealed(&self, count: u64) {
        self.sealed.fetch_add(count, Ordering::Relaxed);
    }

    /// One found no number.
    pub(super) fn unreserved(&self) {
        self.unreserved.store(true, Ordering::Relaxed);
    }

    /// How many packets were sealed since they were taken last, and whether one found no number.
    pub(super) fn tally(&self) -> (u64, bool) {
        (self.sealed.load(Ordering::Relaxed), self.unreserved.load(Ordering::Relaxed))
    }

    /// The same, and they count from 0 again.
    pub(super) fn take_tally(&self) -> (u64, bool) {
        (self.sealed.swap(0, Ordering::Relaxed), self.unreserved.swap(false, Ordering::Relaxed))
    }

    /// Something went wrong with the system.
    pub(super) fn trouble(&self, what: String) {
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = Some(what);
    }

    /// The last thing that went wrong since the last call.
    pub(super) fn take_trouble(&self) -> Option<String> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// IKE messages came.
    pub(super) fn letters(&self, letters: impl Iterator<Item = Letter>) {
        let mut inbox = self.letters.lock().unwrap_or_else(PoisonError::into_inner);
        let before = inbox.len();
        inbox.extend(letters);
        if inbox.len() > before {
            self.bell.ring();
        }
    }

    /// The IKE messages that came since the last call.
    pub(super) fn take_letters(&self) -> Vec<Letter> {
        mem::take(&mut *self.letters.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Identifications of IPv4 packets.
pub(super) struct Idents {
    last: AtomicU32,
    come_first: AtomicBool,
}

impl Idents {
    /// Those after `last`. If they `come_first`, packets have theirs before they are protected.
    pub(super) fn new(last: u32, come_first: bool) -> Self {
        Self { last: AtomicU32::new(last), come_first: AtomicBool::new(come_first) }
    }

    /// From now on some packets are signed by AH over IPv4, which covers the identification.
    pub(super) fn come_first(&self) {
        self.come_first.store(true, Ordering::Relaxed);
    }

    /// Makes packets from the TUN interface ready to be protected. The kernel gives an IPv4 packet that is sent without
    /// identification one of its own, after AH has signed it; so it gets one before (RFC 6864 section 4.1 lets the source
    /// choose).
    #[inline]
    pub(super) fn prepare(&self, packets: &mut [Packet<'_>]) {
        if self.come_first.load(Ordering::Relaxed) {
            packets.iter_mut().for_each(|packet| set_ident_if_zero(packet, self.next_v4()));
        }
    }

    /// For a packet that is cut.
    pub(super) fn next(&self) -> u32 {
        self.last.fetch_add(1, Ordering::Relaxed).wrapping_add(1)
    }

    /// Never 0.
    #[inline]
    pub(super) fn next_v4(&self) -> u16 {
        (self.next() as u16).max(1)
    }
}
