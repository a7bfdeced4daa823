//! Whole inbound path, with valid, changed, duplicated and forged packets, and with packets of a malicious
//! peer.
//!
//! Checks the rules of RFC 4301 section 5.2 and RFC 4303 section 3.4 against a simple model: the sealed
//! packets and the received sequence numbers. Every delivered packet has been sealed by a holder of the
//! key; no other packet changes a window; every drop is counted once; and a batch has the same results as
//! its packets one by one.

mod sealed;

use super::replay::Window;
use super::{dropped, generate};
use crate::Target;
use crate::input::{Input, Script};
use casemate_datapath::{Direction, DropReason, Inbound};
use casemate_sa::Mode;
use casemate_test_support::hosts::{Host, Link, LinkSpec, Received};
use sealed::Sealed;

pub(crate) const TARGET: Target = Target {
    name: "inbound",
    about: "inbound path: only sealed packets are delivered, once; drops are counted once; batches give the same results",
    max_len: 1_024,
    run,
    seeds,
    dictionary: &[],
};

/// Largest number of received packets of one input.
const MAX_ARRIVALS: usize = 48;

fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let spec = generate::link_spec(input.u8());
    let mut session = Session::new(&spec);
    while !input.is_empty() && session.arrivals.len() < MAX_ARRIVALS {
        session.step(&mut input);
    }
    // After any input, a new valid packet still passes.
    let last = sealed::conforming_packet(&mut Input::new(&[0, 0, 9]), &spec, &mut session.link)
        .expect("a plain packet");
    session.receive_packet(last.wire.clone(), Some(&last), false);
    session.check_batches(usize::from(bytes.first().copied().unwrap_or(0) >> 5) + 1);
}

/// Result of one received packet.
struct Arrival {
    wire: Vec<u8>,
    received: Received,
    /// Whether the packet is as it was sealed.
    is_unchanged: bool,
}

struct Session<'s> {
    spec: &'s LinkSpec,
    link: Link,
    window: Window,
    sealed: Vec<Sealed>,
    arrivals: Vec<Arrival>,
}

impl<'s> Session<'s> {
    fn new(spec: &'s LinkSpec) -> Self {
        let window = Window::new(spec.window, spec.last_seq);
        Self { spec, link: spec.build(), window, sealed: Vec::new(), arrivals: Vec::new() }
    }

    fn step(&mut self, input: &mut Input<'_>) {
        match input.u8() % 8 {
            0 | 1 => {
                let made = sealed::conforming_packet(input, self.spec, &mut self.link);
                self.sealed.extend(made);
            }
            2 => {
                let made = sealed::malicious_packet(input, self.spec, self.window.highest());
                self.sealed.extend(made);
            }
            3 => self.receive_packet(forged_packet(input, self.spec), None, true),
            4 if !self.sealed.is_empty() => {
                let which = self.sealed[input.index(self.sealed.len())].clone();
                self.receive_packet(changed_packet(input, &which.wire), Some(&which), true);
            }
            _ if !self.sealed.is_empty() => {
                let which = self.sealed[input.index(self.sealed.len())].clone();
                self.receive_packet(which.wire.clone(), Some(&which), false);
            }
            _ => {}
        }
    }

    /// Receives a packet that is `origin`, or was derived from it.
    fn receive_packet(&mut self, wire: Vec<u8>, origin: Option<&Sealed>, is_changed: bool) {
        let before = dropped(&self.link.b);
        let received = self.link.b.receive(&wire);
        let is_dropped = matches!(received, Received::Other(Inbound::Drop(_)));
        assert_eq!(dropped(&self.link.b) - before, u64::from(is_dropped), "each drop is counted once");

        let was_new = origin.is_some_and(|origin| self.window.is_new(origin.seq));
        let is_authentic = self.update_window(origin, was_new);
        if let Received::Packet(packet) = &received {
            let origin = origin.expect("a packet was delivered that no peer sealed");
            assert!(is_authentic, "a packet was delivered without authentication, or twice");
            origin.assert_delivered(self.spec, packet, is_changed);
        }
        if let Some(origin) = origin.filter(|_| !is_changed) {
            if was_new {
                assert!(is_authentic, "{received:?}");
                origin.assert_expected(&received);
            } else {
                assert_eq!(received, Received::Other(Inbound::Drop(DropReason::Replay)));
            }
        }
        self.arrivals.push(Arrival { wire, received, is_unchanged: !is_changed });
    }

    /// Whether the sequence number of the packet was accepted. No other packet may change a window.
    fn update_window(&mut self, origin: Option<&Sealed>, was_new: bool) -> bool {
        let states = windows(&self.link.b);
        let is = |window: &Window| states.iter().all(|state| *state == (window.highest(), window.recent()));
        let Some(origin) = origin.filter(|_| was_new) else {
            assert!(is(&self.window), "a forged or replayed packet changed the window");
            return false;
        };
        let mut after = self.window.clone();
        after.commit(origin.seq);
        // Without a window, an older number leaves no trace.
        let leaves_no_trace = is(&self.window) && is(&after);
        if is(&after) {
            self.window = after;
            return true;
        }
        assert!(is(&self.window), "{states:?}");
        leaves_no_trace
    }

    /// Receives the same packets in batches, with a new receiver.
    fn check_batches(&self, len: usize) {
        let mut host = self.spec.build().b;
        for batch in self.arrivals.chunks(len * 5) {
            let wires: Vec<&[u8]> = batch.iter().map(|arrival| &arrival.wire[..]).collect();
            for (received, arrival) in host.receive_batch(&wires).iter().zip(batch) {
                // The numbers of a batch are checked before its first packet is opened, so a forged number
                // may be compared with an older window.
                if arrival.is_unchanged
                    || !(is_unauthenticated(received) && is_unauthenticated(&arrival.received))
                {
                    assert_eq!(*received, arrival.received, "in a batch of {}", batch.len());
                }
            }
        }
        assert_eq!(windows(&host), windows(&self.link.b));
        assert_eq!(dropped(&host), dropped(&self.link.b));
    }
}

