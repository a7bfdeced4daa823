//! Floods of IKE_SA_INIT requests: cookies, and the limits of half-open IKE SAs (RFC 7296 section 2.6).

use crate::first_request::only_notify;
use crate::forge::{
    Raw, altered, count, first_request, give_left, give_on, give_right, notifies, plain, read_plain,
};
use crate::pair::{IkePeer, LEFT, Pair, RIGHT, connection};
use casemate_ike::config::{AddrPattern, Connection};
use casemate_ike::{DownReason, IkeSettings, Path};
use casemate_wire::ike::{Header, IkeSpi, NotifyType, PayloadType};
use std::time::Duration;

/// A right side with low limits, and requests with new SPIs.
struct Flood {
    pair: Pair,
    header: Header,
    payloads: Vec<Raw>,
}

impl Flood {
    fn new(half_open: usize, cookie_threshold: usize) -> Self {
        Self::with(IkeSettings { max_half_open: half_open, cookie_threshold, ..IkeSettings::SERVER })
    }

    fn with(settings: IkeSettings) -> Self {
        let mut pair = Pair::with_defaults();
        let anywhere = Connection {
            remote_addrs: vec![AddrPattern::Any],
            local_addrs: vec![AddrPattern::Any],
            ..connection("right", "left")
        };
        pair.right = IkePeer::with(settings, RIGHT, 2, anywhere);
        let (header, payloads) = read_plain(&first_request(&mut pair));
        Self { pair, header, payloads }
    }

    fn message(&self, spi: u64, cookie: Option<&[u8]>) -> Vec<u8> {
        let mut payloads = self.payloads.clone();
        let cookie = cookie.map(|cookie| Raw::notify(NotifyType::COOKIE, cookie));
        payloads.splice(0..0, cookie);
        plain(&Header { spi_i: IkeSpi(spi), ..self.header }, &payloads)
    }

    fn ask(&mut self, spi: u64, cookie: Option<&[u8]>) -> Vec<Vec<u8>> {
        let message = self.message(spi, cookie);
        give_right(&mut self.pair, &message)
    }

    fn cookie(&mut self, spi: u64) -> Vec<u8> {
        cookie_in(&self.ask(spi, None))
    }

    /// Sends a request without a cookie from another address.
    fn ask_once(&mut self, remote: &str, spi: u64) -> Vec<Vec<u8>> {
        let path = Path { local: (self.pair.right.addr, 500).into(), remote: remote.parse().unwrap() };
        let message = self.message(spi, None);
        give_on(&mut self.pair, &message, path)
    }

    /// Sends a request from another address, with a cookie if the gateway wants one. Returns whether it did,
    /// and the number of responses.
    fn ask_from(&mut self, remote: &str, spi: u64) -> (bool, usize) {
        let answers = self.ask_once(remote, spi);
        let payloads = answers.first().map(|answer| read_plain(answer).1);
        match payloads.as_ref().map(|payloads| notifies(payloads)).as_deref() {
            Some([(NotifyType::COOKIE, cookie)]) => {
                let path =
                    Path { local: (self.pair.right.addr, 500).into(), remote: remote.parse().unwrap() };
                let message = self.message(spi, Some(cookie));
                (true, give_on(&mut self.pair, &message, path).len())
            }
            _ => (false, answers.len()),
        }
    }

    fn advance(&mut self, seconds: u64) {
        self.pair.now = self.pair.now.after(Duration::from_secs(seconds));
    }
}

fn cookie_in(answers: &[Vec<u8>]) -> Vec<u8> {
    let (kind, cookie) = only_notify(answers);
    assert_eq!(kind, NotifyType::COOKIE);
    cookie
}

