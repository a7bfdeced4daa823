//! Routes, packet filter and virtual addresses, kept in step with the endpoint.

use super::{Attendant, Home};
use crate::setup::Live;
use casemate::{Endpoint, Notice};
use casemate_ike::Event;
use casemate_sa::Instant;
use std::net::IpAddr;
use std::time::Duration;

/// By how much longer the system is left alone than it took to follow the policies.
const REST: u32 = 9;
/// How far behind the policies the system may be.
const LONGEST_LAG: Duration = Duration::from_millis(500);

/// The system around an engine.
pub(super) struct System {
    live: Live,
    /// The state of the policies that it follows.
    followed: u64,
    /// When it follows them next, at the earliest.
    from: Instant,
    /// Peers of Child SAs, for reverse path filters.
    peers: Vec<IpAddr>,
    /// Notices of what it may not follow yet.
    untold: Vec<Notice>,
}

impl System {
    pub(super) fn new(live: Live) -> Self {
        Self { live, followed: 0, from: Instant::ZERO, peers: Vec::new(), untold: Vec::new() }
    }

    /// How long until it can follow what has changed; `None` if nothing has.
    pub(super) fn wait(&self, endpoint: &Endpoint, now: Instant) -> Option<Duration> {
        (endpoint.policy_changes() != self.followed).then(|| self.from.since(now))
    }

    /// Does what notices ask for, and leads traffic where the policies say. The attendant hears of the notices when the system
    /// is in step: whoever is told that something stands may use it at once.
    ///
    /// Routes and packet filter are made anew as a whole. When Child SAs come by the hundred a second, most of the time is for
    /// them: then the system follows in steps. What has a trap is guarded all the while by the trap's own policies.
    pub(super) fn follow(&mut self, notices: Vec<Notice>, home: &Home, attendant: &mut dyn Attendant) {
        notices.iter().for_each(|notice| self.heed(notice, attendant));
        self.untold.extend(notices);
        let (endpoint, start) = (home.endpoint(), home.now());
        match self.wait(endpoint, start) {
            None => {}
            Some(Duration::ZERO) => {
                self.followed = endpoint.policy_changes();
                if let Err(error) = self.live.follow(endpoint.datapath(), &self.peers) {
                    attendant.trouble(format!("the system does not follow the policies: {error}"));
                }
                let end = home.now();
                self.from = end.after(end.since(start).saturating_mul(REST).min(LONGEST_LAG));
            }
            Some(_) => return,
        }
        for notice in std::mem::take(&mut self.untold) {
            attendant.notice(endpoint, &notice);
        }
    }

    /// Notes where peers are, and gives and takes virtual addresses.
    fn heed(&mut self, notice: &Notice, attendant: &mut dyn Attendant) {
        let Notice::Ike(event) = notice else { return };
        match event {
            Event::ChildUp(up) if !self.peers.contains(&up.outbound.dst) => {
                self.peers.push(up.outbound.dst);
            }
            Event::Assigned { what, .. } => {
                for addr in &what.addrs {
                    if let Err(error) = self.live.add_address(*addr) {
                        attendant.trouble(error.to_string());
                    }
                }
                // Its routes may prefer the new address as their source.
                self.followed = self.followed.wrapping_sub(1);
            }
            Event::Unassigned { addrs, .. } => {
                for addr in addrs {
                    if let Err(error) = self.live.remove_address(*addr) {
                        attendant.trouble(error.to_string());
                    }
                }
            }
            _ => {}
        }
    }
}
