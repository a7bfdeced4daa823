//! Two engines that set up, replace and close SAs, with a wire that loses, repeats and changes, and a peer that lies.

use super::check;
use super::forge::{Forger, Raw};
use super::pair::{Pair, Side, connection, deliver};
use crate::Target;
use crate::input::Input;
use crate::script::Script;
use casemate_crypto::KexMethod;
use casemate_ike::config::{ChildMode, Childless, Connection, Lifespan, Unique};
use casemate_ike::{Down, Event, IkeKeys, Path, Transmit};
use casemate_wire::ike::{ExchangeType, PayloadType};
use std::sync::Arc;
use std::time::Duration;

pub(crate) const TARGET: Target = Target {
    name: "ike-session",
    about: "IKE: whatever the wire and a lying peer do, events and SPIs agree, everything ends, and begins anew",
    max_len: 512,
    run,
    seeds,
    words: &[],
};

/// The most steps of one input.
const STEPS: usize = 80;
/// The most messages that are kept to be repeated.
const KEPT: usize = 64;
const EXCHANGES: [u8; 5] = [34, 35, 36, 37, 43];

struct Session {
    pair: Pair,
    /// What was on the wire.
    seen: Vec<Transmit>,
}

fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let setup = input.u8();
    let mut session = Session { pair: pair(setup), seen: Vec::new() };
    for _ in 0..STEPS {
        if input.is_empty() {
            break;
        }
        let ticked = session.step(&mut input);
        check(&session.pair.left, ticked);
        check(&session.pair.right, ticked);
    }
    reset(session.pair);
}

/// Two sides with what the bits of `setup` switch on.
fn pair(setup: u8) -> Pair {
    let with = |own, peer| {
        let mut connection = connection(own, peer);
        let mut child = (*connection.children[0]).clone();
        if setup & 1 != 0 {
            child.proposals.iter_mut().for_each(|p| p.kex = vec![KexMethod::X25519, KexMethod::EcpP256]);
        }
        if setup & 2 != 0 {
            child.mode = ChildMode::Transport;
        }
        if setup & 4 != 0 {
            child.lifespan = Lifespan::rekeyed_after(Duration::from_secs(20));
            connection.lifespan = Lifespan::rekeyed_after(Duration::from_secs(50));
        }
        connection.childless = if setup & 8 != 0 { Childless::Prefer } else { Childless::Allow };
        connection.unique = if setup & 16 != 0 { Unique::Replace } else { Unique::No };
        connection.dpd_delay = (setup & 32 != 0).then_some(Duration::from_secs(5));
        connection.force_encap = setup & 64 != 0;
        connection.children = vec![Arc::new(child)];
        connection
    };
    let mut pair = Pair::new(with("left", "right"), with("right", "left"));
    pair.left.ike.tell_keys(true);
    pair.right.ike.tell_keys(true);
    pair
}

impl Session {
    fn side(&mut self, left: bool) -> &mut Side {
        if left { &mut self.pair.left } else { &mut self.pair.right }
    }

    /// Does one thing; answers whether time passed.
    fn step(&mut self, input: &mut Input<'_>) -> bool {
        let choice = input.u8();
        let left = choice & 0x80 != 0;
        match choice % 16 {
            0 => self.deliver_one(left),
            1 => self.deliver_all(),
            2 => drop(self.side(left).sent.pop_front()),
            3 => self.repeat(input, left),
            4 => self.change(input, left),
            5 => return self.pass(Duration::from_millis(u64::from(input.u16()))),
            6 => self.initiate(left),
            7 | 8 => self.rekey(input, left, choice % 16 == 7),
            9 | 10 => self.terminate(input, left, choice % 16 == 9),
            11 | 12 => self.forge(input, left),
            13 => self.lie(input, left),
            14 => self.reconfigure(input, left),
            _ => self.side(left).sent.clear(),
        }
        false
    }

    /// To the left or the right side, from the other one.
    fn give(&mut self, left: bool, transmit: Transmit) {
        self.seen.truncate(KEPT - 1);
        self.seen.insert(0, transmit.clone());
        let now = self.pair.now;
        deliver(self.side(left), transmit, now);
    }

    fn deliver_one(&mut self, left: bool) {
        if let Some(transmit) = self.side(!left).sent.pop_front() {
            self.give(left, transmit);
        }
    }

