//! Two engines that set up, rekey and delete SAs, over a link that loses, repeats and changes messages,
//! with a malicious peer.

use super::check;
use super::forge::{MessageForger, Raw, RawFragment};
use super::pair::{IkePeer, Pair, connection, deliver};
use crate::Target;
use crate::input::{Input, Script};
use casemate_crypto::KexMethod;
use casemate_ike::config::{
    AdditionalKex, AdditionalKexes, ChildMode, Childless, Connection, Encapsulation, KexRound, Lifespan,
    Unique,
};
use casemate_ike::{DownReason, Event, IkeKeys, IkeState, Path, Transmit};
use casemate_wire::ike::{ExchangeType, PayloadType};
use std::sync::Arc;
use std::time::Duration;

pub(crate) const TARGET: Target = Target {
    name: "ike-session",
    about: "IKE session: with any faults of the link and a malicious peer, events match SPIs, all SAs end, and can be set up again",
    max_len: 512,
    run,
    seeds,
    dictionary: &[],
};

/// Largest number of steps of one input.
const MAX_STEPS: usize = 80;
/// Largest number of messages that are kept for repetition.
const MAX_KEPT: usize = 64;
const EXCHANGES: [u8; 6] = [34, 35, 36, 37, 43, 44];

struct Session {
    pair: Pair,
    /// Messages that were delivered.
    delivered: Vec<Transmit>,
}

fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let setup = input.u8();
    let mut session = Session { pair: pair(setup), delivered: Vec::new() };
    for _ in 0..MAX_STEPS {
        if input.is_empty() {
            break;
        }
        let ticked = session.step(&mut input);
        check(&session.pair.left, ticked);
        check(&session.pair.right, ticked);
    }
    check_restart(session.pair);
}

/// Two sides with the options that the bits of `setup` select.
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
        if setup & 64 != 0 {
            connection.encapsulation = Encapsulation::Auto;
        }
        connection.children = vec![Arc::new(child)];
        if setup & 128 != 0 {
            add_key_exchanges(&mut connection);
        }
        connection
    };
    let mut pair = Pair::new(with("left", "right"), with("right", "left"));
    pair.left.ike.report_keys(true);
    pair.right.ike.report_keys(true);
    pair
}

/// Two additional key exchanges (RFC 9370) for the IKE SA and for Child SAs.
fn add_key_exchanges(connection: &mut Connection) {
    let kex = |method| AdditionalKex { methods: vec![method], optional: false };
    let all = [(KexRound::ALL[0], kex(KexMethod::MlKem512)), (KexRound::ALL[2], kex(KexMethod::EcpP256))];
    let additional: AdditionalKexes = all.into();
    connection.proposals.iter_mut().for_each(|proposal| proposal.additional = additional.clone());
    for proposal in &mut Arc::make_mut(&mut connection.children[0]).proposals {
        (proposal.kex, proposal.additional) = (vec![KexMethod::X25519], additional.clone());
    }
}

impl Session {
    fn side(&mut self, left: bool) -> &mut IkePeer {
        if left { &mut self.pair.left } else { &mut self.pair.right }
    }

    /// Performs one action. Returns whether time passed.
    fn step(&mut self, input: &mut Input<'_>) -> bool {
        let choice = input.u8();
        let left = choice & 0x80 != 0;
        match choice % 16 {
            0 => self.deliver_one(left),
            1 => self.deliver_all(),
            2 => drop(self.side(left).sent.pop_front()),
            3 => self.repeat(input, left),
            4 => self.change(input, left),
            5 => return self.advance(Duration::from_millis(u64::from(input.u16()))),
            6 => self.initiate(left),
            7 | 8 => self.rekey(input, left, choice % 16 == 7),
            9 | 10 => self.terminate(input, left, choice % 16 == 9),
            11 | 12 => self.send_forged(input, left),
            13 => self.send_malicious(input, left),
            14 => self.reconfigure(input, left),
            _ => self.side(left).sent.clear(),
        }
        false
    }