#[test]
fn a_flood_must_return_cookies_and_then_reaches_the_limit() {
    let mut flood = Flood::new(4, 2);
    assert_eq!([flood.ask(1, None).len(), flood.ask(2, None).len()], [1, 1]);
    assert!((1..=64).contains(&cookie_in(&flood.ask_once("192.0.2.3:500", 3)).len()), "RFC 7296 section 2.6");
    assert_eq!(count(&flood.pair.right, "cookie"), 1);
    assert_eq!(flood.pair.right.ike.status().count(), 2);
    assert_eq!(flood.ask_from("192.0.2.3:500", 3), (true, 1));
    assert_eq!(flood.ask_from("192.0.2.4:500", 4), (true, 1));
    assert_eq!(flood.ask_from("192.0.2.5:500", 5), (false, 0), "the limit is four");
    assert_eq!(count(&flood.pair.right, "half-open-limit"), 1);
    assert_eq!(flood.pair.right.ike.status().count(), 4);
    // A repeated request is still answered.
    assert_eq!(flood.ask(1, None).len(), 1);
}

/// Whatever the threshold is, hosts that do not receive at their source addresses must not fill the table.
#[test]
fn cookies_are_required_before_the_table_is_full() {
    let mut flood = Flood::new(10, 1_000);
    for spi in 1..=5 {
        assert_eq!(flood.ask_from(&format!("192.0.2.{spi}:500"), spi), (false, 1));
    }
    for spi in 6..100 {
        cookie_in(&flood.ask_once(&format!("192.0.2.{spi}:500"), spi));
    }
    assert_eq!(flood.ask_from("192.0.2.100:500", 100), (true, 1));
}

#[test]
fn cookies_of_other_requests_are_rejected() {
    let mut flood = Flood::new(100, 0);
    let cookie = flood.cookie(1);
    let mut wrong = cookie.clone();
    *wrong.last_mut().unwrap() ^= 1;
    let again = |answers: Vec<Vec<u8>>| assert_eq!(only_notify(&answers).0, NotifyType::COOKIE);
    again(flood.ask(1, Some(&wrong)));
    again(flood.ask(1, Some(&cookie[..cookie.len() - 1])));
    again(flood.ask(2, Some(&cookie)));
    let (message, local) = (flood.message(1, Some(&cookie)), (flood.pair.right.addr, 500).into());
    let elsewhere = Path { local, remote: (flood.pair.left.addr, 501).into() };
    again(give_on(&mut flood.pair, &message, elsewhere));
    // Another nonce.
    let mut payloads = altered(&flood.payloads, PayloadType::NONCE, |nonce| nonce[0] ^= 1);
    payloads.insert(0, Raw::notify(NotifyType::COOKIE, &cookie));
    again(give_right(&mut flood.pair, &plain(&Header { spi_i: IkeSpi(1), ..flood.header }, &payloads)));
    assert_eq!(flood.pair.right.ike.status().count(), 0);
    assert_eq!(read_plain(&flood.ask(1, Some(&cookie))[0]).1[0].kind, PayloadType::SA);
}

/// A host is flooded when the first request arrives, and not when its repetition arrives. The peer gets the
/// request for a cookie first, so it sends a third request, which its proof covers.
#[test]
fn a_cookie_after_the_response_does_not_spoil_the_proof() {
    let mut flood = Flood::new(4, 1);
    assert_eq!(flood.ask(1, None).len(), 1);
    let peer = flood.header.spi_i.0;
    let wanted = flood.ask(peer, None);
    assert_eq!(only_notify(&wanted).0, NotifyType::COOKIE);
    flood.advance(31);
    let now = flood.pair.now;
    flood.pair.right.handle_timeouts(now);
    let response = flood.ask(peer, None);
    let with_cookie = give_left(&mut flood.pair, &wanted[0]);
    assert!(flood.ask(peer, Some(&[5; 40])).is_empty(), "the cookie is wrong");
    assert_eq!(give_right(&mut flood.pair, &with_cookie[0]), response);
    assert!(flood.ask(peer, None).is_empty(), "a late repetition changes nothing");
    let auth = give_left(&mut flood.pair, &response[0]);
    let done = give_right(&mut flood.pair, &auth[0]);
    give_left(&mut flood.pair, &done[0]);
    flood.pair.check_children(1);
}

#[test]
fn cookies_expire() {
    let mut flood = Flood::new(100, 0);
    let cookie = flood.cookie(1);
    flood.advance(119);
    assert_eq!(read_plain(&flood.ask(1, Some(&cookie))[0]).1[0].kind, PayloadType::SA);
    flood.advance(1);
    assert_eq!(only_notify(&flood.ask(2, Some(&cookie))).0, NotifyType::COOKIE);
    let mut flood = Flood::new(100, 0);
    let cookie = flood.cookie(1);
    flood.advance(120);
    assert_eq!(only_notify(&flood.ask(1, Some(&cookie))).0, NotifyType::COOKIE);
}