    fn deliver_all(&mut self) {
        for _ in 0..100 {
            let left = self.pair.left.sent.is_empty();
            match self.side(left).sent.is_empty() && self.side(!left).sent.is_empty() {
                true => return,
                false => self.deliver_one(left),
            }
        }
    }

    fn repeat(&mut self, input: &mut Input<'_>, left: bool) {
        let at = input.index(self.seen.len());
        if let Some(transmit) = self.seen.get(at).cloned() {
            let now = self.pair.now;
            deliver(self.side(left), transmit, now);
        }
    }

    fn change(&mut self, input: &mut Input<'_>, left: bool) {
        let Some(mut transmit) = self.side(!left).sent.front().cloned() else { return };
        let (at, with) = (input.index(transmit.message.len()), input.u8());
        if let Some(byte) = transmit.message.get_mut(at) {
            *byte ^= with;
        }
        let now = self.pair.now;
        deliver(self.side(left), transmit, now);
    }

    fn pass(&mut self, time: Duration) -> bool {
        self.pair.now = self.pair.now.after(time);
        let now = self.pair.now;
        for side in [&mut self.pair.left, &mut self.pair.right] {
            side.tick(now);
        }
        true
    }

    fn initiate(&mut self, left: bool) {
        let now = self.pair.now;
        if self.side(left).ike.status().count() < 4 {
            self.side(left).initiate(now);
        }
    }

    fn rekey(&mut self, input: &mut Input<'_>, left: bool, child: bool) {
        let (now, which) = (self.pair.now, input.u8());
        let side = self.side(left);
        let ikes: Vec<_> = side.ike.status().collect();
        let Some(ike) = ikes.get(usize::from(which) % ikes.len().max(1)) else { return };
        match ike.children.first().filter(|_| child) {
            Some(child) => side.with_env(now, |ike, env| ike.rekey_child(child.id, env)),
            None => side.with_env(now, |all, env| all.rekey(ike.id, env)),
        };
    }

    fn terminate(&mut self, input: &mut Input<'_>, left: bool, child: bool) {
        let (now, which) = (self.pair.now, input.u8());
        let side = self.side(left);
        let ikes: Vec<_> = side.ike.status().collect();
        let Some(ike) = ikes.get(usize::from(which) % ikes.len().max(1)) else { return };
        match ike.children.first().filter(|_| child) {
            Some(child) => side.with_env(now, |ike, env| ike.terminate_child(child.id, Down::Local, env)),
            None => side.with_env(now, |all, env| all.terminate(ike.id, Down::Local, env)),
        };
    }

    fn keys(&self, input: &mut Input<'_>, left: bool) -> Option<IkeKeys> {
        let side = if left { &self.pair.left } else { &self.pair.right };
        let told = side.events.iter().filter_map(|event| match event {
            Event::Keys(keys) => Some(&**keys),
            _ => None,
        });
        let told: Vec<_> = told.collect();
        // The last one comes first.
        let at = input.index(told.len());
        told.iter().rev().nth(at).map(|keys| (*keys).clone())
    }

    /// Any plaintext under true keys, whole or as a fragment.
    fn forge(&mut self, input: &mut Input<'_>, left: bool) {
        let Some(keys) = self.keys(input, left) else { return };
        let flags = input.u8();
        let mut forger = Forger::new(keys, flags & 1 != 0);
        let exchange = ExchangeType(EXCHANGES[input.index(EXCHANGES.len())]);
        let header = forger.header(exchange, u32::from(input.u8() % 8), flags & 2 != 0);
        let fragment = (flags & 4 != 0).then(|| (u16::from(input.u8()), u16::from(input.u8())));
        let first = PayloadType(input.u8());
        let len = usize::from(input.u8());
        let message = forger.seal_with(&header, &[], fragment, (first, input.take(len)));
        self.give_forged(left, message, flags & 8 != 0);
    }

    /// A true message of the wire, with other contents, under the true keys.
    fn lie(&mut self, input: &mut Input<'_>, left: bool) {
        let Some(keys) = self.keys(input, left) else { return };
        let mut forger = Forger::new(keys, true);
        let at = input.index(self.seen.len());
        let Some((mut header, mut payloads)) =
            self.seen.get(at).and_then(|seen| forger.try_open(&seen.message))
        else {
            return;
        };
        forger.initiator = header.flags.initiator;
        header.message_id = header.message_id.wrapping_add(u32::from(input.u8() % 4));
        alter(&mut payloads, input);
        let message = forger.seal(&header, &payloads);
        self.give_forged(left, message, false);
    }

