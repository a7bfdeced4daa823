//! The inbound road as a whole, with packets that are true, changed, doubled, made up, and sealed by a peer that lies.
//!
//! Keeps the promises of RFC 4301 section 5.2 and RFC 4303 section 3.4 in the plainest form beside the data path: what was
//! sealed, which numbers were received. What is delivered must be what somebody with the key sealed; nothing else may move
//! a window; every drop is counted once; and a batch comes to the same as its packets one by one.

use super::window::Window;
use super::{dropped, specs};
use crate::Target;
use crate::input::Input;
use casemate_datapath::{Direction, DropReason, Inbound};
use casemate_datapath_tests::{Host, Link, LinkSpec, Received};
use casemate_sa::Mode;
use sealed::Sealed;

mod sealed;
mod seeds;

pub(crate) const TARGET: Target = Target {
    name: "inbound",
    about: "The inbound road: only what was sealed is delivered, once; drops are counted once; batches change nothing",
    max_len: 1_024,
    run,
    seeds: seeds::seeds,
    words: &[],
};

/// More arrivals than this are not worth their time.
const MOST: usize = 48;

fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let spec = specs::link(input.u8());
    let mut world = World::new(&spec);
    while !input.is_empty() && world.arrived.len() < MOST {
        world.step(&mut input);
    }
    // Whatever came, a new true packet still passes.
    let last = sealed::honest(&mut Input::new(&[0, 0, 9]), &spec, &mut world.link).expect("a plain packet");
    world.arrive(last.wire.clone(), Some(&last), false);
    world.check_batches(usize::from(bytes.first().copied().unwrap_or(0) >> 5) + 1);
}

/// What came to pass with one packet.
struct Arrival {
    wire: Vec<u8>,
    received: Received,
    /// Whether it is as somebody sealed it.
    is_true: bool,
}

struct World<'s> {
    spec: &'s LinkSpec,
    link: Link,
    window: Window,
    sealed: Vec<Sealed>,
    arrived: Vec<Arrival>,
}

impl<'s> World<'s> {
    fn new(spec: &'s LinkSpec) -> Self {
        let window = Window::new(spec.window, spec.last_seq);
        Self { spec, link: spec.build(), window, sealed: Vec::new(), arrived: Vec::new() }
    }

    fn step(&mut self, input: &mut Input<'_>) {
        match input.u8() % 8 {
            0 | 1 => {
                let made = sealed::honest(input, self.spec, &mut self.link);
                self.sealed.extend(made);
            }
            2 => {
                let made = sealed::lie(input, self.spec, self.window.highest());
                self.sealed.extend(made);
            }
            3 => self.arrive(made_up(input, self.spec), None, true),
            4 if !self.sealed.is_empty() => {
                let which = self.sealed[input.index(self.sealed.len())].clone();
                self.arrive(changed(input, &which.wire), Some(&which), true);
            }
            _ if !self.sealed.is_empty() => {
                let which = self.sealed[input.index(self.sealed.len())].clone();
                self.arrive(which.wire.clone(), Some(&which), false);
            }
            _ => {}
        }
    }

    /// Receives a packet that is, or began as, `origin`.
    fn arrive(&mut self, wire: Vec<u8>, origin: Option<&Sealed>, is_changed: bool) {
        let before = dropped(&self.link.b);
        let received = self.link.b.receive(&wire);
        let is_dropped = matches!(received, Received::Other(Inbound::Drop(_)));
        assert_eq!(dropped(&self.link.b) - before, u64::from(is_dropped), "counted once");

        let was_new = origin.is_some_and(|origin| self.window.is_new(origin.seq));
        let is_authentic = self.follow_window(origin, was_new);
        if let Received::Packet(packet) = &received {
            let origin = origin.expect("nobody sealed it");
            assert!(is_authentic, "delivered unproven, or twice");
            origin.assert_delivered(self.spec, packet, is_changed);
        }
        if let Some(origin) = origin.filter(|_| !is_changed) {
            if was_new {
                assert!(is_authentic, "{received:?}");
                origin.assert_kept(&received);
            } else {
                assert_eq!(received, Received::Other(Inbound::Drop(DropReason::Replay)));
            }
        }
        self.arrived.push(Arrival { wire, received, is_true: !is_changed });
    }

