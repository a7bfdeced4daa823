//! Warnings about certificates of this host that are not valid, or not for long.

use super::Keyring;
use super::own::OwnCert;
use crate::log::utc_text;
use casemate_ike::Credentials;
use casemate_ike::config::{Connection, LocalMethod};
use casemate_pki::validity;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How long before the end of its validity a certificate gives a warning: 14 days.
const NOTICE: Duration = Duration::from_secs(14 * 86_400);

impl Keyring {
    /// A line for each certificate of this host that is not valid now, or will have expired in 14 days.
    pub(crate) fn validity_warnings(&self, now: SystemTime) -> Vec<String> {
        self.own.certs.iter().filter_map(|own| warning(own, now, NOTICE)).collect()
    }

    /// Why peers refuse the certificate with which this host authenticates in a connection; `None` if it is
    /// valid now, or the connection uses none.
    pub(crate) fn invalid_certificate(&self, connection: &Connection, now: SystemTime) -> Option<String> {
        let used = match &connection.local.method {
            LocalMethod::Certificate(_) => self.own_key(connection, &[])?.chain.first()?.to_vec(),
            LocalMethod::Eap(_) => self.eap_cert(connection)?.cert.chain().next()?.to_vec(),
            LocalMethod::SharedKey => return None,
        };
        let own = self.own.certs.iter().find(|own| own.cert.chain().next() == Some(used.as_slice()));
        warning(own?, now, Duration::ZERO)
    }
}

/// What is wrong with the dates of a certificate at a time, or so long after it.
fn warning(own: &OwnCert, now: SystemTime, notice: Duration) -> Option<String> {
    let (start, end) = validity(own.cert.chain().next()?)?;
    let [start, end] = [start, end].map(|seconds| u64::try_from(seconds).unwrap_or(0));
    let [start, end] = [start, end].map(|seconds| UNIX_EPOCH.checked_add(Duration::from_secs(seconds)));
    let (start, end) = (start?, end?);
    let what = if now < start {
        format!("is not valid before {}: peers refuse it, or the clock is wrong", utc_text(start))
    } else if end < now {
        format!("has expired on {}: peers refuse it; a new one was expected", utc_text(end))
    } else if end < now.checked_add(notice)? {
        format!("expires on {}: peers refuse it after that; replace it in time", utc_text(end))
    } else {
        return None;
    };
    Some(format!("{}: the certificate of this host ({}) {what}", own.path.display(), own.subject()))
}
