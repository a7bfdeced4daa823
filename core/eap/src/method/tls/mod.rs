//! EAP-TLS (RFC 5216 with TLS 1.2, RFC 9190 with TLS 1.3), and what EAP-TTLS and PEAP share with
//! it.
//!
//! Both sides prove their identities with certificates. TLS itself is behind
//! [`TlsSession`]. Sessions are not resumed.

mod framing;
mod peap;
mod peer;
mod server;
#[cfg(test)]
mod tests;
mod ttls;

pub(crate) use framing::MAX_MESSAGE;
pub(super) use peap::{PeapPeer, PeapServer};
pub(super) use peer::TlsPeer;
pub(super) use server::TlsServer;
pub(super) use ttls::{TtlsPeer, TtlsServer};

use crate::packet::TypeData;
use crate::tls::{TlsEstablished, TlsSession, TlsVersion};
use crate::{CertificateStatus, EapFault, Method};
use alloc::boxed::Box;
use alloc::vec::Vec;
use casemate_crypto::SecretBytes;
use framing::{Fragment, Outgoing, Reassembly, acknowledgement};
use zeroize::Zeroizing;

/// Label of the key material with TLS 1.2 (RFC 5216 section 2.3).
const LABEL: &str = "client EAP encryption";

/// Application data by which the server indicates success with TLS 1.3 (RFC 9190 section 2.5).
const SUCCESS_INDICATION: [u8; 1] = [0];

/// Length of the master session key in bytes.
const MSK_LEN: usize = 64;
/// Length of the exported key material in bytes: MSK and EMSK. With TLS 1.3, the material depends on its
/// length (RFC 9190 section 2.3).
const MATERIAL_LEN: usize = 128;

/// A TLS session with the fragments of both directions.
struct TlsConnection {
    session: Box<dyn TlsSession>,
    incoming: Reassembly,
    outgoing: Outgoing,
}

/// What a packet of the other side leads to.
enum Received {
    /// This packet is next: our next fragment, or an acknowledgement.
    Reply(TypeData),
    /// The other side has nothing to send, and has all that we have sent.
    Acknowledged,
    /// The session has processed a complete message.
    Message,
}

/// What a packet of the peer leads to during the handshake.
enum HandshakeStep {
    /// This packet is next.
    Reply(TypeData),
    /// The handshake has finished for this side, which may have its last message to send.
    Established(TlsEstablished),
}

impl TlsConnection {
    /// A connection that accepts messages of up to `max_message` bytes.
    fn new(session: Box<dyn TlsSession>, max_message: usize) -> Self {
        Self { session, incoming: Reassembly::new(max_message), outgoing: Outgoing::default() }
    }

    /// Bytes of the messages of both directions that are not complete, and of the session.
    fn held_bytes(&self) -> usize {
        let messages = self.incoming.held_bytes().saturating_add(self.outgoing.held_bytes());
        messages.saturating_add(self.session.held_bytes())
    }

    /// Handles the type data of a packet.
    fn receive(&mut self, data: &[u8]) -> Result<Received, EapFault> {
        let fragment = Fragment::parse(data)?;
        if fragment.is_start() {
            return Err(EapFault::OutOfState);
        }
        if self.outgoing.is_pending() {
            // RFC 5216 section 2.1.5: only an acknowledgement follows a fragment.
            let is_expected = fragment.is_acknowledgement();
            return is_expected.then(|| Received::Reply(self.outgoing.next())).ok_or(EapFault::OutOfState);
        }
        if fragment.is_acknowledgement() && !self.incoming.is_pending() {
            return Ok(Received::Acknowledged);
        }
        match self.incoming.add(&fragment)? {
            None => Ok(Received::Reply(acknowledgement())),
            Some(message) => self.session.receive(&message).map(|()| Received::Message),
        }
    }

    /// Handles the type data of a packet during the handshake as the server. After a fault, the peer gets no
    /// alert, although RFC 5216 section 2.1.3 recommends it: the conversation fails at once, so that IKE
    /// reports the fault. charon's client does not wait for the EAP Failure behind an alert either.
    fn handshake(&mut self, data: &[u8]) -> Result<HandshakeStep, EapFault> {
        match self.receive(data)? {
            Received::Message => {}
            Received::Reply(reply) => return Ok(HandshakeStep::Reply(reply)),
            Received::Acknowledged => return Err(EapFault::OutOfState),
        }
        match self.established() {
            Some(established) => Ok(HandshakeStep::Established(established)),
            None => self.send().map(HandshakeStep::Reply).ok_or(EapFault::OutOfState),
        }
    }

    /// Returns the first packet of what the session has to send; `None` if that is nothing.
    fn send(&mut self) -> Option<TypeData> {
        self.outgoing = Outgoing::new(self.session.take_output());
        self.outgoing.is_pending().then(|| self.outgoing.next())
    }

    fn established(&self) -> Option<TlsEstablished> {
        self.session.established()
    }

    /// Status of the certificates of the other side, once the handshake has finished.
    fn certificate_status(&mut self) -> CertificateStatus {
        match self.established() {
            Some(_) => self.session.certificate_status(),
            None => CertificateStatus::Accepted,
        }
    }

    fn read(&mut self) -> Zeroizing<Vec<u8>> {
        self.session.read()
    }

    fn write(&mut self, data: &[u8]) -> Result<(), EapFault> {
        self.session.write(data)
    }

    /// Derives the MSK. `label` is that of the method with TLS 1.2; TLS 1.3 has one label for all methods
    /// (RFC 9190 section 2.3, RFC 9427 section 2.1).
    fn msk(&self, method: Method, label: &str) -> Result<SecretBytes, EapFault> {
        let version = self.established().ok_or(EapFault::MissingKey)?.version;
        let mut material = Zeroizing::new([0; MATERIAL_LEN]);
        let kind = [method.id()];
        let (label, context) = match version {
            TlsVersion::V12 => (label, None),
            TlsVersion::V13 => ("EXPORTER_EAP_TLS_Key_Material", Some(&kind[..])),
        };
        self.session.export(label, context, &mut material[..])?;
        let msk = material.first_chunk::<MSK_LEN>().ok_or(EapFault::MissingKey)?;
        Ok(SecretBytes::new(msk))
    }
}
