//! Test cases (the parameters for both ends, and lwIP's configuration as commands), and both ends set up for
//! a case.

use crate::peer::{Seen, SmoltcpPeer};
use casemate::bypass_control_plane;
use casemate_crypto::{MacAlg, MacKind};
use casemate_datapath::spd::Policy;
use casemate_datapath::{Datapath, Direction};
use casemate_lwip_tests::program::{self, Build};
use casemate_lwip_tests::{LwipHost, Placement, Setup};
use casemate_sa::{Limits, Mode, Protocol, Transform};
use casemate_test_support::hosts::{Ends, LinkSpec, suites};
use casemate_wire::ip::proto;
use std::fmt::Write;
use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, Instant};

/// Maximum time of any operation.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Tables for long datagrams in either placement, and enough memory for them.
const CONFIG: &str = "tables sas 8 policies 32 flows 16 arrivals 16 reassemblies 2 reassembly-bytes 25000\n";
const MEMORY: usize = 1_000_000;

/// Addresses of both hosts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PairAddrs {
    pub(crate) peer: IpAddr,
    pub(crate) lwip: IpAddr,
}

/// lwIP and the peer with manual keys.
pub(crate) struct StaticPair {
    pub(crate) lwip: LwipHost,
    pub(crate) peer: SmoltcpPeer,
    pub(crate) seen: Seen,
    /// Addresses of the packets inside.
    pub(crate) inner: PairAddrs,
}

impl StaticPair {
    fn new(program: &Path, placement: Placement, case: &StaticCase) -> Self {
        let (mut lwip, wire) =
            LwipHost::start(program, Setup { memory: MEMORY, placement, config: CONFIG }).unwrap();
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
        let neighbour = if is_mixed { inner_other } else { other };
        let (peer, seen) = SmoltcpPeer::new(wire, case.datapath(), &addrs, neighbour);
        Self { lwip, peer, seen, inner: PairAddrs { peer: inner_own, lwip: inner_other } }
    }

