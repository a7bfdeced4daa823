//! What was changed in the system, kept in step with policies and addresses that come and go.
//!
//! Most changes are a few netlink messages. Those that need the program `nft` are made by a thread of its own
//! ([`Job`]), and what is noted meanwhile waits: [`Live::follow`] says when the system has all of it. If
//! `nft` fails or takes too long, the kernel has its former filter or the new one; the whole filter is
//! written anew every [`PAUSE`] until it stands, and only then do routes change.

mod leave;

use super::held::still_wanted;
use super::peers::Peers;
use super::scheme::Scheme;
use super::sentry::Sentry;
use super::{Change, Plan, is_there, loosening, set_parameter};
use crate::Error;
use crate::guard::Update;
use crate::journal::{Journal, Undo, gone};
use crate::netlink::{Netlink, Watch};
use crate::nft::Job;
use crate::route::{Numbers, Prefix, Route, Rule, Way};
use crate::sys::Bell;
use crate::tun::Tun;
use casemate::PolicyChange;
use casemate_ike::config::Connection;
use casemate_ike::{ChildId, Event};
use casemate_sa::Selector;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long is waited until a filter that could not be put up is tried again.
const PAUSE: Duration = Duration::from_secs(1);
/// How long a start puts the guard up again and again while another program changes it.
const START: Duration = Duration::from_secs(30);

/// The changes that stand. Dropping it leaves them, after it has made sure that the guard stands (module
/// `leave`); `close` takes them back.
pub struct Live {
    journal: Journal,
    netlink: Netlink,
    sentry: Sentry,
    watch: Watch,
    tun: u32,
    numbers: Numbers,
    scheme: Scheme,
    /// The routes that stand.
    routes: BTreeMap<Prefix, Way>,
    /// The rules that stand.
    rules: Vec<Rule>,
    peers: Peers,
    /// Peers for whom reverse path filters were not looked at yet.
    new_peers: BTreeSet<IpAddr>,
    /// Interfaces whose reverse path filters are in order.
    loosened: BTreeSet<u32>,
    /// Something has changed since the system was last in step.
    behind: bool,
    /// An address of ours has.
    moved: bool,
    /// What `nft` works at.
    work: Option<Work>,
    /// Rings when it is done.
    bell: Arc<Bell>,
    /// When the filter may be tried again.
    pause: Option<Instant>,
    /// The configuration by which it was last decided what is held for a former run.
    known: Vec<Arc<Connection>>,
    /// Taken back, or left after an error.
    has_ended: bool,
}

/// A script that `nft` works at.
struct Work {
    job: Job,
    /// The script makes all of the filter.
    anew: bool,
}

impl Live {
    /// What an applied plan has made.
    pub fn new(plan: Plan, tun: &Tun, journal: Journal, netlink: Netlink) -> Result<Self, Error> {
        let Plan { changes, numbers, mut scheme, .. } = plan;
        scheme.guard.settle();
        let has_guard = journal.notes_guard();
        if !has_guard {
            scheme.guard.distrust();
        }
        scheme.ways.take_touched();
        let (mut routes, mut rules) = (BTreeMap::new(), Vec::new());
        for change in changes {
            match change {
                Change::Route(route) => drop(routes.insert(route.dst, route.way)),
                Change::Rule(rule) => rules.push(rule),
                _ => {}
            }
        }
        Ok(Self {
            journal,
            netlink,
            sentry: Sentry::open(scheme.guard.table())?,
            watch: Watch::addresses()?,
            tun: tun.index(),
            numbers,
            scheme,
            routes,
            rules,
            peers: Peers::default(),
            new_peers: BTreeSet::new(),
            loosened: BTreeSet::new(),
            // The guard of a former run may still be in the place of ours.
            behind: !has_guard,
            // One may have come between the plan and now.
            moved: true,
            work: None,
            bell: Arc::new(Bell::new().map_err(|error| Error::new("eventfd", error))?),
            pause: None,
            known: Vec::new(),
            has_ended: false,
        })
    }

