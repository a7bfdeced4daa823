//! Our own side: who we say we are, and the proof of it.

use super::{OwnProof, OwnSignature, SignedOctets};
use crate::config::{Connection, Identity, LocalMethod, SendCert};
use crate::sa::Cx;
use crate::{AuthorityHash, Credentials, OwnKey, StateFault};
use alloc::vec::Vec;
use casemate_wire::ike::{Cert, CertEncoding, Id, WriteError, Writer};
use core::net::IpAddr;

/// Who we are to a peer.
pub(crate) struct OwnSide<'c> {
    pub(crate) id: Identity,
    key: Option<OwnKey<'c>>,
    /// Whether the peer gets our certificates.
    shows: bool,
}

impl<'c> OwnSide<'c> {
    /// `wanted` are the authorities that the peer named.
    pub(crate) fn new(
        connection: &Connection,
        wanted: &[AuthorityHash],
        addr: IpAddr,
        credentials: &'c dyn Credentials,
    ) -> Result<Self, StateFault> {
        let key = match &connection.local.method {
            LocalMethod::SharedKey => None,
            LocalMethod::Certificate(_) => {
                Some(credentials.own_key(connection, wanted).ok_or(StateFault::NoSharedKey)?)
            }
        };
        let subject = key.as_ref().and_then(|key| key.subject.clone());
        let id = match (connection.local.id.clone(), subject) {
            // RFC 4945 section 3.1.5: byte for byte the subject of the certificate, because a peer may compare no better.
            (Some(id), Some(subject)) if id.names_same(&subject) => subject,
            (Some(id), _) => id,
            (None, subject) => subject.unwrap_or(Identity::Address(addr)),
        };
        let shows = match connection.send_cert {
            SendCert::Always => true,
            SendCert::IfAsked => !wanted.is_empty(),
            SendCert::Never => false,
        };
        Ok(Self { id, key, shows })
    }

    /// Body of our ID payload, which AUTH covers.
    pub(crate) fn id_body(&self) -> Vec<u8> {
        let (kind, data) = self.id.to_payload();
        [&[kind.0, 0, 0, 0], data.as_slice()].concat()
    }

    /// Our proof to `peer`; nothing if it is not known yet whom we speak to, and that decides the key.
    pub(crate) fn prove(
        &self,
        octets: &SignedOctets<'_>,
        peer: &Identity,
        (connection, hashes): (&Connection, &[u16]),
        cx: &mut Cx<'_, '_>,
    ) -> Result<OwnProof, StateFault> {
        match &self.key {
            Some(key) => {
                OwnSignature::new(octets, key, (connection, hashes), cx.env).map(OwnProof::Signature)
            }
            None => {
                let secret = cx.env.credentials.shared_key(connection, &self.id, peer);
                let secret = secret.ok_or(StateFault::NoSharedKey)?;
                OwnProof::with_shared_key(octets, secret, cx.env.providers)
            }
        }
    }

    /// Writes IDi or IDr with `write_id`, and the certificates.
    pub(crate) fn write(
        &self,
        out: &mut Writer<'_>,
        write_id: impl FnOnce(&mut Writer<'_>, &Id<'_>) -> Result<(), WriteError>,
    ) -> Result<(), WriteError> {
        let (kind, data) = self.id.to_payload();
        write_id(out, &Id { kind, data: &data })?;
        let chain = self.key.iter().filter(|_| self.shows).flat_map(|key| key.chain.iter());
        chain.copied().try_for_each(|data| out.cert(&Cert { encoding: CertEncoding::X509_SIGNATURE, data }))
    }
}
