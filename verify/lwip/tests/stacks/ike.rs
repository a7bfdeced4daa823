//! IKE between lwIP and smoltcp, both behind Casemate.

use crate::pair::with_programs;
use crate::speakers::{Auth, Speakers, Wanted, with_speakers, with_speakers_of};
use crate::threads::BUILDS;
use casemate_ike::Event;
use casemate_ike::config::ChildMode;
use casemate_lwip_tests::Place;
use casemate_wire::ip::proto;
use smoltcp::socket::udp;
use std::time::{Duration, Instant};

/// The echo service of both ends.
const ECHO: u16 = 7;

/// lwIP's program sends a datagram to the peer's echo service, again and again until it comes back; a packet that calls for an SA is
/// lost.
fn echo_from_lwip(speakers: &mut Speakers, handle: smoltcp::iface::SocketHandle) {
    let order = format!("udp {} {} 1000", speakers.ends.1, speakers.ends.0);
    let start = Instant::now();
    speakers.lwip.begin(&order);
    loop {
        speakers.poll();
        let socket = speakers.peer.sockets.get_mut::<udp::Socket>(handle);
        while let Ok((data, meta)) = socket.recv() {
            let (data, mut back) = (data.to_vec(), udp::UdpMetadata::from(meta.endpoint));
            back.local_address = meta.local_address;
            socket.send_slice(&data, back).unwrap();
        }
        match speakers.lwip.next_answer(Duration::from_millis(1)) {
            Some(Ok(_)) => return,
            Some(Err(_)) => speakers.lwip.begin(&order),
            None => {}
        }
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}", speakers.told);
    }
}

fn cases() -> Vec<Wanted> {
    let plain = Wanted::PLAIN;
    let mut cases = Vec::new();
    for auth in [Auth::Shared, Auth::Raw, Auth::Certificates] {
        cases.push(Wanted { auth, ..plain });
        cases.push(Wanted { auth, version: 6, mode: ChildMode::Transport, ..plain });
    }
    cases.push(Wanted { version: 6, ..plain });
    cases.push(Wanted { mode: ChildMode::Transport, ..plain });
    cases.push(Wanted { encap: true, ..plain });
    cases.push(Wanted { encap: true, mode: ChildMode::Transport, ..plain });
    cases
}

/// Only IKE goes in clear.
fn check_wire(wanted: Wanted, speakers: &Speakers) {
    let expected = if wanted.encap { vec![proto::UDP] } else { vec![proto::UDP, proto::ESP] };
    assert_eq!(speakers.seen.protocols(), expected, "{wanted:?}");
}

#[test]
fn the_first_packet_of_lwip_calls_for_an_sa() {
    let cases: Vec<_> = cases().into_iter().map(|wanted| Wanted { words: "traffic", ..wanted }).collect();
    with_speakers(&cases, |wanted, speakers| {
        let echo = speakers.peer.udp(ECHO);
        echo_from_lwip(speakers, echo);
        assert_eq!(speakers.children(), 1, "{wanted:?}");
        let events = speakers.lwip.order("events").unwrap();
        assert!(
            events.contains("ike-up peer") && events.contains("child-up peer/all"),
            "{wanted:?}: {events}"
        );
        check_wire(wanted, speakers);
    });
}

/// The alarm that a packet gives is raised in the thread that sends it; the work is the stack's.
#[test]
fn the_first_packet_calls_for_an_sa_with_threads_too() {
    let wanted = Wanted { words: "traffic", ..Wanted::PLAIN };
    with_speakers_of(&BUILDS, &[wanted, Wanted { encap: true, ..wanted }], |wanted, speakers| {
        let echo = speakers.peer.udp(ECHO);
        echo_from_lwip(speakers, echo);
        speakers.lwip.order("rekey peer/all").unwrap();
        speakers
            .run("the rekeying", |speakers| speakers.lwip.order("events").unwrap().contains("child-rekeyed"));
        echo_from_lwip(speakers, echo);
        check_wire(wanted, speakers);
    });
}

