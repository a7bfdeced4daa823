//! Two endpoints in one memory, that speak IKE and send each other packets.

use crate::packets::{LEFT, RIGHT};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use casemate::{Datapath, Endpoint, Means, Routes};
use casemate_crypto::{AeadAlg, AesBits, KexMethod, PrfAlg, Providers, Rng};
use casemate_datapath::Config;
use casemate_ike::config::{
    AddrPattern, Child, ChildAlgorithms, ChildMode, ChildProposal, Connection, EspCombined, IdPattern,
    Identity, IkeEncryption, IkeProposal, LocalAuth, LocalMethod, RemoteAuth, RemoteMethod, Sequence,
};
use casemate_ike::{ChildId, Credentials, IkeSaId, Path, Settings, Transmit};
use casemate_sa::{AddrRange, Instant, Limits};
use core::net::IpAddr;

/// Repeatable, and never equal twice: SplitMix64. A device has a real source.
pub(crate) struct Dice(pub(crate) u64);

impl Rng for Dice {
    fn public(&mut self, out: &mut [u8]) {
        self.secret(out);
    }

    fn secret(&mut self, out: &mut [u8]) {
        for byte in out {
            self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            *byte = mixed.to_le_bytes()[0];
        }
    }
}

struct NoRoutes;

impl Routes for NoRoutes {
    fn source_for(&self, _: IpAddr) -> Option<IpAddr> {
        None
    }
}

/// How a peer proves who it is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Proof {
    SharedKey,
    Certificate,
}

/// One side.
pub(crate) struct Peer<'p> {
    pub(crate) endpoint: Endpoint,
    addr: IpAddr,
    credentials: &'p dyn Credentials,
    dice: Dice,
}

impl<'p> Peer<'p> {
    fn new(addr: IpAddr, credentials: &'p dyn Credentials, seed: u64) -> Self {
        let datapath = Datapath::new(Config { limits: Limits::DEVICE, ..Config::server(seed) });
        Self { endpoint: Endpoint::new(datapath, Settings::DEVICE), addr, credentials, dice: Dice(seed) }
    }
}

/// Both, with what they are lent.
pub(crate) struct Pair<'p> {
    pub(crate) left: Peer<'p>,
    pub(crate) right: Peer<'p>,
    providers: &'p Providers<'p>,
}

const NOW: Instant = Instant::from_secs(1_000);
/// The first of January 2027, when the certificates of the tests hold.
const UNIX_TIME: u64 = 1_798_761_600;

