//! The memory that `casemate_limits` reports, compared with the memory used; silent and dead peers.

use crate::auth::raw_keys;
use crate::host::{HostEvent, IkeHost, TABLES, TestConnection, exchange_messages};
use casemate_lwip::*;
use casemate_test_support::allocator::bytes_in_use;
use std::ffi::CString;

fn costs() -> Costs {
    let (tables, mut costs) = (TABLES, Costs::default());
    // SAFETY: pointers to values that live.
    assert_eq!(unsafe { casemate_limits(&raw const tables, &raw mut costs) }, 0);
    costs
}

/// Returns the maximum memory that a call uses on either side, over all kinds of exchanges.
fn worst(one: &TestConnection, other: &TestConnection) -> usize {
    let (mut a, mut b) = (IkeHost::new(1), IkeHost::new(2));
    assert_eq!((a.add(one), b.add(other)), (0, 0));
    assert_eq!(a.initiate(c"peer/all"), 0);
    exchange_messages(&mut a, &mut b);
    assert_eq!((a.children(), b.children()), (1, 1), "{:?} {:?}", a.events, b.events);
    for (side, name) in [(0, c"peer/all"), (1, c"peer"), (1, c"peer/all"), (0, c"peer")] {
        assert_eq!([&mut a, &mut b][side].rekey(name), 0);
        exchange_messages(&mut a, &mut b);
        assert_eq!((a.children(), b.children()), (1, 1), "{:?} {:?}", a.events, b.events);
    }
    assert_eq!(b.terminate(c"peer"), 0);
    exchange_messages(&mut a, &mut b);
    assert_eq!((a.counts().ike_sas, b.counts().ike_sas), (0, 0));
    a.peak.max(b.peak)
}

fn text(text: &str) -> Option<CString> {
    Some(CString::new(text).unwrap())
}

/// Includes the longest keys, and tables that grow.
#[test]
fn exchanges_stay_within_the_reported_memory() {
    let most = costs().ike_exchange;
    let mut connection = vec![TestConnection::shared()];
    for kex in ["ecp521", "modp4096", "modp8192", "x25519-ke1_mlkem1024", "ecp521-ke1_mlkem768-ke2_mlkem1024"]
    {
        let suite = text(&format!("aes256-sha512-{kex}"));
        connection.push(TestConnection {
            proposals: suite.clone(),
            child_proposals: suite,
            ..TestConnection::shared()
        });
    }
    connection.extend(raw_keys().map(|(_, connection)| connection));
    for connection in &connection {
        let taken = worst(connection, connection);
        // A value below the size of the keys would mean that the measurement failed.
        assert!((4_096..most).contains(&taken), "{taken} of {most}");
    }
}

/// A Child SA with many selectors has a policy per pair of selectors: 16 per direction.
#[test]
fn a_child_sa_with_many_selectors_stays_within_its_tables() {
    let list = |net: &str| text(&(0..4).map(|at| format!("{net}.{at}.0.0/16")).collect::<Vec<_>>().join(","));
    let (one, other) = (list("10"), list("11"));
    let connection = |local: &Option<CString>, remote: &Option<CString>| TestConnection {
        local_traffic: local.clone(),
        remote_traffic: remote.clone(),
        ..TestConnection::shared()
    };
    let taken = worst(&connection(&one, &other), &connection(&other, &one));
    let most = costs().ike_exchange + 4 * costs().sa + 32 * costs().policy;
    assert!((16_384..most).contains(&taken), "{taken} of {most}");
}

/// Extends the first request to the maximum message length with a Vendor ID payload.
fn padded(request: &[u8], len: usize) -> Vec<u8> {
    const HEADER: usize = 28;
    const VENDOR_ID: u8 = 43;
    let mut longer = request[..HEADER].to_vec();
    longer[16] = VENDOR_ID;
    longer[24..28].copy_from_slice(&(len as u32).to_be_bytes());
    let payload = len - request.len();
    longer.extend([request[16], 0, (payload >> 8) as u8, payload as u8]);
    longer.resize(HEADER + payload, 0x5A);
    longer.extend(&request[HEADER..]);
    longer
}

