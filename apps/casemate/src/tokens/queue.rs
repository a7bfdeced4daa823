//! The signatures that tokens are asked for, in order. A gateway for EAP signs before its clients have proved
//! anything, so no host may fill the queue, and nothing is signed for IKE SAs that have ended.

use casemate_crypto::{PublicKey, SignatureAlg};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// Signatures that one source address may wait for: several clients behind one NAT at once. A card that takes
/// a second for each is done with them before the first retransmissions end.
const MAX_OF_SOURCE: usize = 4;
/// Signatures that all wait for, at most: those of 16 addresses.
const MAX_WAITING: usize = 64;

/// What is signed, how, and with which key.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) message: Vec<u8>,
    pub(super) alg: SignatureAlg,
    pub(super) key: PublicKey,
}

/// The peer for which a signature is needed.
#[derive(Clone, Copy)]
pub(super) struct Claimant<I> {
    pub(super) ike: I,
    pub(super) remote: IpAddr,
}

/// Answer to a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Signed(Vec<u8>),
    /// It is being made, or there is no room for it yet.
    Pending,
    /// There will be none. Without a reason, the reason was reported before.
    Failed(Option<&'static str>),
}

/// An order that the token is asked for now.
pub(super) struct Job<I, K> {
    pub(super) ike: I,
    pub(super) number: u64,
    pub(super) wanted: Wanted,
    pub(super) key: K,
}

struct Order<K> {
    number: u64,
    source: IpAddr,
    module: PathBuf,
    wanted: Wanted,
    key: K,
    stage: Stage,
}

enum Stage {
    Waiting,
    Signing,
    /// `None` after a failure.
    Done(Option<Vec<u8>>),
}

/// One order for each IKE SA at most, which `I` identifies. `K` has the means to sign.
pub(super) struct SignatureQueue<I, K> {
    orders: BTreeMap<I, Order<K>>,
    /// IKE SAs that wait for room, oldest first, with their source.
    held_back: VecDeque<(I, IpAddr)>,
    /// Modules that sign.
    busy: BTreeSet<PathBuf>,
    last: u64,
}

impl<I, K> Default for SignatureQueue<I, K> {
    fn default() -> Self {
        Self { orders: BTreeMap::new(), held_back: VecDeque::new(), busy: BTreeSet::new(), last: 0 }
    }
}

impl<I: Copy + Ord, K: Clone> SignatureQueue<I, K> {
    /// The signature for an IKE SA. Orders it if that has not happened and there is room. Another order of
    /// the same IKE SA is dropped.
    pub(super) fn ask(
        &mut self,
        claimant: Claimant<I>,
        (module, key): (&Path, &K),
        wanted: &Wanted,
        is_last: bool,
    ) -> Answer {
        let Claimant { ike, remote } = claimant;
        match self.orders.get(&ike).filter(|order| order.wanted == *wanted).map(|order| &order.stage) {
            Some(Stage::Done(result)) => {
                let answer = result.clone().map_or(Answer::Failed(None), Answer::Signed);
                self.orders.remove(&ike);
                return answer;
            }
            Some(Stage::Waiting | Stage::Signing) if !is_last => return Answer::Pending,
            Some(Stage::Waiting | Stage::Signing) => {
                self.orders.remove(&ike);
                return Answer::Failed(Some("it has made no signature in time"));
            }
            None => {}
        }
        self.orders.remove(&ike);
        let was_held_back = self.held_back.iter().any(|(of, _)| *of == ike);
        if is_last {
            self.held_back.retain(|(of, _)| *of != ike);
            return Answer::Failed(was_held_back.then_some("too many signatures wait for the module"));
        }
        let source = source(remote);
        if !self.has_room(source) {
            if !was_held_back {
                self.held_back.push_back((ike, source));
            }
            return Answer::Pending;
        }
        self.held_back.retain(|(of, _)| *of != ike);
        self.last += 1;
        let (module, wanted, key) = (module.to_owned(), wanted.clone(), key.clone());
        let order = Order { number: self.last, source, module, wanted, key, stage: Stage::Waiting };
        self.orders.insert(ike, order);
        Answer::Pending
    }

