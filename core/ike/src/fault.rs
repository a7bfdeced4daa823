//! Protocol violations of a peer in well-formed messages.
//!
//! One table, as in `casemate_wire::ike::error`, has name, response and source of each fault. Counters, logs
//! and responses read it. [`PeerFault`] is a fault of either table.

use FaultResponse::Notify;
use casemate_wire::ike::{Fault, FaultKind, FaultResponse, NotifyType};
use casemate_wire::invariant::OrBroken;
use core::fmt;

macro_rules! state_faults {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal, $response:expr, $source:literal;)+) => {
        /// A protocol rule that a well-formed message violates.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum StateFault {
            $($(#[doc = $doc])+ #[doc = ""] #[doc = concat!("Source: ", $source, ".")] $variant,)+
        }

        impl StateFault {
            /// Every fault, in the order of the enum.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// Name as shown to users, e.g. `icv-mismatch`.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }

            /// What the fault means, as sentences that begin with a space.
            pub const fn description(self) -> &'static str {
                match self { $(Self::$variant => concat!($($doc),+),)+ }
            }

            /// Response to a request with this fault.
            pub const fn response(self) -> FaultResponse {
                match self { $(Self::$variant => $response,)+ }
            }

            /// RFC and section of the rule.
            pub const fn source(self) -> &'static str {
                match self { $(Self::$variant => $source,)+ }
            }
        }
    };
}

const SYNTAX: FaultResponse = FaultResponse::Notify(NotifyType::INVALID_SYNTAX);
const BUSY: FaultResponse = FaultResponse::Notify(NotifyType::TEMPORARY_FAILURE);
const NO_PROPOSAL: FaultResponse = FaultResponse::Notify(NotifyType::NO_PROPOSAL_CHOSEN);
const NO_TICKET: FaultResponse = FaultResponse::Notify(NotifyType::TICKET_NACK);
const FAILED: FaultResponse = FaultResponse::Notify(NotifyType::AUTHENTICATION_FAILED);

