//! The AUTH payload (RFC 7296 section 2.15): what it covers, how it is made, how it is judged.

mod own;
mod signature;

use crate::config::{Connection, Identity, RemoteMethod};
use crate::negotiate::IkeSuite;
use crate::peers::{AuthScope, Pair, Proof};
use crate::{Env, StateFault};
use alloc::sync::Arc;
use alloc::vec::Vec;
use casemate_crypto::{PrfOutput, Providers, SecretBytes};
use casemate_wire::ike::{Auth, AuthMethod, Cert, WriteError, Writer};
use core::net::IpAddr;
use subtle::ConstantTimeEq as _;

pub(crate) use own::OwnSide;
pub(crate) use signature::{OwnSignature, announced_hashes};

/// Proof that a peer's AUTH payload was right for this identity. Only this module can make one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PeerAuthenticated {
    id: Arc<Identity>,
    pair: Pair,
    scope: AuthScope,
}

impl PeerAuthenticated {
    /// Who it is.
    pub(crate) const fn id(&self) -> &Arc<Identity> {
        &self.id
    }

    /// It and we, as tables find the two.
    pub(crate) const fn pair(&self) -> &Pair {
        &self.pair
    }

    /// What was authenticated equally has the same.
    pub(crate) const fn scope(&self) -> &AuthScope {
        &self.scope
    }
}

/// What one side's AUTH payload covers.
pub(crate) struct SignedOctets<'a> {
    /// The first message that this side sent, whole.
    pub(crate) message: &'a [u8],
    /// The other side's nonce.
    pub(crate) nonce: &'a [u8],
    /// SK_pi or SK_pr.
    pub(crate) sk_p: &'a SecretBytes,
    /// Body of this side's ID payload.
    pub(crate) id: &'a [u8],
    pub(crate) suite: IkeSuite,
}

impl SignedOctets<'_> {
    fn maced_id(&self, providers: &Providers<'_>) -> Result<PrfOutput, StateFault> {
        let key = providers.prf(self.suite.prf, self.sk_p.expose()).map_err(|_| StateFault::Provider)?;
        key.prf(&[self.id]).map_err(|_| StateFault::Provider)
    }

    /// The octets, one after the other: for a signature.
    fn concat(&self, providers: &Providers<'_>) -> Result<Vec<u8>, StateFault> {
        Ok([self.message, self.nonce, self.maced_id(providers)?.expose()].concat())
    }

    /// prf( prf(Shared Secret, "Key Pad for IKEv2"), octets)
    fn with_shared_key(
        &self,
        secret: &SecretBytes,
        providers: &Providers<'_>,
    ) -> Result<PrfOutput, StateFault> {
        const PAD: &[u8] = b"Key Pad for IKEv2";
        let prf = |key: &[u8], parts: &[&[u8]]| {
            let key = providers.prf(self.suite.prf, key).map_err(|_| StateFault::Provider)?;
            key.prf(parts).map_err(|_| StateFault::Provider)
        };
        let key = prf(secret.expose(), &[PAD])?;
        prf(key.expose(), &[self.message, self.nonce, self.maced_id(providers)?.expose()])
    }
}

/// Our proof.
pub(crate) enum OwnProof {
    SharedKey(PrfOutput),
    Signature(OwnSignature),
}

impl OwnProof {
    /// With the key that `connection` shares with the peer.
    pub(crate) fn with_shared_key(
        octets: &SignedOctets<'_>,
        secret: &SecretBytes,
        providers: &Providers<'_>,
    ) -> Result<Self, StateFault> {
        octets.with_shared_key(secret, providers).map(Self::SharedKey)
    }

    pub(crate) fn write(&self, out: &mut Writer<'_>) -> Result<(), WriteError> {
        match self {
            Self::SharedKey(mac) => out.auth(&Auth { method: AuthMethod::SHARED_KEY, data: mac.expose() }),
            Self::Signature(signature) => signature.write(out),
        }
    }
}

/// What a peer says to prove who it is.
pub(crate) struct Claim<'a> {
    pub(crate) id: &'a Identity,
    pub(crate) auth: Auth<'a>,
    pub(crate) certs: &'a [Cert<'a>],
    /// Where it says so.
    pub(crate) remote: IpAddr,
}

/// Judges a peer's proof, as its connection demands it.
pub(crate) fn verify(
    claim: &Claim<'_>,
    octets: &SignedOctets<'_>,
    (connection, own_id): (&Connection, &Identity),
    env: &Env<'_>,
) -> Result<PeerAuthenticated, StateFault> {
    let method = &connection.remote.method;
    let by_key = matches!(method, RemoteMethod::SharedKey | RemoteMethod::Any(_));
    let by_signature = matches!(method, RemoteMethod::Certificate(_) | RemoteMethod::Any(_));
    let proof = match claim.auth.method {
        AuthMethod::SHARED_KEY if by_key => {
            let secret = env.credentials.shared_key(connection, own_id, claim.id);
            let secret = secret.ok_or(StateFault::NoSharedKey)?;
            let expected = octets.with_shared_key(secret, env.providers)?;
            if !bool::from(expected.expose().ct_eq(claim.auth.data)) {
                return Err(StateFault::AuthMismatch);
            }
            Proof::SharedKey
        }
        AuthMethod::SHARED_KEY => return Err(StateFault::AuthMethod),
        _ if by_signature => {
            signature::verify(claim, octets, connection, env)?;
            Proof::Signature
        }
        _ => return Err(StateFault::AuthMethod),
    };
    let pair = Pair::new(own_id, claim.id, claim.remote);
    let scope = AuthScope::new((connection, proof), own_id, claim.id, claim.remote);
    Ok(PeerAuthenticated { id: Arc::new(claim.id.clone()), pair, scope })
}
