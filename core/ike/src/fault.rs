//! What a peer did wrong, as far as bytes alone do not show it.
//!
//! One table, as in `casemate_wire::ike::error`: name, answer and source of each fault stand in one place, and counters,
//! logs and answers read it. [`PeerFault`] is either of the two.

use casemate_wire::ike::{Answer, Fault, FaultKind, NotifyType};
use core::fmt;

macro_rules! state_faults {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal, $answer:expr, $source:literal;)+) => {
        /// A rule of the protocol that a well-formed message broke.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum StateFault {
            $($(#[doc = $doc])+ #[doc = ""] #[doc = concat!("Source: ", $source, ".")] $variant,)+
        }

        impl StateFault {
            /// Every fault, in the order of the enum.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The name users see, e.g. `icv-mismatch`.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }

            /// What the fault leads to, where a request can be answered.
            pub const fn answer(self) -> Answer {
                match self { $(Self::$variant => $answer,)+ }
            }

            /// The RFC and section of the rule.
            pub const fn source(self) -> &'static str {
                match self { $(Self::$variant => $source,)+ }
            }
        }
    };
}

const SYNTAX: Answer = Answer::Notify(NotifyType::INVALID_SYNTAX);
const BUSY: Answer = Answer::Notify(NotifyType::TEMPORARY_FAILURE);
const NO_PROPOSAL: Answer = Answer::Notify(NotifyType::NO_PROPOSAL_CHOSEN);
const FAILED: Answer = Answer::Notify(NotifyType::AUTHENTICATION_FAILED);

state_faults! {
    /// No IKE SA has these SPIs.
    UnknownSpi = "unknown-spi", Answer::Silence, "RFC 7296 section 2.21.4";
    /// The initiator's SPI is zero.
    ZeroSpi = "zero-spi", Answer::Silence, "RFC 7296 section 3.1";
    /// The flag that tells who began the IKE SA is wrong.
    WrongRole = "wrong-role", Answer::Silence, "RFC 7296 section 3.1";
    /// The Message ID is not the next one, nor that of the last request.
    MessageId = "message-id", Answer::Silence, "RFC 7296 section 2.3";
    /// A response to nothing that is waited for.
    StrayResponse = "stray-response", Answer::Silence, "RFC 7296 section 2.1";
    /// An exchange that the state of the IKE SA does not allow.
    WrongExchange = "wrong-exchange", SYNTAX, "RFC 7296 section 1";
    /// A message that must be encrypted is not.
    NotEncrypted = "not-encrypted", Answer::Silence, "RFC 7296 section 1.2";
    /// The ICV is wrong: the message was changed, or is under another key.
    IcvMismatch = "icv-mismatch", Answer::Silence, "RFC 7296 section 2.21.3";
    /// The same message came in fragments and whole, or in another number of fragments, or with other contents.
    FragmentMismatch = "fragment-mismatch", Answer::Silence, "RFC 7383 section 2.6";
    /// Fragments although neither side wanted them.
    FragmentUnexpected = "fragment-unexpected", Answer::Silence, "RFC 7383 section 2.3";
    /// More fragments, or more bytes, than are kept.
    FragmentLimit = "fragment-limit", Answer::Silence, "RFC 7383 section 5";
    /// A payload that the exchange needs is not there.
    PayloadMissing = "payload-missing", SYNTAX, "RFC 7296 sections 1.2 to 1.4";
    /// A payload that there can be only one of came twice.
    PayloadTwice = "payload-twice", SYNTAX, "RFC 7296 section 1.2";
    /// The first proposal has not the number 1.
    FirstProposal = "first-proposal", SYNTAX, "RFC 7296 section 3.3.1";
    /// No proposal suits.
    NoProposalChosen = "no-proposal-chosen", NO_PROPOSAL, "RFC 7296 section 2.7";
    /// The answer chose what was not offered.
    NotOffered = "not-offered", Answer::Silence, "RFC 7296 section 2.7";
    /// The public value is of another method than the proposal that was chosen.
    KeMethod = "ke-method", Answer::Notify(NotifyType::INVALID_KE_PAYLOAD), "RFC 7296 sections 1.2 and 1.3";
    /// The public value is no good: wrong length, not on the curve, of low order.
    KeValue = "ke-value", SYNTAX, "RFC 6989 section 2, RFC 8031 section 3.2";
    /// The cookie is missing or wrong while there are too many half-open SAs.
    Cookie = "cookie", Answer::Notify(NotifyType::COOKIE), "RFC 7296 section 2.6";
    /// The peer asks for cookies, or for other groups, again and again.
    TooManyRetries = "too-many-retries", Answer::Silence, "RFC 7296 section 2.6";
    /// As many half-open SAs as there may be.
    HalfOpenLimit = "half-open-limit", Answer::Silence, "RFC 7296 section 2.6";
    /// As many half-open SAs from one address or prefix as there may be.
    SourceLimit = "source-limit", Answer::Silence, "RFC 7296 section 2.6";
    /// As many IKE SAs between the same two identities as there may be: the oldest is closed.
    PeerLimit = "peer-limit", FAILED, "none: a limit of this implementation";
    /// As many IKE SAs as there may be.
    SaLimit = "sa-limit", Answer::Silence, "none: a limit of this implementation";
    /// As many Child SAs in one IKE SA as there may be.
    ChildLimit = "child-limit", Answer::Notify(NotifyType::NO_ADDITIONAL_SAS), "RFC 7296 section 1.3";
    /// No connection is configured for the addresses.
    NoConnection = "no-connection", NO_PROPOSAL, "RFC 4301 section 4.4.3";
    /// No connection is configured for the identities.
    NoPeer = "no-peer", FAILED, "RFC 4301 section 4.4.3";
    /// The identity is of a type that can name no peer.
    IdentityType = "identity-type", FAILED, "RFC 7296 section 3.5";
    /// The responder says to be somebody else than was wanted.
    WrongIdentity = "wrong-identity", FAILED, "RFC 7296 section 2.15";
    /// There is no key that both identities share.
    NoSharedKey = "no-shared-key", FAILED, "RFC 7296 section 2.15";
    /// The peer proves itself in a way that its connection does not allow, or that is unknown.
    AuthMethod = "auth-method", FAILED, "RFC 7296 section 2.15";
    /// The AUTH payload is not what the key makes.
    AuthMismatch = "auth-mismatch", FAILED, "RFC 7296 section 2.15";
    /// The certificate is not one that is trusted for the identity.
    Certificate = "certificate", FAILED, "RFC 7296 section 3.6, RFC 4301 section 4.4.3.2";
    /// The signature is of an algorithm that is not allowed.
    SignatureAlgorithm = "signature-algorithm", FAILED, "RFC 7427 section 4, RFC 8247 section 3";
    /// There is an IKE SA with this identity, which is to be kept.
    NotUnique = "not-unique", FAILED, "RFC 7296 section 2.4";
    /// The traffic selectors have nothing in common with those that are allowed.
    TsUnacceptable = "ts-unacceptable", Answer::Notify(NotifyType::TS_UNACCEPTABLE), "RFC 7296 section 2.9";
    /// The answer has traffic selectors that were not offered.
    TsNotOffered = "ts-not-offered", Answer::Silence, "RFC 7296 section 2.9";
    /// The IKE SA has no first Child SA, and must have one.
    ChildlessRefused = "childless-refused", SYNTAX, "RFC 6023 section 3";
    /// The peer wants an address, and there is none.
    NoAddress = "no-address", Answer::Notify(NotifyType::INTERNAL_ADDRESS_FAILURE), "RFC 7296 section 3.15.4";
    /// The Child SA that is to be replaced is not there.
    ChildNotFound = "child-not-found", Answer::Notify(NotifyType::CHILD_SA_NOT_FOUND), "RFC 7296 section 2.25";
    /// A change of what is being closed or replaced.
    Busy = "busy", BUSY, "RFC 7296 section 2.25";
    /// A new SPI was wanted, and there is none.
    NoSpi = "no-spi", Answer::Notify(NotifyType::NO_ADDITIONAL_SAS), "RFC 7296 section 1.3";
    /// The provider failed; nothing that the peer did.
    Provider = "provider", BUSY, "none: an error of the provider";
}

