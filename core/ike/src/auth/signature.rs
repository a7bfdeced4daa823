//! Signatures in AUTH payloads (RFC 7427, RFC 4754, RFC 8420; RFC 7296 section 3.8 for older peers).

#[cfg(feature = "revocation")]
use super::AuthWait;
use super::{AuthClaim, AuthError, ProofTerms, SignedOctets};
use crate::config::Connection;
use crate::transport::Content;
use crate::{Context, OwnKey, PeerCertificates, StateFault};
#[cfg(feature = "revocation")]
use crate::{PeerStatus, StatusQuery};
#[cfg(feature = "external-keys")]
use crate::{SignatureQuery, Signing};
use alloc::vec::Vec;
use casemate_crypto::{
    Curve, HashAlg, KeyKind, SignatureAlg, SignatureError, ecdsa_from_fixed, ecdsa_to_fixed,
};
use casemate_wire::ike::{Auth, AuthMethod, CertEncoding, DigitalSignature, WriteError, Writer};

/// Hash algorithms that a peer announced (RFC 7427 section 4), by number; empty without RFC 7427.
pub(crate) fn announced_hashes(content: &Content<'_>) -> Vec<u16> {
    let lists = content.notifies.iter().flat_map(|notify| notify.hash_algorithms());
    lists.map(|hash| hash.0).take(MAX_HASHES).collect()
}

/// Maximum number of hash algorithms that are read. Five are defined.
const MAX_HASHES: usize = 16;

/// Our signature.
pub(crate) struct OwnSignature {
    method: AuthMethod,
    /// AlgorithmIdentifier, for the method Digital Signature.
    identifier: &'static [u8],
    value: Vec<u8>,
}

impl OwnSignature {
    /// Signs with the best algorithm that the peer supports.
    pub(crate) fn new(
        octets: &SignedOctets<'_>,
        own: &OwnKey<'_>,
        terms: &ProofTerms<'_>,
        context: &mut Context<'_>,
    ) -> Result<Self, AuthError> {
        let signed = octets.concat(context.providers)?;
        let kind = own.key.public_key().kind();
        let configured = context.credentials.signature_algorithms(terms.connection);
        let (alg, method) = choose(kind, terms.hashes, configured)?;
        let mut value = sign(own, alg, &signed, terms, context)?;
        if let (AuthMethod::ECDSA_256 | AuthMethod::ECDSA_384 | AuthMethod::ECDSA_521, KeyKind::Ec(curve)) =
            (method, kind)
        {
            value = ecdsa_to_fixed(curve, &value).map_err(|_| StateFault::Provider)?;
        }
        Ok(Self { method, identifier: alg.algorithm_identifier(), value })
    }

    /// The data of the AUTH payload.
    #[cfg(feature = "ppk")]
    pub(crate) fn data(&self) -> Vec<u8> {
        match (self.method, u8::try_from(self.identifier.len())) {
            (AuthMethod::DIGITAL_SIGNATURE, Ok(len)) => [&[len], self.identifier, &self.value].concat(),
            _ => self.value.clone(),
        }
    }

    pub(crate) fn write(&self, out: &mut Writer<'_>) -> Result<(), WriteError> {
        match self.method {
            AuthMethod::DIGITAL_SIGNATURE => {
                let (algorithm, value) = (self.identifier, self.value.as_slice());
                out.auth_signature(&DigitalSignature { algorithm, value })
            }
            method => out.auth(&Auth { method, data: &self.value }),
        }
    }
}

#[cfg(feature = "external-keys")]
fn sign(
    own: &OwnKey<'_>,
    alg: SignatureAlg,
    message: &[u8],
    terms: &ProofTerms<'_>,
    context: &mut Context<'_>,
) -> Result<Vec<u8>, AuthError> {
    let AuthWait { ike, is_over, remote } = terms.wait;
    let query = SignatureQuery { ike, remote, key: own.key, alg, message, is_last: is_over };
    match context.credentials.sign(&query, context.rng) {
        Signing::Signed(value) => Ok(value),
        Signing::Pending if !is_over => Err(AuthError::Pending),
        Signing::Pending | Signing::Failed => Err(StateFault::OwnSignature.into()),
    }
}

#[cfg(not(feature = "external-keys"))]
fn sign(
    own: &OwnKey<'_>,
    alg: SignatureAlg,
    message: &[u8],
    _: &ProofTerms<'_>,
    context: &mut Context<'_>,
) -> Result<Vec<u8>, AuthError> {
    own.key.sign(alg, message, context.rng).map_err(|_| StateFault::OwnSignature.into())
}

