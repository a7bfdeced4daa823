//! Memory is asked for before IKE goes to work: an allocation that fails half-way would be the end of the machine.
//!
//! IKE is the only one who takes memory when the machine is under way, so whoever keeps it from the last of the heap keeps the heap from
//! being full. A peer repeats what was refused, and what is due is due again a second later. The same for lwIP:
//! docs/decisions/0023-lwip-ike.md.

use alloc::vec::Vec;
use casemate_ike::Settings;
use casemate_sa::Limits;
use casemate_wire::ike::{ExchangeType, Header};
use core::hint::black_box;

/// What one exchange of IKE may take while it lasts, what an IKE SA may keep, and a request or an answer on its way. The tests of
/// `adapters/lwip` measure them.
const EXCHANGE: usize = 40_000;
const IKE_SA: usize = 16_384;
const MESSAGE: usize = 4_096;
/// The place of an SA or of a policy in its table. While a table grows, one of twice the length stands beside it.
const PLACE: usize = 512;
/// Messages that are served at once: as many as two sockets hold.
const AT_ONCE: usize = 16;

/// What has to be free before IKE does something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Needs {
    /// For a peer that is known, or when something is due.
    pub(crate) known: usize,
    /// For somebody who wants a new IKE SA: afterwards there must be enough for those who are known.
    pub(crate) stranger: usize,
}

impl Needs {
    /// The worst that may happen in a round, with tables of these sizes.
    pub(crate) const fn of(limits: &Limits, settings: &Settings) -> Self {
        let places = limits.sas.saturating_add(limits.policies.saturating_mul(2));
        let tables = places.saturating_mul(PLACE).saturating_mul(2);
        let messages = settings.ike_sas.saturating_add(AT_ONCE).saturating_mul(MESSAGE);
        // They may stand behind a message of a peer that is known.
        let strangers = settings.half_open.saturating_mul(IKE_SA);
        let known = EXCHANGE.saturating_add(tables).saturating_add(messages).saturating_add(strangers);
        Self { known, stranger: known.saturating_add(strangers) }
    }
}

/// Whether so many bytes could be had in one piece.
pub(crate) fn is_free(bytes: usize) -> bool {
    let mut piece = Vec::<u8>::new();
    let is_free = piece.try_reserve_exact(bytes).is_ok();
    // What nobody looks at, the compiler need not allocate.
    black_box(&piece);
    is_free
}

/// Whether a message begins an IKE SA: whoever sends it is not known yet.
pub(crate) fn is_from_stranger(message: &[u8]) -> bool {
    Header::parse(message)
        .is_ok_and(|header| header.exchange == ExchangeType::IKE_SA_INIT && !header.flags.response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_something_left_for_those_who_are_known() {
        let needs = Needs::of(&Limits::DEVICE, &Settings::DEVICE);
        assert!(
            needs.known > EXCHANGE && needs.stranger >= needs.known + Settings::DEVICE.half_open * IKE_SA
        );
    }

    #[test]
    fn what_no_memory_holds_is_not_free() {
        assert!(is_free(1_000));
        assert!(!is_free(usize::MAX / 4));
    }

    #[test]
    fn strangers_are_known_by_their_first_request() {
        let message = |exchange: u8, flags: u8| {
            let mut message = [0; 28];
            (message[0], message[17], message[18], message[19], message[27]) = (1, 0x20, exchange, flags, 28);
            message
        };
        assert!(is_from_stranger(&message(34, 0x08)));
        assert!(!is_from_stranger(&message(34, 0x20)) && !is_from_stranger(&message(35, 0x08)));
        assert!(!is_from_stranger(b"short"));
    }
}
