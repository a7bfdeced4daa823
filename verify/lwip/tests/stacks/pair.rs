//! Both ends, set up as a case says.

use crate::peer::{Peer, Seen};
use crate::specs::Case;
use casemate_lwip_tests::program::{self, Build};
use casemate_lwip_tests::{Host, Place, Setup};
use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// Tables for long datagrams in either place, and memory enough for them.
const CONFIG: &str = "tables sas 8 policies 32 flows 16 arrivals 16 reassemblies 2 reassembly-bytes 25000\n";
const MEMORY: usize = 1_000_000;

pub(crate) struct Pair {
    pub(crate) lwip: Host,
    pub(crate) peer: Peer,
    pub(crate) seen: Seen,
    /// The addresses between which packets travel: the peer's, then lwIP's.
    pub(crate) inner: (IpAddr, IpAddr),
}

impl Pair {
    fn new(program: &Path, place: Place, case: &Case) -> Self {
        let (mut lwip, wire) = Host::start(program, Setup { memory: MEMORY, place, config: CONFIG }).unwrap();
        for order in case.orders() {
            lwip.order(&order).unwrap_or_else(|error| panic!("{order}: {error}"));
        }
        let ends = case.spec.ends;
        let ((own, other), (inner_own, inner_other)) = (ends.outer, ends.inner);
        // The way into the tunnel leads to the same neighbour as the way around it. Where the versions differ, it is as if the
        // other end's inner address were on the link.
        let is_mixed = own.is_ipv4() != inner_own.is_ipv4();
        let len = |addr: IpAddr| match (is_mixed, addr) {
            (true, _) => 8,
            (false, IpAddr::V4(_)) => 24,
            (false, IpAddr::V6(_)) => 64,
        };
        let mut addrs = vec![(inner_own, len(inner_own)), (own, len(own))];
        addrs.dedup();
        let gate = if is_mixed { inner_other } else { other };
        let (peer, seen) = Peer::new(wire, case.datapath(), &addrs, gate);
        Self { lwip, peer, seen, inner: ends.inner }
    }

    /// Lets both work until `done` says so.
    pub(crate) fn run(&mut self, what: &str, mut done: impl FnMut(&mut Peer) -> bool) {
        let start = Instant::now();
        loop {
            let was_busy = self.peer.poll();
            if done(&mut self.peer) {
                return;
            }
            if start.elapsed() > PATIENCE {
                panic!("{what}: not done; {}", self.drops());
            }
            if !was_busy {
                std::thread::sleep(Duration::from_micros(200));
            }
        }
    }

    /// Gives lwIP a job that takes the peer's help, and waits until it is done.
    pub(crate) fn job(&mut self, order: &str, mut help: impl FnMut(&mut Peer)) {
        self.lwip.begin(order);
        let start = Instant::now();
        loop {
            let was_busy = self.peer.poll();
            help(&mut self.peer);
            let patience = Duration::from_micros(if was_busy { 0 } else { 200 });
            match self.lwip.next_answer(patience) {
                Some(Ok(_)) => return,
                Some(Err(error)) => panic!("{order}: {error}; {}", self.drops()),
                None => assert!(start.elapsed() < PATIENCE, "{order}: not done; {:?}", self.peer.drops()),
            }
        }
    }

    fn drops(&mut self) -> String {
        format!("lwIP's drops: {}, the peer's: {:?}", self.lwip_drops(), self.peer.drops())
    }

    /// lwIP's counters of drops: `dropped: name count, ...`.
    pub(crate) fn lwip_drops(&mut self) -> String {
        self.lwip.order("drops").unwrap()
    }
}

/// Runs a test with each of these programs that can be built here.
pub(crate) fn with_builds(builds: &[Build], test: impl Fn(&Path)) {
    for build in builds {
        match program::build(*build) {
            Ok(program) => test(&program),
            Err(why) => casemate_left_out::note(format!("lwIP {}: {why}", build.version)),
        }
    }
}

/// Runs a test with the program of every version of lwIP.
pub(crate) fn with_programs(test: impl Fn(&Path)) {
    with_builds(&program::VERSIONS.map(Build::checked), test);
}

/// Runs a test with every version of lwIP and with Casemate in either place, for each case.
pub(crate) fn with_each(cases: Vec<Case>, test: impl Fn(&Case, &mut Pair)) {
    with_each_of(&program::VERSIONS.map(Build::checked), cases, test);
}

/// Runs a test with these programs and with Casemate in either place, for each case.
pub(crate) fn with_each_of(builds: &[Build], cases: Vec<Case>, test: impl Fn(&Case, &mut Pair)) {
    with_builds(builds, |program| {
        for (case, place) in cases.iter().flat_map(|case| [(case, Place::Inside), (case, Place::Below)]) {
            println!("{}, {place:?}, {}", case.name(), program.display());
            let mut pair = Pair::new(program, place, case);
            test(case, &mut pair);
            pair.lwip.end();
        }
    });
}
