//! Keys composed of other keys: encrypt-then-MAC from a cipher and a MAC (RFC 4303 section 3.3.2), and
//! batches split between two providers by batch size.

use crate::{AeadJob, AeadKey, CipherKey, EtmJob, EtmKey, JobStatus, KeyError, MacJob, MacKey, Tag};
use alloc::boxed::Box;

/// A cipher and a MAC, applied one after the other. No cipher means NULL encryption.
pub struct EncryptThenMac {
    cipher: Option<Box<dyn CipherKey>>,
    mac: Box<dyn MacKey>,
}

impl EncryptThenMac {
    /// Combines a cipher and a MAC. A cipher of `None` is NULL encryption (RFC 2410).
    pub fn new(cipher: Option<Box<dyn CipherKey>>, mac: Box<dyn MacKey>) -> Self {
        Self { cipher, mac }
    }

    fn sign(&self, job: &EtmJob<'_>) -> Option<Tag> {
        let tag = Tag::zeroed(job.tag.as_slice().len());
        let mut jobs = [MacJob { nonce: job.mac_nonce, data: job.data, tag, status: JobStatus::Pending }];
        self.mac.sign(&mut jobs);
        let [signed] = jobs;
        (signed.status == JobStatus::Done).then_some(signed.tag)
    }
}

