//! Anti-replay window with arbitrary sequence numbers, through the whole inbound path.

use super::generate;
use crate::Target;
use crate::input::{Input, Script};
use casemate_datapath::{Direction, DropReason, Inbound, Unmatched};
use casemate_test_support::hosts::{Host, LinkSpec, PROVIDERS, Received, Sent, packets};
use std::collections::BTreeSet;

pub(crate) const TARGET: Target = Target {
    name: "replay",
    about: "anti-replay: 32-bit and extended numbers in any order, compared with a set of received numbers",
    max_len: 256,
    run,
    seeds,
    dictionary: &[],
};

const SIZES: [u32; 12] = [64, 0, 1, 31, 32, 33, 63, 65, 127, 128, 1_000, 4_096];
const LAP: u64 = 1 << 32;

fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mut spec = generate::link_spec(0);
    spec.esn = input.flag();
    spec.window = SIZES[input.index(SIZES.len())];
    let small = u64::from(input.u8());
    spec.last_seq = match input.u8() % 4 {
        0 => small,
        1 => LAP - 1 - small,
        2 if spec.esn => (small << 32) + u64::from(input.u32()),
        _ if spec.esn => u64::MAX - 5 * LAP - small,
        _ => u64::from(input.u32()),
    };
    let mut receiver = spec.build().b;
    let mut window = Window::new(spec.window, spec.last_seq);
    let mut sent = Vec::new();
    while !input.is_empty() && sent.len() < 100 {
        let seq = next(&mut input, &spec, window.highest(), &sent);
        sent.push(seq);
        let expected = expected(&spec, &window, seq);
        let (wire, packet) = sealed(&spec, seq);
        let expected = match expected {
            None => Received::Packet(packet),
            Some(reason) => Received::Other(Inbound::Drop(reason)),
        };
        assert_eq!(receiver.receive(&wire), expected, "number {seq:#x}, highest {:#x}", window.highest());
        if matches!(expected, Received::Packet(_)) {
            window.commit(seq);
        }
        let status = receiver.dp.sas().find_map(|sa| sa.window.map(|window| (sa.seq, window.recent)));
        assert_eq!(status, Some((window.highest(), window.recent())));
    }
}

/// Number near the ends of the window, near those ends one lap ahead or back, or a number that was sent
/// before.
fn next(input: &mut Input<'_>, spec: &LinkSpec, highest: u64, sent: &[u64]) -> u64 {
    let (kind, far) = (input.u8(), u64::from(input.u8()));
    let window = u64::from(spec.window);
    let seq = match kind % 8 {
        0 | 1 => highest.saturating_add(far & 7),
        2 => highest.saturating_add(far * 40),
        3 => highest.saturating_sub(far),
        4 => highest.saturating_sub(window).saturating_add(far & 15).saturating_sub(8),
        5 if spec.esn => highest.saturating_add(LAP - 8).saturating_sub(window).saturating_add(far),
        6 if spec.esn => highest.saturating_sub(LAP).saturating_add(far),
        _ => sent.get(usize::from(kind) % sent.len().max(1)).copied().unwrap_or(1),
    };
    seq.clamp(1, if spec.esn { u64::MAX } else { LAP - 1 })
}

/// Reason why the receiver has to drop a packet with this number.
fn expected(spec: &LinkSpec, window: &Window, seq: u64) -> Option<DropReason> {
    let taken_for = if spec.esn { nearest(window.highest(), spec.window, seq as u32) } else { seq };
    if spec.window > 0 && (taken_for == 0 || !window.is_new(taken_for)) {
        return Some(DropReason::Replay);
    }
    (taken_for != seq).then_some(DropReason::IcvMismatch)
}

/// RFC 4303 appendix A2: of all numbers that end in `low`, the first one at or after the lower end of the
/// window. Without a window, half a lap in both directions.
fn nearest(highest: u64, window: u32, low: u32) -> u64 {
    let size = if window == 0 { 1 << 31 } else { i128::from(window) };
    let bottom = i128::from(highest) - (size - 1);
    let mut number = (bottom >> 32 << 32) + i128::from(low);
    while number < bottom.max(0) && (number < bottom || number < 0) {
        number += i128::from(LAP);
    }
    number as u64
}

/// Sealed packet with this number, and its contents.
fn sealed(spec: &LinkSpec, seq: u64) -> (Vec<u8>, Vec<u8>) {
    let mut sender = Host::with_limits(Unmatched::Discard, spec.link_mtu, spec.limits);
    let mut params = spec.params(0, true);
    params.last_sent = seq - 1;
    sender.dp.add_sa(&params, Direction::Outbound, &PROVIDERS, sender.now).unwrap();
    sender.dp.add_policy(Direction::Outbound, spec.policy(true)).unwrap();
    let (src, dst) = spec.ends.inner;
    let packet = packets::udp(src, dst, (1, 2), &seq.to_be_bytes(), false);
    match sender.send(&packet) {
        Sent::Wire(wire, _) => (wire, packet),
        other => panic!("{other:?}"),
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let steps = [0, 1, 0, 1, 2, 9, 3, 5, 4, 8, 5, 3, 6, 200, 7, 0, 4, 7, 0, 0];
    let mut seeds = Vec::new();
    for esn in [0, 1] {
        for (window, base) in [(0, 0), (0, 1), (1, 1), (3, 0), (7, 1), (10, 3), (11, 2)] {
            seeds.push(Script::default().bytes(&[esn, window, 20, base]).bytes(&steps).finish());
        }
    }
    seeds
}

/// State of a receiver (RFC 4303 section 3.4.3).
#[derive(Debug, Clone)]
pub(super) struct Window {
    size: u64,
    /// All numbers up to this one count as received.
    base: u64,
    highest: u64,
    seen: BTreeSet<u64>,
}

impl Window {
    pub(super) fn new(size: u32, base: u64) -> Self {
        Self { size: size.into(), base, highest: base, seen: BTreeSet::new() }
    }

    pub(super) fn highest(&self) -> u64 {
        self.highest
    }

    /// Whether the receiver accepts a valid packet with this number.
    pub(super) fn is_new(&self, seq: u64) -> bool {
        self.size == 0 || seq > self.highest || self.highest - seq < self.size && !self.is_marked(seq)
    }

    pub(super) fn commit(&mut self, seq: u64) {
        self.highest = self.highest.max(seq);
        self.seen.insert(seq);
    }

    /// Bitmap of the newest 64 numbers; bit 0 is the highest.
    pub(super) fn recent(&self) -> u64 {
        (0..64.min(self.size))
            .filter(|back| self.highest.checked_sub(*back).is_some_and(|seq| seq > 0 && self.is_marked(seq)))
            .fold(0, |bits, back| bits | 1 << back)
    }

    fn is_marked(&self, seq: u64) -> bool {
        seq <= self.base || self.seen.contains(&seq)
    }
}
