//! Packets that a timer sends: NAT keepalives (RFC 3948 section 4) and dummy packets (RFC 4303 section 2.6).

use super::ManualSa;
use crate::process::SystemRng;
use crate::raw_socket::{AddressedPacket, RawSender};
use crate::udp;
use casemate_crypto::Rng as _;
use casemate_datapath::{Datapath, Direction, SaId};
use casemate_sa::Instant;
use casemate_wire::invariant::OrBroken;
use std::net::IpAddr;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

/// Default interval of NAT keepalives (RFC 3948 section 4), if no other packet has been sent.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(20);

/// Keepalives for the outbound SAs with UDP encapsulation and manual keys. It is not known whether there is a
/// NAT between the peers, so its mapping is kept alive in any case.
pub(super) struct Keepalives {
    sender: Arc<RawSender>,
    paths: Vec<EncapPath>,
}

struct EncapPath {
    id: SaId,
    dst: IpAddr,
    /// The keepalive.
    packet: Vec<u8>,
    last_seq: u64,
    /// When a packet was sent last; `None` before the first one.
    active_at: Option<Instant>,
}

impl Keepalives {
    pub(super) fn new(sender: Arc<RawSender>, sas: &[ManualSa]) -> Self {
        let outbound = sas.iter().filter(|sa| sa.is(Direction::Outbound));
        let paths = outbound.filter_map(|ManualSa { id, params: sa }| {
            let encap = sa.encap?;
            let (src, dst) = ((sa.src, encap.src_port).into(), (sa.dst, encap.dst_port).into());
            let packet = udp::keepalive(src, dst).or_report("an SA has addresses of one IP version")?;
            Some(EncapPath { id: *id, dst: sa.dst, packet, last_seq: sa.last_sent, active_at: None })
        });
        Self { sender, paths: paths.collect() }
    }

    /// Sends a keepalive for each SA that has sent nothing for [`KEEPALIVE_INTERVAL`]. A keepalive that could
    /// not be sent is passed to `report` and sent again after the next interval.
    pub(super) fn send_due(&mut self, datapath: &mut Datapath, now: Instant, report: &mut dyn FnMut(String)) {
        for path in &mut self.paths {
            let Some(seq) = datapath.last_seq(path.id) else { continue };
            if seq != path.last_seq {
                (path.last_seq, path.active_at) = (seq, Some(now));
            } else if path.active_at.is_none_or(|active_at| now.since(active_at) >= KEEPALIVE_INTERVAL) {
                path.active_at = Some(now);
                let packet = AddressedPacket { bytes: &path.packet, dst: path.dst };
                if let Err(error) = self.sender.send(now, &[packet]) {
                    report(format!("NAT keepalive to {}: {error}", path.dst));
                }
            }
        }
    }
}

/// Shortest dummy packet: an IPv4 header with a header of UDP or ICMP. The data path makes it longer where
/// that is too short.
const MIN_DUMMY_LEN: usize = 28;
/// A schedule that is further behind than this was suspended, not busy.
const MAX_DELAY: Duration = Duration::from_secs(1);

/// Which dummy packets are sent. They hide when real packets flow, and how many.
#[derive(Debug, Clone)]
pub struct DummyTraffic {
    /// The outbound ESP SAs that carry dummy packets.
    pub sas: Vec<SaId>,
    /// Dummy packets of each SA in a second, on average.
    pub per_second: NonZeroU16,
    /// Length of the longest dummy packet, in bytes before protection.
    pub max_len: usize,
}

/// Determines when a dummy packet is due, for which SA, and how long it is.
///
/// The times are those of a Poisson process, which has no rhythm that an observer could subtract. One process
/// for all SAs, each packet for a random SA, is the same as one process for each SA. Lengths are random, too.
pub(super) struct DummyScheduler {
    sas: Vec<SaId>,
    max_len: usize,
    process: PoissonProcess,
}

/// A dummy packet to send.
pub(super) struct DummyPacket {
    pub(super) sa: SaId,
    /// Length in bytes, before protection.
    pub(super) len: usize,
}

struct PoissonProcess {
    /// Mean time between two events.
    interval: Duration,
    due: Instant,
}

impl DummyScheduler {
    /// Returns `None` if there is no SA, so that no packet is ever due.
    pub(super) fn new(traffic: DummyTraffic) -> Option<Self> {
        let DummyTraffic { sas, per_second, max_len } = traffic;
        let rate = u32::try_from(sas.len()).unwrap_or(u32::MAX).saturating_mul(per_second.get().into());
        let interval = Duration::from_secs(1).checked_div(rate)?;
        Some(Self { sas, max_len, process: PoissonProcess { interval, due: Instant::ZERO } })
    }

    /// Time until the next dummy packet.
    pub(super) fn wait(&self, now: Instant) -> Duration {
        self.process.due.since(now)
    }

    /// The next dummy packet, if it is due.
    pub(super) fn next(&mut self, now: Instant, rng: &mut SystemRng) -> Option<DummyPacket> {
        if !self.process.is_due(now, rng) {
            return None;
        }
        let sa = self.sas.get(below(rng, self.sas.len())).copied().or_report("there is an SA")?;
        let span = self.max_len.saturating_sub(MIN_DUMMY_LEN).saturating_add(1);
        Some(DummyPacket { sa, len: MIN_DUMMY_LEN.saturating_add(below(rng, span)) })
    }
}

