//! IKE messages in fragments (RFC 7383).
//!
//! At most one message of a peer is in the making: with a window of one there is no other. What it may cost is bounded in
//! pieces and in bytes, and nothing is kept that did not authenticate.

use crate::StateFault;
use alloc::boxed::Box;
use alloc::vec::Vec;
use casemate_wire::ike::{Fragment, PayloadType};

/// The most fragments that a message may have. A message of 64 KiB in datagrams of 576 bytes has about 125.
pub(crate) const MAX_FRAGMENTS: u16 = 255;

/// The fewest fragments that are always taken, and how many bytes each of more of them has at least, on the average: places for
/// fragments cost more than short ones hold, and datagrams that carry so little are not sent by anybody.
const FEW: usize = 16;
const SHORT: usize = 64;

/// How many fragments a message of so many bytes may have.
fn most_fragments(limit: usize) -> u16 {
    let most = limit.checked_div(SHORT).unwrap_or(0).max(FEW);
    u16::try_from(most).unwrap_or(MAX_FRAGMENTS).min(MAX_FRAGMENTS)
}

/// One fragment, opened.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Piece<'a> {
    pub(crate) message_id: u32,
    pub(crate) fragment: Fragment,
    /// What the first fragment says of the type of the first payload; others say none.
    pub(crate) first: PayloadType,
    pub(crate) data: &'a [u8],
}

/// A message whose fragments are all there.
#[derive(Debug)]
pub(crate) struct Reassembled {
    pub(crate) first: PayloadType,
    pub(crate) payloads: Vec<u8>,
}

/// The message in the making, if there is one. Boxed, for there seldom is.
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
    /// Nothing is in the making.
    pub(crate) const fn new() -> Self {
        Self(None)
    }

    /// Adds a fragment; answers the message if it was the last one missing. `limit` is in bytes.
    pub(crate) fn push(
        &mut self,
        piece: &Piece<'_>,
        limit: usize,
    ) -> Result<Option<Reassembled>, StateFault> {
        let total = piece.fragment.total();
        if total > most_fragments(limit) {
            return Err(StateFault::FragmentLimit);
        }
        // RFC 7383 section 2.6: only the first fragment names the first payload.
        if (piece.fragment.number() == 1) == (piece.first == PayloadType::NONE) {
            return Err(StateFault::FragmentMismatch);
        }
        let partial = match &mut self.0 {
            // RFC 7383 section 2.6.1: more fragments mean that the peer began anew with smaller ones.
            Some(partial) if partial.message_id == piece.message_id && total < partial.total => {
                return Err(StateFault::FragmentMismatch);
            }
            Some(partial) if partial.message_id == piece.message_id && total == partial.total => partial,
            other => other.insert(Box::new(Partial::new(piece.message_id, total))),
        };
        partial.add(piece, limit)?;
        if partial.missing > 0 {
            return Ok(None);
        }
        Ok(self.0.take().map(|partial| partial.join()))
    }

    /// Forgets what is in the making.
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

    fn add(&mut self, piece: &Piece<'_>, limit: usize) -> Result<(), StateFault> {
        let at = usize::from(piece.fragment.number().saturating_sub(1));
        let Some(place) = self.pieces.get_mut(at) else { return Err(StateFault::FragmentMismatch) };
        // A repeated fragment is no fault: the whole message may have been repeated.
        if place.is_some() {
            return Ok(());
        }
        self.bytes = self.bytes.saturating_add(piece.data.len());
        if self.bytes > limit {
            self.bytes = self.bytes.saturating_sub(piece.data.len());
            return Err(StateFault::FragmentLimit);
        }
        *place = Some(piece.data.into());
        self.missing = self.missing.saturating_sub(1);
        if at == 0 {
            self.first = piece.first;
        }
        Ok(())
    }

    fn join(self) -> Reassembled {
        let mut payloads = Vec::with_capacity(self.bytes);
        self.pieces.iter().flatten().for_each(|piece| payloads.extend_from_slice(piece));
        Reassembled { first: self.first, payloads }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(number: u16, total: u16, data: &[u8]) -> Piece<'_> {
        let first = if number == 1 { PayloadType::ID_I } else { PayloadType::NONE };
        Piece { message_id: 1, fragment: Fragment::new(number, total).unwrap(), first, data }
    }

    fn push(into: &mut Reassembly, piece: Piece<'_>) -> Result<Option<Vec<u8>>, StateFault> {
        into.push(&piece, 100).map(|whole| whole.map(|whole| whole.payloads))
    }

    #[test]
    fn in_any_order_and_more_than_once() {
        let mut reassembly = Reassembly::new();
        assert_eq!(push(&mut reassembly, piece(3, 3, b"c")), Ok(None));
        assert_eq!(push(&mut reassembly, piece(1, 3, b"a")), Ok(None));
        assert_eq!(push(&mut reassembly, piece(1, 3, b"x")), Ok(None));
        assert_eq!(push(&mut reassembly, piece(2, 3, b"b")), Ok(Some(b"abc".into())));
        assert!(reassembly.0.is_none());
    }

    #[test]
    fn cve_2016_1287_hostile_fragments_are_refused() {
        let mut reassembly = Reassembly::new();
        assert_eq!(push(&mut reassembly, piece(1, 17, b"a")), Err(StateFault::FragmentLimit));
        assert_eq!([100, 4_096, 20_480, 65_000].map(most_fragments), [16, 64, 255, 255]);
        assert_eq!(push(&mut reassembly, piece(1, 256, b"a")), Err(StateFault::FragmentLimit));
        assert_eq!(push(&mut reassembly, piece(1, 65_535, b"a")), Err(StateFault::FragmentLimit));
        assert_eq!(push(&mut reassembly, piece(1, 3, b"a")), Ok(None));
        assert_eq!(push(&mut reassembly, piece(1, 2, b"a")), Err(StateFault::FragmentMismatch), "fewer");
        assert_eq!(push(&mut reassembly, piece(2, 3, &[0; 100])), Err(StateFault::FragmentLimit));
        let nameless = Piece { first: PayloadType::NONE, ..piece(1, 3, b"a") };
        assert_eq!(push(&mut reassembly, nameless), Err(StateFault::FragmentMismatch));
        let named = Piece { first: PayloadType::ID_I, ..piece(2, 3, b"a") };
        assert_eq!(push(&mut reassembly, named), Err(StateFault::FragmentMismatch));
        assert!(Fragment::new(0, 1).is_err() && Fragment::new(2, 1).is_err() && Fragment::new(0, 0).is_err());
    }

    #[test]
    fn smaller_fragments_begin_anew() {
        let mut reassembly = Reassembly::new();
        assert_eq!(push(&mut reassembly, piece(1, 2, b"ab")), Ok(None));
        for (number, data) in [(1, b"a"), (2, b"b"), (3, b"c")] {
            let expected = (number == 4).then(|| b"abcd".to_vec());
            assert_eq!(push(&mut reassembly, piece(number, 4, data)), Ok(expected));
        }
        assert_eq!(push(&mut reassembly, piece(4, 4, b"d")), Ok(Some(b"abcd".into())));
    }

    #[test]
    fn another_message_takes_the_place() {
        let mut reassembly = Reassembly::new();
        assert_eq!(push(&mut reassembly, piece(1, 2, b"a")), Ok(None));
        let later = |number, data| Piece { message_id: 2, ..piece(number, 2, data) };
        assert_eq!(push(&mut reassembly, later(2, b"d")), Ok(None));
        assert_eq!(push(&mut reassembly, later(1, b"c")), Ok(Some(b"cd".into())));
    }
}
