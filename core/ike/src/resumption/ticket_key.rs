//! Encryption of tickets.
//!
//! ```text
//!  | key identity (8) | number (8) | encrypted session | tag (16) |
//!  |<--- associated data and nonce ->|
//! ```
//! The algorithm is AES-256-GCM. A key is never used for anything else, and its numbers never repeat, so the
//! number is the nonce. Keys are in memory only: after a restart, no ticket is known.

use super::session::MAX_SESSION;
use alloc::boxed::Box;
use alloc::vec::Vec;
use casemate_crypto::{AeadAlg, AeadJob, AeadKey, AesBits, JobStatus, Providers, Rng, SecretBytes};
use casemate_sa::Instant;
use core::time::Duration;
use zeroize::Zeroizing;

const ALGORITHM: AeadAlg = AeadAlg::AesGcm { bits: AesBits::B256, icv: TAG_LEN as u8 };
const KEY_LEN: usize = 32;
const TAG_LEN: usize = 16;
/// Key identity and number.
const HEADER_LEN: usize = 16;
/// Longest ticket of this host, in bytes.
const MAX_TICKET: usize = HEADER_LEN + MAX_SESSION + TAG_LEN;

/// The key of new tickets, and the one before, whose tickets are still accepted.
#[derive(Default)]
pub(super) struct TicketKeys {
    current: Option<TicketKey>,
    previous: Option<TicketKey>,
}

struct TicketKey {
    /// Random, so that tickets of other hosts, and of this host before a restart, are not decrypted.
    id: [u8; 8],
    key: Box<dyn AeadKey>,
    since: Instant,
    /// Number of tickets.
    sealed: u64,
}

/// When a key is used, and with what.
pub(super) struct KeyContext<'c> {
    pub(super) now: Instant,
    /// Time for which a key makes tickets, which are accepted for as long again.
    pub(super) lifetime: Duration,
    pub(super) providers: &'c Providers<'c>,
}

impl TicketKeys {
    /// Encrypts a session; `None` without an algorithm.
    pub(super) fn seal(
        &mut self,
        session: &[u8],
        rng: &mut dyn Rng,
        context: &KeyContext<'_>,
    ) -> Option<Vec<u8>> {
        let KeyContext { now, lifetime, .. } = *context;
        if self.current.as_ref().is_none_or(|key| now.since(key.since) >= lifetime) {
            let fresh = TicketKey::new(now, rng, context.providers)?;
            self.previous = self.current.replace(fresh);
        }
        self.current.as_mut()?.seal(session)
    }

    /// Decrypts a ticket; `None` if it was not made by this host, or its key is too old.
    pub(super) fn open(&self, ticket: &[u8], context: &KeyContext<'_>) -> Option<Zeroizing<Vec<u8>>> {
        let (header, rest) = ticket.split_first_chunk::<HEADER_LEN>()?;
        let (text, tag) = rest.split_last_chunk::<TAG_LEN>()?;
        if ticket.len() > MAX_TICKET {
            return None;
        }
        let longest = context.lifetime.saturating_mul(2);
        let mut keys = self.current.iter().chain(&self.previous);
        let is_its = |key: &&TicketKey| header.starts_with(&key.id) && context.now.since(key.since) < longest;
        let key = keys.find(is_its)?;
        let (mut text, mut tag) = (Zeroizing::new(text.to_vec()), *tag);
        let is_authentic = run(header, &mut text, &mut tag, |job| key.key.open(job));
        is_authentic.then_some(text)
    }
}

impl TicketKey {
    fn new(now: Instant, rng: &mut dyn Rng, providers: &Providers<'_>) -> Option<Self> {
        let (mut id, mut key) = ([0; 8], Zeroizing::new([0; KEY_LEN]));
        rng.secret(&mut id);
        rng.secret(&mut *key);
        let key = SecretBytes::new(&*key);
        let key = providers.aead(ALGORITHM, key.expose()).ok()?;
        Some(Self { id, key, since: now, sealed: 0 })
    }

