//! IKE between lwIP and smoltcp, both with Casemate.

use crate::ike_pair::{Auth, IkeCase, IkePair, with_ike_pairs, with_ike_pairs_of};
use crate::pair::with_programs;
use crate::web::BUILDS;
use casemate_ike::Event;
use casemate_ike::config::ChildMode;
use casemate_lwip_tests::Placement;
use casemate_test_support::TestRng;
use casemate_wire::ip::proto;
use smoltcp::socket::udp;
use std::time::{Duration, Instant};

/// Port of the echo service on both ends.
const ECHO: u16 = 7;

/// Sends datagrams from lwIP to the peer's echo service until one comes back. A packet that triggers an
/// SA is lost.
fn echo_from_lwip(pair: &mut IkePair, handle: smoltcp::iface::SocketHandle) {
    let command = format!("udp {} {} 1000", pair.addrs.lwip, pair.addrs.peer);
    let start = Instant::now();
    pair.lwip.begin(&command);
    loop {
        pair.poll();
        let socket = pair.peer.sockets.get_mut::<udp::Socket>(handle);
        while let Ok((data, meta)) = socket.recv() {
            let (data, mut back) = (data.to_vec(), udp::UdpMetadata::from(meta.endpoint));
            back.local_address = meta.local_address;
            socket.send_slice(&data, back).unwrap();
        }
        match pair.lwip.next_response(Duration::from_millis(1)) {
            Some(Ok(_)) => return,
            Some(Err(_)) => pair.lwip.begin(&command),
            None => {}
        }
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}", pair.notices);
    }
}

fn cases() -> Vec<IkeCase> {
    let plain = IkeCase::PLAIN;
    let mut cases = Vec::new();
    for auth in [Auth::Shared, Auth::Raw, Auth::Certificates] {
        cases.push(IkeCase { auth, ..plain });
        cases.push(IkeCase { auth, version: 6, mode: ChildMode::Transport, ..plain });
    }
    cases.push(IkeCase { version: 6, ..plain });
    cases.push(IkeCase { mode: ChildMode::Transport, ..plain });
    cases.push(IkeCase { encap: true, ..plain });
    cases.push(IkeCase { encap: true, mode: ChildMode::Transport, ..plain });
    cases
}

/// Asserts that only IKE messages are sent in clear text.
fn check_wire(case: IkeCase, pair: &IkePair) {
    let expected = if case.encap { vec![proto::UDP] } else { vec![proto::UDP, proto::ESP] };
    assert_eq!(pair.seen.protocols(), expected, "{case:?}");
}

#[test]
fn the_first_packet_of_lwip_triggers_an_sa() {
    let cases: Vec<_> = cases().into_iter().map(|case| IkeCase { words: "traffic", ..case }).collect();
    with_ike_pairs(&cases, |case, pair| {
        let echo = pair.peer.udp(ECHO);
        echo_from_lwip(pair, echo);
        assert_eq!(pair.children(), 1, "{case:?}");
        let events = pair.lwip.command("events").unwrap();
        assert!(events.contains("ike-up peer") && events.contains("child-up peer/all"), "{case:?}: {events}");
        check_wire(case, pair);
    });
}

/// The thread that sends the packet wakes IKE; the thread of the stack does the work.
#[test]
fn the_first_packet_triggers_an_sa_with_threads_too() {
    let case = IkeCase { words: "traffic", ..IkeCase::PLAIN };
    with_ike_pairs_of(&BUILDS, &[case, IkeCase { encap: true, ..case }], |case, pair| {
        let echo = pair.peer.udp(ECHO);
        echo_from_lwip(pair, echo);
        pair.lwip.command("rekey peer/all").unwrap();
        pair.run("the rekeying", |pair| pair.lwip.command("events").unwrap().contains("child-rekeyed"));
        echo_from_lwip(pair, echo);
        check_wire(case, pair);
    });
}