#[test]
fn the_peer_begins_and_lwip_answers() {
    with_speakers(&cases(), |wanted, speakers| {
        let echo = speakers.peer.udp(ECHO);
        speakers.initiate();
        speakers.run(&format!("{wanted:?}"), |speakers| speakers.children() == 1);
        echo_from_lwip(speakers, echo);
        check_wire(wanted, speakers);
    });
}

#[test]
fn sas_are_rekeyed_by_both_and_closed_by_lwip() {
    for encap in [false, true] {
        with_speakers(&[Wanted { encap, ..Wanted::PLAIN }], |_, speakers| {
            let echo = speakers.peer.udp(ECHO);
            speakers.lwip.order("initiate peer/all").unwrap();
            speakers.run("up", |speakers| speakers.children() == 1);
            for order in ["rekey peer/all", "rekey peer", "", "rekey peer/all", ""] {
                let count = speakers.told.len();
                match order {
                    "" => speakers.rekey(),
                    order => drop(speakers.lwip.order(order).unwrap()),
                }
                speakers.run("the rekeying", |speakers| {
                    let is_end =
                        |event: &Event| matches!(event, Event::ChildDown { .. } | Event::IkeDown { .. });
                    speakers.told[count..].iter().any(is_end) && speakers.children() == 1
                });
                echo_from_lwip(speakers, echo);
            }
            let events = speakers.lwip.order("events").unwrap();
            assert!(events.contains("ike-rekeyed") && events.contains("child-rekeyed"), "{events}");
            speakers.lwip.order("terminate peer").unwrap();
            speakers.run("the end", |speakers| {
                speakers.children() == 0 && speakers.peer.device.endpoint().ike().counts().0 == 0
            });
            let counts = speakers.lwip.order("counts").unwrap();
            assert!(
                counts.starts_with("ike 0, half-open 0, children 0")
                    && counts.ends_with("refused 0, lost datagrams 0"),
                "{counts}"
            );
        });
    }
}

/// The peer is not served any more. Time passes faster then.
fn let_pass(speakers: &mut Speakers, seconds: u32, word: &str) -> String {
    let mut events = String::new();
    for _ in 0..seconds {
        speakers.lwip.order("later 1000").unwrap();
        std::thread::sleep(Duration::from_millis(25));
        events += &speakers.lwip.order("events").unwrap();
        if events.contains(word) {
            return events;
        }
    }
    panic!("after {seconds} seconds: {events}");
}

#[test]
fn silent_peers_are_given_up_and_said_so() {
    with_speakers(&[Wanted { words: "dpd 10", ..Wanted::PLAIN }], |_, speakers| {
        speakers.lwip.order("initiate peer/all").unwrap();
        let events = let_pass(speakers, 300, "ike-down");
        assert!(events.contains("the peer does not answer"), "{events}");
        speakers.peer.poll();
        let requests = speakers.messages().len();
        assert_eq!(requests, 0, "nobody was asked: there was no neighbour");
        // Again, with a peer that answers at first.
        speakers.lwip.order("initiate peer/all").unwrap();
        speakers.run("up", |speakers| speakers.children() == 1);
        let events = let_pass(speakers, 300, "ike-down");
        assert!(
            events.contains("child-down peer/all") && events.contains("the peer does not answer"),
            "{events}"
        );
        assert!(speakers.lwip.order("counts").unwrap().starts_with("ike 0, half-open 0, children 0"));
    });
}

/// xorshift64: the same flood each time.
struct Dice(u64);

impl Dice {
    fn next(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 20) as usize % below
    }
}