/// Unknown initiators may occupy half of the table, each with the reported memory.
#[test]
fn half_open_ike_sas_stay_within_the_reported_memory() {
    let mut b = IkeHost::new(2);
    assert_eq!(b.add(&TestConnection::shared()), 0);
    let before = bytes_in_use();
    for turn in 0..20 {
        let mut a = IkeHost::new(1);
        a.reseed(turn);
        assert_eq!(a.add(&TestConnection::shared()), 0);
        assert_eq!(a.initiate(c"peer"), 0);
        let (_, request) = a.transmit().unwrap();
        let request = padded(&request, 4_000);
        drop(a);
        assert_eq!(b.receive(1, 500, &request), 0);
        while b.transmit().is_some() {}
    }
    let half_open = b.counts().half_open as usize;
    assert_eq!(b.counts().ike_sas as usize, half_open);
    assert!((1..=2).contains(&half_open), "{half_open}");
    let each = (bytes_in_use() - before) as usize / half_open;
    assert!((4_000..=costs().ike_sa).contains(&each), "{each} of {}", costs().ike_sa);
    assert!(b.peak < costs().ike_exchange);
    // Half-open IKE SAs expire.
    b.serve_until(|b| b.counts().ike_sas == 0);
}

/// Initiates a connection to a silent peer. Returns the number of messages sent.
fn try_in_vain(a: &mut IkeHost) -> usize {
    assert_eq!(a.initiate(c"peer/all"), 0);
    let mut sent = 0;
    while a.counts().ike_sas > 0 {
        while a.transmit().is_some() {
            sent += 1;
        }
        a.now = a.due().unwrap();
        a.serve();
    }
    a.look();
    sent
}

#[test]
fn a_silent_peer_is_given_up() {
    let mut a = IkeHost::new(1);
    assert_eq!(a.add(&TestConnection::shared()), 0);
    let begin = a.now;
    assert_eq!(try_in_vain(&mut a), 7, "the request and six retransmissions");
    let seconds = (a.now - begin) / 1_000_000;
    assert!((120..=180).contains(&seconds), "{seconds}");
    let reason = "the peer does not respond".into();
    assert_eq!(a.events, [HostEvent { kind: EVENT_IKE_DOWN, child: String::new(), reason }]);
    assert!(a.due().is_none());
    // A second attempt is possible and leaks no memory.
    a.events.clear();
    let before = bytes_in_use();
    assert_eq!(try_in_vain(&mut a), 7);
    a.events = vec![];
    assert!(bytes_in_use() <= before, "{}", bytes_in_use() - before);
}

#[test]
fn a_dead_peer_is_detected() {
    let (mut a, mut b) = (IkeHost::new(1), IkeHost::new(2));
    let connection = TestConnection { dpd_seconds: 10, ..TestConnection::shared() };
    assert_eq!((a.add(&connection), b.add(&connection)), (0, 0));
    assert_eq!(a.initiate(c"peer/all"), 0);
    exchange_messages(&mut a, &mut b);
    assert_eq!(a.children(), 1);
    drop(b);
    a.serve_until(|a| a.counts().ike_sas == 0);
    a.look();
    let ends: Vec<_> = a.events.iter().filter(|event| event.reason == "the peer does not respond").collect();
    assert_eq!(ends.len(), 2, "the IKE SA and its Child SA: {:?}", a.events);
    assert_eq!(a.children(), 0);
}

#[test]
fn removing_a_connection_notifies_the_peer() {
    let (mut a, mut b) = (IkeHost::new(1), IkeHost::new(2));
    assert_eq!((a.add(&TestConnection::shared()), b.add(&TestConnection::shared())), (0, 0));
    assert_eq!(a.initiate(c"peer/all"), 0);
    exchange_messages(&mut a, &mut b);
    assert_eq!(b.remove(c"peer"), 0);
    exchange_messages(&mut a, &mut b);
    assert_eq!((a.counts().ike_sas, b.counts().ike_sas), (0, 0));
    assert!(
        a.events.iter().any(|event| event.kind == EVENT_IKE_DOWN && event.reason == "closed by the peer")
    );
    assert_eq!(b.initiate(c"peer"), Status::Absent as i32);
}