#[test]
fn the_peer_initiates_and_lwip_responds() {
    with_ike_pairs(&cases(), |case, pair| {
        let echo = pair.peer.udp(ECHO);
        pair.initiate();
        pair.run(&format!("{case:?}"), |pair| pair.children() == 1);
        echo_from_lwip(pair, echo);
        check_wire(case, pair);
    });
}

#[test]
fn sas_are_rekeyed_by_both_sides_and_closed_by_lwip() {
    for encap in [false, true] {
        with_ike_pairs(&[IkeCase { encap, ..IkeCase::PLAIN }], |_, pair| {
            let echo = pair.peer.udp(ECHO);
            pair.lwip.command("initiate peer/all").unwrap();
            pair.run("up", |pair| pair.children() == 1);
            for command in ["rekey peer/all", "rekey peer", "", "rekey peer/all", ""] {
                let count = pair.notices.len();
                match command {
                    "" => pair.rekey(),
                    command => drop(pair.lwip.command(command).unwrap()),
                }
                pair.run("the rekeying", |pair| {
                    let is_end =
                        |event: &Event| matches!(event, Event::ChildDown { .. } | Event::IkeDown { .. });
                    pair.notices[count..].iter().any(is_end) && pair.children() == 1
                });
                echo_from_lwip(pair, echo);
            }
            let events = pair.lwip.command("events").unwrap();
            assert!(events.contains("ike-rekeyed") && events.contains("child-rekeyed"), "{events}");
            pair.lwip.command("terminate peer").unwrap();
            // The Child SAs end at once, the IKE SA with the response of the peer.
            pair.run("the end", |pair| {
                let is_closed = pair.lwip.command("counts").unwrap().starts_with("ike 0,");
                is_closed && pair.peer.device.endpoint().ike().ike_sa_count() == 0
            });
            let counts = pair.lwip.command("counts").unwrap();
            assert!(
                counts.starts_with("ike 0, half-open 0, children 0")
                    && counts.ends_with("refused 0, lost datagrams 0"),
                "{counts}"
            );
        });
    }
}

/// Lets up to `seconds` pass in accelerated time without running the peer, until an event contains
/// `word`. Returns the events.
fn run_for(pair: &mut IkePair, seconds: u32, word: &str) -> String {
    let mut events = String::new();
    for _ in 0..seconds {
        pair.lwip.command("later 1000").unwrap();
        std::thread::sleep(Duration::from_millis(25));
        events += &pair.lwip.command("events").unwrap();
        if events.contains(word) {
            return events;
        }
    }
    panic!("after {seconds} seconds: {events}");
}

#[test]
fn silent_peers_are_given_up_and_reported() {
    with_ike_pairs(&[IkeCase { words: "dpd 10", ..IkeCase::PLAIN }], |_, pair| {
        pair.lwip.command("initiate peer/all").unwrap();
        let events = run_for(pair, 300, "ike-down");
        assert!(events.contains("the peer does not respond"), "{events}");
        pair.peer.poll();
        let requests = pair.messages().len();
        assert_eq!(requests, 0, "no request was sent: the address of the peer could not be resolved");
        // Again, with a peer that responds at first.
        pair.lwip.command("initiate peer/all").unwrap();
        pair.run("up", |pair| pair.children() == 1);
        let events = run_for(pair, 300, "ike-down");
        assert!(
            events.contains("child-down peer/all") && events.contains("the peer does not respond"),
            "{events}"
        );
        assert!(pair.lwip.command("counts").unwrap().starts_with("ike 0, half-open 0, children 0"));
    });
}

