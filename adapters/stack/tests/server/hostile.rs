//! Applications that do what they like with their memory.

use crate::place::{Application, Place, V4, limits, pattern, transfer};
use casemate_rings::{Call, Handle};
use casemate_stack::{Grant, Notice};
use std::net::SocketAddr;
use std::sync::atomic::Ordering;

/// A small generator of numbers (xorshift), the same in each run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.roll() % limit as u64) as usize
    }
}

/// Words that hit more often than any: positions near the truth, lengths, kinds of calls.
fn word(dice: &mut Dice) -> u64 {
    match dice.below(4) {
        0 => dice.roll(),
        1 => dice.roll() % 600,
        2 => (dice.roll() % 1_200) | (dice.roll() % 12) << 32,
        _ => (dice.roll() % 12) | (dice.roll() & 0x8300) | ((dice.roll() % 4) << 32),
    }
}

fn scribble(application: &Application, dice: &mut Dice) {
    let memory = application.memory();
    for _ in 0..=dice.below(40) {
        // The positions more often than the rest.
        let at = if dice.below(3) == 0 { dice.below(6) * 8 } else { dice.below(memory.len()) };
        memory[at].store(word(dice), Ordering::Relaxed);
    }
}

const SECRET: &[u8; 16] = b"for nobody else!";

/// Two applications transfer data; a third one writes anything anywhere into its memory, again and again.
#[test]
fn scribbling_harms_nobody_else() {
    let mut broken = 0;
    for seed in 1..=1_500 {
        let mut dice = Dice(u64::wrapping_mul(seed, 0x9e37_79b9_7f4a_7c15));
        let mut place = Place::new(limits());
        let (mut left, mut right) = (place.admit(Grant::none()), place.admit(Grant::none()));
        let mut hostile = place.admit(Grant::none());
        let listener = left.listen(&mut place, 7_000, 1);
        let out = right.connect(&mut place, SocketAddr::new(V4, 7_000));
        let into = left.accept(&mut place, listener);
        let data = [SECRET.repeat(20), pattern(2_000, seed)].concat();
        let received = transfer(&mut place, (&mut right, out), (&mut left, into), &data, |place| {
            // A call in good form now and then, so that there are sockets to play with.
            if dice.below(4) == 0 {
                let call = match dice.below(4) {
                    0 => Call::Connect { remote: SocketAddr::new(V4, 7_000) },
                    1 => Call::Listen { local: None, port: 1_024 + dice.below(9) as u16, backlog: 2 },
                    2 => Call::Bind { local: None, port: 0 },
                    _ => Call::Receive { socket: Handle(dice.below(3) as u32), most: 5_000, patient: true },
                };
                let _ = hostile.caller.call(casemate_rings::Tag(1), &call, &[3; 50]);
            }
            scribble(&hostile, &mut dice);
            if !place.notices.is_empty() && dice.below(10) == 0 {
                place.notices.clear();
                hostile = place.admit(Grant::none());
                broken += 1;
            }
            let seen: Vec<u8> =
                hostile.memory().iter().flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes()).collect();
            assert!(!seen.windows(16).any(|part| part == SECRET), "seed {seed}: another's data");
        });
        assert!(received == data, "seed {seed}");
        assert!(place.notices.iter().all(|Notice::Broken(id, _)| *id != left.id && *id != right.id));
    }
    assert!(broken > 1_000, "only {broken} sessions were broken: the dice are dull");
}

#[test]
fn one_that_never_reads_waits_alone() {
    let mut place = Place::new(limits());
    let (mut left, mut right) = (place.admit(Grant::none()), place.admit(Grant::none()));
    let mut silent = place.admit(Grant::none());
    // Calls until neither ring takes more.
    let mut made = 0;
    for _ in 0..10_000 {
        if silent.caller.call(casemate_rings::Tag(made), &Call::Close { socket: Handle(0) }, &[]).is_ok() {
            made += 1;
        }
        place.round();
    }
    // 512 words in each ring, five for a message.
    assert_eq!(made, 2 * (512 / 5));
    let listener = left.listen(&mut place, 7_000, 1);
    let out = right.connect(&mut place, SocketAddr::new(V4, 7_000));
    let into = left.accept(&mut place, listener);
    let data = pattern(20_000, 4);
    assert!(transfer(&mut place, (&mut right, out), (&mut left, into), &data, |_| ()) == data);
    // When it reads at last, it is served on.
    let answered = (0..10_000).filter(|_| {
        place.round();
        silent.take().is_some()
    });
    assert_eq!(answered.count(), made as usize);
}

#[test]
fn a_broken_session_leaves_nothing() {
    let mut place = Place::new(limits());
    let mut one = place.admit(Grant::none());
    one.listen(&mut place, 7_000, 3);
    one.memory()[0].store(u64::MAX, Ordering::Relaxed);
    place.rounds(2);
    assert!(matches!(place.notices[..], [Notice::Broken(id, _)] if id == one.id));
    assert_eq!(place.server.counters().broken, 1);
    assert_eq!((place.sockets.iter().count(), place.server.sessions().count()), (0, 0));
    let mut other = place.admit(Grant::none());
    other.listen(&mut place, 7_000, 1);
}
