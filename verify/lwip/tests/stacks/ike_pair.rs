//! Both ends with IKE.

use crate::pair::{LIMITS, PairAddrs, with_builds};
use crate::peer::{ETHERNET, Seen, SmoltcpPeer};
use casemate::{Authorities, ConnectionKeys, LocalKey, Notice, PeerTrust, bypass_control_plane};
use casemate_crypto::{KexMethod, KeyLimits, PrivateKey, Provider, Providers, SecretBytes, SigningKey};
use casemate_datapath::{Config, Datapath};
use casemate_ike::Event;
use casemate_ike::config::{
    AdditionalKex, AdditionalKexes, AddrPattern, ChildConfig, ChildMode, Connection, Encapsulation,
    IdPattern, Identity, KexRound, LocalAuth, LocalMethod, PpkId, PpkPolicy, RemoteAuth, RemoteMethod,
};
use casemate_lwip_tests::program::{Build, VERSIONS};
use casemate_lwip_tests::{LwipHost, Placement, Setup};
use casemate_pki::{LocalCert, StoreLimits, TrustStore, VerifyOptions, pem};
use casemate_rustcrypto::RUSTCRYPTO;
use casemate_sa::AddrRange;
use casemate_smoltcp::{IkeConfig, IkeSockets};
use casemate_test_support::TempDir;
use casemate_test_support::hosts::{Ends, packets};
use casemate_wire::udp::Udp;
use std::cell::Cell;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

const TIMEOUT: Duration = Duration::from_secs(20);
/// Tables with IKE, and enough memory for them.
const CONFIG: &str = "tables sas 8 policies 32 flows 16 arrivals 2 reassemblies 2 \
                      reassembly-bytes 10000 ike-sas 4 ike-children 2\n";
const MEMORY: usize = 400_000;
/// 1 January 2027, when the certificates are valid.
const NEW_YEAR: u64 = 1_798_761_600;
/// Root directory of the repository.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Authentication method of both sides. lwIP uses the first key of each pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Auth {
    Shared,
    /// Raw keys: Ed25519 and ECDSA with P-256.
    Raw,
    /// Certificates: Ed25519 and ECDSA with P-384.
    Certificates,
}

/// What the peer requires of post-quantum cryptography.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PostQuantum {
    /// ML-KEM-768 after X25519, for the IKE SA and for Child SAs.
    MlKem,
    /// A post-quantum pre-shared key with this PPK_ID.
    Ppk { id: &'static str, key: &'static str },
}

/// Parameters of a test case.
#[derive(Debug, Clone, Copy)]
pub(crate) struct IkeCase {
    pub(crate) version: u8,
    pub(crate) mode: ChildMode,
    pub(crate) auth: Auth,
    pub(crate) encap: bool,
    /// What the peer requires of post-quantum cryptography.
    pub(crate) post_quantum: Option<PostQuantum>,
    /// Additional words for lwIP's connection.
    pub(crate) words: &'static str,
}

impl IkeCase {
    pub(crate) const PLAIN: Self = Self {
        version: 4,
        mode: ChildMode::Tunnel,
        auth: Auth::Shared,
        encap: false,
        post_quantum: None,
        words: "",
    };