    /// The orderly end: takes all changes back. An error if one cannot be.
    pub(crate) fn close(mut self) -> Result<(), Error> {
        self.has_ended = true;
        if let Some(work) = &mut self.work {
            // It must not put the filter up behind us.
            work.job.wait()?;
        }
        self.journal.undo()
    }

    /// Leaves everything as a crash does.
    #[cfg(test)]
    fn crash(mut self) {
        self.has_ended = true;
        self.journal.abandoned = true;
    }

    /// An error if the filter cannot be changed any more.
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.journal.nft().check()
    }

    /// Rings when [`follow`](Self::follow) should be called again.
    pub(crate) fn bell(&self) -> &Bell {
        &self.bell
    }

    /// Whether anything is held for a former run.
    pub(crate) fn holds_any(&self) -> bool {
        self.scheme.holds_any()
    }

    /// What is held for a former run of the packets that leave; nothing if that is as it was at the last call.
    pub(crate) fn take_held(&mut self) -> Option<HashSet<Selector>> {
        self.scheme.take_held()
    }

    /// Of what a former run protected, only what these connections may protect is still held.
    pub(crate) fn hold_for(&mut self, connections: &[Arc<Connection>]) {
        let same = |(a, b): (&Arc<Connection>, &Arc<Connection>)| Arc::ptr_eq(a, b);
        let known = self.known.len() == connections.len() && self.known.iter().zip(connections).all(same);
        if self.scheme.holds_any() && (!known || self.known.is_empty()) {
            self.known = connections.to_vec();
            self.scheme.hold_only(|promise| still_wanted(promise, connections));
            self.behind = true;
        }
    }

    /// The addresses of this host.
    pub(crate) fn addresses(&self) -> &[IpAddr] {
        self.scheme.ways.addresses()
    }

    /// Readable when others have changed the system: addresses, or the guard.
    pub(crate) fn descriptors(&self) -> [BorrowedFd<'_>; 2] {
        [self.watch.as_fd(), self.sentry.as_fd()]
    }

    /// Others have changed it; `true` if addresses. The guard is looked at when the system [follows](Self::follow).
    pub(crate) fn note_others(&mut self) -> bool {
        let moved = self.watch.has_news();
        (self.behind, self.moved) = (self.behind || moved, self.moved || moved);
        moved
    }

    /// Who watches over the guard.
    pub(crate) const fn sentry(&mut self) -> &mut Sentry {
        &mut self.sentry
    }

    /// How long it is until the filter may be tried again, if it waits for that.
    pub(crate) fn wait(&self) -> Option<Duration> {
        self.pause.map(|pause| pause.saturating_duration_since(Instant::now()))
    }

    /// A policy came or went.
    pub(crate) fn note_policy(&mut self, change: &PolicyChange) {
        self.behind = true;
        match change {
            PolicyChange::Added { direction, id, policy } => self.scheme.add(*direction, *id, policy),
            PolicyChange::Removed { direction, id } => self.scheme.remove(*direction, *id),
        }
    }

    /// Something that IKE tells: peers come, go and move, and virtual addresses too.
    pub(crate) fn note_event(&mut self, event: &Event) -> Result<(), Error> {
        match event {
            Event::ChildUp(up) => self.note_peer(up.id, up.outbound.dst),
            Event::ChildDown { id, .. } => self.peers.remove(*id),
            Event::Moved { children, path, .. } => {
                children.iter().for_each(|child| self.note_peer(*child, path.remote.ip()));
            }
            Event::Assigned { fresh, .. } => return self.change_addresses(fresh, Netlink::add_address),
            Event::Unassigned { addrs, .. } => return self.change_addresses(addrs, Netlink::remove_address),
            _ => {}
        }
        Ok(())
    }

    fn note_peer(&mut self, child: ChildId, peer: IpAddr) {
        if self.peers.add(child, peer) {
            self.behind = true;
            self.new_peers.insert(peer);
        }
    }

    /// Gives the TUN interface virtual addresses, or takes them away.
    fn change_addresses(
        &mut self,
        addrs: &[IpAddr],
        change: fn(&mut Netlink, u32, IpAddr, u8) -> Result<(), Error>,
    ) -> Result<(), Error> {
        // Routes may prefer other addresses now.
        (self.behind, self.moved) = (true, true);
        let len = |addr: &IpAddr| if addr.is_ipv4() { 32 } else { 128 };
        addrs
            .iter()
            .map(|addr| change(&mut self.netlink, self.tun, *addr, len(addr)))
            .fold(Ok(()), Result::and)
    }

    /// Makes the system as it should be, and waits for that. What failed is tried again with the next change.
    /// An error also if another program changes the guard all the time.
    pub(crate) fn settle(&mut self) -> Result<(), Error> {
        self.settle_within(START)
    }

    fn settle_within(&mut self, limit: Duration) -> Result<(), Error> {
        let start = Instant::now();
        let mut outcome = Ok(());
        self.pause = None;
        while !self.follow(&mut |error| outcome = Err(error)) {
            if !self.sentry.state().stands && start.elapsed() >= limit {
                return Err(self.is_changed_again_and_again());
            }
            match &mut self.work {
                Some(work) => work.job.wait()?,
                None if outcome.is_err() => return outcome,
                None => std::thread::sleep(self.wait().unwrap_or_default()),
            }
        }
        outcome
    }

    fn is_changed_again_and_again(&self) -> Error {
        let what = format!("nftables table {}, the guard against cleartext", self.scheme.guard.table());
        Error::other(what, "another program changes or removes it again and again")
    }

    /// Makes the system as it should be; `true` when it is, as far as it goes: routes and the like that could
    /// not be made are told to `trouble` and tried again with the next change. `false` if the filter is not
    /// there yet: call again when the [`bell`](Self::bell) rings, or in a second.
    pub(crate) fn follow(&mut self, trouble: &mut dyn FnMut(Error)) -> bool {
        self.behind |= self.sentry.has_news();
        while self.work.is_some() || self.behind {
            if let Err(error) = self.settle_addresses() {
                trouble(error);
            }
            match self.settle_guard() {
                Ok(true) => self.behind = false,
                Ok(false) => {
                    self.work.as_mut().and_then(|work| work.job.take_late()).into_iter().for_each(trouble);
                    return false;
                }
                Err(error) => {
                    trouble(error);
                    self.pause = Instant::now().checked_add(PAUSE);
                    return false;
                }
            }
            let changed = self.changed_ways();
            let loose = self.loosen(&changed);
            let led = self.settle_routes(changed);
            if let Err(error) = loose.and(led).and(self.settle_rules()) {
                trouble(error);
            }
        }
        true
    }

    fn settle_addresses(&mut self) -> Result<(), Error> {
        if std::mem::take(&mut self.moved) {
            let addresses = self.netlink.addresses().inspect_err(|_| self.moved = true)?;
            self.scheme.ways.set_addresses(addresses);
        }
        Ok(())
    }

    /// Whether the kernel's filter is as it should be; if not, `nft` is at work, or it is not the time to try
    /// again.
    fn settle_guard(&mut self) -> Result<bool, Error> {
        loop {
            if let Some(mut work) = self.work.take() {
                let Some(result) = work.job.result() else {
                    self.work = Some(work);
                    return Ok(false);
                };
                self.heed_others(result.is_ok().then_some(work.anew));
                if let Err(error) = result {
                    self.scheme.guard.distrust();
                    if work.anew {
                        return Err(error);
                    }
                    // Somebody else has changed or removed our table: it is made anew.
                } else {
                    self.journal.note_guard()?;
                }
            } else {
                self.heed_others(None);
            }
            if self.pause.is_some_and(|pause| Instant::now() < pause) {
                return Ok(false);
            }
            self.pause = None;
            let anew = self.scheme.guard.is_other();
            self.scheme.write_promises(&mut self.journal)?;
            match self.scheme.guard_update() {
                Update::Elements(changes) => match self.sentry.change(&changes) {
                    Ok(()) => return Ok(true),
                    Err(_) => self.scheme.guard.distrust(),
                },
                Update::Script(script) => {
                    let bell = self.bell.clone();
                    let job = Job::start(self.journal.nft(), script, move || bell.ring());
                    self.work = Some(Work { job, anew });
                }
            }
        }
    }

    /// Has the guard made anew if another program has changed it. `script` of ours has just succeeded.
    fn heed_others(&mut self, script: Option<bool>) {
        if self.sentry.is_disturbed(script) {
            self.scheme.guard.distrust();
            self.pause = self.pause.max(self.sentry.rests_until());
        }
    }

    /// The destinations whose routes are not as they should be, with their ways.
    fn changed_ways(&mut self) -> Vec<(Prefix, Option<Way>)> {
        let touched = self.scheme.ways.take_touched().into_iter();
        let ways = touched.map(|dst| (dst, self.scheme.ways.way(dst)));
        ways.filter(|(dst, way)| self.routes.get(dst) != way.as_ref()).collect()
    }

    /// Looks at reverse path filters where a peer is new, or is a protected destination since now.
    fn loosen(&mut self, changed: &[(Prefix, Option<Way>)]) -> Result<(), Error> {
        let mut peers = std::mem::take(&mut self.new_peers);
        peers.retain(|peer| peer.is_ipv4() && self.scheme.ways.leads_in_to(*peer));
        let led_in = changed.iter().filter(|(dst, way)| dst.is_ipv4() && matches!(way, Some(Way::Into(..))));
        let ranges = led_in.map(|(dst, _)| dst.range());
        peers.extend(ranges.flat_map(|range| self.peers.within(range.first()..=range.last())));
        let mut outcome = Ok(());
        for peer in peers {
            let done = self.loosen_to(peer);
            if done.is_err() {
                self.new_peers.insert(peer);
            }
            outcome = outcome.and(done);
        }
        outcome
    }

    fn loosen_to(&mut self, peer: IpAddr) -> Result<(), Error> {
        let index = self.netlink.interface_to(peer, self.numbers.mark)?;
        let Some(index) = index.filter(|index| !self.loosened.contains(index)) else { return Ok(()) };
        let name = self.netlink.link_at(index)?.name;
        if let Some(Change::Sysctl { name, value }) = loosening(&name, &name) {
            set_parameter(&name, value, &mut self.journal)?;
        }
        self.loosened.insert(index);
        Ok(())
    }

    /// What is new comes before what is gone goes. One that fails does not stand in the way of others.
    fn settle_routes(&mut self, changed: Vec<(Prefix, Option<Way>)>) -> Result<(), Error> {
        let (come, go): (Vec<_>, Vec<_>) = changed.into_iter().partition(|(_, way)| way.is_some());
        let mut outcome = Ok(());
        for (dst, way) in come.into_iter().chain(go) {
            let done = self.settle_route(dst, way);
            if done.is_err() {
                self.scheme.ways.touch(dst);
            }
            outcome = outcome.and(done);
        }
        outcome
    }

    fn settle_route(&mut self, dst: Prefix, way: Option<Way>) -> Result<(), Error> {
        let table = self.numbers.table;
        if let Some(way) = way {
            let route = Route { dst, table, way };
            route
                .set(self.tun, &mut self.netlink)
                .map_err(|error| Error::new(format!("`{route}`"), error))?;
            self.routes.insert(dst, route.way);
        } else if let Some(way) = self.routes.get(&dst).cloned() {
            let route = Route { dst, table, way };
            let failed = |error| Error::new(format!("removal of `{route}`"), error);
            route.remove(self.tun, &mut self.netlink).or_else(gone).map_err(failed)?;
            self.routes.remove(&dst);
        }
        Ok(())
    }

    /// A rule stays, once it is needed.
    fn settle_rules(&mut self) -> Result<(), Error> {
        for v4 in [true, false] {
            let rule = Rule { v4, numbers: self.numbers };
            if self.scheme.ways.leads_in(v4) && !self.rules.contains(&rule) {
                self.journal.note(Undo::Rule(rule))?;
                let failed = |error| Error::new(format!("`{rule}`"), error);
                rule.add(&mut self.netlink).or_else(is_there).map_err(failed)?;
                self.rules.push(rule);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
