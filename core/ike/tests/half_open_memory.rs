//! Memory of half-open IKE SAs under floods of hosts that return their cookies and have the keys of
//! IKE_SA_INIT, but are not authenticated: first requests, keys of ML-KEM and fragments are counted, and the
//! limit holds on the heap.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

#[path = "hostile/forge.rs"]
mod forge;
mod pair;

use casemate_crypto::KexMethod;
use casemate_ike::config::{AdditionalKex, AddrPattern, Connection, KexRound};
use casemate_ike::{IkeSettings, Path, StateFault};
use casemate_test_support::allocator::{TestAllocator, bytes_in_use};
use casemate_wire::ike::{ExchangeType, Header, IkeSpi, NotifyType, PayloadType};
use forge::{MessageForger, Raw, RawFragment, chain, first_request, give_on, notifies, plain, read_plain};
use pair::{IkePeer, Pair, connection};
use std::time::Duration;

#[global_allocator]
static ALLOCATOR: TestAllocator = TestAllocator::new();

/// Bytes of a half-open IKE SA, its indexes and its allocator overhead besides the messages that are counted.
const FIXED: usize = 3_000;
/// Bytes of tables and of what the test records.
const ONCE: usize = 8_000;
/// Length of the fragments.
const PIECE: usize = 1_000;

fn with_kem(own: &str, peer: &str) -> Connection {
    let mut connection = connection(own, peer);
    if own == "right" {
        connection.remote_addrs = vec![AddrPattern::Any];
    }
    let kex = AdditionalKex { methods: vec![KexMethod::MlKem1024], optional: true };
    for proposal in &mut connection.proposals {
        (proposal.kex, proposal.additional) =
            (vec![KexMethod::X25519], [(KexRound::ALL[0], kex.clone())].into());
    }
    connection
}

/// A responder, and the first request of an initiator.
struct Flood {
    pair: Pair,
    header: Header,
    payloads: Vec<Raw>,
    last: u64,
}

impl Flood {
    fn new(settings: IkeSettings) -> Self {
        let mut pair = Pair::new(with_kem("left", "right"), with_kem("right", "left"));
        pair.left.ike.report_keys(true);
        pair.right = IkePeer::with(settings, pair::RIGHT, 2, with_kem("right", "left"));
        pair.right.ike.report_keys(true);
        // Measured is the engine, and not the record of the test.
        pair.right.events.reserve(100_000);
        let (header, payloads) = read_plain(&first_request(&mut pair));
        Self { pair, header, payloads, last: 0 }
    }

    fn path(&self, remote: &str) -> Path {
        Path { local: (self.pair.right.addr, 500).into(), remote: remote.parse().unwrap() }
    }

    /// Begins an IKE SA from `remote` with a request that is longer by `filling` bytes. Returns a forger who
    /// has its keys, unless the request was dropped, and whether a cookie was required.
    fn begin(&mut self, remote: &str, filling: usize) -> (Option<MessageForger>, bool) {
        self.last += 1;
        let header = Header { spi_i: IkeSpi(self.last), ..self.header };
        let mut payloads = self.payloads.clone();
        if filling > 0 {
            payloads.push(Raw::new(PayloadType::VENDOR, &vec![0; filling]));
        }
        let path = self.path(remote);
        let mut needs_cookie = false;
        for _ in 0..2 {
            let known = self.pair.right.events.len();
            let answers = give_on(&mut self.pair, &plain(&header, &payloads), path);
            let answered = answers.first().map(|answer| notifies(&read_plain(answer).1));
            if let Some([(NotifyType::COOKIE, cookie)]) = answered.as_deref() {
                needs_cookie = true;
                payloads.insert(0, Raw::notify(NotifyType::COOKIE, cookie));
                continue;
            }
            let keys = self.pair.right.events.drain(known..).find_map(|event| match event {
                casemate_ike::Event::Keys(keys) => Some(*keys),
                _ => None,
            });
            return (keys.map(|keys| MessageForger::new(keys, true)), needs_cookie);
        }
        panic!("the cookie is not accepted");
    }

    /// Sends all fragments but the last one of an IKE_INTERMEDIATE request.
    fn send_fragments(&mut self, forger: &mut MessageForger, remote: &str) {
        let path = self.path(remote);
        for number in 1..20 {
            let header = forger.header(ExchangeType::IKE_INTERMEDIATE, 1, false);
            let text =
                [&chain(&[Raw::new(PayloadType::VENDOR, &[0; 4])], PayloadType::NONE)[..], &[0; PIECE]]
                    .concat();
            let first = if number == 1 { PayloadType::KE } else { PayloadType::NONE };
            let fragment = Some(RawFragment { number, total: 20 });
            let message = forger.seal_with(&header, &[], fragment, first, &text[..PIECE]);
            let known = self.pair.right.events.len();
            assert!(give_on(&mut self.pair, &message, path).is_empty());
            self.pair.right.events.truncate(known);
        }
    }

    fn check_bound(&self, base: i64, settings: &IkeSettings, what: &str) {
        let ike = &self.pair.right.ike;
        let (count, held) = (ike.half_open_count(), ike.half_open_bytes());
        assert!(held <= settings.max_half_open_bytes, "{what}: {held} bytes");
        let used = usize::try_from(bytes_in_use() - base).unwrap();
        let most = held + FIXED * count + ONCE;
        assert!(
            used <= most,
            "{what}: {used} bytes on the heap for {count} half-open IKE SAs with {held} bytes"
        );
        assert!(used >= held, "{what}: {used} bytes on the heap, {held} are counted");
    }
}