impl EtmKey for EncryptThenMac {
    fn seal(&self, jobs: &mut [EtmJob<'_>]) {
        for job in jobs {
            job.status = JobStatus::Failed;
            let encrypted = match (&self.cipher, job.data.get_mut(job.text.clone())) {
                (Some(cipher), Some(text)) => cipher.encrypt(&job.iv, text),
                (None, Some(_)) => true,
                (_, None) => false,
            };
            if let (true, Some(tag)) = (encrypted, self.sign(job)) {
                job.tag = tag;
                job.status = JobStatus::Done;
            }
        }
    }

    fn open(&self, jobs: &mut [EtmJob<'_>]) {
        for job in jobs {
            job.status = JobStatus::Failed;
            if !self.sign(job).is_some_and(|tag| tag.matches(&job.tag)) {
                continue;
            }
            let decrypted = match (&self.cipher, job.data.get_mut(job.text.clone())) {
                (Some(cipher), Some(text)) => cipher.decrypt(&job.iv, text),
                (None, Some(_)) => true,
                (_, None) => false,
            };
            if decrypted {
                job.status = JobStatus::Done;
            }
        }
    }
}

/// Two keys that compute the same function: one is fast for large batches, the other one for small batches.
pub(crate) struct BatchSplit<K: ?Sized> {
    large: Box<K>,
    small: Box<K>,
    /// Batches of at least this many jobs go to `large`.
    from: usize,
}

impl<K: ?Sized> BatchSplit<K> {
    #[inline]
    fn select(&self, jobs: usize) -> &K {
        if jobs < self.from { &self.small } else { &self.large }
    }
}

impl AeadKey for BatchSplit<dyn AeadKey> {
    fn seal(&self, jobs: &mut [AeadJob<'_>]) {
        self.select(jobs.len()).seal(jobs);
    }

    fn open(&self, jobs: &mut [AeadJob<'_>]) {
        self.select(jobs.len()).open(jobs);
    }
}

impl MacKey for BatchSplit<dyn MacKey> {
    fn sign(&self, jobs: &mut [MacJob<'_>]) {
        self.select(jobs.len()).sign(jobs);
    }
}

impl EtmKey for BatchSplit<dyn EtmKey> {
    fn seal(&self, jobs: &mut [EtmJob<'_>]) {
        self.select(jobs.len()).seal(jobs);
    }

    fn open(&self, jobs: &mut [EtmJob<'_>]) {
        self.select(jobs.len()).open(jobs);
    }
}

/// Combines `large` with a key for batches of less than `threshold` jobs, which `small` sets up. Returns
/// `large` alone if `threshold` is at most 1 or no provider supports the algorithm for small batches.
pub(crate) fn with_small_batches<K: ?Sized>(
    large: Box<K>,
    from: usize,
    small: impl FnOnce() -> Result<Box<K>, KeyError>,
    join: impl FnOnce(BatchSplit<K>) -> Box<K>,
) -> Result<Box<K>, KeyError> {
    if from <= 1 {
        return Ok(large);
    }
    match small() {
        Ok(small) => Ok(join(BatchSplit { large, small, from })),
        Err(KeyError::Unsupported) => Ok(large),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        AeadAlg, AeadJob, AeadKey, CipherAlg, EtmJob, EtmKey, JobStatus, KeyError, MacAlg, MacJob, MacKey,
        MacKind, Provider, Providers, Tag,
    };
    use alloc::boxed::Box;
    use alloc::vec::Vec;

    const MAC: MacAlg = MacAlg::standard(MacKind::HmacSha1);

    /// A provider whose keys write `mark` as the tag, or as the nonce for combined-mode ciphers.
    struct MarkProvider {
        mark: u8,
        from: usize,
        answer: Option<KeyError>,
    }

    struct Mark(u8);

    impl MacKey for Mark {
        fn sign(&self, jobs: &mut [MacJob<'_>]) {
            jobs.iter_mut().for_each(|job| job.tag.as_mut_slice().fill(self.0));
        }
    }

    impl AeadKey for Mark {
        fn seal(&self, jobs: &mut [AeadJob<'_>]) {
            jobs.iter_mut().for_each(|job| job.nonce.fill(self.0));
        }

        fn open(&self, jobs: &mut [AeadJob<'_>]) {
            AeadKey::seal(self, jobs);
        }
    }

    impl EtmKey for Mark {
        fn seal(&self, jobs: &mut [EtmJob<'_>]) {
            jobs.iter_mut().for_each(|job| job.tag.as_mut_slice().fill(self.0));
        }

        fn open(&self, jobs: &mut [EtmJob<'_>]) {
            EtmKey::seal(self, jobs);
        }
    }

    impl Provider for MarkProvider {
        fn name(&self) -> &'static str {
            "marker"
        }

        fn aead(&self, _: AeadAlg, _: &[u8]) -> Result<Box<dyn AeadKey>, KeyError> {
            self.answer.map_or(Ok(Box::new(Mark(self.mark))), Err)
        }

        fn mac(&self, _: MacAlg, _: &[u8]) -> Result<Box<dyn MacKey>, KeyError> {
            self.answer.map_or(Ok(Box::new(Mark(self.mark))), Err)
        }

        fn etm(&self, _: CipherAlg, _: &[u8], _: MacAlg, _: &[u8]) -> Result<Box<dyn EtmKey>, KeyError> {
            self.answer.map_or(Ok(Box::new(Mark(self.mark))), Err)
        }

        fn min_batch(&self, _: MacAlg) -> usize {
            self.from
        }

        fn aead_min_batch(&self, _: AeadAlg) -> usize {
            self.from
        }
    }

    fn mark_provider(mark: u8, from: usize) -> MarkProvider {
        MarkProvider { mark, from, answer: None }
    }

    fn macs(key: &dyn MacKey, jobs: usize) -> u8 {
        let job = |_| MacJob { nonce: [0; 12], data: &[], tag: Tag::zeroed(12), status: JobStatus::Pending };
        let mut jobs: Vec<_> = (0..jobs).map(job).collect();
        key.sign(&mut jobs);
        jobs[0].tag.as_slice()[0]
    }

    fn aeads(jobs: usize, run: impl Fn(&mut [AeadJob<'_>])) -> u8 {
        let job =
            |_| AeadJob { nonce: [0; 12], aad: &[], text: &mut [], tag: &mut [], status: JobStatus::Pending };
        let mut jobs: Vec<_> = (0..jobs).map(job).collect();
        run(&mut jobs);
        jobs[0].nonce[0]
    }

    fn etms(jobs: usize, run: impl Fn(&mut [EtmJob<'_>])) -> u8 {
        let job = |_| EtmJob {
            iv: [0; 16],
            mac_nonce: [0; 12],
            data: &mut [],
            text: 0..0,
            tag: Tag::zeroed(12),
            status: JobStatus::Pending,
        };
        let mut jobs: Vec<_> = (0..jobs).map(job).collect();
        run(&mut jobs);
        jobs[0].tag.as_slice()[0]
    }

    #[test]
    fn a_batch_goes_to_the_first_provider_with_a_low_enough_minimum() {
        let list: [&dyn Provider; 3] = [&mark_provider(1, 8), &mark_provider(2, 3), &mark_provider(3, 1)];
        let mac = Providers(&list).mac(MAC, &[0; 20]).unwrap();
        let etm = Providers(&list).etm(CipherAlg::Null, &[], MAC, &[0; 20]).unwrap();
        let aead = Providers(&list).aead(AeadAlg::ChaCha20Poly1305, &[0; 32]).unwrap();
        for (jobs, mark) in [(1, 3), (2, 3), (3, 2), (7, 2), (8, 1), (32, 1)] {
            assert_eq!(macs(&*mac, jobs), mark, "{jobs} to be signed");
            assert_eq!(aeads(jobs, |jobs| aead.seal(jobs)), mark, "{jobs} to be sealed, combined");
            assert_eq!(aeads(jobs, |jobs| aead.open(jobs)), mark, "{jobs} to be opened, combined");
            assert_eq!(etms(jobs, |jobs| etm.seal(jobs)), mark, "{jobs} to be sealed");
            assert_eq!(etms(jobs, |jobs| etm.open(jobs)), mark, "{jobs} to be opened");
        }
    }

    #[test]
    fn the_last_provider_processes_all_batches() {
        let lacks = MarkProvider { mark: 2, from: 1, answer: Some(KeyError::Unsupported) };
        let rejects = MarkProvider { mark: 2, from: 1, answer: Some(KeyError::Refused) };
        assert_eq!(macs(&*Providers(&[&mark_provider(1, 8)]).mac(MAC, &[0; 20]).unwrap(), 1), 1);
        assert_eq!(macs(&*Providers(&[&mark_provider(1, 8), &lacks]).mac(MAC, &[0; 20]).unwrap(), 1), 1);
        assert_eq!(macs(&*Providers(&[&lacks, &mark_provider(1, 8)]).mac(MAC, &[0; 20]).unwrap(), 1), 1);
        let rejected = Providers(&[&mark_provider(1, 8), &rejects]).mac(MAC, &[0; 20]);
        assert_eq!(rejected.err(), Some(KeyError::Refused));
    }
}
