//! TLS sessions of EAP, with the certificates of the connections.

use super::load::KeyFileReader;
use super::own::OwnKeys;
use super::verifier::{PeerVerifier, Refusals, RefusedPeer, StatusCheck};
use super::{Keyring, OwnCert, pattern_matches};
use crate::swanctl::{Config, OwnSignature};
use casemate_crypto::{Provider, Providers, PublicKey, Rng, SignatureAlg, SignatureError, SigningKey};
use casemate_eap::{EapFault, TlsRole, TlsSession};
use casemate_ike::PeerCertificates;
use casemate_ike::config::{Connection, Identity, LocalMethod, RemoteMethod};
use casemate_pki::is_der_sequence;
use casemate_rustls::{CertificateVerifier, NotAccepted, OwnCertificate};
use std::path::PathBuf;
use std::sync::Arc;

impl Keyring {
    /// Begins a session. The server must have the identity `aaa_id` of the connection, by default that of the
    /// responder; the client must have its EAP identity.
    pub(super) fn begin_tls(
        &self,
        connection: &Connection,
        responder: Option<&Identity>,
        role: TlsRole<'_>,
    ) -> Result<Box<dyn TlsSession>, EapFault> {
        let rules = self.own_rules(connection);
        let certs = rules.map_or(&[][..], |rules| &rules.certs);
        match role {
            TlsRole::Client { has_certificate } => {
                let expected = rules.and_then(|rules| rules.aaa_id.as_ref()).or(responder);
                let expected = expected.ok_or(EapFault::Tls)?.clone();
                let own = has_certificate.then(|| self.tls_certificate(connection, certs)).transpose()?;
                casemate_rustls::client(self.tls_verifier(connection, expected)?, own)
            }
            TlsRole::Server { client } => {
                let clients = client.map(|id| self.tls_verifier(connection, to_identity(id)?)).transpose()?;
                casemate_rustls::server(self.tls_certificate(connection, certs)?, clients)
            }
        }
    }

    fn tls_certificate(
        &self,
        connection: &Connection,
        certs: &[PathBuf],
    ) -> Result<OwnCertificate, EapFault> {
        let own = self.own.select(certs, connection.local.id.as_ref(), &[]).ok_or(EapFault::NoCertificate)?;
        let chain = own.cert.chain().map(<[u8]>::to_vec).collect();
        Ok(OwnCertificate { chain, key: Arc::new(SharedSigningKey(Arc::clone(own))) })
    }

    fn tls_verifier(
        &self,
        connection: &Connection,
        expected: Identity,
    ) -> Result<Arc<dyn CertificateVerifier>, EapFault> {
        let verifier = self.verifier(connection).ok_or(EapFault::PeerCertificate)?;
        Ok(Arc::new(TlsPeerVerifier {
            verifier: Arc::clone(verifier),
            expected,
            providers: self.providers.clone(),
            refusals: Arc::clone(&self.refusals),
        }))
    }
}

/// Refuses private keys on tokens where EAP with TLS would need them: TLS does not wait for a token.
pub(super) fn refuse_tokens(reader: &KeyFileReader<'_>, config: &Config, keys: &OwnKeys) {
    for connection in &config.connections {
        let rounds = connection.in_local_rounds().chain(connection.in_remote_rounds());
        for in_round in rounds.filter(|in_round| needs_certificate(in_round)) {
            let is_its = |rules: &&OwnSignature| {
                rules.connection == connection.name && rules.round == in_round.round().local
            };
            let certs = config.own_signatures.iter().find(is_its).map_or(&[][..], |rules| &rules.certs);
            let selected = keys.select(certs, in_round.local.id.as_ref(), &[]);
            let on_token = |own: &&Arc<OwnCert>| keys.on_token(own.cert.key().public_key()).is_some();
            if let Some(own) = selected.filter(on_token) {
                let why = "its private key is on a token, which cannot sign for EAP with TLS: a private \
                           key in a file was expected";
                reader.wrong(&own.path, format!("connection {}: {why}", connection.name));
            }
        }
    }
}

/// Whether EAP with TLS shows a certificate of this host.
fn needs_certificate(connection: &Connection) -> bool {
    let as_client = match &connection.local.method {
        LocalMethod::Eap(eap) => eap.methods.iter().any(|method| method.proves_certificate()),
        _ => false,
    };
    let as_server = match &connection.remote.method {
        RemoteMethod::Eap(eap) => eap.methods.iter().any(|method| method.uses_tls()),
        _ => false,
    };
    as_client || as_server
}

/// The identity that an EAP identity means: text as in the configuration, or a distinguished name in DER.
fn to_identity(eap: &[u8]) -> Result<Identity, EapFault> {
    if is_der_sequence(eap) {
        return Ok(Identity::Dn(eap.into()));
    }
    let text = str::from_utf8(eap).map_err(|_| EapFault::PeerCertificate)?;
    let identity = casemate_strongswan::parse_identity(text).map_err(|_| EapFault::PeerCertificate)?;
    identity.ok_or(EapFault::PeerCertificate)
}

/// Verifies the other side of one session as a peer of its connection.
struct TlsPeerVerifier {
    verifier: Arc<PeerVerifier>,
    expected: Identity,
    providers: Vec<&'static dyn Provider>,
    refusals: Arc<Refusals>,
}

impl CertificateVerifier for TlsPeerVerifier {
    fn verify(&self, chain: &[&[u8]], unix_time: u64) -> Result<(), NotAccepted> {
        let shown = PeerCertificates { id: &self.expected, chain, unix_time };
        let verdict = self.verifier.verify(
            &shown,
            &Providers(&self.providers),
            StatusCheck::CrlFiles,
            &pattern_matches,
        );
        verdict.map(drop).map_err(|why| {
            self.refusals.add(RefusedPeer {
                peer: self.expected.clone(),
                connection: self.verifier.conditions().connection.clone(),
                reason: format!("TLS certificate of {}: {why}", self.expected),
            });
            NotAccepted
        })
    }

    fn authorities(&self) -> Vec<Vec<u8>> {
        let subjects = self.verifier.store.roots().filter_map(casemate_pki::subject);
        subjects.map(<[u8]>::to_vec).collect()
    }
}

/// The private key of a certificate that a session shares with the keyring.
struct SharedSigningKey(Arc<OwnCert>);

impl SigningKey for SharedSigningKey {
    fn public_key(&self) -> &PublicKey {
        self.0.cert.key().public_key()
    }

    fn sign(&self, alg: SignatureAlg, message: &[u8], rng: &mut dyn Rng) -> Result<Vec<u8>, SignatureError> {
        self.0.cert.key().sign(alg, message, rng)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eap_identities_name_certificates() {
        let name = casemate_strongswan::parse_identity("C=CH, CN=carol").unwrap().unwrap();
        assert_eq!(to_identity(&name.to_eap()), Ok(name));
        assert_eq!(to_identity(b"carol.test"), Ok(Identity::Fqdn("carol.test".into())));
        assert_eq!(to_identity(b"carol@test"), Ok(Identity::Email("carol@test".into())));
        for any in [&b"%any"[..], b"*", b"*.test", b"\xFF", b"CN=*"] {
            assert_eq!(to_identity(any), Err(EapFault::PeerCertificate), "{any:?}");
        }
    }
}