state_faults! {
    /// No IKE SA has these SPIs.
    UnknownSpi = "unknown-spi", FaultResponse::Silence, "RFC 7296 section 2.21.4";
    /// The peer presents a wrong token for an IKE SA that it claims to have forgotten.
    CrashToken = "crash-token", FaultResponse::Silence, "RFC 6290 section 3";
    /// The peer answers that it does not know the IKE SA that is being set up with it, as after a restart. It
    /// is begun again with IKE_SA_INIT.
    SetupUnknown = "setup-unknown", FaultResponse::Silence, "RFC 7296 section 2.21.4";
    /// The initiator's SPI is zero.
    ZeroSpi = "zero-spi", FaultResponse::Silence, "RFC 7296 section 3.1";
    /// The Initiator flag does not fit the IKE SA.
    WrongRole = "wrong-role", FaultResponse::Silence, "RFC 7296 section 3.1";
    /// The message ID is neither the next one nor that of the last request.
    MessageId = "message-id", FaultResponse::Silence, "RFC 7296 section 2.3";
    /// A response without an outstanding request.
    StrayResponse = "stray-response", FaultResponse::Silence, "RFC 7296 section 2.1";
    /// The state of the IKE SA does not allow the exchange.
    WrongExchange = "wrong-exchange", SYNTAX, "RFC 7296 section 1";
    /// A message that must be encrypted is in clear text.
    NotEncrypted = "not-encrypted", FaultResponse::Silence, "RFC 7296 section 1.2";
    /// The ICV is wrong: the message was changed, or encrypted with another key.
    IcvMismatch = "icv-mismatch", FaultResponse::Silence, "RFC 7296 section 2.21.3";
    /// The same message arrived in fragments and whole, in another number of fragments, or with other
    /// contents.
    FragmentMismatch = "fragment-mismatch", FaultResponse::Silence, "RFC 7383 section 2.6";
    /// A fragment, although fragmentation was not negotiated.
    FragmentUnexpected = "fragment-unexpected", FaultResponse::Silence, "RFC 7383 section 2.3";
    /// More fragments or bytes than the limit.
    FragmentLimit = "fragment-limit", FaultResponse::Silence, "RFC 7383 section 5";
    /// A required payload is missing.
    PayloadMissing = "payload-missing", SYNTAX, "RFC 7296 sections 1.2 to 1.4";
    /// A payload that may occur once occurs twice.
    PayloadTwice = "payload-twice", SYNTAX, "RFC 7296 section 1.2";
    /// The first proposal does not have number 1.
    FirstProposal = "first-proposal", SYNTAX, "RFC 7296 section 3.3.1";
    /// No proposal is acceptable.
    NoProposalChosen = "no-proposal-chosen", NO_PROPOSAL, "RFC 7296 section 2.7";
    /// The response chose something that was not offered.
    NotOffered = "not-offered", FaultResponse::Silence, "RFC 7296 section 2.7";
    /// The public value is of another method than the chosen proposal.
    KeMethod = "ke-method", Notify(NotifyType::INVALID_KE_PAYLOAD), "RFC 7296 sections 1.2 and 1.3";
    /// The public value is invalid: wrong length, not on the curve, of low order, or an ML-KEM key that fails
    /// the modulus check.
    KeValue = "ke-value", SYNTAX, "RFC 6989 section 2, RFC 8031 section 3.2, FIPS 203 section 7.2";
    /// The cookie is missing or wrong, and there are too many half-open SAs.
    Cookie = "cookie", Notify(NotifyType::COOKIE), "RFC 7296 section 2.6";
    /// The peer has requested cookies or other key exchange methods too often.
    TooManyRetries = "too-many-retries", FaultResponse::Silence, "RFC 7296 section 2.6";
    /// The limit of half-open SAs is reached.
    HalfOpenLimit = "half-open-limit", FaultResponse::Silence, "RFC 7296 section 2.6";
    /// The limit of half-open SAs from one address or prefix, or of the bytes that they hold, is reached.
    SourceLimit = "source-limit", FaultResponse::Silence, "RFC 7296 section 2.6";
    /// The limit of IKE SAs with one peer is reached: the oldest is closed.
    PeerLimit = "peer-limit", FAILED, "none: a limit of this implementation";
    /// The limit of IKE SAs is reached.
    SaLimit = "sa-limit", FaultResponse::Silence, "none: a limit of this implementation";
    /// The limit of Child SAs of an IKE SA is reached.
    ChildLimit = "child-limit", Notify(NotifyType::NO_ADDITIONAL_SAS), "RFC 7296 section 1.3";
    /// No connection is configured for the addresses.
    NoConnection = "no-connection", NO_PROPOSAL, "RFC 4301 section 4.4.3";
    /// No connection is configured for the addresses, but names of peers are being looked up again.
    HostLookUp = "host-look-up", FaultResponse::Silence, "RFC 4301 section 4.4.3";
    /// No connection is configured for the identities.
    NoPeer = "no-peer", FAILED, "RFC 4301 section 4.4.3";
    /// The type of the identity is not supported.
    IdentityType = "identity-type", FAILED, "RFC 7296 section 3.5";
    /// The responder has another identity than the configured one.
    WrongIdentity = "wrong-identity", FAILED, "RFC 7296 section 2.15";
    /// There is no shared key for the two identities.
    NoSharedKey = "no-shared-key", FAILED, "RFC 7296 section 2.15";
    /// The authentication method is unknown, or the connection does not allow it.
    AuthMethod = "auth-method", FAILED, "RFC 7296 section 2.15";
    /// The AUTH payload is wrong.
    AuthMismatch = "auth-mismatch", FAILED, "RFC 7296 section 2.15";
    /// EAP has failed.
    EapFailed = "eap-failed", FAILED, "RFC 7296 section 2.16";
    /// The peer has more or fewer rounds of authentication than the connection, or does not support several.
    AuthRounds = "auth-rounds", FAILED, "RFC 4739 section 2.1";
    /// The post-quantum pre-shared key that the peer has named is not known or not allowed, or this host does
    /// not have the one of the connection.
    PpkMissing = "ppk-missing", FAILED, "RFC 8784 section 3";
    /// The peer uses no post-quantum pre-shared key, which the connection requires or the peer has announced.
    PpkUnused = "ppk-unused", FAILED, "RFC 8784 section 3";
    /// The certificate is not trusted for the identity.
    Certificate = "certificate", FAILED, "RFC 7296 section 3.6, RFC 4301 section 4.4.3.2";
    /// The signature algorithm is not allowed.
    SignatureAlgorithm = "signature-algorithm", FAILED, "RFC 7427 section 4, RFC 8247 section 3";
    /// The private key of this host, such as one on a token, has made no signature.
    OwnSignature = "own-signature", FAILED, "RFC 7296 section 2.15";
    /// There is already an IKE SA with this identity, which stays.
    NotUnique = "not-unique", FAILED, "RFC 7296 section 2.4";
    /// The traffic selectors do not overlap with the configured ones.
    TsUnacceptable = "ts-unacceptable", Notify(NotifyType::TS_UNACCEPTABLE), "RFC 7296 section 2.9";
    /// The response has traffic selectors that were not offered.
    TsNotOffered = "ts-not-offered", FaultResponse::Silence, "RFC 7296 section 2.9";
    /// The first Child SA is missing where it is required, or present where it is not allowed.
    ChildlessRefused = "childless-refused", SYNTAX, "RFC 6023 section 3";
    /// No virtual address is available for the peer.
    NoAddress = "no-address", Notify(NotifyType::INTERNAL_ADDRESS_FAILURE), "RFC 7296 section 3.15.4";
    /// The peer requests no virtual address, but the connection gives its traffic to virtual addresses only.
    AddressNotRequested = "address-not-requested", Notify(NotifyType::FAILED_CP_REQUIRED),
        "RFC 7296 section 2.19";
    /// This host takes none of the virtual addresses that the peer has assigned to it.
    AddressRefused = "address-refused", FaultResponse::Silence, "RFC 7296 section 3.15.4";
    /// The Child SA to be rekeyed does not exist.
    ChildNotFound = "child-not-found", Notify(NotifyType::CHILD_SA_NOT_FOUND), "RFC 7296 section 2.25";
    /// The request continues a series of key exchanges that does not exist, or no longer.
    NoKexSeries = "no-kex-series", Notify(NotifyType::STATE_NOT_FOUND), "RFC 9370 section 2.2.4";
    /// The connection does not accept the addresses to which the peer wants to move or from which it sends,
    /// or the peer has moved without MOBIKE and has a Child SA in transport mode.
    UnacceptableAddresses = "unacceptable-addresses", Notify(NotifyType::UNACCEPTABLE_ADDRESSES),
        "RFC 4555 section 3.5";
    /// The peer prohibits NATs, and one has changed the addresses of its message.
    UnexpectedNat = "unexpected-nat", Notify(NotifyType::UNEXPECTED_NAT_DETECTED), "RFC 4555 section 3.9";
    /// The response does not repeat our COOKIE2.
    Cookie2 = "cookie2", FaultResponse::Silence, "RFC 4555 section 3.7";
    /// No address of another gateway was found for the name to which a gateway has redirected this host.
    RedirectGateway = "redirect-gateway", FaultResponse::Silence, "RFC 5685 sections 3 and 9.2";
    /// The ticket is not one of this host, or it or its key has expired.
    Ticket = "ticket", NO_TICKET, "RFC 5723 section 4.3.2";
    /// The session of the ticket cannot be resumed: it has ended or was resumed before, its connection has
    /// changed or does not accept the addresses, or the secret of the peer has changed.
    NotResumable = "not-resumable", NO_TICKET, "RFC 5723 sections 4.3.1 and 6.2";
    /// The request changes an SA that is being closed or replaced.
    Busy = "busy", BUSY, "RFC 7296 section 2.25";
    /// No SPI is available.
    NoSpi = "no-spi", Notify(NotifyType::NO_ADDITIONAL_SAS), "RFC 7296 section 1.3";
    /// The provider failed. The peer is not at fault.
    Provider = "provider", BUSY, "none: an error of the provider";
}

impl fmt::Display for StateFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Any fault of a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerFault {
    /// Malformed bytes.
    Wire(Fault),
    /// A protocol violation in a well-formed message.
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
    /// Response to a request with this fault.
    pub const fn response(self) -> FaultResponse {
        match self {
            Self::Wire(fault) => fault.kind().response(),
            Self::State(fault) => fault.response(),
        }
    }

    /// Name as shown to users.
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

const HAS_COUNTER: &str = "each fault has a counter";

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
        if let Some(counter) = counter.or_report(HAS_COUNTER) {
            *counter = counter.wrapping_add(1);
        }
    }

    /// Number of faults of this kind in well-formed messages.
    pub fn state(&self, fault: StateFault) -> u64 {
        self.state.get(fault as usize).copied().or_broken_default(HAS_COUNTER)
    }

    /// Number of malformed messages of this kind.
    pub fn wire(&self, fault: FaultKind) -> u64 {
        self.wire.get(fault as usize).copied().or_broken_default(HAS_COUNTER)
    }

    /// Name and count of every fault.
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