    const fn lwip_name(&self) -> &'static str {
        match self.auth {
            Auth::Certificates => "moon.casemate.test",
            Auth::Shared | Auth::Raw => "lwip.casemate.test",
        }
    }

    const fn peer_name(&self) -> &'static str {
        match self.auth {
            Auth::Certificates => "sun.casemate.test",
            Auth::Shared | Auth::Raw => "smoltcp.casemate.test",
        }
    }

    fn addrs(&self) -> PairAddrs {
        let (peer, lwip) = Ends::transport(self.version).outer;
        PairAddrs { peer, lwip }
    }

    /// Returns the command that creates lwIP's connection.
    fn command(&self, directory: &Path) -> String {
        let PairAddrs { lwip, peer } = self.addrs();
        let mode = if self.mode == ChildMode::Tunnel { "tunnel" } else { "transport" };
        let data = |path: &str| format!("{ROOT}/core/{path}");
        let auth = match self.auth {
            Auth::Shared => "psk secret known-to-both-and-long-enough".into(),
            Auth::Raw => {
                let path = directory.join("peer-key");
                std::fs::write(&path, raw_key("p256").public_key().spki()).unwrap();
                format!("raw key {} peer-key {}", data("ike/tests/data/ed25519.der"), path.display())
            }
            Auth::Certificates => {
                let path = directory.join("chain");
                let chain = ["moon", "sub"].map(|name| pki(&format!("{name}.pem"))).concat();
                std::fs::write(&path, chain).unwrap();
                let (key, root) = (data("pki/tests/data/moon.key"), data("pki/tests/data/root.pem"));
                format!("cert key {key} certs {} cas {root}", path.display())
            }
        };
        let encap = if self.encap { "encap" } else { "" };
        format!(
            "ike peer local {lwip} remote {peer} local-id {} remote-id {} {auth} {mode} {encap} {}",
            self.lwip_name(),
            self.peer_name(),
            self.words
        )
    }

    /// Returns the matching connection of the peer.
    fn connection(&self) -> Connection {
        let PairAddrs { lwip, peer } = self.addrs();
        let (local, remote) = match self.auth {
            Auth::Shared => (LocalMethod::SharedKey, RemoteMethod::SharedKey),
            _ => (LocalMethod::Certificate(vec![]), RemoteMethod::Certificate("lwip".into())),
        };
        let id = |name: &str| Identity::Fqdn(name.into());
        let local = LocalAuth { id: Some(id(self.peer_name())), method: local };
        let remote = RemoteAuth { id: IdPattern::Exact(id(self.lwip_name())), method: remote };
        let mut connection = Connection::new("lwip", local, remote);
        let only = |addr| vec![AddrPattern::Range(AddrRange::single(addr))];
        (connection.local_addrs, connection.remote_addrs) = (only(peer), only(lwip));
        connection.encapsulation = if self.encap { Encapsulation::Always } else { Encapsulation::IfNat };
        connection.children = vec![Arc::new(ChildConfig { mode: self.mode, ..ChildConfig::new("all") })];
        match self.post_quantum {
            Some(PostQuantum::MlKem) => require_ml_kem(&mut connection),
            Some(PostQuantum::Ppk { id, .. }) => {
                connection.ppk = PpkPolicy { id: Some(PpkId::new(id.as_bytes())), required: true };
            }
            None => {}
        }
        connection
    }

    /// Returns the keys of the peer.
    fn keys(&self) -> casemate::AuthKeys {
        let secret = SecretBytes::new(b"known-to-both-and-long-enough");
        let (own, peer) = match self.auth {
            Auth::Shared => (None, None),
            Auth::Raw => {
                let peer = raw_key("ed25519").public_key().clone();
                (Some(LocalKey::Raw(raw_key("p256"))), Some(PeerTrust::Raw(peer)))
            }
            Auth::Certificates => {
                let key = pem::private_key(&pki("sun.key")).unwrap();
                let chain = ["sun.pem", "sub.pem"].map(|name| certificate(&pki(name)));
                let chain = [&*chain[0], &*chain[1]];
                let own = LocalCert::new(&chain, signing_key(key.expose()), KeyLimits::default()).unwrap();
                let mut store = TrustStore::new(StoreLimits::default());
                store.add_root(&certificate(&pki("root.pem"))).unwrap();
                let list: [&dyn Provider; 1] = [&RUSTCRYPTO];
                let authorities = Authorities::new(store, VerifyOptions::default(), &Providers(&list));
                (Some(LocalKey::Certificate(own)), Some(PeerTrust::Certificate(authorities)))
            }
        };
        casemate::AuthKeys { shared: Some(secret), own, peer }
    }
}