#[test]
fn half_open_ike_sas_expire() {
    let mut flood = Flood::new(2, 100);
    assert_eq!(flood.ask(1, None).len(), 1);
    assert_eq!(flood.ask_from("192.0.2.2:500", 2), (true, 1));
    assert_eq!(flood.ask(3, None).len(), 0);
    flood.pair.left = IkePeer::new(LEFT, 1, connection("left", "right"));
    flood.pair.advance(Duration::from_secs(29));
    assert_eq!(flood.pair.right.ike.status().count(), 2);
    flood.pair.advance(Duration::from_secs(1));
    assert_eq!(flood.pair.right.down_reasons(), [DownReason::DeadPeer, DownReason::DeadPeer]);
    assert_eq!(flood.pair.right.ike.next_timeout(), None);
    assert_eq!(flood.ask(3, None).len(), 1, "a slot is free again");
}

/// A source with real addresses returns its cookies. It gets its quota of the table, and other peers are
/// served.
#[test]
fn one_source_does_not_take_all_half_open_ike_sas() {
    let sources = [
        // An address, and addresses of one IPv6 prefix.
        (["192.0.2.7:500", "192.0.2.7:501"], "192.0.2.8:500"),
        (["[2001:db8::1]:500", "[2001:db8::ffff:0:2]:500"], "[2001:db8:0:1::1]:500"),
    ];
    for (greedy, other) in sources {
        let settings =
            IkeSettings { max_half_open: 100, max_half_open_per_source: 10, ..IkeSettings::SERVER };
        let mut flood = Flood::with(settings);
        for spi in 1..=50 {
            let (with_cookie, answers) = flood.ask_from(greedy[usize::from(spi % 2 == 0)], spi);
            // After four it must return cookies, so that no other host uses up the quota.
            let expected = if spi <= 10 { (spi > 4, 1) } else { (false, 0) };
            assert_eq!((with_cookie, answers), expected, "{spi}");
        }
        let ike = &flood.pair.right.ike;
        assert_eq!((ike.ike_sa_count(), ike.half_open_count()), (10, 10));
        assert_eq!(count(&flood.pair.right, "source-limit"), 40);
        assert_eq!(flood.ask_from(other, 100), (false, 1), "another source");
        // Ended IKE SAs free their slots.
        flood.pair.now = flood.pair.now.after(Duration::from_secs(30));
        flood.pair.right.handle_timeouts(flood.pair.now);
        assert_eq!(flood.pair.right.ike.ike_sa_count(), 0);
        assert_eq!(flood.ask_from(greedy[0], 101), (false, 1));
    }
}

/// Many sources with real addresses return their cookies. The fuller the table is, the fewer entries each of
/// them gets, so that a new source still gets one.
#[test]
fn many_sources_leave_half_open_ike_sas_to_others() {
    let mut flood = Flood::new(1_000, 10);
    let mut spi = 0;
    for _ in 0..64 {
        for host in 1..=64 {
            spi += 1;
            flood.ask_from(&format!("192.0.2.{host}:500"), spi);
        }
    }
    let half_open = flood.pair.right.ike.half_open_count();
    assert!((950..1_000).contains(&half_open), "{half_open}");
    assert_eq!(flood.ask_from("198.51.100.1:500", 9_000), (true, 1), "a new source is served");
}

/// The request is kept until IKE_AUTH, because AUTH covers it.
#[test]
fn a_first_request_has_a_longest_length() {
    for (len, answers) in [(10_000, 1), (30_000, 0)] {
        let mut flood = Flood::new(8, 8);
        flood.payloads.push(Raw::new(PayloadType::VENDOR, &vec![0; len]));
        assert_eq!(flood.ask(1, None).len(), answers, "{len} bytes");
        assert_eq!(count(&flood.pair.right, "fragment-limit"), 1 - answers as u64, "{len} bytes");
    }
}
