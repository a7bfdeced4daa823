//! The dates of the certificates of this host and of its CAs, and warnings about those that are not valid.

use super::{Keyring, ListedKind};
use crate::log::utc_text;
use casemate_ike::Credentials;
use casemate_ike::config::{Connection, Identity, LocalMethod};
use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How long before the end of its validity a certificate gives a warning: 14 days.
const NOTICE: Duration = Duration::from_secs(14 * 86_400);
/// How often a run looks at the dates.
const INTERVAL: Duration = Duration::from_secs(60);

/// Whose certificate it is.
#[derive(Debug, Clone, Copy)]
enum Role {
    /// That of this host.
    Own,
    /// That of a trusted CA, or of a CA in the chain that this host sends.
    Authority,
}

impl Role {
    const fn name(self) -> &'static str {
        match self {
            Self::Own => "the certificate of this host",
            Self::Authority => "the certificate of a CA",
        }
    }

    /// What happens while the certificate is not valid.
    const fn effect(self) -> &'static str {
        match self {
            Self::Own => "peers refuse it",
            Self::Authority => "certificates that it has issued are refused",
        }
    }
}

/// A certificate with its file.
struct Dated<'k> {
    path: &'k Path,
    der: &'k [u8],
    role: Role,
}

impl Keyring {
    /// A line for each certificate of this host and of its CAs that is not valid now, or will have expired in
    /// 14 days.
    pub(crate) fn validity_warnings(&self, now: SystemTime) -> Vec<String> {
        let mut lines: Vec<String> =
            self.dated().filter_map(|certificate| certificate.warning(now, NOTICE)).collect();
        lines.sort();
        lines.dedup();
        lines
    }

    /// The certificates of this host, those of trusted CAs, and those in the chains that this host sends.
    fn dated(&self) -> impl Iterator<Item = Dated<'_>> {
        let listed = self.listed.iter().filter_map(|file| {
            let role = match file.kind {
                ListedKind::Own => Role::Own,
                ListedKind::Authority => Role::Authority,
                ListedKind::Peer | ListedKind::Crl => return None,
            };
            Some(Dated { path: &file.path, der: &file.der, role })
        });
        let is_listed = |der: &[u8]| self.listed.iter().any(|file| file.der == der);
        let sent = self.own.certs.iter().flat_map(|own| own.cert.chain().skip(1).map(|der| (&own.path, der)));
        let sent = sent.filter(move |(_, der)| !is_listed(der));
        listed.chain(sent.map(|(path, der)| Dated { path, der, role: Role::Authority }))
    }

    /// Why peers refuse the certificate with which this host authenticates in a connection; `None` if it is
    /// valid now, or the connection uses none.
    pub(crate) fn invalid_certificate(&self, connection: &Connection, now: SystemTime) -> Option<String> {
        let used = match &connection.local.method {
            LocalMethod::Certificate(_) => self.own_key(connection, &[])?.chain.first()?.to_vec(),
            LocalMethod::Eap(_) => self.eap_cert(connection)?.cert.chain().next()?.to_vec(),
            LocalMethod::SharedKey => return None,
        };
        let own = self.own.certs.iter().find(|own| own.cert.chain().next() == Some(used.as_slice()))?;
        Dated { path: &own.path, der: &used, role: Role::Own }.warning(now, Duration::ZERO)
    }
}

impl Dated<'_> {
    /// What is wrong with the dates at a time, or so long after it.
    fn warning(&self, now: SystemTime, notice: Duration) -> Option<String> {
        let (start, end) = casemate_pki::validity(self.der)?;
        let [start, end] = [start, end].map(|seconds| u64::try_from(seconds).unwrap_or(0));
        let [start, end] = [start, end].map(|seconds| UNIX_EPOCH.checked_add(Duration::from_secs(seconds)));
        let (start, end) = (start?, end?);
        let (name, effect) = (self.role.name(), self.role.effect());
        let what = if now < start {
            format!("is not valid before {}: {effect}, or the clock is wrong", utc_text(start))
        } else if end < now {
            format!("has expired on {}: {effect}; a new one was expected", utc_text(end))
        } else if end < now.checked_add(notice)? {
            format!("expires on {}: {effect} after that; replace it in time", utc_text(end))
        } else {
            return None;
        };
        let subject = Identity::Dn(casemate_pki::subject(self.der)?.to_vec());
        Some(format!("{}: {name} ({subject}) {what}", self.path.display()))
    }
}

