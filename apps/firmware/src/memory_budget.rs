//! Memory reserve for IKE: before IKE processes a message, the required memory must be free, because a
//! failed allocation would stop the machine.
//!
//! IKE is the only task that allocates memory at run time, so this check keeps the heap from running out.
//! A peer retransmits a refused message, and refused timers are retried a second later. The lwIP adapter
//! does the same: docs/decisions/0023-lwip-ike.md.

use alloc::vec::Vec;
use casemate_ike::IkeSettings;
use casemate_sa::Limits;
use casemate_wire::ike::{ExchangeType, Header};
use core::hint::black_box;

/// Upper limits in bytes: memory allocated during one IKE exchange, memory kept by an IKE SA, and a
/// message in transit. The tests of `adapters/lwip` measure them.
const EXCHANGE: usize = 40_000;
const IKE_SA: usize = 16_384;
const MESSAGE: usize = 4_096;
/// Size of an SA or policy in its table. While a table grows, the old one and one of twice its size exist.
const ENTRY: usize = 512;
/// Maximum number of messages processed in one round: the capacity of the two sockets.
const AT_ONCE: usize = 16;

/// Memory that must be free before IKE runs, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MemoryNeeds {
    /// For messages of known peers, and for timers.
    pub(crate) known: usize,
    /// For a request of an unknown peer. Afterwards enough memory for known peers must be left.
    pub(crate) unknown_peer: usize,
}

impl MemoryNeeds {
    /// Computes the worst case of one round with tables of these sizes.
    pub(crate) const fn of(limits: &Limits, settings: &IkeSettings) -> Self {
        let entries = limits.sas.saturating_add(limits.policies.saturating_mul(2));
        let tables = entries.saturating_mul(ENTRY).saturating_mul(2);
        let messages = settings.max_ike_sas.saturating_add(AT_ONCE).saturating_mul(MESSAGE);
        // Requests of unknown peers may be queued behind a message of a known peer.
        let unknown_peers = settings.max_half_open.saturating_mul(IKE_SA);
        let known = EXCHANGE.saturating_add(tables).saturating_add(messages).saturating_add(unknown_peers);
        Self { known, unknown_peer: known.saturating_add(unknown_peers) }
    }
}

/// Returns whether a block of this size can be allocated.
pub(crate) fn can_allocate(bytes: usize) -> bool {
    let mut piece = Vec::<u8>::new();
    let is_free = piece.try_reserve_exact(bytes).is_ok();
    // Without this the compiler could remove the allocation.
    black_box(&piece);
    is_free
}

/// Returns whether the message starts an IKE SA, so that the sender is not known yet.
pub(crate) fn is_from_unknown_peer(message: &[u8]) -> bool {
    Header::parse(message)
        .is_ok_and(|header| header.exchange == ExchangeType::IKE_SA_INIT && !header.flags.response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_for_known_peers_is_reserved() {
        let needs = MemoryNeeds::of(&Limits::DEVICE, &IkeSettings::DEVICE);
        assert!(
            needs.known > EXCHANGE
                && needs.unknown_peer >= needs.known + IkeSettings::DEVICE.max_half_open * IKE_SA
        );
    }

    #[test]
    fn an_oversized_block_is_not_free() {
        assert!(can_allocate(1_000));
        assert!(!can_allocate(usize::MAX / 4));
    }

    #[test]
    fn ike_sa_init_requests_are_from_unknown_peers() {
        let message = |exchange: u8, flags: u8| {
            let mut message = [0; 28];
            (message[0], message[17], message[18], message[19], message[27]) = (1, 0x20, exchange, flags, 28);
            message
        };
        assert!(is_from_unknown_peer(&message(34, 0x08)));
        assert!(!is_from_unknown_peer(&message(34, 0x20)) && !is_from_unknown_peer(&message(35, 0x08)));
        assert!(!is_from_unknown_peer(b"short"));
    }
}
