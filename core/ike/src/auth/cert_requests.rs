//! Certificate requests (RFC 7296 section 3.7), and requests for OCSP responses (RFC 4806 section 3.1).

use crate::AuthorityHash;
use crate::config::{Connection, RemoteMethod};
use crate::context::Step;
use crate::transport::Content;
#[cfg(feature = "eap")]
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use casemate_wire::ike::{CertEncoding, CertReq, WriteError, Writer};

/// Maximum number of authorities of a peer that are read.
const MAX_AUTHORITIES: usize = 64;

/// What one side requests of the other by CERTREQ payloads.
#[derive(Debug, Clone, Default)]
pub(crate) struct CertRequests {
    /// Certification authorities that it trusts.
    pub(crate) authorities: Vec<AuthorityHash>,
    /// Whether it takes OCSP responses. The responders that it may name are not read: a response that it does
    /// not trust does no harm.
    #[cfg(feature = "revocation")]
    pub(crate) ocsp: bool,
}

impl CertRequests {
    /// Those of a peer's message.
    pub(crate) fn of(content: &Content<'_>) -> Self {
        let hashes = content.certreqs.iter().flat_map(|request| request.hashes());
        Self {
            authorities: hashes.copied().take(MAX_AUTHORITIES).collect(),
            #[cfg(feature = "revocation")]
            ocsp: content.certreqs.iter().any(|request| request.encoding == CertEncoding::OCSP),
        }
    }

    /// Those of a peer in IKE_SA_INIT and in a later message.
    pub(crate) fn joined(&self, content: &Content<'_>) -> Self {
        let later = Self::of(content);
        Self {
            authorities: [&*self.authorities, &*later.authorities].concat(),
            #[cfg(feature = "revocation")]
            ocsp: self.ocsp || later.ocsp,
        }
    }

    /// Ours for a connection, if the peer has to send a certificate.
    pub(crate) fn ours(connection: &Connection, step: &Step<'_, '_>) -> Self {
        let authorities = wanted_authorities(connection, step);
        #[cfg(feature = "revocation")]
        let ocsp = !authorities.is_empty() && connection.ocsp.requests();
        Self {
            authorities,
            #[cfg(feature = "revocation")]
            ocsp,
        }
    }

    pub(crate) fn write(&self, out: &mut Writer<'_>) -> Result<(), WriteError> {
        if self.authorities.is_empty() {
            return Ok(());
        }
        let authorities = self.authorities.as_flattened();
        out.certreq(&CertReq { encoding: CertEncoding::X509_SIGNATURE, authorities })?;
        #[cfg(feature = "revocation")]
        if self.ocsp {
            // RFC 4806 section 3.1: without hashes, no responder is preferred.
            out.certreq(&CertReq { encoding: CertEncoding::OCSP, authorities: &[] })?;
        }
        Ok(())
    }
}

fn wanted_authorities(connection: &Connection, step: &Step<'_, '_>) -> Vec<AuthorityHash> {
    #[cfg(feature = "eap")]
    if connection.has_further_rounds() {
        let rounds = connection.in_remote_rounds();
        let wanted: BTreeSet<_> = rounds.flat_map(|round| authorities_of_round(&round, step)).collect();
        return wanted.into_iter().collect();
    }
    authorities_of_round(connection, step)
}

fn authorities_of_round(connection: &Connection, step: &Step<'_, '_>) -> Vec<AuthorityHash> {
    match connection.remote.method {
        RemoteMethod::Certificate(_) | RemoteMethod::Any(_) if connection.send_certreq => {
            step.context.credentials.authorities(connection)
        }
        _ => Vec::new(),
    }
}