/// Genuine messages, changed, cut, and made fragments of: the sanitizers look on, and what there is goes on.
#[test]
fn a_flood_of_malformed_messages_harms_nothing() {
    let cases = [Wanted { encap: true, ..Wanted::PLAIN }, Wanted { version: 6, ..Wanted::PLAIN }];
    with_speakers(&cases, |_, speakers| {
        let echo = speakers.peer.udp(ECHO);
        speakers.initiate();
        speakers.run("up", |speakers| speakers.children() == 1);
        let genuine = speakers.messages();
        assert!(genuine.len() >= 2);
        let mut dice = Dice(0x9E37_79B9_7F4A_7C15);
        for turn in 0..3_000 {
            let (port, mut data) = genuine[dice.next(genuine.len())].clone();
            let header = if port == 4500 { 4 } else { 0 };
            if dice.next(4) == 0 {
                data.truncate(header + dice.next(data.len() - header));
            }
            // Types of payloads and exchanges, flags, message numbers, and anything at all.
            for _ in 0..dice.next(6) {
                let at = header
                    + dice.next(
                        data.len().saturating_sub(header).clamp(1, if turn % 2 == 0 { 32 } else { 4_000 }),
                    );
                if let Some(byte) = data.get_mut(at) {
                    *byte = dice.next(256) as u8;
                }
            }
            if data.len() >= header + 28 {
                // The fragment payload of RFC 7383, more often than chance would have it; and a right length, so that it comes far.
                if dice.next(4) == 0 {
                    data[header + 16] = 53;
                }
                let len = (data.len() - header) as u32;
                data[header + 24..header + 28].copy_from_slice(&len.to_be_bytes());
            }
            speakers.inject(port, &data);
            if turn % 50 == 0 {
                speakers.poll();
                speakers.seen.take();
            }
        }
        speakers.run("a while", |speakers| {
            speakers.lwip.order("faults").is_ok_and(|faults| faults.contains("icv-mismatch"))
        });
        echo_from_lwip(speakers, echo);
        assert_eq!(speakers.children(), 1);
        let counts = speakers.lwip.order("counts").unwrap();
        assert!(counts.contains("refused 0,"), "{counts}");
    });
}

/// Strangers with SPIs of their own: half of the table is theirs, and a known peer still gets in.
#[test]
fn a_table_full_of_strangers_refuses_the_next() {
    with_speakers(&[Wanted::PLAIN], |_, speakers| {
        speakers.initiate();
        speakers.run("up", |speakers| speakers.children() == 1);
        let (port, request) = speakers.messages().remove(0);
        for stranger in 0..50u8 {
            let mut request = request.clone();
            request[..8].fill(stranger + 1);
            speakers.inject(port, &request);
        }
        speakers.run("a while", |speakers| {
            speakers.lwip.order("faults").is_ok_and(|faults| faults.contains("cookie "))
        });
        let counts = speakers.lwip.order("counts").unwrap();
        assert!(
            counts.starts_with("ike 2, half-open 1") || counts.starts_with("ike 3, half-open 2"),
            "{counts}"
        );
    });
}

/// However much memory there is: what does not fit is refused and counted, and nothing breaks.
#[test]
fn memory_that_does_not_suffice_refuses_and_goes_on() {
    with_programs(|program| {
        let (mut up, mut refused) = (0, 0);
        for memory in (20_000..300_000).step_by(10_000) {
            let Ok(mut speakers) =
                Speakers::new(program, Place::Inside, Wanted::PLAIN, memory).inspect_err(|error| {
                    assert!(error.contains("memory"), "{memory}: {error}");
                    refused += 1;
                })
            else {
                continue;
            };
            speakers.initiate();
            // Who has no memory left says nothing, but counts what it refused.
            let (start, mut is_given_up) = (Instant::now(), false);
            while start.elapsed() < Duration::from_secs(20) && speakers.told.is_empty() && !is_given_up {
                speakers.poll();
                is_given_up = start.elapsed() > Duration::from_secs(2)
                    && !speakers.lwip.order("counts").unwrap().contains("refused 0,");
            }
            let counts = speakers.lwip.order("counts").unwrap();
            match speakers.children() {
                0 => {
                    assert!(!counts.contains("refused 0,"), "{memory}: {counts}");
                    refused += 1;
                }
                _ => up += 1,
            }
            speakers.lwip.end();
        }
        assert!(up > 3 && refused > 3, "{up} {refused}");
    });
}