fn settings(max_half_open_bytes: usize) -> IkeSettings {
    IkeSettings { max_half_open_bytes, ..IkeSettings::SERVER }
}

/// What happened in a flood from many sources.
#[derive(Default)]
struct Result {
    refused: usize,
    /// Bytes that were held when the first cookie was required.
    first_cookie: Option<usize>,
}

/// Each of 100 sources begins four IKE SAs with short or long requests, and sends fragments.
fn flood_from_many(flood: &mut Flood, base: i64, settings: &IkeSettings) -> Result {
    let mut result = Result::default();
    for host in 1..=100 {
        for port in 500..504 {
            let remote = format!("192.0.2.{host}:{port}");
            let filling = if port % 2 == 0 { 0 } else { 6_000 };
            let before = flood.pair.right.ike.half_open_bytes();
            let (forger, needs_cookie) = flood.begin(&remote, filling);
            if needs_cookie {
                result.first_cookie.get_or_insert(before);
            }
            match forger {
                Some(mut forger) => flood.send_fragments(&mut forger, &remote),
                None => result.refused += 1,
            }
            flood.check_bound(base, settings, &remote);
        }
    }
    result
}

/// Cookies come first, then the limit holds, and the engine counts what is on the heap. In the end nothing is
/// left but the capacity of tables.
#[test]
fn many_sources_hold_no_more_bytes_than_the_limit() {
    let settings = settings(2_000_000);
    let mut flood = Flood::new(settings);
    let base = bytes_in_use();
    let mut left = vec![];
    for _ in 0..3 {
        let before = bytes_in_use();
        let Result { refused, first_cookie } = flood_from_many(&mut flood, before, &settings);
        assert!(refused > 100, "{refused} requests were refused");
        let first_cookie = first_cookie.unwrap();
        assert!(first_cookie < settings.max_half_open_bytes / 2, "the first cookie at {first_cookie} bytes");
        let half_open = flood.pair.right.ike.half_open_count();
        assert!(half_open < settings.max_half_open / 10, "bytes are the limit, not the number: {half_open}");
        assert!(flood.pair.right.ike.half_open_bytes() > settings.max_half_open_bytes * 7 / 10);
        assert!(flood.begin("198.51.100.1:500", 0).0.is_some(), "another source is still served");
        for _ in 0..31 {
            flood.pair.now = flood.pair.now.after(Duration::from_secs(1));
            let now = flood.pair.now;
            flood.pair.right.handle_timeouts(now);
            flood.pair.right.events.clear();
        }
        let ike = &flood.pair.right.ike;
        assert_eq!((ike.half_open_count(), ike.half_open_bytes()), (0, 0));
        left.push(bytes_in_use() - base);
    }
    assert!(left[0] < 100_000 && left[2] < left[0] + 10_000, "{left:?} bytes are left");
}

/// One source gets half of three quarters of the bytes at most, and other sources are served.
#[test]
fn one_source_holds_a_part_of_the_bytes() {
    let settings = settings(200_000);
    let mut flood = Flood::new(settings);
    let base = bytes_in_use();
    for port in 500..600 {
        let remote = format!("192.0.2.1:{port}");
        if let (Some(mut forger), _) = flood.begin(&remote, 7_000) {
            flood.send_fragments(&mut forger, &remote);
        }
        flood.check_bound(base, &settings, &remote);
    }
    let held = flood.pair.right.ike.half_open_bytes();
    assert!((65_000..=77_000).contains(&held), "{held} bytes");
    assert!(flood.pair.right.ike.half_open_count() < settings.max_half_open_per_source);
    assert!(flood.pair.right.ike.faults().state(StateFault::SourceLimit) > 50);
    assert!(flood.pair.right.ike.faults().state(StateFault::FragmentLimit) > 0);
    let (forger, _) = flood.begin("192.0.2.2:500", 5_000);
    assert!(forger.is_some(), "another source");
}

/// The defaults allow all half-open IKE SAs of honest peers, with keys of ML-KEM-1024 in fragments.
#[test]
fn the_limits_of_devices_and_servers_suffice_for_honest_peers() {
    for settings in [IkeSettings::DEVICE, IkeSettings::SERVER] {
        let mut flood = Flood::new(IkeSettings { cookie_threshold: 10_000, ..settings });
        for host in 1..=settings.max_half_open.min(50) {
            let remote = format!("192.0.2.{host}:500");
            let (forger, _) = flood.begin(&remote, 0);
            let mut forger = forger.unwrap_or_else(|| panic!("{host} of {}", settings.max_half_open));
            let header = forger.header(ExchangeType::IKE_INTERMEDIATE, 1, false);
            let key = [&KexMethod::MlKem1024.id().to_be_bytes()[..], &[0; 2 + 1_568]].concat();
            let text = chain(&[Raw::new(PayloadType::KE, &key)], PayloadType::NONE);
            let path = flood.path(&remote);
            let pieces: Vec<_> = text.chunks(PIECE).collect();
            let mut answers = vec![];
            for (number, piece) in (1..).zip(&pieces) {
                let first = if number == 1 { PayloadType::KE } else { PayloadType::NONE };
                let fragment = Some(RawFragment { number, total: u16::try_from(pieces.len()).unwrap() });
                let message = forger.seal_with(&header, &[], fragment, first, piece);
                answers = give_on(&mut flood.pair, &message, path);
            }
            assert!(!answers.is_empty(), "{host} of {}: the key is not answered", settings.max_half_open);
        }
    }
}
