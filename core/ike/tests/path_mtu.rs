//! Path MTU probes between two hosts, over paths that lose long packets, or any packets.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

mod pair;

use casemate_ike::config::{Connection, Fragmentation};
use casemate_ike::{DownReason, Event, IkeSettings, Transmit};
use casemate_sa::Instant;
use casemate_wire::ike::{ExchangeType, Header};
use pair::{IkePeer, Pair, connection, deliver};
use std::time::Duration;

const LINK: usize = 1_500;
/// Time that a search takes at most.
const SEARCH: Duration = Duration::from_secs(30);
/// Time between two searches.
const PAUSE: Duration = Duration::from_secs(601);
const STEP: Duration = Duration::from_millis(250);

/// Two hosts that probe, and the path between them.
struct ProbedPair {
    pair: Pair,
    /// MTU of the path from left to right.
    path: usize,
    /// Sizes of the probes that the left host has sent.
    probes: Vec<usize>,
}

fn probing(own: &str, peer: &str) -> Connection {
    Connection { path_mtu_probes: true, ..connection(own, peer) }
}

impl ProbedPair {
    fn new(path: usize) -> Self {
        Self::between(probing("left", "right"), connection("right", "left"), path)
    }

    /// Hosts with these connections, before they exchange messages.
    fn between(left: Connection, right: Connection, path: usize) -> Self {
        let mut pair = Pair::new(left, right);
        for side in [&mut pair.left, &mut pair.right] {
            side.ike.probe_path_mtu();
            side.routes.link_mtu = Some(LINK);
        }
        let now = pair.now;
        pair.left.initiate(now);
        Self { pair, path, probes: vec![] }
    }

    /// Delivers messages, apart from those that are too long or that `is_lost` selects by its number.
    fn exchange(&mut self, is_lost: &mut dyn FnMut(&Transmit) -> bool) {
        for _ in 0..50 {
            let from_left: Vec<_> = self.pair.left.sent.drain(..).collect();
            let from_right: Vec<_> = self.pair.right.sent.drain(..).collect();
            if from_left.is_empty() && from_right.is_empty() {
                return;
            }
            for sent in from_left {
                self.probes.extend(sent.probe_len.map(usize::from));
                let fits = sent.probe_len.is_none_or(|len| usize::from(len) <= self.path);
                if fits && !is_lost(&sent) {
                    deliver(&mut self.pair.right, sent, self.pair.now);
                }
            }
            for sent in from_right {
                if !is_lost(&sent) {
                    deliver(&mut self.pair.left, sent, self.pair.now);
                }
            }
        }
        panic!("the hosts keep sending");
    }

    /// The left host sends one packet at the beginning.
    fn advance_losing(&mut self, time: Duration, is_lost: &mut dyn FnMut(&Transmit) -> bool) {
        self.pair.left.host.last_outbound = Some(self.pair.now);
        let end = self.pair.now.after(time);
        self.exchange(is_lost);
        while self.pair.now < end {
            self.pair.now = self.pair.now.after(STEP);
            let now = self.pair.now;
            self.pair.left.handle_timeouts(now);
            self.pair.right.handle_timeouts(now);
            self.exchange(is_lost);
        }
    }

    fn advance(&mut self, time: Duration) {
        self.advance_losing(time, &mut |_| false);
    }

    /// The path MTUs that the left host has reported.
    fn reported(&self) -> Vec<Option<u16>> {
        reported(&self.pair.left)
    }

    fn is_up(&self) -> bool {
        let reasons = self.pair.left.down_reasons();
        reasons.iter().all(|reason| *reason == DownReason::Replaced)
            && self.pair.left.ike.status().count() == 1
    }
}

fn reported(side: &IkePeer) -> Vec<Option<u16>> {
    let of = |event: &Event| match event {
        Event::PathMtu { mtu, .. } => Some(*mtu),
        _ => None,
    };
    side.events.iter().filter_map(of).collect()
}