    /// Delivers a message of the other side to the left or the right side.
    fn deliver_to(&mut self, left: bool, transmit: Transmit) {
        self.delivered.truncate(MAX_KEPT - 1);
        self.delivered.insert(0, transmit.clone());
        let now = self.pair.now;
        deliver(self.side(left), transmit, now);
    }

    fn deliver_one(&mut self, left: bool) {
        if let Some(transmit) = self.side(!left).sent.pop_front() {
            self.deliver_to(left, transmit);
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
        let at = input.index(self.delivered.len());
        if let Some(transmit) = self.delivered.get(at).cloned() {
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

    fn advance(&mut self, time: Duration) -> bool {
        self.pair.now = self.pair.now.after(time);
        let now = self.pair.now;
        for side in [&mut self.pair.left, &mut self.pair.right] {
            side.handle_timeouts(now);
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
            Some(child) => {
                side.with_context(now, |ike, host, context| ike.rekey_child(child.id, host, context))
            }
            None => side.with_context(now, |all, host, context| all.rekey(ike.id, host, context)),
        };
    }

    fn terminate(&mut self, input: &mut Input<'_>, left: bool, child: bool) {
        let (now, which) = (self.pair.now, input.u8());
        let side = self.side(left);
        let ikes: Vec<_> = side.ike.status().collect();
        let Some(ike) = ikes.get(usize::from(which) % ikes.len().max(1)) else { return };
        match ike.children.first().filter(|_| child) {
            Some(child) => side.with_context(now, |ike, host, context| {
                ike.terminate_child(child.id, DownReason::Local, host, context)
            }),
            None => side.with_context(now, |all, host, context| {
                all.terminate(ike.id, DownReason::Local, host, context)
            }),
        };
    }

    fn keys(&self, input: &mut Input<'_>, left: bool) -> Option<IkeKeys> {
        let side = if left { &self.pair.left } else { &self.pair.right };
        let reported = side.events.iter().filter_map(|event| match event {
            Event::Keys(keys) => Some(&**keys),
            _ => None,
        });
        let reported: Vec<_> = reported.collect();
        // The latest keys come first.
        let at = input.index(reported.len());
        reported.iter().rev().nth(at).map(|keys| (*keys).clone())
    }

    /// Delivers any plaintext sealed with the real keys, as a message or as a fragment.
    fn send_forged(&mut self, input: &mut Input<'_>, left: bool) {
        let Some(keys) = self.keys(input, left) else { return };
        let flags = input.u8();
        let mut forger = MessageForger::new(keys, flags & 1 != 0);
        let exchange = ExchangeType(EXCHANGES[input.index(EXCHANGES.len())]);
        let header = forger.header(exchange, u32::from(input.u8() % 8), flags & 2 != 0);
        let is_fragment = flags & 4 != 0;
        let fragment =
            is_fragment.then(|| RawFragment { number: input.u8().into(), total: input.u8().into() });
        let first = PayloadType(input.u8());
        let len = usize::from(input.u8());
        let message = forger.seal_with(&header, &[], fragment, first, input.take(len));
        self.deliver_forged(left, message, flags & 8 != 0);
    }

    /// Delivers a real message with changed contents, sealed with the real keys.
    fn send_malicious(&mut self, input: &mut Input<'_>, left: bool) {
        let Some(keys) = self.keys(input, left) else { return };
        let mut forger = MessageForger::new(keys, true);
        let at = input.index(self.delivered.len());
        let Some((mut header, mut payloads)) =
            self.delivered.get(at).and_then(|delivered| forger.try_open(&delivered.message))
        else {
            return;
        };
        forger.initiator = header.flags.initiator;
        header.message_id = header.message_id.wrapping_add(u32::from(input.u8() % 4));
        alter(&mut payloads, input);
        let message = forger.seal(&header, &payloads);
        self.deliver_forged(left, message, false);
    }

    fn deliver_forged(&mut self, left: bool, message: Vec<u8>, elsewhere: bool) {
        let (own, peer) = (self.side(left).addr, self.side(!left).addr);
        let port = if elsewhere { 4_501 } else { 500 };
        // Path as the peer sees it.
        let path = Path { local: (peer, port).into(), remote: (own, 500).into() };
        self.deliver_to(left, Transmit { path, non_esp_marker: false, probe_len: None, message });
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
            side.with_context(now, |all, host, context| {
                all.terminate(ike, DownReason::Unconfigured, host, context)
            });
        }
        for child in gone.children {
            side.with_context(now, |all, host, context| {
                all.terminate_child(child, DownReason::Unconfigured, host, context)
            });
        }
    }
}

/// Removes, duplicates or changes payloads, or changes their types.
fn alter(payloads: &mut Vec<Raw>, input: &mut Input<'_>) {
    for _ in 0..input.u8() % 4 {
        let at = input.index(payloads.len());
        let Some(payload) = payloads.get(at).cloned() else { return };
        match input.u8() % 5 {
            0 => drop(payloads.remove(at)),
            1 => payloads.push(payload),
            2 => payloads[at].kind = PayloadType(input.u8()),
            3 => payloads[at].body.resize(input.u16().into(), 0),
            _ => {
                let (place, with) = (input.index(payload.body.len()), input.u8());
                if let Some(byte) = payloads[at].body.get_mut(place) {
                    *byte ^= with;
                }
            }
        }
    }
}

/// Terminates all SAs without delivering a message, and checks that no state is left. Then the two sides
/// connect again.
fn check_restart(mut pair: Pair) {
    for side in [&mut pair.left, &mut pair.right] {
        let ikes: Vec<_> = side.ike.status().map(|ike| ike.id).collect();
        for id in ikes {
            side.with_context(pair.now, |ike, host, context| {
                ike.terminate(id, DownReason::Local, host, context)
            });
        }
        for _ in 0..1_000 {
            let Some(due) = side.ike.next_timeout() else { break };
            pair.now = pair.now.max(due);
            side.handle_timeouts(pair.now);
        }
        side.sent.clear();
        check(side, true);
        assert_eq!((side.ike.status().count(), side.ike.next_timeout()), (0, None));
        assert_eq!((side.leaked_spis(), side.children()), (vec![], vec![]));
    }
    pair.left.initiate(pair.now);
    pair.run();
    assert_eq!(pair.left.ike.status().count(), 1, "the two sides can connect again");
    assert_eq!(pair.right.ike.status().next().map(|ike| ike.state), Some(IkeState::Established));
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
    let kexes = begin(128).u8(7).u8(0).u8(1).u8(LEFT | 8).u8(0).u8(1).u8(6).u8(1);
    let simultaneous = begin(128).u8(7).u8(0).u8(LEFT | 7).u8(0).u8(1).u8(5).u16(30_000).u8(1);
    // The left side's IKE_INTERMEDIATE request with a truncated value, then IKE_FOLLOWUP_KE under its keys.
    let early = Script::default().u8(128).u8(LEFT | 6).u8(0).u8(LEFT).u8(0);
    let truncated = early.u8(13).u8(0).u8(0).u8(0).u8(1).u8(0).u8(3).u16(100).u8(1);
    let followup = begin(128).u8(11).u8(0).u8(1).u8(5).u8(4).u8(34).u8(8).bytes(&[0, 0, 0, 8, 0, 19, 0, 0]);
    let both = Script::default().u8(16).u8(LEFT | 6).u8(6).u8(1).u8(14).u8(1).u8(1);
    let all = [begin(0), rekeys, lossy, forged, fragment, lies, time, ends, both];
    let with_kexes = [kexes, simultaneous, truncated, followup];
    all.into_iter().chain(with_kexes).map(Script::finish).collect()
}