/// Chooses algorithm and method for a key of this kind and a peer with these hash algorithms.
fn choose(
    kind: KeyKind,
    hashes: &[u16],
    configured: &[SignatureAlg],
) -> Result<(SignatureAlg, AuthMethod), StateFault> {
    if hashes.is_empty() {
        return without_rfc7427(kind);
    }
    let defaults = candidates(kind);
    let candidates = if configured.is_empty() { &*defaults } else { configured };
    let suits =
        |alg: &&SignatureAlg| alg.accepts_key(kind) && hashes.contains(&alg.hash_id()) && !alg.uses_sha1();
    let alg = candidates.iter().find(suits).ok_or(StateFault::SignatureAlgorithm)?;
    Ok((*alg, AuthMethod::DIGITAL_SIGNATURE))
}

/// Algorithms in order of preference. RFC 8247 section 3.2: RSASSA-PSS before PKCS1, and a hash as strong as
/// the curve.
fn candidates(kind: KeyKind) -> Vec<SignatureAlg> {
    use HashAlg::{Sha256, Sha384, Sha512};
    let hashes = match kind {
        KeyKind::Ec(Curve::P384) => [Sha384, Sha512, Sha256],
        KeyKind::Ec(Curve::P521) => [Sha512, Sha384, Sha256],
        _ => [Sha256, Sha384, Sha512],
    };
    match kind {
        KeyKind::Rsa => {
            let pss = hashes.into_iter().map(SignatureAlg::RsaPss);
            pss.chain(hashes.into_iter().map(SignatureAlg::RsaPkcs1)).collect()
        }
        KeyKind::Ec(_) => hashes.into_iter().map(SignatureAlg::Ecdsa).collect(),
        KeyKind::Ed25519 => [SignatureAlg::Ed25519].into(),
    }
}

/// Method for peers that announce no hash algorithms. RSA would use SHA-1 then, which RFC 8247 section 3.2
/// forbids.
const fn without_rfc7427(kind: KeyKind) -> Result<(SignatureAlg, AuthMethod), StateFault> {
    Ok(match kind {
        KeyKind::Ec(Curve::P256) => (SignatureAlg::Ecdsa(HashAlg::Sha256), AuthMethod::ECDSA_256),
        KeyKind::Ec(Curve::P384) => (SignatureAlg::Ecdsa(HashAlg::Sha384), AuthMethod::ECDSA_384),
        KeyKind::Ec(Curve::P521) => (SignatureAlg::Ecdsa(HashAlg::Sha512), AuthMethod::ECDSA_521),
        _ => return Err(StateFault::SignatureAlgorithm),
    })
}

/// Verifies a signature. The certificates are verified first: a signature by an untrusted key proves nothing.
/// Their status comes last, because it may have to be fetched.
pub(super) fn verify(
    claim: &AuthClaim<'_>,
    octets: &SignedOctets<'_>,
    connection: &Connection,
    context: &Context<'_>,
) -> Result<(), AuthError> {
    let chain = certificates(claim, CertEncoding::X509_SIGNATURE);
    let shown = PeerCertificates { id: claim.id, chain: &chain, unix_time: context.unix_time };
    let key = context.credentials.verify_peer(connection, &shown, context.providers);
    let key = key.map_err(|_| StateFault::Certificate)?;
    let (alg, value) = parse_auth(claim, key.kind())?;
    if alg.uses_sha1() || !context.credentials.accepts_signature(connection, claim.id, alg) {
        return Err(StateFault::SignatureAlgorithm.into());
    }
    let signed = octets.concat(context.providers)?;
    context.providers.verify(alg, &key, &signed, &value).map_err(|error| match error {
        SignatureError::Unsupported | SignatureError::Sha1 | SignatureError::WrongKey => {
            StateFault::SignatureAlgorithm
        }
        SignatureError::Invalid | SignatureError::Failed => StateFault::AuthMismatch,
    })?;
    #[cfg(feature = "revocation")]
    check_status(claim, connection, shown, context)?;
    Ok(())
}

/// Contents of the CERT payloads with this encoding.
fn certificates<'m>(claim: &AuthClaim<'m>, encoding: CertEncoding) -> Vec<&'m [u8]> {
    claim.certs.iter().filter(|cert| cert.encoding == encoding).map(|cert| cert.data).collect()
}

/// Checks that the certificates, which the peer has proved to be its own, are not revoked.
#[cfg(feature = "revocation")]
fn check_status(
    claim: &AuthClaim<'_>,
    connection: &Connection,
    shown: PeerCertificates<'_>,
    context: &Context<'_>,
) -> Result<(), AuthError> {
    let AuthWait { ike, is_over, .. } = claim.status;
    let stapled = certificates(claim, CertEncoding::OCSP);
    let query = StatusQuery { ike, shown, stapled: &stapled, is_last: is_over };
    match context.credentials.peer_status(connection, &query, context.providers) {
        PeerStatus::Accepted => Ok(()),
        PeerStatus::Pending if !is_over => Err(AuthError::Pending),
        PeerStatus::Pending | PeerStatus::Refused => Err(StateFault::Certificate.into()),
    }
}

