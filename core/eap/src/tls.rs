//! Interface to a TLS implementation.

use crate::EapFault;
use alloc::vec::Vec;
use zeroize::Zeroizing;

/// What a TLS session is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsRole<'a> {
    /// The client, which is the EAP peer. It accepts only a server whose certificate the connection trusts
    /// and that has the expected name.
    Client {
        /// Whether this host proves its identity with its certificate.
        has_certificate: bool,
    },
    /// The server, which is the EAP authenticator.
    Server {
        /// EAP identity that the certificate of the client must contain; `None` if the client needs none,
        /// because it proves its identity inside the tunnel.
        client: Option<&'a [u8]>,
    },
}

/// Version of TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsVersion {
    /// TLS 1.2 (RFC 5246).
    V12,
    /// TLS 1.3 (RFC 8446).
    V13,
}

/// A handshake that has finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TlsEstablished {
    /// Version.
    pub version: TlsVersion,
    /// Whether the other side has proved its identity with a certificate that was verified.
    pub is_peer_certified: bool,
}

/// Whether the certificates that the other side has proved to own are still valid for their issuers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CertificateStatus {
    /// No certificate is revoked, as far as the configuration requires to know, or there is none.
    Accepted,
    /// It is being looked up.
    Pending,
    /// A certificate is revoked, or its status is not known but must be.
    Refused,
}

/// A TLS session without resumption and without early data.
pub trait TlsSession: Send {
    /// Processes TLS records. After an error the session has ended, and [`take_output`](Self::take_output)
    /// may have an alert.
    fn receive(&mut self, records: &[u8]) -> Result<(), EapFault>;

    /// Bytes of memory that the session holds, as far as known. They are counted until the other side is
    /// authenticated. The default, zero, is for sessions that do not report their size.
    fn held_bytes(&self) -> usize {
        0
    }

    /// Returns the records to send, possibly none.
    fn take_output(&mut self) -> Vec<u8>;

    /// The handshake, once it has finished for this side and every certificate that the role requires was
    /// verified; `None` before.
    fn established(&self) -> Option<TlsEstablished>;

    /// Status of the certificates of the other side. The conversation asks once the handshake has finished,
    /// thus after the other side has proved that it has the private key, and sends nothing more before it is
    /// accepted. The default is for sessions that look nothing up.
    fn certificate_status(&mut self) -> CertificateStatus {
        CertificateStatus::Accepted
    }

    /// Fills `out` with exported key material (RFC 5705, RFC 8446 section 7.5).
    fn export(&self, label: &str, context: Option<&[u8]>, out: &mut [u8]) -> Result<(), EapFault>;

    /// Returns the application data received since the last call.
    fn read(&mut self) -> Zeroizing<Vec<u8>>;

    /// Adds application data to the output.
    fn write(&mut self, data: &[u8]) -> Result<(), EapFault>;
}
