//! Additional key exchanges in proposals (RFC 9370 section 2.2.1).

use super::Algorithm;
use crate::config::{AdditionalKexes, AgreedKexes, KexRound};
use alloc::vec::Vec;
use casemate_crypto::KexMethod;
use casemate_wire::ike::{KeMethod, Proposal};

/// Transform ID of a round without a key exchange.
const NONE: u16 = KeMethod::NONE.0;

/// Transforms that offer these key exchanges.
pub(super) fn offer(kexes: &AdditionalKexes) -> impl Iterator<Item = Algorithm> + '_ {
    kexes.iter().flat_map(|(round, kex)| {
        let ids = kex.methods.iter().map(|method| method.id());
        let all = ids.chain(kex.optional.then_some(NONE));
        all.map(|id| Algorithm::new(round.transform_type(), id))
    })
}

/// Chooses a method for each round, in our order of preference and none twice. Returns a transform for each
/// round that `theirs` has, or `None` if there is no such choice.
pub(super) fn choose(own: &[Algorithm], theirs: &Proposal<'_>) -> Option<Vec<Algorithm>> {
    let candidates = KexRound::ALL.map(|round| candidates(round, own, theirs));
    let mut choice = Choice { candidates: &candidates, ids: [None; 7] };
    for round in 0..candidates.len() {
        if !choice.assign(round, &mut [false; 7]) {
            return None;
        }
    }
    let chosen = KexRound::ALL.into_iter().zip(choice.ids);
    let named = chosen.filter(|(round, _)| theirs.transforms().any(|t| t.kind == round.transform_type()));
    Some(named.filter_map(|(round, id)| Some(Algorithm::new(round.transform_type(), id?))).collect())
}

/// Transform IDs that both sides accept in a round. A round without transforms has NONE.
fn candidates(round: KexRound, own: &[Algorithm], theirs: &Proposal<'_>) -> Vec<u16> {
    let kind = round.transform_type();
    let mut ours: Vec<u16> = own.iter().filter(|alg| alg.kind == kind).map(|alg| alg.id).collect();
    let usable = theirs.transforms().filter(|t| t.kind == kind && t.attributes().next().is_none());
    let mut their_ids: Vec<u16> = usable.map(|transform| transform.id).collect();
    if ours.is_empty() {
        ours.push(NONE);
    }
    if theirs.transforms().all(|transform| transform.kind != kind) {
        their_ids.push(NONE);
    }
    ours.retain(|id| their_ids.contains(id));
    ours
}

/// Assignment of methods to rounds.
struct Choice<'a> {
    candidates: &'a [Vec<u16>; 7],
    ids: [Option<u16>; 7],
}

impl Choice<'_> {
    /// Assigns a method to a round. If another round has it, that round takes another method. `visited` are
    /// the rounds that were asked for that already, so the number of calls is at most 7.
    fn assign(&mut self, round: usize, visited: &mut [bool; 7]) -> bool {
        let all = self.candidates;
        let candidates = all.get(round).map_or(&[][..], Vec::as_slice);
        for id in candidates {
            let holder = self.ids.iter().position(|taken| *taken == Some(*id) && *id != NONE);
            let is_free = match holder {
                None => true,
                Some(holder) => match visited.get_mut(holder) {
                    Some(visit) if !*visit => {
                        *visit = true;
                        self.assign(holder, visited)
                    }
                    _ => false,
                },
            };
            if let (true, Some(place)) = (is_free, self.ids.get_mut(round)) {
                *place = Some(*id);
                return true;
            }
        }
        false
    }
}

/// The agreed key exchanges of chosen transforms; `None` if a method is unknown.
pub(super) fn agreed(chosen: &[Algorithm]) -> Option<AgreedKexes> {
    let rounds = chosen.iter().filter_map(|alg| Some((KexRound::of_type(alg.kind)?, alg.id)));
    rounds
        .filter(|(_, id)| *id != NONE)
        .try_fold(AgreedKexes::NONE, |agreed, (round, id)| Some(agreed.with(round, KexMethod::from_id(id)?)))
}