#[test]
fn a_path_as_wide_as_the_link_takes_one_message_in_ten_minutes() {
    let mut link = ProbedPair::new(LINK);
    link.advance(SEARCH);
    assert_eq!((&link.probes[..], link.reported()), (&[LINK][..], vec![]));
    (0..3).for_each(|_| link.advance(PAUSE));
    assert_eq!(link.probes, [LINK; 4]);
    // Without packets, no path MTU is needed.
    link.advance(PAUSE * 5);
    assert_eq!(link.probes, [LINK; 5]);
    assert!(link.is_up());
}

#[test]
fn a_narrower_path_is_found_within_seconds() {
    for (path, found) in [(1_499, 1_492), (1_400, 1_400), (1_281, 1_280), (1_250, 1_200), (600, 576)] {
        let mut link = ProbedPair::new(path);
        link.advance(Duration::from_secs(4));
        let first = link.reported().first().copied();
        assert_eq!(first, (path >= 1_280).then_some(Some(1_280)), "{path}: a safe value after 3 s");
        link.advance(SEARCH);
        assert_eq!(link.reported().last(), Some(&Some(found)), "{path}: {:?}", link.probes);
        assert!(link.is_up() && link.probes.len() <= 24, "{path}: {:?}", link.probes);
    }
}

#[test]
fn a_path_that_becomes_wider_or_narrower_is_noticed() {
    let mut link = ProbedPair::new(1_400);
    link.advance(SEARCH);
    link.path = LINK;
    link.advance(PAUSE);
    assert_eq!(link.reported().last(), Some(&None));
    link.path = 1_320;
    link.advance(PAUSE + SEARCH);
    assert_eq!(link.reported().last(), Some(&Some(1_320)));
    assert!(link.is_up());
}

/// Another process continues the IKE SA of the left host.
#[cfg(feature = "records")]
#[test]
fn the_next_owner_knows_the_path_and_searches_later() {
    let mut link = ProbedPair::new(1_400);
    link.pair.left.ike.keep_records(true);
    link.advance(SEARCH);
    assert_eq!(link.reported().last(), Some(&Some(1_400)));
    let (now, old) = (link.pair.now, &link.pair.left);
    let record = old.ike.record(old.ike.status().next().unwrap().id, now).unwrap();
    let mut new = IkePeer::new(&old.addr.to_string(), 7, (*old.ike.connections()[0]).clone());
    new.ike.probe_path_mtu();
    new.routes.link_mtu = Some(LINK);
    new.host.last = 1_000;
    new.with_context(now, |ike, host, context| {
        let mut restoration = casemate_ike::Restoration::new(ike.connections());
        let restored = ike.restore(record, 1, &mut restoration, host, context).unwrap();
        ike.begin_restored(restored, &std::collections::BTreeMap::new(), host, context);
    });
    link.pair.left = new;
    let child = link.pair.left.ike.status().next().unwrap().children[0].id;
    assert_eq!(link.pair.left.ike.probed_path_mtu(child), Some(1_400));
    link.probes.clear();
    link.advance(Duration::from_secs(59));
    assert_eq!(link.probes, [0; 0]);
    link.path = LINK;
    link.advance(PAUSE);
    assert_eq!(link.reported(), [None]);
    assert!(link.is_up());
}

/// The first messages that carry probes or their responses are lost in every combination.
#[test]
fn no_pattern_of_losses_ends_the_ike_sa_or_changes_the_result() {
    for path in [LINK, 1_400] {
        for pattern in 0..64_u32 {
            let mut link = ProbedPair::new(path);
            let mut count = 0;
            let mut is_lost = |sent: &Transmit| {
                let header = Header::parse(&sent.message).unwrap();
                let is_probing = header.exchange == ExchangeType::INFORMATIONAL;
                count += u32::from(is_probing);
                is_probing && count <= 6 && pattern >> (count - 1) & 1 == 1
            };
            link.advance_losing(SEARCH * 4, &mut is_lost);
            assert!(link.is_up(), "{path}, {pattern:08b}");
            // A later search corrects a wrong result.
            link.advance(PAUSE + SEARCH);
            let expected = if path == LINK { None } else { Some(1_400) };
            assert_eq!(link.reported().last().copied().flatten(), expected, "{path}, {pattern:08b}");
        }
    }
}

