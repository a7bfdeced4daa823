//! The commit of opened packets to their inbound SA: replay window, lifetime, and removal of ESP or AH.

use crate::decapsulation::{remove_ah, remove_esp};
use crate::demux::InboundPacket;
use crate::esp::{EspKey, OpenOutcome};
use crate::replay::Authenticated;
use crate::rohc::InboundRohc;
use crate::sa::{SaKeys, State};
use crate::{DropReason, ah};
use casemate_sa::Instant;
use casemate_wire::ah::AhHeader;
use casemate_wire::packet::Packet;
use core::mem;

/// Commits a run of packets to their inbound SA.
pub(crate) struct InboundCommit<'s> {
    pub(crate) keys: &'s SaKeys,
    pub(crate) state: &'s mut State,
    pub(crate) rohc: Option<&'s mut InboundRohc>,
    /// Committed packets, which are counted at the end of the run.
    pub(crate) packets: u64,
    /// Bytes of those packets after the removal of their protection.
    pub(crate) bytes: u64,
}

impl InboundCommit<'_> {
    /// Commits ESP packets.
    #[inline]
    pub(crate) fn commit_esp(
        &mut self,
        key: &EspKey,
        packets: &mut [Packet<'_>],
        run: &mut [InboundPacket],
        outcomes: &mut [OpenOutcome],
    ) {
        for (record, outcome) in run.iter_mut().zip(outcomes) {
            if record.slot().is_none() {
                continue;
            }
            match mem::replace(outcome, OpenOutcome::Pending) {
                OpenOutcome::Pending => record.set_drop(DropReason::CryptoFailed),
                OpenOutcome::Forged => self.count_forged(record),
                OpenOutcome::Authenticated(proof) => self.commit(record, proof),
            }
        }
        // A loop of its own, because both together need more registers than processors have.
        for (packet, record) in packets.iter_mut().zip(run) {
            let rohc = self.rohc.as_deref_mut();
            record.remove_protection(|record| {
                let removed = remove_esp(packet, record, key, self.keys, rohc);
                self.bytes = self.bytes.wrapping_add(packet.len() as u64);
                removed
            });
        }
    }

    #[cold]
    fn count_forged(&mut self, record: &mut InboundPacket) {
        self.state.icv_failures = self.state.icv_failures.saturating_add(1);
        record.set_drop(DropReason::IcvMismatch);
    }

    /// Commits the sequence number of an authenticated packet; drops a replayed one.
    #[cfg_attr(target_pointer_width = "64", inline(always))]
    fn commit(&mut self, record: &mut InboundPacket, proof: Authenticated) {
        if let Err(reason) = self.state.commit_replay(proof) {
            return record.set_drop(reason);
        }
        // Cannot wrap: a run has at most MAX_BATCH packets.
        self.packets = self.packets.wrapping_add(1);
    }

    /// Counts the committed packets. Returns `true` if the SA has reached its soft lifetime.
    pub(crate) fn count(self, now: Instant) -> bool {
        self.packets > 0 && self.state.meter.count(self.packets, self.bytes, now)
    }

    /// Verifies and commits AH packets.
    pub(crate) fn commit_ah(
        &mut self,
        key: &ah::AhKey,
        packets: &mut [Packet<'_>],
        run: &mut [InboundPacket],
    ) {
        let waiting = packets.iter_mut().zip(run).filter(|(_, record)| record.slot().is_some());
        for (packet, record) in waiting {
            match self.verify_ah(key, packet, record) {
                Ok(VerifiedAh { proof, header }) => {
                    self.commit(record, proof);
                    let keys = self.keys;
                    record.remove_protection(|record| {
                        let removed = remove_ah(packet, record, header, keys);
                        self.bytes = self.bytes.wrapping_add(packet.len() as u64);
                        removed
                    });
                }
                Err(DropReason::IcvMismatch) => self.count_forged(record),
                Err(reason) => record.set_drop(reason),
            }
        }
    }

    /// Checks header and ICV.
    fn verify_ah(
        &mut self,
        key: &ah::AhKey,
        packet: &mut Packet<'_>,
        record: &InboundPacket,
    ) -> Result<VerifiedAh, DropReason> {
        let at = record.header_at();
        let header = ah::receive(packet.data(), at, key)?;
        let proof = ah::verify(packet, at, key, record.seq(), self.keys.esn)?;
        Ok(VerifiedAh { proof, header })
    }
}

/// A packet with a valid ICV of AH.
struct VerifiedAh {
    proof: Authenticated,
    header: AhHeader,
}