fn act<T>(
    peer: &mut Peer<'_>,
    providers: &Providers<'_>,
    act: impl FnOnce(&mut Endpoint, &mut Means<'_>) -> T,
) -> T {
    let mut means = Means {
        now: NOW,
        unix_time: UNIX_TIME,
        rng: &mut peer.dice,
        providers,
        credentials: peer.credentials,
        routes: &NoRoutes,
    };
    let done = act(&mut peer.endpoint, &mut means);
    // A device would log them.
    while peer.endpoint.next_notice().is_some() {}
    done
}

impl<'p> Pair<'p> {
    /// Without connections.
    pub(crate) fn new(
        left: &'p dyn Credentials,
        right: &'p dyn Credentials,
        providers: &'p Providers<'p>,
    ) -> Self {
        let (left, right) = (Peer::new(LEFT, left, 1), Peer::new(RIGHT, right, 2));
        Self { left, right, providers }
    }

    /// Gives each side its connections: as many, between the same two, which differ in their names only.
    pub(crate) fn configure(&mut self, count: u8, proof: Proof) -> Option<()> {
        let providers = self.providers;
        for (peer, own, other) in [(&mut self.left, "moon", "sun"), (&mut self.right, "sun", "moon")] {
            let far = if peer.addr == LEFT { RIGHT } else { LEFT };
            let connections: Vec<_> =
                (0..count).map(|n| Arc::new(connection(n, (own, peer.addr), (other, far), proof))).collect();
            let taken = act(peer, providers, |endpoint, means| endpoint.configure(connections, &[], means));
            taken.ok()?;
        }
        Some(())
    }

    /// Begins an IKE SA of the connection with this number, with its child or without, and lets both speak.
    pub(crate) fn initiate(&mut self, number: usize, with_child: bool) -> Option<()> {
        let connection = self.left.endpoint.ike().connections().get(number)?.clone();
        let child = connection.children.first().filter(|_| with_child);
        let begun = act(&mut self.left, self.providers, |endpoint, means| {
            endpoint.initiate(&connection, child, means)
        });
        begun.ok()?;
        self.talk()
    }

    /// The left side replaces an IKE SA.
    #[cfg(feature = "selftest")]
    pub(crate) fn rekey(&mut self, ike: IkeSaId) -> Option<()> {
        let begun = act(&mut self.left, self.providers, |endpoint, means| endpoint.rekey(ike, means));
        begun.then_some(())?;
        self.talk()
    }

    /// The left side replaces a Child SA.
    #[cfg(feature = "selftest")]
    pub(crate) fn rekey_child(&mut self, child: ChildId) -> Option<()> {
        let begun = act(&mut self.left, self.providers, |endpoint, means| endpoint.rekey_child(child, means));
        begun.then_some(())?;
        self.talk()
    }

    /// Established IKE SAs of each side, and their Child SAs.
    pub(crate) fn established(&self) -> [Vec<(IkeSaId, Vec<ChildId>)>; 2] {
        [&self.left, &self.right].map(|peer| {
            let sas = peer.endpoint.ike().status().filter(|ike| ike.state == "established");
            sas.map(|ike| (ike.id, ike.children.iter().map(|child| child.id).collect())).collect()
        })
    }

    /// A packet each way on the SAs that there are.
    #[cfg(feature = "selftest")]
    pub(crate) fn both_deliver(&mut self) -> Option<()> {
        let (left, right) = (self.left.endpoint.datapath_mut(), self.right.endpoint.datapath_mut());
        crate::packets::cross(left, right, (LEFT, RIGHT), NOW)?;
        crate::packets::cross(right, left, (RIGHT, LEFT), NOW)
    }

    /// Carries messages until nobody has more to say. `None` if that does not happen.
    fn talk(&mut self) -> Option<()> {
        const MOST: usize = 100;
        for _ in 0..MOST {
            let quiet = !carry(&mut self.left, &mut self.right, self.providers)
                & !carry(&mut self.right, &mut self.left, self.providers);
            if quiet {
                return Some(());
            }
        }
        None
    }
}

fn carry(from: &mut Peer<'_>, to: &mut Peer<'_>, providers: &Providers<'_>) -> bool {
    let mut any = false;
    while let Some(Transmit { path, mut message, .. }) = from.endpoint.next_transmit() {
        any = true;
        let path = Path { local: path.remote, remote: path.local };
        act(to, providers, |endpoint, means| endpoint.receive_ike(&mut message, path, means));
    }
    any
}

/// The connection with this number between two peers, each with its name.
pub(crate) fn connection(number: u8, own: (&str, IpAddr), peer: (&str, IpAddr), proof: Proof) -> Connection {
    let id = |name: &str| match proof {
        Proof::Certificate => Identity::Fqdn([name, ".casemate.test"].concat()),
        Proof::SharedKey => Identity::Fqdn([name, NUMBERS.get(usize::from(number)).unwrap_or(&"")].concat()),
    };
    let only = |addr| vec![AddrPattern::Range(AddrRange::single(addr))];
    let (local, remote) = match proof {
        Proof::SharedKey => (LocalMethod::SharedKey, RemoteMethod::SharedKey),
        Proof::Certificate => {
            (LocalMethod::Certificate(Vec::new()), RemoteMethod::Certificate(String::new()))
        }
    };
    let local = LocalAuth { id: Some(id(own.0)), method: local };
    let remote = RemoteAuth { id: IdPattern::Exactly(id(peer.0)), method: remote };
    let mut connection = Connection::new(NUMBERS.get(usize::from(number)).unwrap_or(&""), local, remote);
    connection.local_addrs = only(own.1);
    connection.remote_addrs = only(peer.1);
    connection.proposals = vec![IkeProposal {
        encryption: IkeEncryption::Combined(vec![GCM]),
        prfs: vec![PrfAlg::HmacSha256],
        kex: vec![KexMethod::X25519],
    }];
    connection.children = vec![Arc::new(child())];
    connection
}

const NUMBERS: [&str; 4] = ["0", "1", "2", "3"];
const GCM: AeadAlg = AeadAlg::AesGcm { bits: AesBits::B128, icv: 16 };

fn child() -> Child {
    let proposal = ChildProposal {
        algorithms: ChildAlgorithms::EspCombined(vec![EspCombined::Aead(GCM)]),
        kex: Vec::new(),
        sequence: Sequence::PreferPlain,
    };
    Child { proposals: vec![proposal], mode: ChildMode::Transport, ..Child::new("packets") }
}
