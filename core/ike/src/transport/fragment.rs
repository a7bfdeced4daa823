//! Reassembly of fragmented IKE messages (RFC 7383).
//!
//! The window is one message, so at most one message of a peer is being reassembled. Its fragments are
//! limited in number and in bytes, and only authentic fragments are kept.

use crate::StateFault;
use alloc::boxed::Box;
use alloc::vec::Vec;
use casemate_wire::ike::{Fragment, PayloadType};
use casemate_wire::invariant::OrBroken;

/// Maximum number of fragments of a message. A message of 64 KiB in datagrams of 576 bytes has about 125.
pub(crate) const MAX_FRAGMENTS: u16 = 255;

/// Number of fragments that is always accepted, and the average length that a larger number of fragments must
/// have. The slots of very short fragments would take more memory than their contents, and no peer sends such
/// short datagrams.
const MIN_FRAGMENT_LIMIT: usize = 16;
const MIN_AVERAGE_LEN: usize = 64;

/// Maximum number of fragments for a message of `limit` bytes.
fn max_fragments(limit: usize) -> u16 {
    let most = limit.checked_div(MIN_AVERAGE_LEN).unwrap_or(0).max(MIN_FRAGMENT_LIMIT);
    u16::try_from(most).unwrap_or(MAX_FRAGMENTS).min(MAX_FRAGMENTS)
}

/// A decrypted fragment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReceivedFragment<'a> {
    pub(crate) message_id: u32,
    pub(crate) position: Fragment,
    /// Type of the first inner payload. Only the first fragment has it; in others it is NONE.
    pub(crate) first: PayloadType,
    pub(crate) data: &'a [u8],
}

/// A message of which all fragments have arrived.
#[derive(Debug)]
pub(crate) struct Reassembled {
    pub(crate) first: PayloadType,
    pub(crate) payloads: Vec<u8>,
}

/// Message that is being reassembled. Boxed, because there rarely is one.
#[derive(Debug)]
pub(crate) struct Reassembly(Option<Box<Partial>>);

#[derive(Debug)]
struct Partial {
    message_id: u32,
    total: u16,
    first: PayloadType,
    pieces: Vec<Option<Vec<u8>>>,
    missing: u16,
    bytes: usize,
}

impl Reassembly {
    /// Returns an empty reassembly.
    pub(crate) const fn new() -> Self {
        Self(None)
    }

    /// Adds a fragment. Returns the message if it is complete. `limit` is in bytes.
    pub(crate) fn push(
        &mut self,
        fragment: &ReceivedFragment<'_>,
        limit: usize,
    ) -> Result<Option<Reassembled>, StateFault> {
        let total = fragment.position.total();
        if total > max_fragments(limit) {
            return Err(StateFault::FragmentLimit);
        }
        // RFC 7383 section 2.6: only the first fragment has the type of the first payload.
        if (fragment.position.number() == 1) == (fragment.first == PayloadType::NONE) {
            return Err(StateFault::FragmentMismatch);
        }
        let partial = match &mut self.0 {
            // RFC 7383 section 2.6.1: a larger total means that the peer has started again with smaller
            // fragments.
            Some(partial) if partial.message_id == fragment.message_id && total < partial.total => {
                return Err(StateFault::FragmentMismatch);
            }
            Some(partial) if partial.message_id == fragment.message_id && total == partial.total => partial,
            other => other.insert(Box::new(Partial::new(fragment.message_id, total))),
        };
        partial.add(fragment, limit)?;
        if partial.missing > 0 {
            return Ok(None);
        }
        Ok(self.0.take().map(|partial| partial.concat()))
    }

    /// Bytes that the incomplete message takes.
    pub(crate) fn held_bytes(&self) -> usize {
        self.0.as_ref().map_or(0, |partial| {
            let slots = partial.pieces.len().saturating_mul(size_of::<Option<Vec<u8>>>());
            partial.bytes.saturating_add(slots)
        })
    }

    /// Drops the incomplete message.
    pub(crate) fn clear(&mut self) {
        self.0 = None;
    }
}

impl Partial {
    fn new(message_id: u32, total: u16) -> Self {
        let mut pieces = Vec::new();
        pieces.resize_with(total.into(), || None);
        Self { message_id, total, first: PayloadType::NONE, pieces, missing: total, bytes: 0 }
    }