    fn has_room(&self, source: IpAddr) -> bool {
        let of_source = self.orders.values().filter(|order| order.source == source).count();
        self.orders.len() < MAX_WAITING && of_source < MAX_OF_SOURCE
    }

    /// The oldest order of a module that does not sign. The module signs then, until
    /// [`finish`](Self::finish) is called.
    pub(super) fn start_next(&mut self) -> Option<Job<I, K>> {
        let Self { orders, busy, .. } = self;
        let waiting = orders
            .iter_mut()
            .filter(|(_, order)| matches!(order.stage, Stage::Waiting) && !busy.contains(&order.module));
        let (ike, order) = waiting.min_by_key(|(_, order)| order.number)?;
        order.stage = Stage::Signing;
        busy.insert(order.module.clone());
        let (number, wanted, key) = (order.number, order.wanted.clone(), order.key.clone());
        Some(Job { ike: *ike, number, wanted, key })
    }

    /// Notes that a module has done an order. Returns whether the IKE SA still waits for it.
    pub(super) fn finish(&mut self, ike: I, number: u64, module: &Path, result: Option<Vec<u8>>) -> bool {
        self.busy.remove(module);
        let order = self.orders.get_mut(&ike).filter(|order| order.number == number);
        order.map(|order| order.stage = Stage::Done(result)).is_some()
    }

    /// Drops what an IKE SA waits for. Returns whether that makes room.
    pub(super) fn cancel(&mut self, ike: I) -> bool {
        self.held_back.retain(|(of, _)| *of != ike);
        self.orders.remove(&ike).is_some()
    }

    /// Drops a result that the IKE SA has not taken.
    pub(super) fn drop_done(&mut self, ike: I) {
        if self.orders.get(&ike).is_some_and(|order| matches!(order.stage, Stage::Done(_))) {
            self.orders.remove(&ike);
        }
    }

    /// The IKE SA that was held back for the longest time and for which there is room now. It is not held
    /// back any more, and has to ask again.
    pub(super) fn next_held_back(&mut self) -> Option<I> {
        let at = self.held_back.iter().position(|(_, source)| self.has_room(*source))?;
        self.held_back.remove(at).map(|(ike, _)| ike)
    }
}