    /// Runs both ends until `done` returns true.
    pub(crate) fn run(&mut self, what: &str, mut done: impl FnMut(&mut SmoltcpPeer) -> bool) {
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
    pub(crate) fn job(&mut self, command: &str, mut help: impl FnMut(&mut SmoltcpPeer)) {
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
pub(crate) fn with_each(cases: Vec<StaticCase>, test: impl Fn(&StaticCase, &mut StaticPair)) {
    with_each_of(&program::VERSIONS.map(Build::checked), cases, test);
}

/// Runs a test with these builds and both placements of Casemate, for each case.
pub(crate) fn with_each_of(
    builds: &[Build],
    cases: Vec<StaticCase>,
    test: impl Fn(&StaticCase, &mut StaticPair),
) {
    with_builds(builds, |program| {
        for (case, placement) in
            cases.iter().flat_map(|case| [(case, Placement::Inside), (case, Placement::Below)])
        {
            println!("{}, {placement:?}, {}", case.name(), program.display());
            let mut pair = StaticPair::new(program, placement, case);
            test(case, &mut pair);
            pair.lwip.end();
        }
    });
}

/// Limits of a small host, with room for datagrams of all lengths.
pub(crate) const LIMITS: Limits = Limits { reassembly_bytes: 65_535, policies: 32, ..Limits::DEVICE };

/// Priority of policies after those of `bypass_control_plane`.
const SECOND_PRIORITY: u32 = 10;

/// A test case: SAs, policies and the expected protocol on the wire.
pub(crate) struct StaticCase {
    pub(crate) spec: LinkSpec,
    /// Suite in the notation of lwIP's commands.
    suite: &'static str,
    /// IP protocol number on the wire.
    pub(crate) protocol: u8,
    /// Whether the protecting policies come before those of `bypass_control_plane`, which select ports
    /// and therefore cannot match fragments.
    pub(crate) is_first: bool,
}

impl StaticCase {
    fn new(ends: Ends, mode: Mode, suite: &'static str, transform: Transform) -> Self {
        let protocol = transform.protocol().number();
        let mut spec = LinkSpec::single(ends, mode, transform);
        spec.limits = LIMITS;
        Self { spec, suite, protocol, is_first: false }
    }

    pub(crate) fn esp(ends: Ends, mode: Mode) -> Self {
        Self::new(ends, mode, "aes128gcm16", suites::esp(suites::gcm(), 1))
    }

    fn cbc(ends: Ends, mode: Mode) -> Self {
        Self::new(ends, mode, "aes128-sha1", suites::esp(suites::cbc_sha1(), 1))
    }

    pub(crate) fn ah(ends: Ends, mode: Mode) -> Self {
        Self::new(ends, mode, "sha256", suites::ah(MacAlg::standard(MacKind::HmacSha256), 1))
    }

    fn with_encap(mut self) -> Self {
        self.spec.encap = true;
        self.protocol = proto::UDP;
        self
    }

    /// Returns the name of the case for test output.
    pub(crate) fn name(&self) -> String {
        format!("{} {:?} {:?}", self.suite, self.spec.layers[0].0, self.spec.ends)
    }

    /// Returns the data path of the peer, with the policies of `bypass_control_plane`.
    pub(crate) fn datapath(&self) -> Datapath {
        let mut datapath = self.spec.build().a.dp;
        bypass_control_plane(&mut datapath).unwrap();
        if self.is_first {
            return datapath;
        }
        for direction in [Direction::Outbound, Direction::Inbound] {
            let (id, policy) = datapath.policies(direction).next().unwrap();
            let policy = Policy { priority: SECOND_PRIORITY, ..policy.clone() };
            datapath.remove_policy(direction, id).unwrap();
            datapath.add_policy(direction, policy).unwrap();
        }
        datapath
    }

    /// Returns the commands that configure lwIP, the second end.
    pub(crate) fn commands(&self) -> Vec<String> {
        let (outer, inner) = (self.spec.ends.outer.1, self.spec.ends.inner.1);
        let mut commands = Vec::new();
        for (direction, forward) in [("in", true), ("out", false)] {
            commands.push(self.sa(direction, forward));
            commands.push(self.policy(direction, forward));
        }
        commands.push("control-plane".into());
        // The prefix defines the neighbours in IPv4; in IPv6 lwIP always uses 64 bits.
        commands.push(format!("address {outer}/{}", if outer.is_ipv4() { 24 } else { 64 }));
        if inner.is_ipv4() == outer.is_ipv4() {
            if inner != outer {
                commands.push(format!("address {inner}"));
            }
            // Below IP, the route into the tunnel must use the same neighbour as the route around it.
            commands.push(format!("gateway {}", self.spec.ends.outer.0));
        } else {
            // Treat the peer's inner address as a neighbour.
            commands.push(format!("address {inner}/{}", if inner.is_ipv4() { 8 } else { 64 }));
        }
        commands
    }

    fn sa(&self, direction: &str, forward: bool) -> String {
        let sa = self.spec.params(0, forward);
        let (encryption, integrity) = match &sa.transform {
            Transform::Esp { encr, integ, .. } => (hex(encr.expose()), hex(integ.expose())),
            Transform::Ah { integ, .. } => (String::new(), hex(integ.expose())),
        };
        let key =
            |name: &str, key: &str| if key.is_empty() { String::new() } else { format!(" {name} {key}") };
        let port = sa.encap.map_or(String::new(), |encap| format!(" udp {}", encap.dst_port));
        format!(
            "sa {direction} {} {} src {} dst {} spi {} suite {}{}{}{port}{} window {}",
            protocol(sa.transform.protocol()),
            mode(sa.mode),
            sa.src,
            sa.dst,
            sa.spi.get(),
            self.suite,
            key("encryption-key", &encryption),
            key("integrity-key", &integrity),
            if sa.esn { " esn" } else { "" },
            sa.replay_window,
        )
    }

    fn policy(&self, direction: &str, forward: bool) -> String {
        let sa = self.spec.params(0, forward);
        let (a, b) = self.spec.ends.inner;
        let (src, dst) = if forward { (a, b) } else { (b, a) };
        let (protocol, mode) = (protocol(sa.transform.protocol()), mode(sa.mode));
        let priority = if self.is_first { 0 } else { SECOND_PRIORITY };
        format!(
            "policy {direction} src {src} dst {dst} priority {priority} protect {protocol} {mode} \
             from {} to {}",
            sa.src, sa.dst
        )
    }
}

/// Returns the test cases: both protocols, both modes, both IP versions outside and inside.
pub(crate) fn cases() -> Vec<StaticCase> {
    vec![
        StaticCase::esp(Ends::transport(4), Mode::Transport),
        StaticCase::esp(Ends::transport(6), Mode::Transport),
        StaticCase::esp(Ends::tunnel(4, 4), Mode::Tunnel),
        StaticCase::esp(Ends::tunnel(6, 6), Mode::Tunnel),
        StaticCase::cbc(Ends::tunnel(6, 4), Mode::Tunnel),
        StaticCase::cbc(on_one_link(Ends::tunnel(4, 6)), Mode::Tunnel),
        StaticCase::cbc(Ends::transport(4), Mode::Transport),
        StaticCase::ah(Ends::transport(4), Mode::Transport),
        StaticCase::ah(Ends::transport(6), Mode::Transport),
        StaticCase::ah(Ends::tunnel(4, 4), Mode::Tunnel),
        StaticCase::ah(Ends::tunnel(6, 6), Mode::Tunnel),
        StaticCase::esp(Ends::tunnel(4, 4), Mode::Tunnel).with_encap(),
    ]
}

/// Changes the inner addresses to neighbours: lwIP compares the first 64 bits.
fn on_one_link(ends: Ends) -> Ends {
    Ends { inner: ("fd01::1".parse().unwrap(), "fd01::2".parse().unwrap()), ..ends }
}

const fn protocol(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Esp => "esp",
        Protocol::Ah => "ah",
    }
}

const fn mode(mode: Mode) -> &'static str {
    match mode {
        Mode::Transport => "transport",
        Mode::Tunnel => "tunnel",
    }
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::new();
    bytes.iter().for_each(|byte| write!(text, "{byte:02x}").unwrap());
    text
}
