//! A key of two providers: one for long runs of packets, one for short runs.

use crate::{AeadJob, AeadKey, EtmJob, EtmKey, KeyError, MacJob, MacKey};
use alloc::boxed::Box;

/// Two keys that compute the same.
pub(crate) struct ByRun<K: ?Sized> {
    many: Box<K>,
    few: Box<K>,
    /// From how many jobs on a run goes to `many`.
    from: usize,
}

impl<K: ?Sized> ByRun<K> {
    #[inline]
    fn serving(&self, jobs: usize) -> &K {
        if jobs < self.from { &self.few } else { &self.many }
    }
}

impl AeadKey for ByRun<dyn AeadKey> {
    fn seal(&self, jobs: &mut [AeadJob<'_>]) {
        self.serving(jobs.len()).seal(jobs);
    }

    fn open(&self, jobs: &mut [AeadJob<'_>]) {
        self.serving(jobs.len()).open(jobs);
    }
}

impl MacKey for ByRun<dyn MacKey> {
    fn sign(&self, jobs: &mut [MacJob<'_>]) {
        self.serving(jobs.len()).sign(jobs);
    }
}

impl EtmKey for ByRun<dyn EtmKey> {
    fn seal(&self, jobs: &mut [EtmJob<'_>]) {
        self.serving(jobs.len()).seal(jobs);
    }

    fn open(&self, jobs: &mut [EtmJob<'_>]) {
        self.serving(jobs.len()).open(jobs);
    }
}

/// `many`, joined with a key for runs of less than `from` jobs if there is such a thing and somebody has one.
pub(crate) fn with_few<K: ?Sized>(
    many: Box<K>,
    from: usize,
    few: impl FnOnce() -> Result<Box<K>, KeyError>,
    join: impl FnOnce(ByRun<K>) -> Box<K>,
) -> Result<Box<K>, KeyError> {
    if from <= 1 {
        return Ok(many);
    }
    match few() {
        Ok(few) => Ok(join(ByRun { many, few, from })),
        Err(KeyError::Unsupported) => Ok(many),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        AeadAlg, AeadJob, AeadKey, CipherAlg, EtmJob, EtmKey, KeyError, MacAlg, MacJob, MacKey, MacKind,
        Outcome, Provider, Providers, Tag,
    };
    use alloc::boxed::Box;
    use alloc::vec::Vec;

    const MAC: MacAlg = MacAlg::standard(MacKind::HmacSha1);

    /// Writes its mark as the tag, in place of the nonce with a combined-mode key.
    struct Marker {
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

    impl Provider for Marker {
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

        fn worth_from(&self, _: MacAlg) -> usize {
            self.from
        }

        fn aead_worth_from(&self, _: AeadAlg) -> usize {
            self.from
        }
    }

    fn marker(mark: u8, from: usize) -> Marker {
        Marker { mark, from, answer: None }
    }

    fn macs(key: &dyn MacKey, jobs: usize) -> u8 {
        let job = |_| MacJob { nonce: [0; 12], data: &[], tag: Tag::zeroed(12), outcome: Outcome::Pending };
        let mut jobs: Vec<_> = (0..jobs).map(job).collect();
        key.sign(&mut jobs);
        jobs[0].tag.as_slice()[0]
    }

    fn aeads(jobs: usize, run: impl Fn(&mut [AeadJob<'_>])) -> u8 {
        let job =
            |_| AeadJob { nonce: [0; 12], aad: &[], text: &mut [], tag: &mut [], outcome: Outcome::Pending };
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
            outcome: Outcome::Pending,
        };
        let mut jobs: Vec<_> = (0..jobs).map(job).collect();
        run(&mut jobs);
        jobs[0].tag.as_slice()[0]
    }

    #[test]
    fn a_run_goes_to_the_first_that_it_is_worth_for() {
        let list: [&dyn Provider; 3] = [&marker(1, 8), &marker(2, 3), &marker(3, 1)];
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
    fn who_has_no_one_behind_it_serves_every_run() {
        let lacks = Marker { mark: 2, from: 1, answer: Some(KeyError::Unsupported) };
        let refuses = Marker { mark: 2, from: 1, answer: Some(KeyError::Refused) };
        assert_eq!(macs(&*Providers(&[&marker(1, 8)]).mac(MAC, &[0; 20]).unwrap(), 1), 1);
        assert_eq!(macs(&*Providers(&[&marker(1, 8), &lacks]).mac(MAC, &[0; 20]).unwrap(), 1), 1);
        assert_eq!(macs(&*Providers(&[&lacks, &marker(1, 8)]).mac(MAC, &[0; 20]).unwrap(), 1), 1);
        let refused = Providers(&[&marker(1, 8), &refuses]).mac(MAC, &[0; 20]);
        assert_eq!(refused.err(), Some(KeyError::Refused));
    }
}