    fn seal(&mut self, session: &[u8]) -> Option<Vec<u8>> {
        self.sealed = self.sealed.checked_add(1)?;
        let mut header = [0; HEADER_LEN];
        let (id, number) = header.split_first_chunk_mut::<8>()?;
        *id = self.id;
        number.copy_from_slice(&self.sealed.to_be_bytes());
        let (mut text, mut tag) = (session.to_vec(), [0; TAG_LEN]);
        let is_done = run(&header, &mut text, &mut tag, |job| self.key.seal(job));
        is_done.then(|| [&header[..], &text, &tag].concat())
    }
}

/// Runs one job. Returns whether it has succeeded.
fn run(
    header: &[u8; HEADER_LEN],
    text: &mut [u8],
    tag: &mut [u8; TAG_LEN],
    act: impl FnOnce(&mut [AeadJob<'_>]),
) -> bool {
    let mut nonce = [0; 12];
    nonce.iter_mut().skip(4).zip(header.iter().skip(8)).for_each(|(to, from)| *to = *from);
    let mut jobs = [AeadJob { nonce, aad: header, text, tag, status: JobStatus::Pending }];
    act(&mut jobs);
    jobs.iter().all(|job| job.status == JobStatus::Done)
}

#[cfg(test)]
mod tests {
    use super::*;
    use casemate_test_support::FixedRng;

    const HOUR: Duration = Duration::from_secs(3_600);

    fn with_context<T>(secs: u64, act: impl FnOnce(&KeyContext<'_>) -> T) -> T {
        let list: [&dyn casemate_crypto::Provider; 1] = [&casemate_rustcrypto::RustCrypto];
        act(&KeyContext { now: Instant::from_secs(secs), lifetime: HOUR, providers: &Providers(&list) })
    }

    fn seal(keys: &mut TicketKeys, rng: &mut FixedRng, secs: u64) -> Vec<u8> {
        with_context(secs, |context| keys.seal(b"a session", rng, context).unwrap())
    }

    fn opens(keys: &TicketKeys, ticket: &[u8], secs: u64) -> bool {
        let opened = with_context(secs, |context| keys.open(ticket, context));
        opened.is_some_and(|session| *session == b"a session")
    }

    #[test]
    fn a_ticket_of_this_host_opens() {
        let (mut keys, mut rng) = (TicketKeys::default(), FixedRng::increasing(1));
        let ticket = seal(&mut keys, &mut rng, 0);
        assert!(opens(&keys, &ticket, 0));
        assert!(!ticket.windows(9).any(|part| part == b"a session"));
        assert_ne!(seal(&mut keys, &mut rng, 0), ticket, "no nonce repeats");
        assert_eq!(rng.public_draws(), 0, "keys use secret random bytes only");
    }

    #[test]
    fn changed_and_truncated_tickets_do_not_open() {
        let (mut keys, mut rng) = (TicketKeys::default(), FixedRng::increasing(1));
        let ticket = seal(&mut keys, &mut rng, 0);
        for at in 0..ticket.len() {
            let mut changed = ticket.clone();
            changed[at] ^= 1;
            assert!(!opens(&keys, &changed, 0), "byte {at}");
            assert!(!opens(&keys, &ticket[..at], 0), "{at} bytes");
        }
        assert!(!opens(&keys, &[&*ticket, &[0; MAX_TICKET]].concat(), 0));
        assert!(!opens(&TicketKeys::default(), &ticket, 0), "a host without keys");
        let mut other = TicketKeys::default();
        seal(&mut other, &mut FixedRng::increasing(9), 0);
        assert!(!opens(&other, &ticket, 0), "another host");
    }

    #[test]
    fn a_key_makes_tickets_for_its_lifetime_and_accepts_them_for_as_long_again() {
        let (mut keys, mut rng) = (TicketKeys::default(), FixedRng::increasing(1));
        let first = seal(&mut keys, &mut rng, 0);
        assert_eq!(seal(&mut keys, &mut rng, 3_599)[..8], first[..8]);
        let second = seal(&mut keys, &mut rng, 3_600);
        assert_ne!(second[..8], first[..8]);
        assert!(opens(&keys, &first, 7_199) && opens(&keys, &second, 7_200));
        assert!(!opens(&keys, &first, 7_200));
        let third = seal(&mut keys, &mut rng, 7_200);
        assert!(!opens(&keys, &first, 7_199), "two keys at most are kept");
        assert!(opens(&keys, &second, 7_200) && opens(&keys, &third, 7_200));
    }
}
