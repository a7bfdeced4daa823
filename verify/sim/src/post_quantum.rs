//! Policies for additional key exchanges (RFC 9370) and post-quantum pre-shared keys (PPKs, RFC 8784): what
//! the two sides of a connection demand, and what they have to agree on.

use crate::plan::{PerNode, Plan, Setup};
use casemate_crypto::{KexMethod, SecretBytes};
use casemate_ike::config::{AdditionalKex, AdditionalKexes, KexRound, PpkId, PpkPolicy};
use casemate_test_support::TestRng;

/// PPK_ID of the PPK of all nodes.
const PPK_ID: &[u8] = b"ppk@sim";
/// Largest number of additional key exchanges of a run.
const MAX_ROUNDS: usize = 2;

/// Whether a node uses a method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Requirement {
    Never,
    Optional,
    Required,
}

/// What two sides with their demands have to agree on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Used,
    NotUsed,
    /// One side requires what its peer does not have.
    Refused,
}

/// Demands of the nodes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PostQuantum {
    /// Number of additional key exchanges of a node that uses them.
    pub(crate) rounds: usize,
    /// Additional key exchanges of IKE SAs.
    pub(crate) ike: PerNode<Requirement>,
    /// Additional key exchanges of Child SAs that have a key exchange of their own.
    pub(crate) child: PerNode<Requirement>,
    /// PPKs of IKE SAs.
    pub(crate) ppk: PerNode<Requirement>,
}

impl PerNode<Requirement> {
    pub(crate) const NEVER: Self = Self { first: Requirement::Never, others: Requirement::Never };
    pub(crate) const OPTIONAL: Self = Self { first: Requirement::Optional, others: Requirement::Optional };

    /// Result of a negotiation between the first node and another one.
    pub(crate) const fn outcome(self) -> Outcome {
        match (self.first, self.others) {
            (Requirement::Never, Requirement::Required) | (Requirement::Required, Requirement::Never) => {
                Outcome::Refused
            }
            (Requirement::Never, _) | (_, Requirement::Never) => Outcome::NotUsed,
            _ => Outcome::Used,
        }
    }

    /// Draws demands that result in this outcome.
    pub(crate) fn draw(outcome: Outcome, rng: &mut TestRng) -> Self {
        let all = [Requirement::Never, Requirement::Optional, Requirement::Required];
        let pairs = all.into_iter().flat_map(|first| all.map(|others| Self { first, others }));
        let fitting: Vec<_> = pairs.filter(|pair| pair.outcome() == outcome).collect();
        rng.pick(&fitting)
    }

    /// Draws demands that do not prevent an SA.
    fn draw_agreeing(rng: &mut TestRng) -> Self {
        let outcome = rng.pick(&[Outcome::Used, Outcome::Used, Outcome::NotUsed]);
        Self::draw(outcome, rng)
    }
}

impl PostQuantum {
    /// Neither additional key exchanges nor PPKs.
    pub(crate) const NONE: Self =
        Self { rounds: 1, ike: PerNode::NEVER, child: PerNode::NEVER, ppk: PerNode::NEVER };

    /// Draws demands that do not prevent an SA; in half of the runs there are none.
    pub(crate) fn draw(rng: &mut TestRng) -> Self {
        if rng.coin() {
            return Self::NONE;
        }
        Self {
            rounds: 1 + rng.below(MAX_ROUNDS),
            ike: PerNode::draw_agreeing(rng),
            child: PerNode::draw_agreeing(rng),
            ppk: PerNode::draw_agreeing(rng),
        }
    }

    /// Draws demands with which IKE SAs and Child SAs have additional key exchanges.
    pub(crate) fn draw_used(rng: &mut TestRng) -> Self {
        Self {
            ike: PerNode::draw(Outcome::Used, rng),
            child: PerNode::draw(Outcome::Used, rng),
            rounds: 1 + rng.below(MAX_ROUNDS),
            ..Self::draw(rng)
        }
    }

    /// Number of additional key exchanges that two sides with these demands have to agree on.
    pub(crate) const fn agreed_rounds(&self, demand: PerNode<Requirement>) -> usize {
        match demand.outcome() {
            Outcome::Used => self.rounds,
            Outcome::NotUsed | Outcome::Refused => 0,
        }
    }

    /// Additional key exchanges in the proposals of a node.
    pub(crate) fn kexes(&self, demand: PerNode<Requirement>, node: usize) -> AdditionalKexes {
        let demand = demand.of(node);
        if demand == Requirement::Never {
            return AdditionalKexes::new();
        }
        // The second side has a choice of methods.
        let choice: [&[KexMethod]; MAX_ROUNDS] = if node == 0 {
            [&[KexMethod::MlKem768], &[KexMethod::EcpP256]]
        } else {
            [&[KexMethod::MlKem512, KexMethod::MlKem768], &[KexMethod::EcpP256, KexMethod::MlKem768]]
        };
        let numbers = [KexRound::ALL[0], KexRound::ALL[3]];
        let kex = |methods: &[KexMethod]| AdditionalKex {
            methods: methods.to_vec(),
            optional: demand == Requirement::Optional,
        };
        numbers
            .into_iter()
            .zip(choice)
            .take(self.rounds)
            .map(|(round, methods)| (round, kex(methods)))
            .collect()
    }

    /// PPK policy of the connections of a node.
    pub(crate) fn ppk_policy(&self, node: usize) -> PpkPolicy {
        match self.ppk.of(node) {
            Requirement::Never => PpkPolicy::default(),
            demand => PpkPolicy { id: Some(PpkId::new(PPK_ID)), required: demand == Requirement::Required },
        }
    }
}

/// The PPK of a node, unless it uses none.
pub(crate) fn own_ppk(plan: &Plan, node: usize) -> Option<SecretBytes> {
    let Setup { post_quantum, .. } = &plan.setup;
    (post_quantum.ppk.of(node) != Requirement::Never).then(|| SecretBytes::new(b"a PPK that some nodes have"))
}

/// Whether this is the PPK_ID of [`own_ppk`].
pub(crate) fn is_ppk_id(id: &[u8]) -> bool {
    id == PPK_ID
}
