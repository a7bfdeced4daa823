//! TLS sessions of EAP, with the certificates of the connections.

use super::tls_peer::TlsPeerVerifier;
use super::{Keyring, OwnCert};
use casemate_crypto::{PublicKey, Rng, SignatureAlg, SignatureError, SigningKey};
use casemate_eap::{EapFault, TlsRole, TlsSession};
use casemate_ike::config::{Connection, Identity};
use casemate_ike::{Credentials as _, EapTls, IkeSaId};
use casemate_pki::is_der_sequence;
use casemate_rustls::{CertificateVerifier, OwnCertificate};
use std::sync::{Arc, Mutex};

impl Keyring {
    /// Begins a session. The server must have the identity `aaa_id` of the connection, by default that of the
    /// responder; the client must have its EAP identity.
    pub(super) fn begin_tls(
        &self,
        connection: &Connection,
        session: &EapTls<'_>,
    ) -> Result<Box<dyn TlsSession>, EapFault> {
        let EapTls { ike, responder, role } = *session;
        match role {
            TlsRole::Client { has_certificate } => {
                let rules = self.own_rules(connection);
                let expected = rules.and_then(|rules| rules.aaa_id.as_ref()).or(responder);
                let expected = expected.ok_or(EapFault::Tls)?.clone();
                let own = has_certificate.then(|| self.tls_certificate(connection)).transpose()?;
                casemate_rustls::client(self.tls_verifier(connection, ike, expected)?, own)
            }
            TlsRole::Server { client } => {
                let verifier = |id| self.tls_verifier(connection, ike, to_identity(id)?);
                let clients = client.map(verifier).transpose()?;
                casemate_rustls::server(self.tls_certificate(connection)?, clients)
            }
        }
    }

    /// The certificate of this host in TLS.
    pub(super) fn eap_cert(&self, connection: &Connection) -> Option<&Arc<OwnCert>> {
        let certs = self.own_rules(connection).map_or(&[][..], |rules| &rules.certs);
        self.own.select(certs, connection.local.id.as_ref(), &[])
    }

    fn tls_certificate(&self, connection: &Connection) -> Result<OwnCertificate, EapFault> {
        let own = self.eap_cert(connection).ok_or(EapFault::NoCertificate)?;
        let chain: Vec<Vec<u8>> = own.cert.chain().map(<[u8]>::to_vec).collect();
        let ocsp_response = match chain.first().filter(|_| connection.ocsp.replies()) {
            Some(cert) => self.own_ocsp_response(cert),
            None => None,
        };
        Ok(OwnCertificate { chain, ocsp_response, key: Arc::new(SharedSigningKey(Arc::clone(own))) })
    }

    fn tls_verifier(
        &self,
        connection: &Connection,
        ike: IkeSaId,
        expected: Identity,
    ) -> Result<Arc<dyn CertificateVerifier>, EapFault> {
        let verifier = self.verifier(connection).ok_or(EapFault::PeerCertificate)?;
        Ok(Arc::new(TlsPeerVerifier {
            verifier: Arc::clone(verifier),
            ike,
            expected,
            authorities: Arc::clone(&self.authorities),
            link: self.revocation(),
            providers: self.providers.clone(),
            refusals: Arc::clone(&self.refusals),
            shown: Mutex::default(),
        }))
    }
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
