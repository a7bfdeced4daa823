//! Both ends, set up for a test case.

use crate::cases::Case;
use crate::peer::{Peer, Seen};
use casemate_lwip_tests::program::{self, Build};
use casemate_lwip_tests::{Host, Placement, Setup};
use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, Instant};

/// Maximum time of any operation.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Tables for long datagrams in either placement, and enough memory for them.
const CONFIG: &str = "tables sas 8 policies 32 flows 16 arrivals 16 reassemblies 2 reassembly-bytes 25000\n";
const MEMORY: usize = 1_000_000;

pub(crate) struct Pair {
    pub(crate) lwip: Host,
    pub(crate) peer: Peer,
    pub(crate) seen: Seen,
    /// The addresses of the packets inside: the peer's, then lwIP's.
    pub(crate) inner: (IpAddr, IpAddr),
}

impl Pair {
    fn new(program: &Path, placement: Placement, case: &Case) -> Self {
        let (mut lwip, wire) =
            Host::start(program, Setup { memory: MEMORY, placement, config: CONFIG }).unwrap();
        for command in case.commands() {
            lwip.command(&command).unwrap_or_else(|error| panic!("{command}: {error}"));
        }
        let ends = case.spec.ends;
        let ((own, other), (inner_own, inner_other)) = (ends.outer, ends.inner);
        // The route into the tunnel and the route around it use the same neighbour. If the IP versions
        // differ, the inner address of the peer is treated as a neighbour.
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

    /// Runs both ends until `done` returns true.
    pub(crate) fn run(&mut self, what: &str, mut done: impl FnMut(&mut Peer) -> bool) {
        let start = Instant::now();
        loop {
            let was_busy = self.peer.poll();
            if done(&mut self.peer) {
                return;
            }
            if start.elapsed() > TIMEOUT {
                panic!("{what}: not done; {}", self.drops());
            }
            if !was_busy {
                std::thread::sleep(Duration::from_micros(200));
            }
        }
    }

    /// Starts a command of lwIP that needs the peer, and runs the peer until the command is finished.
    pub(crate) fn job(&mut self, command: &str, mut help: impl FnMut(&mut Peer)) {
        self.lwip.begin(command);
        let start = Instant::now();
        loop {
            let was_busy = self.peer.poll();
            help(&mut self.peer);
            let timeout = Duration::from_micros(if was_busy { 0 } else { 200 });
            match self.lwip.next_response(timeout) {
                Some(Ok(_)) => return,
                Some(Err(error)) => panic!("{command}: {error}; {}", self.drops()),
                None => assert!(start.elapsed() < TIMEOUT, "{command}: not done; {:?}", self.peer.drops()),
            }
        }
    }

    fn drops(&mut self) -> String {
        format!("lwIP's drops: {}, the peer's: {:?}", self.lwip_drops(), self.peer.drops())
    }

    /// Returns lwIP's drop counters: `dropped: name count, ...`.
    pub(crate) fn lwip_drops(&mut self) -> String {
        self.lwip.command("drops").unwrap()
    }
}

/// Runs a test with each of these builds that is possible on this machine.
pub(crate) fn with_builds(builds: &[Build], test: impl Fn(&Path)) {
    for build in builds {
        match program::build(*build) {
            Ok(program) => test(&program),
            Err(error) => casemate_test_support::skip(format!("lwIP {}: {error}", build.version)),
        }
    }
}

/// Runs a test with every version of lwIP.
pub(crate) fn with_programs(test: impl Fn(&Path)) {
    with_builds(&program::VERSIONS.map(Build::checked), test);
}

/// Runs a test with every version of lwIP and both placements of Casemate, for each case.
pub(crate) fn with_each(cases: Vec<Case>, test: impl Fn(&Case, &mut Pair)) {
    with_each_of(&program::VERSIONS.map(Build::checked), cases, test);
}

/// Runs a test with these builds and both placements of Casemate, for each case.
pub(crate) fn with_each_of(builds: &[Build], cases: Vec<Case>, test: impl Fn(&Case, &mut Pair)) {
    with_builds(builds, |program| {
        for (case, placement) in
            cases.iter().flat_map(|case| [(case, Placement::Inside), (case, Placement::Below)])
        {
            println!("{}, {placement:?}, {}", case.name(), program.display());
            let mut pair = Pair::new(program, placement, case);
            test(case, &mut pair);
            pair.lwip.end();
        }
    });
}
