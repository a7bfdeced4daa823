//! Where the issuer of a certificate publishes its status: cRLDistributionPoints (RFC 5280 section 4.2.1.13)
//! and authorityInfoAccess (section 4.2.2.1).

use crate::certificate::Cert;
use crate::crl::Crl;
use crate::general_name::{self, GeneralName};
use alloc::string::String;
use alloc::vec::Vec;
use casemate_crypto::der::{OID, Reader, SEQUENCE};

/// Maximum number of URIs of one kind that are read from a certificate.
pub const MAX_URIS: usize = 4;
/// Maximum length of a URI in bytes; longer ones are left out.
pub const MAX_URI_LEN: usize = 1_024;

/// id-ad-ocsp, as an OBJECT IDENTIFIER's content.
const AD_OCSP: [u8; 8] = [0x2B, 6, 1, 5, 5, 7, 48, 1];

/// URIs in a certificate. They are ASCII without control characters and spaces.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StatusUris {
    /// Where CRLs are that cover the certificate, complete and signed by its issuer.
    pub crls: Vec<String>,
    /// OCSP responders.
    pub ocsp: Vec<String>,
}

impl StatusUris {
    /// Reads the URIs of a certificate in DER; none if it is malformed.
    pub fn of(der: &[u8]) -> Self {
        let Ok(cert) = Cert::parse(der) else { return Self::default() };
        let mut uris = Self::default();
        add_points(&mut uris.crls, cert.extensions.distribution_points);
        let access = cert.extensions.info_access.unwrap_or_default();
        let mut access = Reader::only(SEQUENCE, access).unwrap_or(Reader::new(&[]));
        while let Ok(mut description) = access.read_nested(SEQUENCE) {
            if description.read(OID) == Ok(&AD_OCSP[..])
                && let Ok(location) = GeneralName::read(&mut description)
            {
                add(&mut uris.ocsp, location);
            }
        }
        uris
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.crls.is_empty() && self.ocsp.is_empty()
    }
}

/// Reads from a certificate and from a complete CRL, both in DER, where delta CRLs are: freshestCRL (RFC 5280
/// sections 4.2.1.15 and 5.2.6).
pub fn delta_crl_uris(cert: &[u8], crl: &[u8]) -> Vec<String> {
    let mut uris = Vec::new();
    add_points(&mut uris, Crl::parse(crl).ok().and_then(|crl| crl.freshest()));
    add_points(&mut uris, Cert::parse(cert).ok().and_then(|cert| cert.extensions.freshest));
    uris
}

/// Whether a complete CRL has everything from before the changes in a delta CRL, both in DER (RFC 5280
/// section 5.2.4). Otherwise a certificate may be in neither, although it is revoked.
pub fn is_base_of_delta(complete: &[u8], delta: &[u8]) -> bool {
    let (Ok(complete), Ok(delta)) = (Crl::parse(complete), Crl::parse(delta)) else { return false };
    complete.is_base_of(&delta)
}

/// Whether a CRL covers a certificate and lists it, both in DER. The signature of the CRL is not verified;
/// `false` if either is malformed.
pub fn is_listed(crl: &[u8], cert: &[u8]) -> bool {
    let (Ok(crl), Ok(cert)) = (Crl::parse(crl), Cert::parse(cert)) else { return false };
    crl.covers(&cert) && crl.lists(cert.serial)
}

/// Adds the URIs in the contents of a list of distribution points.
fn add_points(list: &mut Vec<String>, points: Option<&[u8]>) {
    let mut points = Reader::new(points.unwrap_or_default());
    while let Ok(mut point) = points.read_nested(SEQUENCE) {
        let name = point.read_optional(0xA0).ok().flatten();
        // What follows is a list of reasons, or the name of another issuer: such CRLs are not used.
        if let Some(name) = name.filter(|_| point.is_empty())
            && let Ok(full_name) = Reader::new(name).read(0xA0)
        {
            general_name::names(Some(full_name)).for_each(|name| add(list, name));
        }
    }
}

fn add(list: &mut Vec<String>, name: GeneralName<'_>) {
    let GeneralName::Uri(uri) = name else { return };
    let is_text = uri.bytes().all(|byte| byte.is_ascii_graphic());
    if is_text && uri.len() <= MAX_URI_LEN && list.len() < MAX_URIS && !list.iter().any(|known| known == uri)
    {
        list.push(uri.into());
    }
}