    fn give_forged(&mut self, left: bool, message: Vec<u8>, elsewhere: bool) {
        let (own, peer) = (self.side(left).addr, self.side(!left).addr);
        let port = if elsewhere { 4_501 } else { 500 };
        // As the peer sends it.
        let path = Path { local: (peer, port).into(), remote: (own, 500).into() };
        self.give(left, Transmit { path, marker: false, message });
    }

    fn reconfigure(&mut self, input: &mut Input<'_>, left: bool) {
        let now = self.pair.now;
        let other = input.flag();
        let side = self.side(left);
        let mut connection: Connection = (*side.ike.connections()[0]).clone();
        if other {
            let mut child = (*connection.children[0]).clone();
            child.replay_window ^= 64;
            connection.children = vec![Arc::new(child)];
        }
        let gone = side.ike.configure(vec![Arc::new(connection)], &[]);
        for ike in gone.ikes {
            side.with_env(now, |all, env| all.terminate(ike, Down::Unconfigured, env));
        }
        for child in gone.children {
            side.with_env(now, |all, env| all.terminate_child(child, Down::Unconfigured, env));
        }
    }
}

/// Leaves a payload out, doubles it, changes it, or takes another one's type.
fn alter(payloads: &mut Vec<Raw>, input: &mut Input<'_>) {
    for _ in 0..input.u8() % 4 {
        let at = input.index(payloads.len());
        let Some(payload) = payloads.get(at).cloned() else { return };
        match input.u8() % 4 {
            0 => drop(payloads.remove(at)),
            1 => payloads.push(payload),
            2 => payloads[at].kind = PayloadType(input.u8()),
            _ => {
                let (place, with) = (input.index(payload.body.len()), input.u8());
                if let Some(byte) = payloads[at].body.get_mut(place) {
                    *byte ^= with;
                }
            }
        }
    }
}

/// Everything ends, even if no message arrives any more, and leaves nothing; then they begin anew.
fn reset(mut pair: Pair) {
    for side in [&mut pair.left, &mut pair.right] {
        let ikes: Vec<_> = side.ike.status().map(|ike| ike.id).collect();
        for id in ikes {
            side.with_env(pair.now, |ike, env| ike.terminate(id, Down::Local, env));
        }
        for _ in 0..1_000 {
            let Some(due) = side.ike.due() else { break };
            pair.now = pair.now.max(due);
            side.tick(pair.now);
        }
        side.sent.clear();
        check(side, true);
        assert_eq!((side.ike.status().count(), side.ike.due()), (0, None));
        assert_eq!((side.leaked(), side.children()), (vec![], vec![]));
    }
    pair.left.initiate(pair.now);
    pair.run();
    assert_eq!(pair.left.ike.status().count(), 1, "they can begin anew");
    assert_eq!(pair.right.ike.status().next().map(|ike| ike.state), Some("established"));
}

fn seeds() -> Vec<Vec<u8>> {
    const LEFT: u8 = 0x80;
    let begin = |setup: u8| Script::default().u8(setup).u8(LEFT | 6).u8(1);
    let rekeys = begin(0).u8(7).u8(0).u8(LEFT | 7).u8(0).u8(1).u8(8).u8(0).u8(LEFT | 8).u8(0).u8(1);
    let lossy = begin(1).u8(7).u8(0).u8(2).u8(5).u16(1_100).u8(LEFT).u8(3).u8(0).u8(4).u16(40).u8(1);
    let forged = begin(32).u8(11).u8(0).u8(1).u8(3).u8(2).u8(42).u8(4).bytes(&[1, 0, 0, 0]);
    let fragment =
        begin(2).u8(12).u8(0).u8(5).u8(3).u8(2).u8(1).u8(2).u8(43).u8(8).bytes(&[0, 0, 0, 8, 1, 2, 3, 4]);
    let lies = begin(4).u8(13).u8(0).u8(1).u8(1).u8(1).u8(0).u8(3).u8(9).u8(1).u8(1);
    let time = begin(4).u8(5).u16(60_000).u8(1).u8(5).u16(60_000).u8(1);
    let ends = begin(8).u8(9).u8(0).u8(LEFT | 10).u8(0).u8(1);
    let both = Script::default().u8(16).u8(LEFT | 6).u8(6).u8(1).u8(14).u8(1).u8(1);
    [begin(0), rekeys, lossy, forged, fragment, lies, time, ends, both].map(Script::done).to_vec()
}
