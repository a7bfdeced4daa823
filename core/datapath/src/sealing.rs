//! Outgoing packets between the reservation of their numbers and their verdicts, when ESP encrypts them.
//!
//! Nothing here knows the data path: a [`Sealing`] goes to whatever thread has time for it. Neighbours with the same SA make
//! a run and reach the provider in one call.

use crate::classify::Chain;
use crate::esp::{self, EspKey, RUN, SPARE};
use crate::places::Places;
use crate::seq::Reserved;
use crate::shared::{Engine, Shared};
use crate::tunnel::Inner;
use crate::{DropReason, Outbound, Sealed};
use alloc::sync::Arc;
use arrayvec::ArrayVec;
use casemate_wire::ip::Ipv6;
use casemate_wire::packet::Packet;
use casemate_wire::udp::{self, Udp};
use core::ops::Range;

/// Room for a batch of outgoing packets that have their numbers and headers and are to be encrypted; see
/// [`Datapath::begin_outbound`](crate::Datapath::begin_outbound). Made once and used again and again: it is several KB, and to
/// move it costs as much as a packet.
pub struct Sealing {
    pub(crate) batch: Batch,
    pub(crate) places: Places,
}

impl Sealing {
    /// Without packets.
    #[inline]
    pub fn new() -> Self {
        Self { batch: Batch::new(), places: Places::new() }
    }

    /// Forgets the packets, and lets go of their keys.
    #[inline]
    pub(crate) fn clear(&mut self) {
        self.batch.steps.clear();
        self.batch.runs.clear();
        self.places.clear();
    }

    /// Encrypts the packets and adds their ICVs, on any thread. `packets` are those that the batch began with, where they
    /// were then; others are left untouched.
    pub fn seal(&mut self, packets: &mut [Packet<'_>]) {
        if self.places.are_of(packets) {
            self.batch.seal(packets);
        }
    }
}

impl Default for Sealing {
    fn default() -> Self {
        Self::new()
    }
}

/// Packets on their way, and the keys that some of them wait for.
pub(crate) struct Batch {
    pub(crate) steps: ArrayVec<Step, RUN>,
    /// No more than packets, because each has at least one.
    pub(crate) runs: ArrayVec<Run, RUN>,
}

/// Neighbours in a batch to be sealed with one SA.
pub(crate) struct Run {
    pub(crate) sealer: Sealer,
    pub(crate) range: Range<usize>,
}

/// What an SA's framed packets are sealed with.
pub(crate) struct Sealer {
    pub(crate) shared: Arc<Shared>,
    /// Whether a UDP checksum covers the sealed bytes.
    pub(crate) has_checksum: bool,
}

/// A packet on its way through its SAs.
pub(crate) struct Step {
    pub(crate) chain: Option<Chain>,
    /// The header in front of the packet.
    pub(crate) header: Inner,
    /// The path's MTU, if the packet will exceed it and may be cut.
    pub(crate) fragment_to: Option<u16>,
    /// Framed, and waiting to be sealed: where the ESP header stands and the number it carries.
    pub(crate) to_seal: Option<(usize, Reserved)>,
    /// What becomes of the packet once it is sealed.
    pub(crate) verdict: Outbound,
    /// Whether the drop is in the counters already.
    pub(crate) counted: bool,
}

impl Batch {
    /// Empty.
    #[inline]
    pub(crate) fn new() -> Self {
        Self { steps: ArrayVec::new(), runs: ArrayVec::new() }
    }

    /// Makes room for so many packets, at most [`RUN`].
    #[inline]
    pub(crate) fn expect(&mut self, packets: usize) {
        for _ in 0..packets.min(RUN) {
            self.steps.push(Step::NEW);
        }
    }

    #[inline]
    pub(crate) fn seal(&mut self, packets: &mut [Packet<'_>]) {
        for Run { sealer, range } in &self.runs {
            let (packets, steps) = (packets.get_mut(range.clone()), self.steps.get_mut(range.clone()));
            sealer.seal(packets.unwrap_or_default(), steps.unwrap_or_default());
        }
    }
}

impl Step {
    pub(crate) const NEW: Self = Self {
        chain: None,
        header: Inner::NONE,
        fragment_to: None,
        to_seal: None,
        verdict: Outbound::Drop(DropReason::CryptoFailed),
        counted: false,
    };

    pub(crate) fn stop(&mut self, reason: DropReason) {
        self.chain = None;
        self.verdict = Outbound::Drop(reason);
    }

    /// What becomes of the packet. One that nobody has sealed is clear text and is dropped.
    #[inline]
    pub(crate) fn verdict(&self) -> Outbound {
        match self.to_seal {
            None => self.verdict,
            Some(_) => Outbound::Drop(DropReason::CryptoFailed),
        }
    }
}

impl Sealer {
    /// Seals the framed packets of a run in one call.
    #[inline]
    pub(crate) fn seal(&self, packets: &mut [Packet<'_>], steps: &mut [Step]) {
        // AH was signed when it was framed.
        let Engine::Esp(key) = &self.shared.engine else { return };
        seal_run(key, self.shared.esn, packets, steps);
        if self.has_checksum {
            fill_checksums(packets, steps);
        }
    }
}

#[inline]
fn seal_run(key: &EspKey, esn: bool, packets: &mut [Packet<'_>], steps: &mut [Step]) {
    let (mut waiting, mut count) = (0u32, 0u32);
    let framed = (0..32).zip(packets.iter_mut().zip(&mut *steps)).filter_map(|(n, (packet, step))| {
        let (at, number) = step.to_seal.take()?;
        waiting |= 1 << n;
        count = count.saturating_add(1);
        // A region that cannot be had is empty, and fails to seal.
        let region = packet.data_mut().get_mut(at.saturating_sub(SPARE)..).unwrap_or_default();
        Some((region, number))
    });
    let done = esp::seal(key, esn, framed);
    if done.all(count) {
        return;
    }
    let failed = (0..32).zip(steps).filter(|(n, _)| waiting >> n & 1 == 1).map(|(_, step)| step);
    for (n, step) in (0..).zip(failed) {
        if !done.has(n) {
            step.stop(DropReason::CryptoFailed);
        }
    }
}

fn fill_checksums(packets: &mut [Packet<'_>], steps: &[Step]) {
    for (packet, step) in packets.iter_mut().zip(steps) {
        if let Outbound::Send(Sealed { udp_payload: Some(at), .. }) = step.verdict {
            fill_udp6_checksum(packet.data_mut(), at.into());
        }
    }
}

/// Over IPv6 a UDP checksum of zero is not allowed (RFC 8200 section 8.1), and it covers the sealed bytes.
fn fill_udp6_checksum(packet: &mut [u8], udp_payload: usize) {
    let Ok(ip) = Ipv6::parse(&*packet) else { return };
    let (src, dst) = (ip.src(), ip.dst());
    let udp = packet.get_mut(udp_payload.saturating_sub(udp::HEADER_LEN)..).map(Udp::parse);
    if let Some(Ok(mut udp)) = udp {
        udp.fill_checksum_v6(src, dst);
    }
}
