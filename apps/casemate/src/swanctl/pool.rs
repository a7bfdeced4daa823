//! The sections of `pools` and `authorities`.

use super::address;
use super::auth_round::{absolute, file_section};
use super::problem::Problems;
use super::resolved::Resolved;
use super::schema::{Keys, Rule, Schema};
use super::token;
use super::value::Parsed;
use crate::revocation::HttpUri;
use casemate_ike::config::{DomainName, Pool, SERVER_POOL};
use casemate_sa::AddrRange;
use std::path::{Path, PathBuf};

const NO_ATTRIBUTE: &str = "peers are assigned addresses, name servers, domains and subnets only";
const NO_TRUST_ANCHOR: &str = "trust anchors for DNSSEC are not sent (RFC 8598)";
/// The domains of name servers, and strongSwan's spelling: the number of INTERNAL_DNS_DOMAIN.
const DOMAINS: [&str; 2] = ["dns_domains", "25"];

pub(super) const POOL: Schema = Schema {
    keys: &[
        ("addrs", Rule::Read),
        ("dns", Rule::Read),
        ("dns_domains", Rule::Read),
        ("25", Rule::Read),
        ("26", Rule::Refused(NO_TRUST_ANCHOR)),
        ("subnet", Rule::Read),
        ("nbns", Rule::Refused(NO_ATTRIBUTE)),
        ("dhcp", Rule::Refused(NO_ATTRIBUTE)),
        ("netmask", Rule::Refused(NO_ATTRIBUTE)),
        ("server", Rule::Refused(NO_ATTRIBUTE)),
        ("split_include", Rule::Refused(NO_ATTRIBUTE)),
        ("split_exclude", Rule::Refused(NO_ATTRIBUTE)),
    ],
    sections: &[],
};

/// Reads a pool; `None` if it has no valid addresses.
pub(super) fn read(resolved: &Resolved<'_, '_>, problems: &Problems) -> Option<Pool> {
    let keys = Keys::new(resolved, &POOL, problems);
    if resolved.name() == SERVER_POOL {
        keys.section_error("this name stands for the addresses of RADIUS servers: another one was expected");
    }
    if !keys.has("addrs") {
        keys.section_error("`addrs` was expected, such as 10.3.0.0/24");
    }
    let addrs: Option<AddrRange> = keys.get("addrs", address::pool);
    let (dns, subnets) = (keys.list("dns", address::addr), keys.list("subnet", address::subnet));
    let dns_domains: Vec<DomainName> = DOMAINS.iter().flat_map(|key| keys.list(key, domain)).collect();
    if let Some(key) = DOMAINS.iter().find(|key| keys.has(key) && dns.is_empty()) {
        keys.error(key, "a name server for these domains was expected as `dns`");
    }
    Some(Pool { name: resolved.name().into(), addrs: addrs?, dns, dns_domains, subnets })
}

/// Reads the domain of a name server.
pub(super) fn domain(text: &str) -> Parsed<DomainName> {
    DomainName::parse(text.as_bytes()).ok_or_else(|| "a domain was expected, such as corp.example".into())
}

/// A certification authority of the section `authorities`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authority {
    /// Name of the section.
    pub name: String,
    /// File with the CA certificate.
    pub cacert: PathBuf,
    /// Files with certificate revocation lists.
    pub crls: Vec<PathBuf>,
    /// Where certificate revocation lists are fetched.
    pub crl_uris: Vec<HttpUri>,
    /// OCSP responders.
    pub ocsp_uris: Vec<HttpUri>,
}

/// Maximum number of URIs of one kind for an authority.
const MAX_URIS: usize = 4;

/// A URI of a CRL.
enum CrlUri {
    File(PathBuf),
    Http(HttpUri),
    /// Of a scheme that is not supported. There must be another one.
    Other,
}

pub(super) const AUTHORITY: Schema = Schema {
    keys: &[
        ("cacert", Rule::Read),
        ("file", Rule::Read),
        ("crl_uris", Rule::Read),
        ("ocsp_uris", Rule::Read),
        ("cert_uri_base", Rule::Ignored),
        ("handle", Rule::Read),
        ("slot", Rule::Read),
        ("module", Rule::Read),
    ],
    sections: &["=cacert"],
};

/// Reads an authority; `None` if it has no valid certificate.
pub(super) fn authority(
    resolved: &Resolved<'_, '_>,
    directory: &Path,
    problems: &Problems,
) -> Option<Authority> {
    let keys = Keys::new(resolved, &AUTHORITY, problems);
    let sections = resolved.sections();
    let section = sections.iter().find(|section| section.name() == "cacert");
    match (keys.has("cacert") || keys.has("file") || section.is_some(), keys.has("handle")) {
        (false, false) => {
            keys.section_error("`cacert` was expected, the name of a file in the folder x509ca")
        }
        (true, true) => keys.error("handle", "either `handle` or a file was expected"),
        _ => {}
    }
    let on_token = token::reference(&keys).map(|reference| reference.to_path());
    let cacert = keys
        .get("cacert", |file| Ok(directory.join("x509ca").join(file)))
        .or_else(|| keys.get("file", absolute))
        .or(on_token)
        .or_else(|| file_section(section?, problems));
    ["cacert", "file", "handle"].iter().for_each(|key| keys.note_files(key, &cacert));
    let (mut crls, mut crl_uris, mut others) = (Vec::new(), Vec::new(), 0_usize);
    for uri in keys.uris("crl_uris", crl) {
        match uri {
            CrlUri::File(path) => crls.push(path),
            CrlUri::Http(uri) => crl_uris.push(uri),
            CrlUri::Other => others = others.saturating_add(1),
        }
    }
    keys.note_files("crl_uris", &crls);
    match others {
        0 => {}
        _ if crls.is_empty() && crl_uris.is_empty() => keys.error("crl_uris", NO_LDAP),
        _ => keys.warn("crl_uris", NO_LDAP),
    }
    let ocsp_uris = keys.uris("ocsp_uris", HttpUri::parse);
    for (key, uris) in [("crl_uris", &crl_uris), ("ocsp_uris", &ocsp_uris)] {
        if uris.len() > MAX_URIS {
            keys.error(key, &format!("at most {MAX_URIS} http URIs were expected"));
        }
    }
    Some(Authority { name: resolved.name().into(), cacert: cacert?, crls, crl_uris, ocsp_uris })
}

const NO_LDAP: &str = "only CRLs from http and file URIs are used: a URI such as \
                       http://ca.example.org/ca.crl or \
     file:///etc/ca.crl was expected";

/// Reads the URI of a CRL.
fn crl(text: &str) -> Result<CrlUri, String> {
    match text.split_once("://") {
        Some(("file", path)) => absolute(path).map(CrlUri::File),
        Some(("http", _)) => HttpUri::parse(text).map(CrlUri::Http),
        Some(_) => Ok(CrlUri::Other),
        None => Err(NO_LDAP.into()),
    }
}
