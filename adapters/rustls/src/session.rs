//! Sessions.

use crate::verifier::TlsVerifier;
use crate::{CertificateVerifier, OwnCertificate, algorithms};
use casemate_eap::{CertificateStatus, EapFault, TlsEstablished, TlsSession, TlsVersion};
use rustls::client::Resumption;
use rustls::pki_types::ServerName;
use rustls::server::NoServerSessionStorage;
use rustls::version::{TLS12, TLS13};
use rustls::{
    ClientConfig, ClientConnection, Connection, Error, ProtocolVersion, ServerConfig, ServerConnection,
    SupportedProtocolVersion,
};
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use zeroize::Zeroizing;

/// Maximum number of bytes of application data that wait to be read.
const MAX_PLAINTEXT: u64 = 1 << 16;

/// Bytes that a session holds besides the messages of the other side: measured, with room for buffers that
/// rustls allocates in steps.
const SESSION: usize = 28 << 10;

/// Versions in order of preference.
const VERSIONS: &[&SupportedProtocolVersion] = &[&TLS13, &TLS12];

/// Begins a session as the client. Without a certificate, the session fails if the server requires one.
pub fn client(
    server: Arc<dyn CertificateVerifier>,
    own: Option<OwnCertificate>,
) -> Result<Box<dyn TlsSession>, EapFault> {
    client_of(VERSIONS, server, own)
}

pub(crate) fn client_of(
    versions: &[&'static SupportedProtocolVersion],
    server: Arc<dyn CertificateVerifier>,
    own: Option<OwnCertificate>,
) -> Result<Box<dyn TlsSession>, EapFault> {
    let builder = ClientConfig::builder_with_provider(algorithms())
        .with_protocol_versions(versions)
        .map_err(fault)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(TlsVerifier::new(Arc::clone(&server))));
    let mut config = match own {
        Some(own) => builder.with_client_cert_resolver(own.into_resolver()?),
        None => builder.with_no_client_auth(),
    };
    config.resumption = Resumption::disabled();
    config.enable_sni = false;
    // The verifier knows the name of the server; rustls sends no address.
    let name = ServerName::from(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
    let connection = ClientConnection::new(Arc::new(config), name).map_err(fault)?;
    Ok(Box::new(Session::new(connection.into(), Some(server))))
}

/// Begins a session as the server. With `clients`, it accepts only clients with a certificate that they
/// accept; without, it asks for none.
pub fn server(
    own: OwnCertificate,
    clients: Option<Arc<dyn CertificateVerifier>>,
) -> Result<Box<dyn TlsSession>, EapFault> {
    let builder =
        ServerConfig::builder_with_provider(algorithms()).with_protocol_versions(VERSIONS).map_err(fault)?;
    let builder = match clients.clone() {
        Some(clients) => builder.with_client_cert_verifier(Arc::new(TlsVerifier::new(clients))),
        None => builder.with_no_client_auth(),
    };
    let mut config = builder.with_cert_resolver(own.into_resolver()?);
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    let connection = ServerConnection::new(Arc::new(config)).map_err(fault)?;
    Ok(Box::new(Session::new(connection.into(), clients)))
}

struct Session {
    connection: Connection,
    /// Verifier of the certificates of the other side, if it shows any.
    verifier: Option<Arc<dyn CertificateVerifier>>,
    plaintext: Zeroizing<Vec<u8>>,
    /// Bytes received in the handshake. rustls says nothing of its buffers; they hold parts of these bytes.
    handshake: usize,
    has_failed: bool,
}

impl Session {
    fn new(connection: Connection, verifier: Option<Arc<dyn CertificateVerifier>>) -> Self {
        Self { connection, verifier, plaintext: Zeroizing::default(), handshake: 0, has_failed: false }
    }

    fn process(&mut self, mut records: &[u8]) -> Result<(), EapFault> {
        while !records.is_empty() {
            // Nothing is read after the alert with which the other side ends the session.
            let len = self.connection.read_tls(&mut records).map_err(|_| EapFault::Tls)?;
            let state = self.connection.process_new_packets().map_err(fault)?;
            if state.peer_has_closed() || len == 0 {
                return Err(EapFault::TlsAlert);
            }
            self.drain(state.plaintext_bytes_to_read())?;
        }
        Ok(())
    }

    /// Moves application data out of rustls, which stops to read when it has too much.
    fn drain(&mut self, len: usize) -> Result<(), EapFault> {
        let mut data = Zeroizing::new(vec![0; len]);
        self.connection.reader().read_exact(&mut data).map_err(|_| EapFault::Tls)?;
        let total = self.plaintext.len().saturating_add(len);
        if total as u64 > MAX_PLAINTEXT {
            return Err(EapFault::Malformed);
        }
        let mut longer = Zeroizing::new(Vec::with_capacity(total));
        longer.extend_from_slice(&self.plaintext);
        longer.extend_from_slice(&data);
        self.plaintext = longer;
        Ok(())
    }
}

impl TlsSession for Session {
    fn receive(&mut self, records: &[u8]) -> Result<(), EapFault> {
        if self.has_failed {
            return Err(EapFault::OutOfState);
        }
        if self.connection.is_handshaking() {
            self.handshake = self.handshake.saturating_add(records.len());
        }
        let result = self.process(records);
        self.has_failed = result.is_err();
        result
    }

    fn held_bytes(&self) -> usize {
        SESSION.saturating_add(self.handshake).saturating_add(self.plaintext.len())
    }

    fn take_output(&mut self) -> Vec<u8> {
        let mut output = Vec::new();
        while self.connection.wants_write() {
            if !matches!(self.connection.write_tls(&mut output), Ok(1..)) {
                break;
            }
        }
        output
    }

    fn established(&self) -> Option<TlsEstablished> {
        if self.has_failed || self.connection.is_handshaking() {
            return None;
        }
        let version = match self.connection.protocol_version()? {
            ProtocolVersion::TLSv1_2 => TlsVersion::V12,
            ProtocolVersion::TLSv1_3 => TlsVersion::V13,
            _ => return None,
        };
        let certificates = self.connection.peer_certificates();
        let is_peer_certified = certificates.is_some_and(|chain| !chain.is_empty());
        Some(TlsEstablished { version, is_peer_certified })
    }

    fn certificate_status(&mut self) -> CertificateStatus {
        match (&self.verifier, self.established()) {
            (None, _) => CertificateStatus::Accepted,
            (Some(verifier), Some(_)) => verifier.status(),
            // The other side has not proved anything.
            (Some(_), None) => CertificateStatus::Refused,
        }
    }

    fn export(&self, label: &str, context: Option<&[u8]>, out: &mut [u8]) -> Result<(), EapFault> {
        let exported = self.connection.export_keying_material(out, label.as_bytes(), context);
        exported.map(drop).map_err(|_| EapFault::MissingKey)
    }

    fn read(&mut self) -> Zeroizing<Vec<u8>> {
        std::mem::take(&mut self.plaintext)
    }

    fn write(&mut self, data: &[u8]) -> Result<(), EapFault> {
        self.connection.writer().write_all(data).map_err(|_| EapFault::Tls)
    }
}

/// Why a session has failed.
fn fault(error: Error) -> EapFault {
    match error {
        Error::InvalidCertificate(_) | Error::NoCertificatesPresented => EapFault::PeerCertificate,
        Error::AlertReceived(_) => EapFault::TlsAlert,
        _ => EapFault::Tls,
    }
}