/// The host at an address. A host with IPv6 has all addresses of a subnet.
fn source(remote: IpAddr) -> IpAddr {
    match remote {
        IpAddr::V6(addr) => std::net::Ipv6Addr::from_bits(addr.to_bits() & !u128::from(u64::MAX)).into(),
        IpAddr::V4(_) => remote,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use casemate_crypto::{HashAlg, KeyLimits};

    fn key(number: u8) -> PublicKey {
        let prefix = [0x30, 0x2a, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 3, 0x21, 0];
        PublicKey::from_spki(&[&prefix[..], &[number; 32]].concat(), KeyLimits::default()).unwrap()
    }

    fn wanted(message: u8) -> Wanted {
        Wanted { message: vec![message], alg: SignatureAlg::Ed25519, key: key(1) }
    }

    fn ask(queue: &mut SignatureQueue<u64, ()>, ike: u64, remote: &str, wanted: &Wanted) -> Answer {
        let claimant = Claimant { ike, remote: remote.parse().unwrap() };
        queue.ask(claimant, (Path::new("m"), &()), wanted, false)
    }

    /// Lets the module do its next order. Returns the IKE SA.
    fn work(queue: &mut SignatureQueue<u64, ()>) -> Option<u64> {
        let job = queue.start_next()?;
        queue.finish(job.ike, job.number, Path::new("m"), Some(b"signature".to_vec()));
        Some(job.ike)
    }

    #[test]
    fn one_host_cannot_fill_the_queue() {
        for (attacker, other) in [("192.0.2.1", "192.0.2.2"), ("2001:db8::", "2001:db8:0:1::1")] {
            let mut queue = SignatureQueue::default();
            for ike in 0..100 {
                let remote = if ike % 2 == 1 && attacker.contains(':') { "2001:db8::9" } else { attacker };
                assert_eq!(ask(&mut queue, ike, remote, &wanted(1)), Answer::Pending);
            }
            assert_eq!(ask(&mut queue, 200, other, &wanted(1)), Answer::Pending);
            let done: Vec<u64> = std::iter::from_fn(|| work(&mut queue)).collect();
            assert_eq!(done, [0, 1, 2, 3, 200]);
        }
    }

    #[test]
    fn what_is_held_back_goes_on_when_there_is_room() {
        let mut queue = SignatureQueue::default();
        (0..6).for_each(|ike| drop(ask(&mut queue, ike, "192.0.2.1", &wanted(1))));
        assert_eq!(queue.next_held_back(), None);
        assert_eq!(work(&mut queue), Some(0));
        assert_eq!(ask(&mut queue, 0, "192.0.2.1", &wanted(1)), Answer::Signed(b"signature".to_vec()));
        assert_eq!(queue.next_held_back(), Some(4));
        assert_eq!(ask(&mut queue, 4, "192.0.2.1", &wanted(1)), Answer::Pending);
        assert_eq!(queue.next_held_back(), None);
        // The time of the last one is over.
        let last = Claimant { ike: 5, remote: [192, 0, 2, 1].into() };
        let answer = queue.ask(last, (Path::new("m"), &()), &wanted(1), true);
        assert_eq!(answer, Answer::Failed(Some("too many signatures wait for the module")));
        assert!(queue.held_back.is_empty());
    }

    #[test]
    fn all_hosts_together_have_a_limit() {
        let mut queue = SignatureQueue::default();
        (0..100).for_each(|ike| drop(ask(&mut queue, ike, &format!("192.0.2.{ike}"), &wanted(1))));
        assert_eq!((queue.orders.len(), queue.held_back.len()), (64, 36));
    }

    #[test]
    fn a_token_is_not_asked_for_an_ike_sa_that_has_ended() {
        let mut queue = SignatureQueue::default();
        (0..5).for_each(|ike| drop(ask(&mut queue, ike, "192.0.2.1", &wanted(1))));
        assert!(queue.cancel(0) && queue.cancel(2) && !queue.cancel(4));
        // Superseded by another message of the same IKE SA.
        ask(&mut queue, 1, "192.0.2.1", &wanted(2));
        let job = queue.start_next().unwrap();
        assert_eq!(job.ike, 3);
        assert!(queue.start_next().is_none(), "a module signs one message after the other");
        queue.cancel(3);
        assert!(!queue.finish(job.ike, job.number, Path::new("m"), None));
        let job = queue.start_next().unwrap();
        assert_eq!((job.ike, job.wanted.message), (1, vec![2]));
        assert!(queue.held_back.is_empty());
    }

    #[test]
    fn a_signature_is_for_one_message_algorithm_and_key() {
        let others = [
            wanted(2),
            Wanted { alg: SignatureAlg::Ecdsa(HashAlg::Sha256), ..wanted(1) },
            Wanted { key: key(2), ..wanted(1) },
        ];
        for other in others {
            let mut queue = SignatureQueue::default();
            ask(&mut queue, 1, "192.0.2.1", &wanted(1));
            let job = queue.start_next().unwrap();
            assert_eq!(ask(&mut queue, 2, "192.0.2.1", &wanted(1)), Answer::Pending, "another IKE SA");
            assert_eq!(ask(&mut queue, 1, "192.0.2.1", &other), Answer::Pending);
            assert!(!queue.finish(job.ike, job.number, Path::new("m"), Some(b"old".to_vec())));
            assert_eq!(ask(&mut queue, 1, "192.0.2.1", &other), Answer::Pending);
            assert_eq!((work(&mut queue), work(&mut queue)), (Some(2), Some(1)));
            assert_eq!(ask(&mut queue, 1, "192.0.2.1", &wanted(1)), Answer::Pending);
        }
    }
}