/// Reads algorithm and signature of the AUTH payload.
fn parse_auth(claim: &AuthClaim<'_>, kind: KeyKind) -> Result<(SignatureAlg, Vec<u8>), StateFault> {
    let Auth { method, data } = claim.auth;
    let fixed = |curve: Curve, hash| {
        let is_its_curve = kind == KeyKind::Ec(curve);
        let value = ecdsa_from_fixed(curve, data).ok().filter(|_| is_its_curve);
        value.map(|value| (SignatureAlg::Ecdsa(hash), value)).ok_or(StateFault::AuthMismatch)
    };
    match method {
        AuthMethod::DIGITAL_SIGNATURE => {
            let signature = claim.auth.signature().ok_or(StateFault::AuthMismatch)?;
            let alg = SignatureAlg::from_algorithm_identifier(signature.algorithm);
            let alg = alg.map_err(|_| StateFault::SignatureAlgorithm)?;
            Ok((alg, signature.value.into()))
        }
        AuthMethod::ECDSA_256 => fixed(Curve::P256, HashAlg::Sha256),
        AuthMethod::ECDSA_384 => fixed(Curve::P384, HashAlg::Sha384),
        AuthMethod::ECDSA_521 => fixed(Curve::P521, HashAlg::Sha512),
        // RFC 8247 section 3.2: RSA with SHA-1 MUST NOT be used.
        AuthMethod::RSA => Err(StateFault::SignatureAlgorithm),
        _ => Err(StateFault::AuthMethod),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use HashAlg::{Sha1, Sha256, Sha384, Sha512};
    use SignatureAlg::{Ecdsa, Ed25519, RsaPkcs1, RsaPss};

    /// Numbers of RFC 7427 section 7 and RFC 8420 section 2.
    const SHA1: u16 = 1;
    const SHA256: u16 = 2;
    const SHA384: u16 = 3;
    const SHA512: u16 = 4;
    const IDENTITY: u16 = 5;

    fn chosen(kind: KeyKind, hashes: &[u16], configured: &[SignatureAlg]) -> Option<SignatureAlg> {
        let (alg, method) = choose(kind, hashes, configured).ok()?;
        assert_eq!(method, AuthMethod::DIGITAL_SIGNATURE);
        Some(alg)
    }

    #[test]
    fn the_best_announced_algorithm_signs() {
        let all = [SHA1, SHA256, SHA384, SHA512, IDENTITY];
        assert_eq!(chosen(KeyKind::Rsa, &all, &[]), Some(RsaPss(Sha256)));
        assert_eq!(chosen(KeyKind::Rsa, &[SHA512], &[]), Some(RsaPss(Sha512)));
        assert_eq!(chosen(KeyKind::Ec(Curve::P256), &all, &[]), Some(Ecdsa(Sha256)));
        assert_eq!(chosen(KeyKind::Ec(Curve::P384), &all, &[]), Some(Ecdsa(Sha384)));
        assert_eq!(chosen(KeyKind::Ec(Curve::P521), &all, &[]), Some(Ecdsa(Sha512)));
        assert_eq!(chosen(KeyKind::Ec(Curve::P521), &[SHA256], &[]), Some(Ecdsa(Sha256)));
        assert_eq!(chosen(KeyKind::Ed25519, &all, &[]), Some(Ed25519));
        // RFC 8420 section 2: only for peers that announce the identity hash.
        assert_eq!(chosen(KeyKind::Ed25519, &[SHA256, SHA512], &[]), None);
    }

    #[test]
    fn configured_algorithms_come_first_and_sha1_is_never_used() {
        let algs = [Ecdsa(Sha256), RsaPkcs1(Sha1), RsaPkcs1(Sha384), RsaPss(Sha256)];
        assert_eq!(chosen(KeyKind::Rsa, &[SHA1, SHA256, SHA384], &algs), Some(RsaPkcs1(Sha384)));
        assert_eq!(chosen(KeyKind::Rsa, &[SHA1, SHA256], &algs), Some(RsaPss(Sha256)));
        assert_eq!(chosen(KeyKind::Rsa, &[SHA1], &algs), None);
        assert_eq!(chosen(KeyKind::Rsa, &[SHA1], &[]), None);
        assert_eq!(chosen(KeyKind::Ed25519, &[SHA256, IDENTITY], &algs), None, "not configured");
    }

    /// RFC 4754 section 3 binds each curve to its hash. RSA with method 1 would be SHA-1.
    #[test]
    fn peers_without_rfc_7427_get_older_methods() {
        let old = |kind| choose(kind, &[], &[]);
        assert_eq!(old(KeyKind::Ec(Curve::P256)), Ok((Ecdsa(Sha256), AuthMethod::ECDSA_256)));
        assert_eq!(old(KeyKind::Ec(Curve::P384)), Ok((Ecdsa(Sha384), AuthMethod::ECDSA_384)));
        assert_eq!(old(KeyKind::Ec(Curve::P521)), Ok((Ecdsa(Sha512), AuthMethod::ECDSA_521)));
        assert_eq!(old(KeyKind::Rsa), Err(StateFault::SignatureAlgorithm));
        assert_eq!(old(KeyKind::Ed25519), Err(StateFault::SignatureAlgorithm));
    }

    #[cfg(feature = "revocation")]
    fn no_wait() -> AuthWait {
        AuthWait {
            ike: crate::IkeSaId(1),
            is_over: false,
            #[cfg(feature = "external-keys")]
            remote: [192, 0, 2, 1].into(),
        }
    }

    #[test]
    fn cert_payloads_are_told_apart_by_their_encoding() {
        let id = crate::config::Identity::Fqdn("a".into());
        let cert = |encoding, data| casemate_wire::ike::Cert { encoding, data };
        let certs = [
            cert(CertEncoding::X509_SIGNATURE, &b"own"[..]),
            cert(CertEncoding::OCSP, b"response"),
            cert(CertEncoding::CRL, b"list"),
            cert(CertEncoding::X509_SIGNATURE, b"issuer"),
        ];
        let claim = AuthClaim {
            id: &id,
            auth: Auth { method: AuthMethod::DIGITAL_SIGNATURE, data: &[] },
            certs: &certs,
            remote: [192, 0, 2, 1].into(),
            #[cfg(feature = "revocation")]
            status: no_wait(),
        };
        assert_eq!(certificates(&claim, CertEncoding::X509_SIGNATURE), [&b"own"[..], b"issuer"]);
        assert_eq!(certificates(&claim, CertEncoding::OCSP), [b"response"]);
    }

    #[test]
    fn an_auth_payload_identifies_its_signature_algorithm() {
        let id = crate::config::Identity::Fqdn("a".into());
        let judge = |method, data: &[u8], kind| {
            parse_auth(
                &AuthClaim {
                    id: &id,
                    auth: Auth { method, data },
                    certs: &[],
                    remote: [192, 0, 2, 1].into(),
                    #[cfg(feature = "revocation")]
                    status: no_wait(),
                },
                kind,
            )
            .map(|(alg, _)| alg)
        };
        let p256 = KeyKind::Ec(Curve::P256);
        assert_eq!(judge(AuthMethod::ECDSA_256, &[1; 64], p256), Ok(Ecdsa(Sha256)));
        for (data, kind) in [
            (&[1; 63][..], p256),
            (&[1; 65], p256),
            (&[], p256),
            (&[1; 64], KeyKind::Ec(Curve::P384)),
            (&[1; 64], KeyKind::Rsa),
        ] {
            let verdict = judge(AuthMethod::ECDSA_256, data, kind);
            assert_eq!(verdict, Err(StateFault::AuthMismatch), "{} bytes, {kind}", data.len());
        }
        assert_eq!(judge(AuthMethod::ECDSA_521, &[1; 132], KeyKind::Ec(Curve::P521)), Ok(Ecdsa(Sha512)));
        assert_eq!(judge(AuthMethod::RSA, &[1; 256], KeyKind::Rsa), Err(StateFault::SignatureAlgorithm));
        assert_eq!(judge(AuthMethod(3), &[1; 46], KeyKind::Rsa), Err(StateFault::AuthMethod), "DSS");
        // RFC 7427 section 3: the length of the algorithm, the algorithm, the signature.
        let signed = |alg: &[u8]| [&[alg.len() as u8], alg, &[1; 64]].concat();
        let digital = |data: &[u8]| judge(AuthMethod::DIGITAL_SIGNATURE, data, KeyKind::Ed25519);
        assert_eq!(digital(&signed(Ed25519.algorithm_identifier())), Ok(Ed25519));
        assert_eq!(digital(&signed(&[0x30, 0])), Err(StateFault::SignatureAlgorithm));
        assert_eq!(digital(&[]), Err(StateFault::AuthMismatch));
        assert_eq!(digital(&[9, 1]), Err(StateFault::AuthMismatch));
    }
}
