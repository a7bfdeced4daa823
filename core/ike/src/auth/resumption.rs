//! The AUTH payload of an IKE SA that resumes a session (RFC 5723 section 4.3.3): a MAC with SK_p, which is
//! derived from SK_d of the earlier IKE SA. The identities are those of the earlier IKE SA.

use super::{OwnProof, PeerAuthenticated, SignedOctets};
use crate::StateFault;
#[cfg(feature = "eap")]
use crate::UserIdentity;
use crate::config::{Connection, Identity};
use crate::engine::peer_index::{AuthScope, PeerPair, Proof};
#[cfg(feature = "ppk")]
use alloc::boxed::Box;
use alloc::vec::Vec;
use casemate_crypto::Providers;
use casemate_wire::ike::{Auth, AuthMethod};
use core::net::IpAddr;
#[cfg(feature = "records")]
use core::net::{Ipv4Addr, Ipv6Addr};
use subtle::ConstantTimeEq as _;

/// Before a user of EAP, and the kind of proof. No ID payload has this type.
#[cfg(feature = "eap")]
const EAP_USER: u8 = 0;

/// What was proved when a peer was authenticated, without the proof itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PeerRecord {
    /// Identity in the peer's ID payload.
    pub(crate) id: Identity,
    /// Our identity.
    pub(crate) own_id: Identity,
    pub(crate) proof: Proof,
    /// Whether AUTH covered the first messages of both sides. IKE_SESSION_RESUME does not agree on that anew.
    pub(crate) full_transcript: bool,
    /// PPK_ID of the post-quantum pre-shared key that SK_d depends on.
    #[cfg(feature = "ppk")]
    pub(crate) ppk_id: Option<Box<[u8]>>,
    /// EAP identity of the peer, if it used EAP.
    #[cfg(feature = "eap")]
    pub(crate) eap_identity: Option<UserIdentity>,
    /// Virtual addresses that an AAA server has assigned to the peer.
    #[cfg(feature = "eap")]
    pub(crate) assigned_addrs: Vec<IpAddr>,
}

/// The payload with which a peer proves that it has the keys of the earlier IKE SA, and what it covers.
pub(crate) struct ResumptionProof<'a> {
    pub(crate) auth: Auth<'a>,
    pub(crate) octets: SignedOctets<'a>,
}

impl OwnProof {
    /// Creates the proof that this host has the keys of the earlier IKE SA.
    pub(crate) fn of_resumption(
        octets: &SignedOctets<'_>,
        providers: &Providers<'_>,
    ) -> Result<Self, StateFault> {
        octets.with_key(octets.sk_p.expose(), providers).map(Self::SharedKey)
    }
}

impl PeerAuthenticated {
    /// What an IKE SA that resumes the session has to know of this peer.
    pub(crate) fn record(&self) -> PeerRecord {
        PeerRecord {
            id: self.id.clone(),
            own_id: self.own_id.clone(),
            proof: self.proof,
            full_transcript: self.full_transcript,
            #[cfg(feature = "ppk")]
            ppk_id: self.ppk_id.clone(),
            #[cfg(feature = "eap")]
            eap_identity: self.eap_identity.clone(),
            #[cfg(feature = "eap")]
            assigned_addrs: self.assigned_addrs.clone(),
        }
    }
}

impl PeerRecord {
    /// What the peer has proved: the user of EAP, because a client with EAP may send any ID payload, or else
    /// the identity of its ID payload. Without a proven user, it is the login.
    pub(crate) fn proven_identity(&self) -> Vec<u8> {
        #[cfg(feature = "eap")]
        if let Some(user) = &self.eap_identity {
            return [&[EAP_USER, self.proof as u8], &*user.scope_identity().to_bytes()].concat();
        }
        self.id.to_bytes()
    }

    /// Verifies the proof of a peer that resumes its session.
    pub(crate) fn authenticate(
        &self,
        proof: &ResumptionProof<'_>,
        connection: &Connection,
        remote: IpAddr,
        providers: &Providers<'_>,
    ) -> Result<PeerAuthenticated, StateFault> {
        if proof.auth.method != AuthMethod::SHARED_KEY {
            return Err(StateFault::AuthMethod);
        }
        let expected = proof.octets.with_key(proof.octets.sk_p.expose(), providers)?;
        if !bool::from(expected.expose().ct_eq(proof.auth.data)) {
            return Err(StateFault::AuthMismatch);
        }
        let full_transcript = proof.octets.other_message.is_some();
        Ok(PeerAuthenticated { full_transcript, ..self.authenticated(connection, remote) })
    }