/// Whether the packet was dropped before or by the check of the ICV.
fn is_unauthenticated(received: &Received) -> bool {
    use DropReason::{AhHeadersTooLong, AhLength, IcvMismatch, MalformedHeader, Replay, Truncated};
    let Received::Other(Inbound::Drop(reason)) = received else { return false };
    matches!(reason, AhHeadersTooLong | AhLength | IcvMismatch | MalformedHeader | Replay | Truncated)
}

/// Highest number and bitmap of the newest 64 numbers of each inbound SA. The SAs of a bundle advance
/// together.
fn windows(host: &Host) -> Vec<(u64, u64)> {
    let inbound = host.dp.sas().filter(|sa| sa.id.direction() == Direction::Inbound);
    inbound.filter_map(|sa| sa.window.map(|window| (sa.seq, window.recent))).collect()
}

/// Packet with some bytes changed, removed or appended.
fn changed_packet(input: &mut Input<'_>, wire: &[u8]) -> Vec<u8> {
    let mut wire = wire.to_vec();
    let how = input.u8();
    for _ in 0..how & 3 {
        let at = input.index(wire.len());
        wire[at] ^= input.u8();
    }
    match how >> 6 {
        1 => wire.truncate(input.index(wire.len() + 1)),
        2 => wire.extend_from_slice(&input.array::<9>()[..usize::from(how >> 2 & 7)]),
        _ => {}
    }
    wire
}

/// Forged bytes: raw, or behind an IP header that matches an SA.
fn forged_packet(input: &mut Input<'_>, spec: &LinkSpec) -> Vec<u8> {
    let (how, len) = (input.u8(), input.u16());
    let bytes = input.take(usize::from(len) % 512).to_vec();
    if how & 1 == 0 {
        return bytes;
    }
    let layer = spec.params(spec.layers.len() - 1, true);
    let protocol = [50, 51, 17, 1, 58, 59, 4, 41][usize::from(how >> 1 & 7)];
    let spi = match how >> 4 & 3 {
        0 => vec![],
        1 => layer.spi.get().to_be_bytes().to_vec(),
        // AH header.
        2 => [&[4, 4, 0, 0][..], &layer.spi.get().to_be_bytes()].concat(),
        // ESP in UDP.
        _ => {
            let len = (12 + bytes.len()) as u16;
            let ports = [0x11, 0x94, 0x11, 0x94];
            [&ports[..], &len.to_be_bytes(), &[0, 0], &layer.spi.get().to_be_bytes()].concat()
        }
    };
    let ends = if how & 0x40 == 0 { spec.ends.outer } else { spec.ends.inner };
    casemate_test_support::hosts::packets::ip(ends.0, ends.1, protocol, &[spi, bytes].concat(), false)
}

/// Whether the innermost SA is in tunnel mode, which restores the whole packet.
fn is_tunnel(spec: &LinkSpec) -> bool {
    spec.layers[0].0 == Mode::Tunnel
}

fn seeds() -> Vec<Vec<u8>> {
    let conforming_packet = |shape: u8, len: u8| vec![0, shape, 0xb8, len, 4, 1, 2, 3, 4];
    let deliver = |which: u8| vec![7, which];
    let mut seeds = Vec::new();
    for link in 0..generate::LINKS {
        let start = Script::default().u8(link);
        let two = start.clone().bytes(&conforming_packet(0, 9)).bytes(&conforming_packet(0, 200));
        // In order, a replay, and the first packet again.
        seeds.push(
            two.clone().bytes(&deliver(0)).bytes(&deliver(1)).bytes(&deliver(1)).bytes(&deliver(0)).finish(),
        );
        // Late, after changes of TOS, TTL, sequence number and last byte.
        let changes = [[4, 1, 1, 1, 3], [4, 1, 1, 8, 1], [4, 0, 1, 27, 2], [4, 1, 0, 60, 1]].concat();
        seeds.push(two.clone().bytes(&changes).bytes(&[4, 0, 0x40, 50]).bytes(&deliver(0)).finish());
        // Unusual headers, dummy packets, fragments.
        let odd =
            [conforming_packet(0x15, 30), conforming_packet(5, 0), conforming_packet(0x40, 16)].concat();
        seeds.push(
            start.clone().bytes(&odd).bytes(&deliver(2)).bytes(&deliver(1)).bytes(&deliver(0)).finish(),
        );
        // Packets of a malicious peer, and later packets.
        let malicious_packet = |how: u8| [&[2, 1, 1, how][..], &[0, 0xb8, 9, 0, 8, 0xff]].concat();
        let lies = [
            malicious_packet(0x20),
            malicious_packet(0x24),
            malicious_packet(0x21),
            malicious_packet(0x10),
            malicious_packet(0),
        ]
        .concat();
        seeds.push(
            start.clone().bytes(&lies).bytes(&deliver(0)).bytes(&deliver(1)).bytes(&deliver(2)).finish(),
        );
        // Forged packets with a header that matches the SA.
        let forged_packet =
            [1u8, 0x11, 0x23, 0x35, 0x39].map(|how| [&[3, how, 0, 30][..], &[0; 30]].concat());
        seeds.push(start.bytes(&forged_packet.concat()).finish());
    }
    seeds
}
