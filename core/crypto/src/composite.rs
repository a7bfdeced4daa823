//! Keys composed of other keys: encrypt-then-MAC from a cipher and a MAC (RFC 4303 section 3.3.2), and
//! packets distributed between two providers by batch size and length.

use crate::{
    AeadJob, AeadKey, AeadRange, CipherKey, EtmJob, EtmKey, JobStatus, KeyError, MacJob, MacKey, Tag,
};
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

/// Two combined-mode keys that compute the same function: each is faster for some packets.
struct AeadSplit {
    first: Box<dyn AeadKey>,
    other: Box<dyn AeadKey>,
    /// Packets for `first`.
    range: AeadRange,
}

impl AeadSplit {
    /// Divides the batch into runs of packets for the same key, in their order.
    fn for_each_run(&self, jobs: &mut [AeadJob<'_>], process: impl Fn(&dyn AeadKey, &mut [AeadJob<'_>])) {
        let fits = |job: &AeadJob<'_>| job.text.len() <= self.range.max_len;
        for run in jobs.chunk_by_mut(|a, b| fits(a) == fits(b)) {
            let is_first = run.len() >= self.range.min_batch && run.first().is_some_and(fits);
            process(if is_first { &*self.first } else { &*self.other }, run);
        }
    }
}

impl AeadKey for AeadSplit {
    fn seal(&self, jobs: &mut [AeadJob<'_>]) {
        self.for_each_run(jobs, |key, run| key.seal(run));
    }

    fn open(&self, jobs: &mut [AeadJob<'_>]) {
        self.for_each_run(jobs, |key, run| key.open(run));
    }
}

/// Combines `first` with a key for the packets outside `range`, which `other` sets up. Returns `first` alone
/// if there are none or no provider supports the algorithm for them.
pub(crate) fn with_other_packets(
    first: Box<dyn AeadKey>,
    range: AeadRange,
    other: impl FnOnce() -> Result<Box<dyn AeadKey>, KeyError>,
) -> Result<Box<dyn AeadKey>, KeyError> {
    if range == AeadRange::ALL {
        return Ok(first);
    }
    match other() {
        Ok(other) => Ok(Box::new(AeadSplit { first, other, range })),
        Err(KeyError::Unsupported) => Ok(first),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        AeadAlg, AeadJob, AeadKey, AeadRange, CipherAlg, EtmJob, EtmKey, JobStatus, KeyError, MacAlg, MacJob,
        MacKey, MacKind, Provider, Providers, Tag,
    };
    use alloc::boxed::Box;
    use alloc::vec::Vec;

    const MAC: MacAlg = MacAlg::standard(MacKind::HmacSha1);

    /// A provider whose keys write `mark` as the tag, or as the nonce for combined-mode ciphers.
    struct MarkProvider {
        mark: u8,
        from: usize,
        max_len: usize,
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

        fn aead_range(&self, _: AeadAlg) -> AeadRange {
            AeadRange { min_batch: self.from, max_len: self.max_len }
        }
    }

    fn mark_provider(mark: u8, from: usize) -> MarkProvider {
        MarkProvider { mark, from, max_len: usize::MAX, answer: None }
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
        let lacks = MarkProvider { answer: Some(KeyError::Unsupported), ..mark_provider(2, 1) };
        let rejects = MarkProvider { answer: Some(KeyError::Refused), ..mark_provider(2, 1) };
        assert_eq!(macs(&*Providers(&[&mark_provider(1, 8)]).mac(MAC, &[0; 20]).unwrap(), 1), 1);
        assert_eq!(macs(&*Providers(&[&mark_provider(1, 8), &lacks]).mac(MAC, &[0; 20]).unwrap(), 1), 1);
        assert_eq!(macs(&*Providers(&[&lacks, &mark_provider(1, 8)]).mac(MAC, &[0; 20]).unwrap(), 1), 1);
        let rejected = Providers(&[&mark_provider(1, 8), &rejects]).mac(MAC, &[0; 20]);
        assert_eq!(rejected.err(), Some(KeyError::Refused));
    }
    /// Marks of the providers that process packets of these lengths, in one batch.
    fn marks(key: &dyn AeadKey, lens: &[usize]) -> Vec<u8> {
        let mut texts: Vec<Vec<u8>> = lens.iter().map(|len| alloc::vec![0; *len]).collect();
        let job = |text| AeadJob { nonce: [0; 12], aad: &[], text, tag: &mut [], status: JobStatus::Pending };
        let mut jobs: Vec<_> = texts.iter_mut().map(|text| job(text)).collect();
        key.seal(&mut jobs);
        let sealed = jobs.iter().map(|job| job.nonce[0]).collect();
        key.open(&mut jobs);
        let opened: Vec<u8> = jobs.iter().map(|job| job.nonce[0]).collect();
        assert_eq!(sealed, opened);
        sealed
    }

    #[test]
    fn a_packet_goes_to_the_first_provider_that_is_worthwhile_for_its_length() {
        let short = MarkProvider { max_len: 100, ..mark_provider(1, 1) };
        let list: [&dyn Provider; 2] = [&short, &mark_provider(2, 1)];
        let key = Providers(&list).aead(AeadAlg::ChaCha20Poly1305, &[0; 32]).unwrap();
        assert_eq!(marks(&*key, &[100, 101, 0, 99, 1_400]), [1, 2, 1, 1, 2]);
        assert_eq!(marks(&*key, &[]), []);
        let pairs = MarkProvider { max_len: 100, ..mark_provider(1, 2) };
        let list: [&dyn Provider; 2] = [&pairs, &mark_provider(2, 1)];
        let key = Providers(&list).aead(AeadAlg::ChaCha20Poly1305, &[0; 32]).unwrap();
        assert_eq!(marks(&*key, &[1, 200, 2, 3, 200]), [2, 2, 1, 1, 2], "runs of one packet");
    }

    #[test]
    fn the_choice_names_providers_up_to_the_first_one_for_all_packets() {
        let lacks = MarkProvider { answer: Some(KeyError::Unsupported), ..mark_provider(2, 1) };
        let short = MarkProvider { max_len: 100, ..mark_provider(1, 1) };
        let list: [&dyn Provider; 4] = [&lacks, &short, &mark_provider(3, 1), &mark_provider(4, 1)];
        let providers = Providers(&list);
        let ranges = providers.aead_choice(AeadAlg::ChaCha20Poly1305, &[0; 32]).map(|(_, range)| range);
        let expected = [AeadRange { min_batch: 1, max_len: 100 }, AeadRange::ALL];
        assert_eq!(ranges.collect::<Vec<_>>(), expected);
    }
}