    /// The peer of a record whose IKE SA is restored. `was_v4` says whether it had an IPv4 address when it
    /// was authenticated.
    #[cfg(feature = "records")]
    pub(crate) fn restored(&self, connection: &Connection, was_v4: bool) -> PeerAuthenticated {
        let any: IpAddr = if was_v4 { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        self.authenticated(connection, any)
    }

    /// The proof, for an IKE SA with a peer at an address. Its caller has verified it.
    fn authenticated(&self, connection: &Connection, remote: IpAddr) -> PeerAuthenticated {
        let own = &self.own_id;
        #[cfg(feature = "eap")]
        let proven = self.eap_identity.as_ref().map_or_else(|| self.id.clone(), UserIdentity::scope_identity);
        #[cfg(not(feature = "eap"))]
        let proven = self.id.clone();
        PeerAuthenticated {
            id: self.id.clone(),
            pair: PeerPair::new(own, &self.id, remote),
            scope: AuthScope::new(connection, self.proof, own, &proven, remote),
            own_id: own.clone(),
            proof: self.proof,
            full_transcript: self.full_transcript,
            #[cfg(feature = "ppk")]
            ppk_id: self.ppk_id.clone(),
            #[cfg(feature = "eap")]
            eap_identity: self.eap_identity.clone(),
            #[cfg(feature = "eap")]
            assigned_addrs: self.assigned_addrs.clone(),
            #[cfg(feature = "eap")]
            earlier_rounds: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::AgreedKexes;
    use crate::keymat::{Nonces, SaKeys};
    use crate::{IkeSpis, SkSuite};
    use alloc::format;
    use alloc::string::String;
    use casemate_crypto::{AeadAlg, AesBits, KexMethod, PrfAlg};
    use casemate_wire::ike::IkeSpi;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// No other implementation was at hand. The expected values were computed from the formulas of RFC 5723
    /// sections 4.3.3 and 5.1 with Python's hmac and hashlib:
    ///
    /// ```python
    /// def prf(key, data): return hmac.new(key, data, hashlib.sha256).digest()
    /// def prf_plus(key, seed, length):
    ///     out, last = b"", b""
    ///     for number in range(1, 256):
    ///         last = prf(key, last + seed + bytes([number]))
    ///         out += last
    ///     return out[:length]
    /// sk_d, ni, nr = bytes(range(32)), bytes(range(32, 64)), bytes(range(64, 96))
    /// spis = bytes.fromhex("01020304050607081112131415161718")
    /// keys = prf_plus(prf(sk_d, b"Resumption" + ni + nr), ni + nr + spis, 32 + 2 * 36 + 2 * 32)
    /// sk_d, sk_ei, sk_er, sk_pi, sk_pr = keys[:32], keys[32:68], keys[68:104], keys[104:136], keys[136:]
    /// message = b"the first message of the initiator"
    /// auth = prf(sk_pi, message + nr + prf(sk_pi, bytes([2, 0, 0, 0]) + b"left"))
    /// ```
    #[test]
    fn keys_and_proof_match_an_independent_computation() {
        let bytes = |from: u8| (from..from + 32).collect::<alloc::vec::Vec<u8>>();
        let sk_d = casemate_crypto::SecretBytes::new(&bytes(0));
        let (ni, nr) = (bytes(32), bytes(64));
        let nonces = Nonces { initiator: &ni, responder: &nr };
        let spis =
            IkeSpis { initiator: IkeSpi(0x0102_0304_0506_0708), responder: IkeSpi(0x1112_1314_1516_1718) };
        let sk = SkSuite::Combined(AeadAlg::aes_gcm(AesBits::B256, 16).unwrap());
        let providers = Providers(&[&casemate_rustcrypto::RUSTCRYPTO]);
        let keys = SaKeys::resumed(PrfAlg::HmacSha256, sk, &sk_d, nonces, spis, &providers).unwrap();
        for (key, expected) in [
            (&keys.d, "df9a7000690603c31ca0ccf12d7263eb444b3c9ee80e4692f0c04eb5998b4b59"),
            (&keys.ei, "fada9e99bc0ad21ab3e30c9977ca689c8f239915f41954649b4a844185d34a9f960999d5"),
            (&keys.er, "d2f7e1aae85c4b32d4d793903e9a2640af2193e4a7571dcf3c12e212583e1829fa0d8c47"),
            (&keys.pi, "8a2ad454233649973f5f9f1b43d9064e2e2af19cfc8965fc825446253b6dae08"),
            (&keys.pr, "73232940182de94c65a1970bc586fc6336011467db14a2eb6212c80afdb78e53"),
        ] {
            assert_eq!(hex(key.expose()), expected);
        }
        assert!(keys.ai.is_empty() && keys.ar.is_empty());
        let id = super::super::id_body(&Identity::Fqdn("left".into()));
        let (prf, additional) = (PrfAlg::HmacSha256, AgreedKexes::NONE);
        let suite = crate::IkeSuite { sk, prf, kex: KexMethod::X25519, additional };
        let message = b"the first message of the initiator";
        let octets = SignedOctets {
            message,
            other_message: None,
            nonce: &nr,
            sk_p: &keys.pi,
            id: &id,
            int_auth: &[],
            suite,
        };
        assert_eq!(
            hex(octets.with_key(keys.pi.expose(), &providers).unwrap().expose()),
            "70b07ca395f0c35fb602fd56b7d1f4548a10fea4da85cf9b84a1b8dc6937eaed"
        );
    }
}