impl fmt::Display for StateFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a peer did wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerFault {
    /// The bytes show it.
    Wire(Fault),
    /// The state shows it.
    State(StateFault),
}

impl From<Fault> for PeerFault {
    fn from(fault: Fault) -> Self {
        Self::Wire(fault)
    }
}

impl From<StateFault> for PeerFault {
    fn from(fault: StateFault) -> Self {
        Self::State(fault)
    }
}

impl PeerFault {
    /// What the fault leads to.
    pub const fn answer(self) -> Answer {
        match self {
            Self::Wire(fault) => fault.kind().answer(),
            Self::State(fault) => fault.answer(),
        }
    }

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Wire(fault) => fault.kind().name(),
            Self::State(fault) => fault.name(),
        }
    }
}

impl fmt::Display for PeerFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wire(fault) => fault.fmt(f),
            Self::State(fault) => fault.fmt(f),
        }
    }
}

/// One counter for each fault.
#[derive(Debug, Clone)]
pub struct FaultCounters {
    wire: [u64; FaultKind::ALL.len()],
    state: [u64; StateFault::ALL.len()],
}

impl FaultCounters {
    pub(crate) const fn new() -> Self {
        Self { wire: [0; FaultKind::ALL.len()], state: [0; StateFault::ALL.len()] }
    }

    pub(crate) fn count(&mut self, fault: PeerFault) {
        let counter = match fault {
            PeerFault::Wire(fault) => self.wire.get_mut(fault.kind() as usize),
            PeerFault::State(fault) => self.state.get_mut(fault as usize),
        };
        if let Some(counter) = counter {
            *counter = counter.wrapping_add(1);
        }
    }

    /// How often the state showed this fault.
    pub fn state(&self, fault: StateFault) -> u64 {
        self.state.get(fault as usize).copied().unwrap_or(0)
    }

    /// How often bytes showed this fault.
    pub fn wire(&self, fault: FaultKind) -> u64 {
        self.wire.get(fault as usize).copied().unwrap_or(0)
    }

    /// Every fault by name with its count.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        let wire = FaultKind::ALL.iter().map(|fault| (fault.name(), self.wire(*fault)));
        wire.chain(StateFault::ALL.iter().map(|fault| (fault.name(), self.state(*fault))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn names_are_unique() {
        let mut names: Vec<_> = FaultCounters::new().iter().map(|(name, _)| name).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn each_fault_has_its_counter() {
        let mut counters = FaultCounters::new();
        StateFault::ALL.iter().for_each(|fault| counters.count((*fault).into()));
        assert!(StateFault::ALL.iter().all(|fault| counters.state(*fault) == 1));
        assert_eq!(counters.iter().map(|(_, count)| count).sum::<u64>(), StateFault::ALL.len() as u64);
    }
}