/// Requires ML-KEM-768 after X25519.
fn require_ml_kem(connection: &mut Connection) {
    let kex = AdditionalKex { methods: vec![KexMethod::MlKem768], optional: false };
    let additional: AdditionalKexes = KexRound::new(1).map(|round| (round, kex)).into_iter().collect();
    for proposal in &mut connection.proposals {
        (proposal.kex, proposal.additional) = (vec![KexMethod::X25519], additional.clone());
    }
    for proposal in &mut Arc::make_mut(&mut connection.children[0]).proposals {
        (proposal.kex, proposal.additional) = (vec![KexMethod::X25519], additional.clone());
    }
}

fn pki(name: &str) -> Vec<u8> {
    std::fs::read(format!("{ROOT}/core/pki/tests/data/{name}")).unwrap()
}

fn certificate(text: &[u8]) -> Vec<u8> {
    pem::certificates(text).unwrap().remove(0)
}

fn signing_key(der: &[u8]) -> Box<dyn SigningKey> {
    RUSTCRYPTO.signing_key(&PrivateKey::from_der(der, KeyLimits::default()).unwrap()).unwrap()
}

fn raw_key(name: &str) -> Box<dyn SigningKey> {
    signing_key(&std::fs::read(format!("{ROOT}/core/ike/tests/data/{name}.der")).unwrap())
}

/// lwIP and the peer with IKE.
pub(crate) struct IkePair {
    pub(crate) lwip: LwipHost,
    pub(crate) peer: SmoltcpPeer,
    ike: IkeSockets,
    pub(crate) seen: Seen,
    pub(crate) notices: Vec<Event>,
    pub(crate) addrs: PairAddrs,
}

impl IkePair {
    pub(crate) fn new(
        program: &Path,
        placement: Placement,
        case: IkeCase,
        memory: usize,
    ) -> Result<Self, String> {
        let (mut lwip, wire) = LwipHost::start(program, Setup { memory, placement, config: CONFIG })?;
        let addrs = case.addrs();
        let scratch = TempDir::new("lwip-ike").unwrap();
        let commands = [
            "control-plane".into(),
            format!("address {}/{}", addrs.lwip, if addrs.lwip.is_ipv4() { 24 } else { 64 }),
            format!("clock {NEW_YEAR}"),
            case.command(scratch.path()),
        ];
        for command in commands {
            lwip.command(&command).map_err(|error| format!("{command}: {error}"))?;
        }
        let mut datapath = Datapath::new(Config { limits: LIMITS, ..Config::server(9) });
        bypass_control_plane(&mut datapath).unwrap();
        let len = if addrs.peer.is_ipv4() { 24 } else { 64 };
        let (mut peer, seen) = SmoltcpPeer::new(wire, datapath, &[(addrs.peer, len)], addrs.lwip);
        let mut keys = ConnectionKeys::new();
        keys.insert("lwip", case.keys());
        if let Some(PostQuantum::Ppk { id, key }) = case.post_quantum {
            keys.insert_ppk("lwip", id.as_bytes(), SecretBytes::new(key.as_bytes())).unwrap();
        }
        let keys = IkeConfig {
            providers: vec![&RUSTCRYPTO],
            credentials: Box::new(keys),
            unix_time_at_origin: NEW_YEAR,
        };
        let ike = IkeSockets::new(&mut peer.device, &mut peer.sockets, keys);
        let now = peer.now();
        ike.with_endpoint(now, &peer.interface, &mut peer.device, |endpoint, context| {
            endpoint.configure(vec![Arc::new(case.connection())], &[], context).unwrap();
        });
        Ok(Self { lwip, peer, ike, seen, notices: vec![], addrs })
    }

    /// Runs the peer. Returns whether it had anything to do.
    pub(crate) fn poll(&mut self) -> bool {
        let was_busy = self.peer.poll();
        let now = self.peer.now();
        let Self { peer: SmoltcpPeer { device, interface, sockets, .. }, ike, notices, .. } = self;
        ike.serve(now, interface, device, sockets, |notice| {
            if let Notice::Ike(event) = notice {
                notices.push(event);
            }
        });
        was_busy
    }

