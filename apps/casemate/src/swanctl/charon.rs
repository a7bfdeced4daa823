//! The section `charon`: settings of IKE for all connections, under their names in strongswan.conf(5). charon
//! reads them there and ignores the section in swanctl.conf.

use super::problem::Problems;
use super::resolved::Resolved;
use super::schema::{Keys, Rule, Schema};
use super::value::{Parsed, parse_number, truth};
use casemate_ike::{IkeSettings, Retransmission};
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
}

impl Default for Charon {
    fn default() -> Self {
        Self {
            retransmission: IkeSettings::SERVER.retransmission,
            quick_crash_detection: true,
            follow_redirects: true,
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
    Charon { retransmission, quick_crash_detection, follow_redirects }
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