impl PoissonProcess {
    /// Whether an event is due; if so, the time of the next one is drawn.
    fn is_due(&mut self, now: Instant, rng: &mut SystemRng) -> bool {
        if now < self.due {
            return false;
        }
        // After a pause, missed packets are not sent: a burst would reveal the pause.
        let from = if now.since(self.due) > MAX_DELAY { now } else { self.due };
        self.due = from.after(self.interval.mul_f64(exponential(rng)));
        true
    }
}

/// A random number with an exponential distribution of mean 1, at most 23.
fn exponential(rng: &mut SystemRng) -> f64 {
    // In (0, 1], so that the logarithm is finite.
    let uniform = (f64::from(random_u32(rng)) + 1.0) / (f64::from(u32::MAX) + 1.0);
    -uniform.ln()
}

/// A random number below `bound`, or 0 if `bound` is 0. The bias is at most `bound` in 2^32.
fn below(rng: &mut SystemRng, bound: usize) -> usize {
    let scaled = u64::from(random_u32(rng)).saturating_mul(bound as u64) >> 32;
    usize::try_from(scaled).or_broken("the number is below `bound`", 0)
}

/// Uses the secret stream: an observer who could predict the numbers would know which packets are dummies.
fn random_u32(rng: &mut SystemRng) -> u32 {
    let mut bytes = [0; 4];
    rng.secret(&mut bytes);
    u32::from_ne_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::tests::encapsulated_sa;
    use crate::netns::Netns;
    use casemate_crypto::Providers;
    use casemate_datapath::Config;
    use casemate_rustcrypto::RustCrypto;
    use std::slice::from_ref;

    #[test]
    fn a_keepalive_that_cannot_be_sent_is_reported_and_sent_again_later() {
        let Some(netns) = Netns::new().map_err(casemate_test_support::skip).ok() else { return };
        let sa = encapsulated_sa(4_500, Direction::Outbound);
        let test = || {
            let mut keepalives = Keepalives::new(Arc::new(RawSender::open(1).unwrap()), from_ref(&sa));
            let mut datapath = Datapath::new(Config::server(1));
            let providers = Providers(&[&RustCrypto]);
            datapath.add_sa(&sa.params, Direction::Outbound, &providers, Instant::ZERO).unwrap();
            let mut reports_at = |secs| {
                let mut reports = Vec::new();
                keepalives.send_due(&mut datapath, Instant::from_secs(secs), &mut |what| reports.push(what));
                reports
            };
            let [report] = &reports_at(0)[..] else { panic!("one report") };
            assert!(report.starts_with("NAT keepalive to 192.0.2.2: "), "{report}");
            assert_eq!([0, 1, 19, 20].map(|secs| reports_at(secs).len()), [0, 0, 0, 1]);
        };
        netns.run(test).unwrap();
    }

    fn process(per_second: u32) -> (PoissonProcess, SystemRng) {
        let interval = Duration::from_secs(1) / per_second;
        (PoissonProcess { interval, due: Instant::ZERO }, SystemRng::new().unwrap())
    }

    #[test]
    fn the_rate_is_as_configured_and_the_gaps_are_exponential() {
        let (mut process, mut rng) = process(100);
        let mut gaps = Vec::new();
        let mut last = 0;
        for milli in 0..100_000 {
            while process.is_due(Instant::from_millis(milli), &mut rng) {
                gaps.push(milli - last);
                last = milli;
            }
        }
        // 10,000 are expected, with a standard deviation of 100; a difference of ten deviations is no
        // accident.
        assert!((9_000..11_000).contains(&gaps.len()), "{}", gaps.len());
        // Of an exponential distribution, e^-2 is above twice the mean, and 1 - e^-0.5 below half the mean.
        let share = |fits: fn(u64) -> bool| gaps.iter().filter(|gap| fits(**gap)).count() * 100 / gaps.len();
        assert!((10..18).contains(&share(|gap| gap > 20)), "{}", share(|gap| gap > 20));
        assert!((34..46).contains(&share(|gap| gap < 5)), "{}", share(|gap| gap < 5));
    }

    #[test]
    fn missed_packets_are_not_sent_after_a_pause() {
        let (mut process, mut rng) = process(100);
        let late = Instant::from_secs(3_600);
        let burst = std::iter::repeat_with(|| process.is_due(late, &mut rng)).take_while(|due| *due).count();
        assert_eq!(burst, 1);
    }

    #[test]
    fn random_numbers_cover_the_whole_range() {
        let mut rng = SystemRng::new().unwrap();
        let mut seen = [0; 5];
        for _ in 0..1_000 {
            seen[below(&mut rng, 5)] += 1;
        }
        assert!(seen.iter().all(|count| (100..300).contains(count)), "{seen:?}");
        assert_eq!((below(&mut rng, 1), below(&mut rng, 0)), (0, 0));
    }

    #[test]
    fn without_an_sa_no_packet_is_due() {
        let traffic = DummyTraffic { sas: vec![], per_second: NonZeroU16::MIN, max_len: 1_400 };
        assert!(DummyScheduler::new(traffic).is_none());
    }
}