    /// Whether the packet's number was taken. Nothing else may change a window.
    fn follow_window(&mut self, origin: Option<&Sealed>, was_new: bool) -> bool {
        let states = windows(&self.link.b);
        let is = |window: &Window| states.iter().all(|state| *state == (window.highest(), window.recent()));
        let Some(origin) = origin.filter(|_| was_new) else {
            assert!(is(&self.window), "a packet that nobody sealed, or a second one, moved the window");
            return false;
        };
        let mut after = self.window.clone();
        after.commit(origin.seq);
        // Without a window an older number leaves no trace.
        let leaves_no_trace = is(&self.window) && is(&after);
        if is(&after) {
            self.window = after;
            return true;
        }
        assert!(is(&self.window), "{states:?}");
        leaves_no_trace
    }

    /// The same packets in batches, to a receiver that knows nothing yet.
    fn check_batches(&self, len: usize) {
        let mut host = self.spec.build().b;
        for batch in self.arrived.chunks(len * 5) {
            let wires: Vec<&[u8]> = batch.iter().map(|arrival| &arrival.wire[..]).collect();
            for (received, arrival) in host.receive_batch(&wires).iter().zip(batch) {
                // All are checked before the first is opened, so a forged number may be judged by an older window.
                if arrival.is_true || !(is_unproven(received) && is_unproven(&arrival.received)) {
                    assert_eq!(*received, arrival.received, "in a batch of {}", batch.len());
                }
            }
        }
        assert_eq!(windows(&host), windows(&self.link.b));
        assert_eq!(dropped(&host), dropped(&self.link.b));
    }
}

/// Dropped before or when the ICV was looked at.
fn is_unproven(received: &Received) -> bool {
    use DropReason::{AhHeadersTooLong, AhLength, IcvMismatch, MalformedHeader, Replay, Truncated};
    let Received::Other(Inbound::Drop(reason)) = received else { return false };
    matches!(reason, AhHeadersTooLong | AhLength | IcvMismatch | MalformedHeader | Replay | Truncated)
}

/// Highest number and newest 64 of each inbound SA. The SAs of a bundle go in step.
fn windows(host: &Host) -> Vec<(u64, u64)> {
    let inbound = host.dp.sas().filter(|sa| sa.id.direction() == Direction::Inbound);
    inbound.filter_map(|sa| sa.window.map(|window| (sa.seq, window.recent))).collect()
}

/// The packet with some bytes changed, cut off or put behind it.
fn changed(input: &mut Input<'_>, wire: &[u8]) -> Vec<u8> {
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

/// Bytes that nobody sealed: as they are, or behind an IP header that leads to an SA.
fn made_up(input: &mut Input<'_>, spec: &LinkSpec) -> Vec<u8> {
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
        // Of an AH header.
        2 => [&[4, 4, 0, 0][..], &layer.spi.get().to_be_bytes()].concat(),
        // Of ESP in UDP.
        _ => {
            let len = (12 + bytes.len()) as u16;
            let ports = [0x11, 0x94, 0x11, 0x94];
            [&ports[..], &len.to_be_bytes(), &[0, 0], &layer.spi.get().to_be_bytes()].concat()
        }
    };
    let ends = if how & 0x40 == 0 { spec.ends.outer } else { spec.ends.inner };
    casemate_datapath_tests::packets::ip(ends.0, ends.1, protocol, &[spi, bytes].concat(), false)
}

/// Whether the innermost protection is a tunnel, which restores a whole packet.
fn is_tunnel(spec: &LinkSpec) -> bool {
    spec.layers[0].0 == Mode::Tunnel
}
