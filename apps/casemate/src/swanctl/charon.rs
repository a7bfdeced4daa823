//! The section `charon`: settings of IKE for all connections, and the use of name servers, under their names
//! in strongswan.conf(5). charon reads them there and ignores the section in swanctl.conf.

use super::problem::Problems;
use super::resolved::Resolved;
use super::schema::{Keys, Rule, Schema};
use super::value::{Parsed, parse_number, truth};
use casemate_ike::{IkeSettings, Retransmission};
use casemate_linux::dns::DnsMode;
use std::time::Duration;

pub(super) const CHARON: Schema = Schema {
    keys: &[
        ("retransmit_tries", Rule::Read),
        ("retransmit_timeout", Rule::Read),
        ("retransmit_base", Rule::Read),
        ("retransmit_jitter", Rule::Read),
        ("retransmit_limit", Rule::Read),
        ("quick_crash_detection", Rule::Read),
        ("follow_redirects", Rule::Read),
    ],
    sections: &["=plugins"],
};

pub(super) const REVOCATION: Schema =
    Schema { keys: &[("enable_ocsp", Rule::Read), ("enable_crl", Rule::Read)], sections: &[] };

/// Most retransmissions of a request.
const MAX_TRIES: u32 = 100;
/// Longest wait for a response, in thousandths of a second: one day.
const MAX_WAIT: u32 = 86_400_000;
/// Largest factor between two waits, in thousandths.
const MAX_BASE: u32 = 100_000;

/// Settings of IKE for all connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Charon {
    /// Retransmission of requests.
    pub retransmission: Retransmission,
    /// Whether peers get tokens of quick crash detection (RFC 6290).
    pub quick_crash_detection: bool,
    /// Whether this host follows redirects to other gateways (RFC 5685).
    pub follow_redirects: bool,
    /// What is fetched about certificates.
    pub fetching: Fetching,
}

/// Whether the status of certificates is fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fetching {
    /// OCSP responders are asked.
    pub ocsp: bool,
    /// CRLs are fetched.
    pub crls: bool,
}

impl Default for Fetching {
    fn default() -> Self {
        Self { ocsp: true, crls: true }
    }
}

impl Default for Charon {
    fn default() -> Self {
        Self {
            retransmission: IkeSettings::SERVER.retransmission,
            quick_crash_detection: true,
            follow_redirects: true,
            fetching: Fetching::default(),
        }
    }
}

/// Reads the section.
pub(super) fn read(resolved: &Resolved<'_, '_>, problems: &Problems) -> Charon {
    let keys = Keys::new(resolved, &CHARON, problems);
    let default = Charon::default();
    let known = default.retransmission;
    let retransmission = Retransmission {
        tries: keys.get("retransmit_tries", tries).unwrap_or(known.tries),
        initial_timeout: keys.get("retransmit_timeout", seconds).unwrap_or(known.initial_timeout),
        growth_permille: keys.get("retransmit_base", base).unwrap_or(known.growth_permille),
        jitter_percent: keys.get("retransmit_jitter", jitter).unwrap_or(known.jitter_percent),
        max_timeout: keys.get("retransmit_limit", limit).unwrap_or(known.max_timeout),
    };
    let quick_crash_detection =
        keys.get("quick_crash_detection", truth).unwrap_or(default.quick_crash_detection);
    let follow_redirects = keys.get("follow_redirects", truth).unwrap_or(default.follow_redirects);
    Charon { retransmission, quick_crash_detection, follow_redirects, fetching: default.fetching }
}

/// Reads the section `revocation` among the sections of `plugins`.
pub(super) fn fetching(plugins: &Resolved<'_, '_>, problems: &Problems) -> Fetching {
    let sections = plugins.sections();
    let Some(section) = sections.iter().find(|section| section.name() == "revocation") else {
        return Fetching::default();
    };
    let keys = Keys::new(section, &REVOCATION, problems);
    let read = |name| keys.get(name, truth).unwrap_or(true);
    Fetching { ocsp: read("enable_ocsp"), crls: read("enable_crl") }
}

pub(super) fn tries(text: &str) -> Parsed<u32> {
    let tries = parse_number::<u32>(text).ok().filter(|tries| *tries <= MAX_TRIES);
    tries.ok_or_else(|| format!("a number from 0 to {MAX_TRIES} was expected"))
}

pub(super) fn seconds(text: &str) -> Parsed<Duration> {
    let millis = thousandths(text).filter(|millis| (100..=MAX_WAIT).contains(millis));
    let millis = millis.ok_or("a time in seconds from 0.1 to 86400 was expected, such as 4.0")?;
    Ok(Duration::from_millis(millis.into()))
}

/// Reads the longest wait; 0 means without limit, as with strongSwan. No wait is longer than a day.
fn limit(text: &str) -> Parsed<Duration> {
    let longest = Duration::from_millis(MAX_WAIT.into());
    if thousandths(text) == Some(0) { Ok(longest) } else { seconds(text) }
}

pub(super) fn base(text: &str) -> Parsed<u32> {
    // RFC 7296 section 2.4: the times increase exponentially.
    let base = thousandths(text).filter(|base| (1_000..=MAX_BASE).contains(base));
    base.ok_or_else(|| "a factor from 1 to 100 was expected, such as 1.8".into())
}

fn jitter(text: &str) -> Parsed<u32> {
    let percent = parse_number::<u32>(text).ok().filter(|percent| *percent <= 100);
    percent.ok_or_else(|| "a number of percent from 0 to 100 was expected".into())
}

/// Reads a decimal number with up to three digits behind the point, in thousandths.
fn thousandths(text: &str) -> Option<u32> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let is_digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    if !is_digits(whole) || !is_digits(fraction) || fraction.len() > 3 {
        return None;
    }
    let fraction: u32 = format!("{fraction:0<3}").parse().ok()?;
    whole.parse::<u32>().ok()?.checked_mul(1_000)?.checked_add(fraction)
}

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

/// Reads the section `resolve` in `plugins`: how name servers of tunnels are used.
pub(super) fn name_servers(plugins: &Resolved<'_, '_>, problems: &Problems) -> DnsMode {
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
