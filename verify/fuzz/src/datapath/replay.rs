//! The anti-replay window, with numbers from everywhere, through the whole inbound road.

use super::specs;
use super::window::Window;
use crate::Target;
use crate::input::Input;
use crate::script::Script;
use casemate_datapath::{Direction, DropReason, Inbound, Unmatched};
use casemate_datapath_tests::{Host, LinkSpec, PROVIDERS, Received, Sent, packets};

pub(crate) const TARGET: Target = Target {
    name: "replay",
    about: "Anti-replay: 32-bit and extended numbers in any order, as a set of received numbers has them",
    max_len: 256,
    run,
    seeds,
    words: &[],
};

const SIZES: [u32; 12] = [64, 0, 1, 31, 32, 33, 63, 65, 127, 128, 1_000, 4_096];
const LAP: u64 = 1 << 32;

fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mut spec = specs::link(0);
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

/// A number near the window's ends, near those one lap on or back, or one that was sent before.
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

/// Why a packet with this number is to be dropped, if so.
fn expected(spec: &LinkSpec, window: &Window, seq: u64) -> Option<DropReason> {
    let taken_for = if spec.esn { nearest(window.highest(), spec.window, seq as u32) } else { seq };
    if spec.window > 0 && (taken_for == 0 || !window.is_new(taken_for)) {
        return Some(DropReason::Replay);
    }
    (taken_for != seq).then_some(DropReason::IcvMismatch)
}

/// RFC 4303 appendix A2: of all numbers that end in `low`, the first at or behind the window's lower end. Without a window,
/// half a lap each way.
fn nearest(highest: u64, window: u32, low: u32) -> u64 {
    let size = if window == 0 { 1 << 31 } else { i128::from(window) };
    let bottom = i128::from(highest) - (size - 1);
    let mut number = (bottom >> 32 << 32) + i128::from(low);
    while number < bottom.max(0) && (number < bottom || number < 0) {
        number += i128::from(LAP);
    }
    number as u64
}

/// A true packet with this number, and what is in it.
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
            seeds.push(Script::default().bytes(&[esn, window, 20, base]).bytes(&steps).done());
        }
    }
    seeds
}
