//! The section `resolve` of `charon.plugins`: how name servers of tunnels are used, under the names in
//! strongswan.conf(5) as far as it has them.

use super::problem::Problems;
use super::resolved::Resolved;
use super::schema::{Keys, Rule, Schema};
use super::value::{Parsed, truth};
use casemate_linux::dns::DnsMode;

const ONLY_FILE: &str = "no other file is written";
const FOUND: &str = "the program is looked for where distributions install it";

pub(super) const RESOLVE: Schema = Schema {
    keys: &[
        ("load", Rule::Read),
        ("method", Rule::Read),
        ("file", Rule::Only(&["/etc/resolv.conf"], ONLY_FILE)),
    ],
    sections: &["=resolvconf"],
};

const RESOLVCONF: Schema = Schema {
    keys: &[("path", Rule::Refused(FOUND)), ("iface", Rule::Refused("the TUN interface names the record"))],
    sections: &[],
};

/// Reads the section in `plugins`.
pub(super) fn read(plugins: &Resolved<'_, '_>, problems: &Problems) -> DnsMode {
    let sections = plugins.sections();
    let Some(section) = sections.iter().find(|section| section.name() == "resolve") else {
        return DnsMode::default();
    };
    let keys = Keys::new(section, &RESOLVE, problems);
    for resolvconf in section.sections() {
        Keys::new(&resolvconf, &RESOLVCONF, problems);
    }
    let mode = keys.get("method", method).unwrap_or_default();
    if keys.get("load", truth) == Some(false) { DnsMode::Off } else { mode }
}

fn method(text: &str) -> Parsed<DnsMode> {
    if text == "auto" {
        return Ok(DnsMode::Auto);
    }
    let expected = "auto, systemd-resolved, resolvconf or file was expected";
    text.parse().map(DnsMode::Only).map_err(|()| expected.into())
}