    /// Runs both ends until `done` returns true.
    pub(crate) fn run(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        let start = Instant::now();
        while !done(self) {
            if start.elapsed() > TIMEOUT {
                let (events, faults) = (self.lwip.command("events"), self.lwip.command("faults"));
                panic!("{what}: not done; {:?}; lwIP: {events:?} {faults:?}", self.notices);
            }
            if !self.poll() {
                std::thread::sleep(Duration::from_micros(500));
            }
        }
    }

    /// Returns the number of Child SAs of lwIP.
    pub(crate) fn children(&mut self) -> usize {
        self.lwip.command("children peer/all").unwrap().parse().unwrap()
    }

    /// The peer initiates the connection.
    pub(crate) fn initiate(&mut self) {
        let now = self.peer.now();
        self.ike.with_endpoint(now, &self.peer.interface, &mut self.peer.device, |endpoint, context| {
            let (connection, child) = endpoint.config_by_name("all").unwrap();
            endpoint.initiate(&connection, child.as_ref(), context).unwrap();
        });
    }

    /// The peer rekeys its SAs.
    pub(crate) fn rekey(&mut self) {
        let now = self.peer.now();
        self.ike.with_endpoint(now, &self.peer.interface, &mut self.peer.device, |endpoint, context| {
            let named = endpoint.sas_by_name("all");
            named.children.iter().for_each(|child| assert!(endpoint.rekey_child(*child, context)));
            let named = endpoint.sas_by_name("lwip");
            named.ikes.iter().for_each(|ike| assert!(endpoint.rekey(*ike, context)));
        });
    }

    /// Sends a datagram to lwIP with the source address of the peer.
    pub(crate) fn inject(&mut self, port: u16, data: &[u8]) {
        let PairAddrs { peer: from, lwip: to } = self.addrs;
        let mut packet = packets::udp(from, to, (port, port), data, false);
        if let (IpAddr::V6(from), IpAddr::V6(to)) = (from, to) {
            Udp::parse(&mut packet[40..]).unwrap().fill_checksum_v6(from, to);
        }
        let kind = if from.is_ipv4() { [0x08, 0x00] } else { [0x86, 0xDD] };
        let frame = [&[2, 0, 0, 0, 0, 2][..], &[2, 0, 0, 0, 0, 1], &kind, &packet].concat();
        self.peer.device.device_mut().send(frame);
    }

    /// Returns and removes the recorded IKE messages to lwIP: port and data.
    pub(crate) fn messages(&self) -> Vec<(u16, Vec<u8>)> {
        let headers = if self.addrs.peer.is_ipv4() { 20 } else { 40 };
        let to_lwip = |frame: &Vec<u8>| frame[..6] == [2, 0, 0, 0, 0, 2];
        let frames = self.seen.take().into_iter().filter(to_lwip);
        let datagrams = frames.filter_map(|frame| {
            let datagram = frame.get(ETHERNET + headers..)?.to_vec();
            let port = u16::from_be_bytes([datagram[2], datagram[3]]);
            [500, 4500].contains(&port).then(|| (port, datagram[8..].to_vec()))
        });
        datagrams.collect()
    }
}

/// Runs a test with every version of lwIP for each case, with the placements alternating.
pub(crate) fn with_ike_pairs(cases: &[IkeCase], test: impl Fn(IkeCase, &mut IkePair)) {
    with_ike_pairs_of(&VERSIONS.map(Build::checked), cases, test);
}

/// Runs a test with each of these builds for each case, with the placements alternating.
pub(crate) fn with_ike_pairs_of(builds: &[Build], cases: &[IkeCase], test: impl Fn(IkeCase, &mut IkePair)) {
    let placements = Cell::new([Placement::Inside, Placement::Below]);
    let next_placement = || {
        let [placement, other] = placements.get();
        placements.set([other, placement]);
        placement
    };
    with_builds(builds, |program| {
        for case in cases {
            let mut pair = IkePair::new(program, next_placement(), *case, MEMORY).unwrap();
            test(*case, &mut pair);
            pair.lwip.end();
        }
        // The next program starts with the other placement.
        if cases.len().is_multiple_of(2) {
            next_placement();
        }
    });
}