/// Modified and truncated messages and forged IKE fragments: the sanitizers report no error, and the SAs
/// still work.
#[test]
fn malformed_messages_do_no_harm() {
    let cases = [IkeCase { encap: true, ..IkeCase::PLAIN }, IkeCase { version: 6, ..IkeCase::PLAIN }];
    with_ike_pairs(&cases, |_, pair| {
        let echo = pair.peer.udp(ECHO);
        pair.initiate();
        pair.run("up", |pair| pair.children() == 1);
        let genuine = pair.messages();
        assert!(genuine.len() >= 2);
        let mut rng = TestRng::new(1);
        for turn in 0..3_000 {
            let (port, mut data) = genuine[rng.below(genuine.len())].clone();
            let header = if port == 4500 { 4 } else { 0 };
            if rng.below(4) == 0 {
                data.truncate(header + rng.below(data.len() - header));
            }
            // Payload types, exchange types, flags, message IDs, and any other byte.
            for _ in 0..rng.below(6) {
                let at = header
                    + rng.below(
                        data.len().saturating_sub(header).clamp(1, if turn % 2 == 0 { 32 } else { 4_000 }),
                    );
                if let Some(byte) = data.get_mut(at) {
                    *byte = rng.below(256) as u8;
                }
            }
            if data.len() >= header + 28 {
                // The fragment payload of RFC 7383 more often than by chance, and a correct length, so
                // that the message is not dropped early.
                if rng.below(4) == 0 {
                    data[header + 16] = 53;
                }
                let len = (data.len() - header) as u32;
                data[header + 24..header + 28].copy_from_slice(&len.to_be_bytes());
            }
            pair.inject(port, &data);
            if turn % 50 == 0 {
                pair.poll();
                pair.seen.take();
            }
        }
        pair.run("a while", |pair| {
            pair.lwip.command("faults").is_ok_and(|faults| faults.contains("icv-mismatch"))
        });
        echo_from_lwip(pair, echo);
        assert_eq!(pair.children(), 1);
        let counts = pair.lwip.command("counts").unwrap();
        assert!(counts.contains("refused 0,"), "{counts}");
    });
}

/// Unknown initiators may occupy half of the table; the established IKE SA is not affected.
#[test]
fn half_open_ike_sas_are_limited() {
    with_ike_pairs(&[IkeCase::PLAIN], |_, pair| {
        pair.initiate();
        pair.run("up", |pair| pair.children() == 1);
        let (port, request) = pair.messages().remove(0);
        for number in 0..50u8 {
            let mut request = request.clone();
            request[..8].fill(number + 1);
            pair.inject(port, &request);
        }
        pair.run("a while", |pair| {
            pair.lwip.command("faults").is_ok_and(|faults| faults.contains("cookie "))
        });
        let counts = pair.lwip.command("counts").unwrap();
        assert!(
            counts.starts_with("ike 2, half-open 1") || counts.starts_with("ike 3, half-open 2"),
            "{counts}"
        );
    });
}

/// With any amount of memory, work that does not fit is refused and counted, and nothing fails otherwise.
#[test]
fn ike_refuses_work_when_memory_is_low() {
    with_programs(|program| {
        let (mut up, mut refused) = (0, 0);
        for memory in (20_000..300_000).step_by(10_000) {
            let Ok(mut pair) =
                IkePair::new(program, Placement::Inside, IkeCase::PLAIN, memory).inspect_err(|error| {
                    assert!(error.contains("memory"), "{memory}: {error}");
                    refused += 1;
                })
            else {
                continue;
            };
            pair.initiate();
            // A host without free memory does not respond, but counts the refused messages.
            let (start, mut is_given_up) = (Instant::now(), false);
            while start.elapsed() < Duration::from_secs(20) && pair.notices.is_empty() && !is_given_up {
                pair.poll();
                is_given_up = start.elapsed() > Duration::from_secs(2)
                    && !pair.lwip.command("counts").unwrap().contains("refused 0,");
            }
            let counts = pair.lwip.command("counts").unwrap();
            match pair.children() {
                0 => {
                    assert!(!counts.contains("refused 0,"), "{memory}: {counts}");
                    refused += 1;
                }
                _ => up += 1,
            }
            pair.lwip.end();
        }
        assert!(up > 3 && refused > 3, "{up} {refused}");
    });
}