#[test]
fn an_outage_is_not_taken_for_a_narrow_path() {
    let mut link = ProbedPair::new(LINK);
    link.advance(SEARCH);
    link.advance(PAUSE - SEARCH - Duration::from_secs(5));
    // It begins with the first probe, which follows a request that the peer has answered.
    let mut is_cut = false;
    link.advance_losing(Duration::from_secs(20), &mut |sent| {
        is_cut |= sent.probe_len.is_some();
        is_cut
    });
    link.advance(SEARCH * 2);
    assert_eq!(link.reported(), [], "{:?}", link.probes);
    assert!(is_cut && link.is_up() && link.probes.len() >= 5, "{:?}", link.probes);
}

#[test]
fn a_dead_peer_is_detected_as_without_probes() {
    let mut link = ProbedPair::new(LINK);
    link.advance(SEARCH);
    link.advance_losing(PAUSE - SEARCH + IkeSettings::SERVER.retransmission.total(), &mut |_| true);
    link.advance_losing(Duration::from_secs(2), &mut |_| true);
    assert_eq!(link.pair.left.down_reasons().first(), Some(&DownReason::DeadPeer));
    assert_eq!(link.probes, [LINK]);
}

#[test]
fn other_requests_do_not_wait_for_a_lost_probe() {
    let mut link = ProbedPair::new(1_400);
    link.advance(Duration::from_millis(500));
    assert_eq!((link.probes.len(), link.reported()), (1, vec![]));
    let ike = link.pair.left.ike.status().next().unwrap().id;
    let now = link.pair.now;
    assert!(link.pair.left.with_context(now, |engine, host, context| engine.rekey(ike, host, context)));
    link.exchange(&mut |_| false);
    let rekeyed = |event: &Event| matches!(event, Event::IkeRekeyed { .. });
    assert!(link.pair.left.events.iter().any(rekeyed), "the rekeying took no time");
    // The successor continues the search.
    link.advance(SEARCH);
    assert_eq!(link.reported().last(), Some(&Some(1_400)));
    assert!(link.is_up());
}

#[test]
fn the_result_survives_the_rekeying_of_the_ike_sa() {
    let mut link = ProbedPair::new(1_400);
    link.advance(SEARCH);
    let (probes, now) = (link.probes.len(), link.pair.now);
    let right = link.pair.right.ike.status().next().unwrap().id;
    assert!(link.pair.right.with_context(now, |engine, host, context| engine.rekey(right, host, context)));
    link.advance(SEARCH);
    assert_eq!(link.probes.len(), probes, "the path is known");
    link.path = LINK;
    link.advance(PAUSE);
    assert_eq!(link.reported().last(), Some(&None));
}

#[test]
fn both_hosts_may_probe() {
    let mut link = ProbedPair::between(probing("left", "right"), probing("right", "left"), 1_400);
    link.advance(SEARCH);
    assert_eq!(link.reported().last(), Some(&Some(1_400)));
    assert_eq!(reported(&link.pair.right), [], "only one direction is narrow");
    assert!(link.is_up());
}

#[test]
fn peers_without_fragmentation_are_probed_as_well() {
    let right = Connection { fragmentation: Fragmentation::No, ..connection("right", "left") };
    let mut link = ProbedPair::between(probing("left", "right"), right, 1_400);
    link.advance(SEARCH);
    assert_eq!(link.reported().last(), Some(&Some(1_400)));
}

#[test]
fn a_connection_without_probes_sends_none() {
    let mut link = ProbedPair::between(connection("left", "right"), connection("right", "left"), 1_400);
    link.advance(SEARCH);
    assert_eq!((&link.probes[..], link.reported()), (&[][..], vec![]));
}

#[test]
fn a_path_that_drops_all_probes_gets_no_limit() {
    let mut link = ProbedPair::new(0);
    link.advance(PAUSE);
    assert_eq!(link.reported(), []);
    assert!(link.is_up());
}

#[test]
fn a_host_that_knows_no_link_mtu_does_not_probe() {
    let mut link = ProbedPair::new(LINK);
    link.pair.left.routes.link_mtu = None;
    link.advance(PAUSE * 2);
    assert_eq!(link.probes, [0; 0]);
    assert!(link.pair.now > Instant::from_secs(1_000));
}