/// Reports each certificate once when it is near the end of its validity, and once when it has expired.
#[derive(Debug, Default)]
pub(crate) struct ValidityWatch {
    /// The warnings that apply now and have been reported.
    reported: BTreeSet<String>,
    next: Option<SystemTime>,
}

impl ValidityWatch {
    /// Notes lines that have been reported, such as the warnings of a configuration that was read.
    pub(crate) fn note(&mut self, lines: &[String]) {
        self.reported.extend(lines.iter().cloned());
    }

    /// Returns the warnings that apply at a time and have not been reported. Looks at the dates once a
    /// minute.
    pub(crate) fn check(&mut self, keyring: &Keyring, now: SystemTime) -> Vec<String> {
        // The clock may have been set back since.
        let is_soon = |next: SystemTime| next.duration_since(now).is_ok_and(|wait| wait <= INTERVAL);
        if self.next.is_some_and(is_soon) {
            return Vec::new();
        }
        self.next = now.checked_add(INTERVAL);
        let lines = keyring.validity_warnings(now);
        let new = lines.iter().filter(|line| !self.reported.contains(*line)).cloned().collect();
        self.reported = lines.into_iter().collect();
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keyring::ListedFile;

    macro_rules! data {
        ($name:literal) => {
            include_bytes!(concat!("../../../../core/pki/tests/data/status/", $name)).to_vec()
        };
    }

    const DAY: Duration = Duration::from_secs(86_400);

    fn keyring() -> Keyring {
        let file = |path: &str, der, kind| ListedFile { path: path.into(), der, kind };
        let listed = vec![
            file("x509/own.pem", data!("good.der"), ListedKind::Own),
            file("x509ca/ca.pem", data!("ca.der"), ListedKind::Authority),
            file("x509/peer.pem", data!("revoked.der"), ListedKind::Peer),
        ];
        Keyring { listed, ..Keyring::empty() }
    }

    /// The last second of the validity of a certificate.
    fn end(der: &[u8]) -> SystemTime {
        let (_, end) = casemate_pki::validity(der).unwrap();
        UNIX_EPOCH + Duration::from_secs(end.try_into().unwrap())
    }

    #[test]
    fn a_certificate_is_reported_once_before_and_once_after_its_end() {
        let (keyring, mut watch) = (keyring(), ValidityWatch::default());
        let (own, ca) = (end(&data!("good.der")), end(&data!("ca.der")));
        assert!(watch.check(&keyring, own - 15 * DAY).is_empty());
        let near = watch.check(&keyring, own - 13 * DAY);
        let expected = format!(
            "x509/own.pem: the certificate of this host (O=Casemate, CN=good) expires on {}: peers refuse it \
             after that; replace it in time",
            utc_text(own)
        );
        assert_eq!(near, [expected]);
        assert!(watch.check(&keyring, own - 12 * DAY).is_empty());
        let second = Duration::from_secs(1);
        assert!(watch.check(&keyring, own).is_empty(), "the last second is valid");
        assert!(watch.check(&keyring, own + second).is_empty(), "the dates are looked at once a minute");
        let expired = watch.check(&keyring, own + INTERVAL + second);
        assert!(matches!(&expired[..], [line] if line.contains("(O=Casemate, CN=good) has expired on ")));
        assert!(watch.check(&keyring, own + DAY).is_empty());
        let near = watch.check(&keyring, ca - DAY);
        let words = "x509ca/ca.pem: the certificate of a CA (O=Casemate, CN=Status CA) expires on ";
        assert!(matches!(&near[..], [line] if line.starts_with(words)), "{near:?}");
        let expired = watch.check(&keyring, ca + DAY);
        assert!(
            matches!(&expired[..], [line] if line.contains("certificates that it has issued are refused"))
        );
        // A clock that was set back, to the time before: only what applies then is reported again.
        assert!(watch.check(&keyring, own - 15 * DAY).is_empty());
        assert_eq!(watch.check(&keyring, own - 13 * DAY).len(), 1);
    }

    #[test]
    fn warnings_of_the_configuration_are_not_repeated() {
        let (keyring, mut watch) = (keyring(), ValidityWatch::default());
        let now = end(&data!("good.der")) + DAY;
        watch.note(&keyring.validity_warnings(now));
        assert!(watch.check(&keyring, now).is_empty());
        assert!(watch.check(&keyring, now + DAY).is_empty());
    }
}
