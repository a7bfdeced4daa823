//! Takeovers with many tunnels under traffic: one in the tests, and many at random moments by
//! `cargo xtask cell`.

use crate::failover::{IS_ALONE, TAKEOVER};
use crate::gateways::{child_spis, ike_spis, spis_in_use};
use crate::net::{CellNet, NODES};
use crate::testbed::Testbed;
use crate::traffic::Delivery;
use casemate_test_support::TestRng;
use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, Instant};

const SECOND: Duration = Duration::from_secs(1);
/// Number of tunnels in the tests. Without optimization, the program is several times slower.
#[cfg(not(debug_assertions))]
pub(crate) const TUNNELS: u16 = 1_000;
#[cfg(debug_assertions)]
pub(crate) const TUNNELS: u16 = 200;
/// Orderly ends of owners, and the longest time without a packet of any tunnel that each may cause.
const ENDS: usize = if IS_ALONE { 10 } else { 2 };
const PAUSE: Duration = Duration::from_millis(if IS_ALONE { 50 } else { 3_000 });
/// Datagrams of each tunnel in a second and in each direction, and of all together at most.
const RATE: u32 = 4;
const MOST: u32 = 4_000;

/// Datagrams of all tunnels in a second and in each direction.
pub(crate) fn rate(tunnels: u16) -> u32 {
    MOST.min(RATE * u32::from(tunnels))
}

/// Longest gap in a tunnel: the takeover, and the time between two of its datagrams.
pub(crate) fn longest_gap(tunnels: u16) -> Duration {
    TAKEOVER + SECOND * u32::from(tunnels) / rate(tunnels)
}

/// A number from the environment, or the default.
fn parameter(name: &str, default: u64) -> u64 {
    let Ok(text) = std::env::var(name) else { return default };
    text.parse().unwrap_or_else(|_| panic!("{name}: {text}: a number was expected"))
}

/// What happens to a gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Disruption {
    KillOwner,
    DrainOwner,
    StopOwner,
    /// SIGSTOP for this number of milliseconds, then SIGCONT.
    SuspendOwner(u64),
    RestartStandby,
}

impl Disruption {
    fn random(rng: &mut TestRng) -> Self {
        match rng.below(10) {
            0..=4 => Self::KillOwner,
            5 => Self::DrainOwner,
            6 => Self::StopOwner,
            7 | 8 => Self::SuspendOwner(500 + rng.below(8_000) as u64),
            _ => Self::RestartStandby,
        }
    }

    /// Disrupts the cell, and waits until it has three gateways and one owner again.
    fn happen(self, testbed: &mut Testbed<'_>) {
        let owner = testbed.gateways.wait_for_owner(None);
        let start = Instant::now();
        match self {
            Self::KillOwner => testbed.gateways.kill(owner),
            Self::DrainOwner => testbed.gateways.drain(owner),
            Self::StopOwner => testbed.gateways.stop(owner),
            Self::SuspendOwner(millis) => {
                testbed.gateways.signal(owner, "STOP");
                thread::sleep(Duration::from_millis(millis));
                testbed.gateways.signal(owner, "CONT");
            }
            Self::RestartStandby => {
                let standby = (owner + 1) % NODES;
                testbed.gateways.drain(standby);
                testbed.gateways.start(standby);
                testbed.gateways.wait_until_standby(standby);
            }
        }
        let next = testbed.gateways.wait_for_owner(None);
        println!("  gw{} owns the cell after {:?}", next + 1, start.elapsed());
        if next != owner {
            testbed.gateways.rejoin(owner);
        }
        testbed.gateways.wait_for_holder(next);
    }
}

/// Each IKE SA of the peer with a Child SA is also one of the owner.
pub(crate) fn check_owner_has_all(testbed: &Testbed<'_>) {
    let owner = testbed.gateways.wait_for_owner(None);
    let of_peer = spis_in_use(&testbed.net.peer.status());
    let of_owner: BTreeSet<String> = ike_spis(&testbed.net.gateways[owner].status()).into_iter().collect();
    assert!(of_peer.iter().all(|spis| of_owner.contains(spis)), "{}", testbed.logs());
}

#[test]
fn many_tunnels_outlive_their_owner() {
    let Some(net) = CellNet::build("many_tunnels_outlive_their_owner") else { return };
    let Some(mut testbed) = Testbed::cell_with_tunnels(&net, TUNNELS) else { return };
    let flows = testbed.many_flows(rate(TUNNELS));
    let ((), deliveries) = testbed.during_flows(&flows, |testbed| {
        thread::sleep(2 * SECOND);
        Disruption::KillOwner.happen(testbed);
        thread::sleep(2 * SECOND);
    });
    testbed.check(&deliveries, longest_gap(TUNNELS));
    check_owner_has_all(&testbed);
    testbed.finish();
}