    fn add(&mut self, fragment: &ReceivedFragment<'_>, limit: usize) -> Result<(), StateFault> {
        let at = usize::from(fragment.position.number().saturating_sub(1));
        let Some(slot) = self.pieces.get_mut(at) else { return Err(StateFault::FragmentMismatch) };
        // A repeated fragment is not a fault: the whole message may have been repeated.
        if slot.is_some() {
            return Ok(());
        }
        self.bytes = self.bytes.saturating_add(fragment.data.len());
        if self.bytes > limit {
            self.bytes = self.bytes.saturating_sub(fragment.data.len());
            return Err(StateFault::FragmentLimit);
        }
        *slot = Some(fragment.data.into());
        self.missing = self.missing.checked_sub(1).or_broken_default("an empty slot counts as missing");
        if at == 0 {
            self.first = fragment.first;
        }
        Ok(())
    }

    fn concat(self) -> Reassembled {
        let mut payloads = Vec::with_capacity(self.bytes);
        self.pieces.iter().flatten().for_each(|fragment| payloads.extend_from_slice(fragment));
        Reassembled { first: self.first, payloads }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fragment(number: u16, total: u16, data: &[u8]) -> ReceivedFragment<'_> {
        let first = if number == 1 { PayloadType::ID_I } else { PayloadType::NONE };
        ReceivedFragment { message_id: 1, position: Fragment::new(number, total).unwrap(), first, data }
    }

    fn push(into: &mut Reassembly, fragment: ReceivedFragment<'_>) -> Result<Option<Vec<u8>>, StateFault> {
        into.push(&fragment, 100).map(|whole| whole.map(|whole| whole.payloads))
    }

    #[test]
    fn fragments_arrive_in_any_order_and_repeatedly() {
        let mut reassembly = Reassembly::new();
        assert_eq!(push(&mut reassembly, fragment(3, 3, b"c")), Ok(None));
        assert_eq!(push(&mut reassembly, fragment(1, 3, b"a")), Ok(None));
        assert_eq!(push(&mut reassembly, fragment(1, 3, b"x")), Ok(None));
        assert_eq!(push(&mut reassembly, fragment(2, 3, b"b")), Ok(Some(b"abc".into())));
        assert!(reassembly.0.is_none());
    }

    #[test]
    fn cve_2016_1287_hostile_fragments_are_refused() {
        let mut reassembly = Reassembly::new();
        assert_eq!(push(&mut reassembly, fragment(1, 17, b"a")), Err(StateFault::FragmentLimit));
        assert_eq!([100, 4_096, 20_480, 65_000].map(max_fragments), [16, 64, 255, 255]);
        assert_eq!(push(&mut reassembly, fragment(1, 256, b"a")), Err(StateFault::FragmentLimit));
        assert_eq!(push(&mut reassembly, fragment(1, 65_535, b"a")), Err(StateFault::FragmentLimit));
        assert_eq!(push(&mut reassembly, fragment(1, 3, b"a")), Ok(None));
        assert_eq!(push(&mut reassembly, fragment(1, 2, b"a")), Err(StateFault::FragmentMismatch), "fewer");
        assert_eq!(push(&mut reassembly, fragment(2, 3, &[0; 100])), Err(StateFault::FragmentLimit));
        let nameless = ReceivedFragment { first: PayloadType::NONE, ..fragment(1, 3, b"a") };
        assert_eq!(push(&mut reassembly, nameless), Err(StateFault::FragmentMismatch));
        let named = ReceivedFragment { first: PayloadType::ID_I, ..fragment(2, 3, b"a") };
        assert_eq!(push(&mut reassembly, named), Err(StateFault::FragmentMismatch));
        assert!(Fragment::new(0, 1).is_err() && Fragment::new(2, 1).is_err() && Fragment::new(0, 0).is_err());
    }

    #[test]
    fn smaller_fragments_restart_reassembly() {
        let mut reassembly = Reassembly::new();
        assert_eq!(push(&mut reassembly, fragment(1, 2, b"ab")), Ok(None));
        for (number, data) in [(1, b"a"), (2, b"b"), (3, b"c")] {
            let expected = (number == 4).then(|| b"abcd".to_vec());
            assert_eq!(push(&mut reassembly, fragment(number, 4, data)), Ok(expected));
        }
        assert_eq!(push(&mut reassembly, fragment(4, 4, b"d")), Ok(Some(b"abcd".into())));
    }

    #[test]
    fn another_message_replaces_the_partial_one() {
        let mut reassembly = Reassembly::new();
        assert_eq!(push(&mut reassembly, fragment(1, 2, b"a")), Ok(None));
        let later = |number, data| ReceivedFragment { message_id: 2, ..fragment(number, 2, data) };
        assert_eq!(push(&mut reassembly, later(2, b"d")), Ok(None));
        assert_eq!(push(&mut reassembly, later(1, b"c")), Ok(Some(b"cd".into())));
    }
}
