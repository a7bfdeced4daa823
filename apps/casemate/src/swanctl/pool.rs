//! `pools` and `authorities`.

use super::address;
use super::round::{absolute, file_section};
use super::schema::{Keys, Problems, Rule, Schema};
use super::view::View;
use casemate_ike::config::Pool;
use casemate_sa::AddrRange;
use std::path::{Path, PathBuf};

const NO_ATTRIBUTE: &str = "only addresses, name servers and subnets are told to peers";

pub(super) const POOL: Schema = Schema {
    keys: &[
        ("addrs", Rule::Take),
        ("dns", Rule::Take),
        ("subnet", Rule::Take),
        ("nbns", Rule::Never(NO_ATTRIBUTE)),
        ("dhcp", Rule::Never(NO_ATTRIBUTE)),
        ("netmask", Rule::Never(NO_ATTRIBUTE)),
        ("server", Rule::Never(NO_ATTRIBUTE)),
        ("split_include", Rule::Never(NO_ATTRIBUTE)),
        ("split_exclude", Rule::Never(NO_ATTRIBUTE)),
    ],
    sections: &[],
};

/// Reads a pool; without addresses there is none.
pub(super) fn read(view: &View<'_, '_>, problems: &Problems) -> Option<Pool> {
    let keys = Keys::new(view, &POOL, problems);
    if !keys.has("addrs") {
        keys.wrong_section("`addrs` was expected, such as 10.3.0.0/24");
    }
    let addrs: Option<AddrRange> = keys.get("addrs", address::pool);
    let (dns, subnets) = (keys.list("dns", address::addr), keys.list("subnet", address::subnet));
    Some(Pool { name: view.name().into(), addrs: addrs?, dns, subnets })
}

/// A certification authority.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authority {
    /// Its name.
    pub name: String,
    /// Its certificate.
    pub cacert: PathBuf,
    /// Files with its lists of revoked certificates.
    pub crls: Vec<PathBuf>,
}

const NO_TOKEN: &str = "tokens are not implemented";

pub(super) const AUTHORITY: Schema = Schema {
    keys: &[
        ("cacert", Rule::Take),
        ("file", Rule::Take),
        ("crl_uris", Rule::Take),
        ("ocsp_uris", Rule::Never("OCSP is not implemented")),
        ("cert_uri_base", Rule::Never("certificates by hash and URL are not implemented")),
        ("handle", Rule::Never(NO_TOKEN)),
        ("slot", Rule::Never(NO_TOKEN)),
        ("module", Rule::Never(NO_TOKEN)),
    ],
    sections: &["=cacert"],
};

/// Reads an authority; without a certificate there is none.
pub(super) fn authority(view: &View<'_, '_>, directory: &Path, problems: &Problems) -> Option<Authority> {
    let keys = Keys::new(view, &AUTHORITY, problems);
    let sections = view.sections();
    let section = sections.iter().find(|section| section.name() == "cacert");
    if !keys.has("cacert") && !keys.has("file") && section.is_none() {
        keys.wrong_section("`cacert` was expected, the name of a file in the folder x509ca");
    }
    let cacert = keys
        .get("cacert", |file| Ok(directory.join("x509ca").join(file)))
        .or_else(|| keys.get("file", absolute))
        .or_else(|| file_section(section?, problems));
    let crls = keys.list("crl_uris", crl);
    Some(Authority { name: view.name().into(), cacert: cacert?, crls })
}

/// Reads the URI of a file. Casemate fetches nothing.
fn crl(text: &str) -> Result<PathBuf, String> {
    let expected = "nothing is fetched from elsewhere: a URI such as file:///etc/ca.crl, or a file in the folder x509crl, was expected";
    absolute(text.strip_prefix("file://").ok_or(expected)?)
}
