//! The program resolvconf, which joins the name servers of several sources: openresolv (resolvconf(8)) and Debian's
//! package of that name.
//!
//! Its records are below /run, so they end with a reboot.

use super::DnsSettings;
use crate::program::{self, TIME_LIMIT, find, searched};
use crate::{Error, dns::resolv_conf};

/// Adds or replaces the record of this host's tunnels. The metric puts its servers in front of all others; with
/// `-x` openresolv uses no others.
pub(super) fn set(tun: &str, settings: &DnsSettings) -> Result<(), Error> {
    let record = resolv_conf::lines(settings);
    resolvconf(&["-a", &name(tun), "-m", "0", "-x"], &record)
}

/// Removes the record.
pub(super) fn remove(tun: &str) -> Result<(), Error> {
    resolvconf(&["-d", &name(tun), "-f"], "")
}

/// Name of the record. Debian's resolvconf sorts records that begin with `tun` in front of those of links.
fn name(tun: &str) -> String {
    format!("tun.{tun}")
}

fn resolvconf(arguments: &[&str], input: &str) -> Result<(), Error> {
    let missing = || {
        let reason =
            format!("not installed (Debian package openresolv): looked for {}", searched("resolvconf"));
        Error::other("resolvconf", reason)
    };
    program::run(&find("resolvconf").ok_or_else(missing)?, arguments, input, TIME_LIMIT)
}
