//! What was found out about certificates, until it is too old.

use super::{CertKey, HttpUri};
use casemate_pki::{CertStatus, StatusAnswer};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Maximum number of certificates. When there are more, the entry that ends first is forgotten.
const MAX_ENTRIES: usize = 4_096;
/// Longest use of an answer in seconds, whatever its nextUpdate says.
const MAX_AGE: u64 = 86_400;
/// Shortest use of an answer in seconds: one that has just been verified is used once.
const MIN_AGE: u64 = 30;
/// After a failure, nothing is fetched for a certificate for this time in seconds.
const FAILURE_AGE: u64 = 60;

/// What is known about a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Finding {
    /// Its status, and where that is from.
    Status { status: CertStatus, source: FetchedFrom },
    /// Why no source has told its status. Empty if a CRL file tells it.
    Failed(Vec<String>),
}

/// Where an answer was fetched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum FetchedFrom {
    Ocsp(HttpUri),
    Crl(HttpUri),
    /// A complete CRL whose delta CRL was not available.
    CrlWithoutDelta(HttpUri),
}

impl fmt::Display for FetchedFrom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ocsp(uri) => write!(f, "OCSP {uri}"),
            Self::Crl(uri) | Self::CrlWithoutDelta(uri) => write!(f, "CRL {uri}"),
        }
    }
}

/// Answers to forget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fetched {
    Crls,
    OcspResponses,
    All,
}

/// The findings of all certificates.
#[derive(Debug, Default)]
pub(crate) struct StatusCache(Mutex<HashMap<CertKey, Entry>>);

#[derive(Debug)]
struct Entry {
    finding: Finding,
    until: u64,
}

impl StatusCache {
    /// What is known at this time.
    pub(super) fn get(&self, key: CertKey, now: u64) -> Option<Finding> {
        self.lock().get(&key).filter(|entry| now <= entry.until).map(|entry| entry.finding.clone())
    }

    /// Adds an answer that was verified.
    pub(super) fn add(&self, key: CertKey, answer: StatusAnswer, source: FetchedFrom, now: u64) {
        let until = answer.valid_until.clamp(now.saturating_add(MIN_AGE), now.saturating_add(MAX_AGE));
        let finding = Finding::Status { status: answer.status, source };
        self.insert(key, Entry { finding, until }, now);
    }

    /// Notes that no source has answered.
    pub(super) fn add_failure(&self, key: CertKey, why: Vec<String>, now: u64) {
        let until = now.saturating_add(FAILURE_AGE);
        self.insert(key, Entry { finding: Finding::Failed(why), until }, now);
    }

    /// Forgets failures, so that sources are asked again.
    pub(super) fn forget_failures(&self) {
        self.lock().retain(|_, entry| match &entry.finding {
            Finding::Status { source, .. } => !matches!(source, FetchedFrom::CrlWithoutDelta(_)),
            Finding::Failed(_) => false,
        });
    }

    /// Forgets these answers, and all failures.
    pub(super) fn forget(&self, fetched: Fetched) {
        self.lock().retain(|_, entry| match &entry.finding {
            Finding::Status { source: FetchedFrom::Crl(_), .. } => fetched == Fetched::OcspResponses,
            Finding::Status { source: FetchedFrom::Ocsp(_), .. } => fetched == Fetched::Crls,
            Finding::Status { source: FetchedFrom::CrlWithoutDelta(_), .. } | Finding::Failed(_) => false,
        });
    }

    fn insert(&self, key: CertKey, entry: Entry, now: u64) {
        let mut entries = self.lock();
        if entries.len() >= MAX_ENTRIES {
            entries.retain(|_, entry| now <= entry.until);
        }
        if entries.len() >= MAX_ENTRIES {
            let first = entries.iter().min_by_key(|(_, entry)| entry.until).map(|(key, _)| *key);
            first.map(|key| entries.remove(&key));
        }
        entries.insert(key, entry);
    }

    /// Locks the entries. Each is inserted as a whole, so a thread that panicked leaves nothing half done.
    fn lock(&self) -> MutexGuard<'_, HashMap<CertKey, Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: CertStatus = CertStatus::Good;

    fn key(number: usize) -> CertKey {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&number.to_be_bytes());
        CertKey(bytes)
    }

    fn uri() -> HttpUri {
        HttpUri::parse("http://ca.test/").unwrap()
    }

    fn crl() -> FetchedFrom {
        FetchedFrom::Crl(uri())
    }

    fn answer(valid_until: u64) -> StatusAnswer {
        StatusAnswer { status: GOOD, valid_until }
    }

    #[test]
    fn answers_end_with_next_update_and_after_a_day() {
        let cache = StatusCache::default();
        let found = Some(Finding::Status { status: GOOD, source: crl() });
        for (valid_until, last) in [(1_500, 1_500), (1_000_000_000, 87_400), (5, 1_030)] {
            cache.add(key(1), answer(valid_until), crl(), 1_000);
            assert_eq!(cache.get(key(1), last), found, "{valid_until}");
            assert_eq!(cache.get(key(1), last + 1), None, "{valid_until}");
        }
    }

    #[test]
    fn failures_are_kept_for_a_minute_and_can_be_forgotten() {
        let cache = StatusCache::default();
        cache.add_failure(key(1), vec!["down".into()], 1_000);
        cache.add(key(2), answer(2_000), crl(), 1_000);
        cache.add(key(3), answer(2_000), FetchedFrom::CrlWithoutDelta(uri()), 1_000);
        assert!(cache.get(key(3), 1_000).is_some());
        assert_eq!(cache.get(key(1), 1_060), Some(Finding::Failed(vec!["down".into()])));
        assert_eq!(cache.get(key(1), 1_061), None);
        cache.forget_failures();
        assert_eq!((cache.get(key(1), 1_000), cache.get(key(2), 1_000).is_some()), (None, true));
        assert_eq!(cache.get(key(3), 1_000), None, "the delta CRL is fetched again");
    }

    #[test]
    fn answers_are_forgotten_by_their_kind() {
        for (fetched, remain) in [
            (Fetched::Crls, [false, true]),
            (Fetched::OcspResponses, [true, false]),
            (Fetched::All, [false; 2]),
        ] {
            let cache = StatusCache::default();
            cache.add(key(1), answer(2_000), crl(), 1_000);
            cache.add(key(2), answer(2_000), FetchedFrom::Ocsp(uri()), 1_000);
            cache.add_failure(key(3), Vec::new(), 1_000);
            cache.forget(fetched);
            assert_eq!([1, 2].map(|number| cache.get(key(number), 1_000).is_some()), remain, "{fetched:?}");
            assert_eq!(cache.get(key(3), 1_000), None, "{fetched:?}");
        }
    }

    #[test]
    fn the_number_of_entries_is_bounded() {
        let cache = StatusCache::default();
        for number in 0..MAX_ENTRIES + 10 {
            cache.add(key(number), answer(2_000 + number as u64), crl(), 1_000);
        }
        assert_eq!(cache.lock().len(), MAX_ENTRIES);
        assert_eq!(cache.get(key(0), 1_000), None, "the entry that ends first");
        assert!(cache.get(key(MAX_ENTRIES + 9), 1_000).is_some());
    }
}