/// Packets move at the former owner until the next one has restored all SAs.
#[test]
fn an_orderly_end_does_not_interrupt_many_tunnels() {
    let Some(net) = CellNet::build("an_orderly_end_does_not_interrupt_many_tunnels") else { return };
    let Some(mut testbed) = Testbed::cell_with_tunnels(&net, TUNNELS) else { return };
    let flows = testbed.many_flows(rate(TUNNELS));
    let mut pauses = Vec::new();
    for disruption in [Disruption::StopOwner, Disruption::DrainOwner].into_iter().cycle().take(ENDS) {
        let ((), deliveries) = testbed.during_flows(&flows, |testbed| {
            thread::sleep(SECOND);
            disruption.happen(testbed);
            thread::sleep(SECOND);
        });
        // A tunnel may have lost one datagram.
        testbed.check(&deliveries, 2 * (longest_gap(TUNNELS) - TAKEOVER) + PAUSE);
        pauses.extend(deliveries.iter().map(Delivery::longest_pause));
        check_owner_has_all(&testbed);
    }
    testbed.finish();
    pauses.sort_unstable();
    assert!(pauses.last().is_some_and(|pause| *pause <= PAUSE), "{pauses:?}: {PAUSE:?} at most");
}

/// The gap of a tunnel is known to the time between two of its datagrams, which is longer here.
#[test]
#[ignore = "takes minutes: cargo xtask cell"]
fn ten_thousand_tunnels_outlive_their_owner() {
    const ALL: u16 = 10_000;
    let Some(net) = CellNet::build("ten_thousand_tunnels_outlive_their_owner") else { return };
    let Some(mut testbed) = Testbed::cell_with_tunnels(&net, ALL) else { return };
    let flows = testbed.many_flows(rate(ALL));
    let ((), deliveries) = testbed.during_flows(&flows, |testbed| {
        thread::sleep(5 * SECOND);
        Disruption::KillOwner.happen(testbed);
        thread::sleep(10 * SECOND);
    });
    testbed.check(&deliveries, 2 * longest_gap(ALL));
    check_owner_has_all(&testbed);
    testbed.finish();
}

#[test]
#[ignore = "takes an hour: cargo xtask cell"]
fn many_takeovers_at_random_moments() {
    let repetitions = parameter("CASEMATE_CELL_REPETITIONS", 50);
    let tunnels = parameter("CASEMATE_CELL_TUNNELS", 1_000);
    let seed = parameter("CASEMATE_CELL_SEED", 1);
    let tunnels = u16::try_from(tunnels).unwrap();
    println!("{repetitions} disruptions with {tunnels} tunnels, seed {seed}");
    let mut rng = TestRng::new(seed);
    let Some(net) = CellNet::build("many_takeovers_at_random_moments") else { return };
    let Some(mut testbed) = Testbed::cell_with_tunnels(&net, tunnels) else { return };
    let flows = testbed.many_flows(rate(tunnels));
    let mut gaps = Vec::new();
    for repetition in 1..=repetitions {
        let disruption = Disruption::random(&mut rng);
        let wait = rng.time(Duration::ZERO, 5 * SECOND);
        println!("{repetition} of {repetitions}: {disruption:?} after {wait:?}");
        let ((), deliveries) = testbed.during_flows(&flows, |testbed| {
            thread::sleep(wait);
            disruption.happen(testbed);
            thread::sleep(2 * SECOND);
        });
        testbed.check_once(&deliveries);
        gaps.extend(deliveries.iter().map(|delivery| (delivery.longest_gap(), disruption)));
        check_owner_has_all(&testbed);
        // The next owners may choose the SPIs of deleted SAs again.
        let live: BTreeSet<u32> = child_spis(&net.peer.status()).into_iter().collect();
        testbed.wire.look(|oracle| oracle.forget_esp_except(|spi| live.contains(&spi)));
    }
    let hops = testbed.wire.look(|oracle| oracle.most_hops());
    testbed.finish();
    // A former owner may forward what peers still send to it. Packets must not circulate between gateways.
    assert!(hops <= 2, "{hops} gateways have forwarded one packet");
    // The last: a busy machine must not hide what else may fail.
    gaps.sort_unstable_by_key(|(gap, _)| *gap);
    println!("longest gaps: {gaps:?}");
    let limit = longest_gap(tunnels);
    assert!(gaps.iter().all(|(gap, _)| *gap <= limit), "the gap may be {limit:?} at most");
}
