//! Applications that corrupt their shared memory.

use crate::harness::{Application, Harness, V4, limits, pattern, transfer};
use casemate_socketd::{Notice, PortGrant};
use casemate_socketd_protocol::{Request, SocketId};
use casemate_test_support::TestRng;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;

/// Returns words that are likely to matter: plausible positions, lengths and request types.
fn word(rng: &mut TestRng) -> u64 {
    match rng.below(4) {
        0 => rng.next_u64(),
        1 => rng.next_u64() % 600,
        2 => (rng.next_u64() % 1_200) | (rng.next_u64() % 12) << 32,
        _ => (rng.next_u64() % 12) | (rng.next_u64() & 0x8300) | ((rng.next_u64() % 4) << 32),
    }
}

fn scribble(application: &Application, rng: &mut TestRng) {
    let memory = application.memory();
    for _ in 0..=rng.below(40) {
        // Ring positions more often than the rest.
        let at = if rng.below(3) == 0 { rng.below(6) * 8 } else { rng.below(memory.len()) };
        memory[at].store(word(rng), Ordering::Relaxed);
    }
}

const SECRET: &[u8; 16] = b"another session!";

/// Two applications transfer data, while a third one keeps writing random words to its shared memory.
#[test]
fn corrupted_memory_does_not_affect_other_applications() {
    let mut broken = 0;
    for seed in 1..=1_500 {
        let mut rng = TestRng::new(seed);
        let mut harness = Harness::new(limits());
        let (mut left, mut right) = (harness.admit(PortGrant::none()), harness.admit(PortGrant::none()));
        let mut hostile = harness.admit(PortGrant::none());
        let listener = left.listen(&mut harness, 7_000, 1);
        let out = right.connect(&mut harness, SocketAddr::new(V4, 7_000));
        let into = left.accept(&mut harness, listener);
        let data = [SECRET.repeat(20), pattern(2_000, seed)].concat();
        let received = transfer(&mut harness, right.end(out), left.end(into), &data, |harness| {
            // From time to time a valid request, so that the application has sockets.
            if rng.below(4) == 0 {
                let call = match rng.below(4) {
                    0 => Request::Connect { remote: SocketAddr::new(V4, 7_000) },
                    1 => Request::Listen { local: None, port: 1_024 + rng.below(9) as u16, backlog: 2 },
                    2 => Request::Bind { local: None, port: 0 },
                    _ => {
                        Request::Receive { socket: SocketId(rng.below(3) as u32), max_len: 5_000, wait: true }
                    }
                };
                let _ =
                    hostile.channel.send_request(casemate_socketd_protocol::RequestId(1), &call, &[3; 50]);
            }
            scribble(&hostile, &mut rng);
            if !harness.notices.is_empty() && rng.below(10) == 0 {
                harness.notices.clear();
                hostile = harness.admit(PortGrant::none());
                broken += 1;
            }
            let seen: Vec<u8> =
                hostile.memory().iter().flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes()).collect();
            assert!(!seen.windows(16).any(|part| part == SECRET), "seed {seed}: data of another application");
        });
        assert!(received == data, "seed {seed}");
        assert!(
            harness.notices.iter().all(|Notice::ProtocolViolation(id, _)| *id != left.id && *id != right.id)
        );
    }
    assert!(broken > 1_000, "only {broken} sessions were terminated: the random words are too harmless");
}

#[test]
fn an_application_that_never_reads_only_delays_itself() {
    let mut harness = Harness::new(limits());
    let (mut left, mut right) = (harness.admit(PortGrant::none()), harness.admit(PortGrant::none()));
    let mut silent = harness.admit(PortGrant::none());
    // Sends requests until both rings are full.
    let mut made = 0;
    for _ in 0..10_000 {
        if silent
            .channel
            .send_request(
                casemate_socketd_protocol::RequestId(made),
                &Request::Close { socket: SocketId(0) },
                &[],
            )
            .is_ok()
        {
            made += 1;
        }
        harness.round();
    }
    // Each ring has 512 words, and a message has five.
    assert_eq!(made, 2 * (512 / 5));
    let listener = left.listen(&mut harness, 7_000, 1);
    let out = right.connect(&mut harness, SocketAddr::new(V4, 7_000));
    let into = left.accept(&mut harness, listener);
    let data = pattern(20_000, 4);
    assert!(transfer(&mut harness, right.end(out), left.end(into), &data, |_| ()) == data);
    // When the application reads at last, it is served again.
    let answered = (0..10_000).filter(|_| {
        harness.round();
        silent.take().is_some()
    });
    assert_eq!(answered.count(), made as usize);
}

#[test]
fn a_terminated_session_leaves_no_sockets() {
    let mut harness = Harness::new(limits());
    let mut app = harness.admit(PortGrant::none());
    app.listen(&mut harness, 7_000, 3);
    app.memory()[0].store(u64::MAX, Ordering::Relaxed);
    harness.rounds(2);
    assert!(matches!(harness.notices[..], [Notice::ProtocolViolation(id, _)] if id == app.id));
    assert_eq!(harness.server.counters().violations, 1);
    assert_eq!((harness.sockets.iter().count(), harness.server.sessions().count()), (0, 0));
    let mut other = harness.admit(PortGrant::none());
    other.listen(&mut harness, 7_000, 1);
}
