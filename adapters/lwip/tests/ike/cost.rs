//! What `casemate_limits` says against what is taken.

use crate::auth::raw_keys;
use crate::heap;
use crate::host::{Speaker, TABLES, Wanted, talk};
use casemate_lwip::*;
use std::ffi::CString;

fn said() -> Costs {
    let (tables, mut costs) = (TABLES, Costs::default());
    // SAFETY: pointers to values that live.
    assert_eq!(unsafe { casemate_limits(&raw const tables, &raw mut costs) }, 0);
    costs
}

/// The most that a call takes, on either side, in every kind of exchange.
fn worst(one: &Wanted, other: &Wanted) -> usize {
    let (mut a, mut b) = (Speaker::new(1), Speaker::new(2));
    assert_eq!((a.add(one), b.add(other)), (0, 0));
    assert_eq!(a.initiate(c"peer/all"), 0);
    talk(&mut a, &mut b);
    assert_eq!((a.children(), b.children()), (1, 1), "{:?} {:?}", a.events, b.events);
    for (side, name) in [(0, c"peer/all"), (1, c"peer"), (1, c"peer/all"), (0, c"peer")] {
        assert_eq!([&mut a, &mut b][side].rekey(name), 0);
        talk(&mut a, &mut b);
        assert_eq!((a.children(), b.children()), (1, 1), "{:?} {:?}", a.events, b.events);
    }
    assert_eq!(b.terminate(c"peer"), 0);
    talk(&mut a, &mut b);
    assert_eq!((a.counts().ike_sas, b.counts().ike_sas), (0, 0));
    a.peak.max(b.peak)
}

fn text(text: &str) -> Option<CString> {
    Some(CString::new(text).unwrap())
}

/// Also with the longest keys, and with tables that grow meanwhile.
#[test]
fn exchanges_stay_within_what_is_said() {
    let most = said().ike_exchange;
    let mut wanted = vec![Wanted::shared()];
    for kex in ["ecp521", "modp4096", "modp8192"] {
        let suite = text(&format!("aes256-sha512-{kex}"));
        wanted.push(Wanted { proposals: suite.clone(), child_proposals: suite, ..Wanted::shared() });
    }
    wanted.extend(raw_keys().map(|(_, wanted)| wanted));
    for wanted in &wanted {
        let taken = worst(wanted, wanted);
        // Less than its keys take would be no measurement.
        assert!((4_096..most).contains(&taken), "{taken} of {most}");
    }
}

/// A Child SA of many selectors has as many policies as pairs of them: 16 in each direction.
#[test]
fn a_child_sa_of_many_selectors_stays_within_its_tables() {
    let list = |net: &str| text(&(0..4).map(|at| format!("{net}.{at}.0.0/16")).collect::<Vec<_>>().join(","));
    let (one, other) = (list("10"), list("11"));
    let wanted = |local: &Option<CString>, remote: &Option<CString>| Wanted {
        local_traffic: local.clone(),
        remote_traffic: remote.clone(),
        ..Wanted::shared()
    };
    let taken = worst(&wanted(&one, &other), &wanted(&other, &one));
    let most = said().ike_exchange + 4 * said().sa + 32 * said().policy;
    assert!((16_384..most).contains(&taken), "{taken} of {most}");
}

/// The first request with a Vendor ID payload in front, as long as a message may be.
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

/// Strangers get half of the table, and each no more than is said.
#[test]
fn a_flood_of_strangers_costs_what_is_said() {
    let mut b = Speaker::new(2);
    assert_eq!(b.add(&Wanted::shared()), 0);
    let before = heap::in_use();
    for turn in 0..20 {
        let mut a = Speaker::new(1);
        a.mix(turn);
        assert_eq!(a.add(&Wanted::shared()), 0);
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
    let each = (heap::in_use() - before) / half_open;
    assert!((4_000..=said().ike_sa).contains(&each), "{each} of {}", said().ike_sa);
    assert!(b.peak < said().ike_exchange);
    // They end by themselves.
    b.serve_until(|b| b.counts().ike_sas == 0);
}
