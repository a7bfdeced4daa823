//! Two endpoints in one process that negotiate with IKE and exchange packets, and their certificates.

#[cfg(feature = "selftest")]
use crate::traffic;
use crate::traffic::{LEFT, RIGHT};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use casemate::{Context, Datapath, Endpoint, Routes};
use casemate_crypto::{
    AeadAlg, AesBits, KexMethod, KeyLimits, PrfAlg, PrivateKey, Providers, PublicKey, Rng, SecretBytes,
    SignatureAlg,
};
use casemate_datapath::Config;
use casemate_ike::config::{
    AdditionalKexes, AddrPattern, ChildAlgorithms, ChildConfig, ChildMode, ChildProposal, Connection,
    EsnPolicy, EspCombined, IdPattern, Identity, IkeEncryption, IkeProposal, LocalAuth, LocalMethod,
    RemoteAuth, RemoteMethod,
};
use casemate_ike::{
    AuthorityHash, ChildId, Credentials, IkeSaId, IkeSettings, IkeState, IkeStatus, NotTrusted, OwnKey, Path,
    PeerCertificates, Transmit,
};
use casemate_pki::{LocalCert, PeerName, StoreLimits, TrustStore, VerifyOptions, pem};
use casemate_sa::{AddrRange, Instant, Limits};
use core::net::IpAddr;

/// A deterministic random number generator (SplitMix64), in place of the hardware generator of a device. The
/// generator of verify/support is not part of the images whose size is measured.
pub(crate) struct SeededRng(pub(crate) u64);

impl Rng for SeededRng {
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

/// Authentication method of a peer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum AuthMethod {
    SharedKey,
    Certificate,
}

/// One of the two peers.
pub(crate) struct Peer<'p> {
    pub(crate) endpoint: Endpoint,
    addr: IpAddr,
    credentials: &'p dyn Credentials,
    rng: SeededRng,
}

impl<'p> Peer<'p> {
    fn new(addr: IpAddr, credentials: &'p dyn Credentials, seed: u64) -> Self {
        let datapath = Datapath::new(Config { limits: Limits::DEVICE, ..Config::server(seed) });
        Self {
            endpoint: Endpoint::new(datapath, IkeSettings::DEVICE),
            addr,
            credentials,
            rng: SeededRng(seed),
        }
    }
}

/// An established IKE SA with its Child SAs.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct EstablishedSa {
    pub(crate) ike: IkeSaId,
    pub(crate) children: Vec<ChildId>,
}

/// Both peers.
pub(crate) struct PeerPair<'p> {
    pub(crate) left: Peer<'p>,
    pub(crate) right: Peer<'p>,
    providers: &'p Providers<'p>,
}

const NOW: Instant = Instant::from_secs(1_000);
/// 1 January 2027, when the test certificates are valid.
const UNIX_TIME: u64 = 1_798_761_600;

fn with_endpoint<T>(
    peer: &mut Peer<'_>,
    providers: &Providers<'_>,
    operation: impl FnOnce(&mut Endpoint, &mut Context<'_>) -> T,
) -> T {
    let mut context = Context {
        now: NOW,
        unix_time: UNIX_TIME,
        rng: &mut peer.rng,
        providers,
        credentials: peer.credentials,
        routes: &NoRoutes,
    };
    let done = operation(&mut peer.endpoint, &mut context);
    // A device would log the notices.
    while peer.endpoint.next_notice().is_some() {}
    done
}

impl<'p> PeerPair<'p> {
    /// Creates both peers without connections.
    pub(crate) fn new(
        left: &'p dyn Credentials,
        right: &'p dyn Credentials,
        providers: &'p Providers<'p>,
    ) -> Self {
        let (left, right) = (Peer::new(LEFT, left, 1), Peer::new(RIGHT, right, 2));
        Self { left, right, providers }
    }

    /// Configures `count` connections on each side, each of which `change` changes. They are between the same
    /// addresses and differ in their names.
    pub(crate) fn configure(
        &mut self,
        count: u8,
        auth: AuthMethod,
        change: impl Fn(&mut Connection),
    ) -> Option<()> {
        let providers = self.providers;
        for (peer, own, other) in [(&mut self.left, "moon", "sun"), (&mut self.right, "sun", "moon")] {
            let far = if peer.addr == LEFT { RIGHT } else { LEFT };
            let (own, other) =
                (NamedAddr { name: own, addr: peer.addr }, NamedAddr { name: other, addr: far });
            let connection = |number| {
                let mut connection = connection(number, own, other, auth);
                change(&mut connection);
                Arc::new(connection)
            };
            let connections: Vec<_> = (0..count).map(connection).collect();
            let configured = with_endpoint(peer, providers, |endpoint, context| {
                endpoint.configure(connections, &[], context)
            });
            configured.ok()?;
        }
        Some(())
    }

    /// Initiates the IKE SA of a connection, with or without its Child SA, and delivers messages until
    /// the negotiation is finished.
    pub(crate) fn initiate(&mut self, number: usize, with_child: bool) -> Option<()> {
        let connection = self.left.endpoint.ike().connections().get(number)?.clone();
        let child = connection.children.first().filter(|_| with_child);
        let started = with_endpoint(&mut self.left, self.providers, |endpoint, context| {
            endpoint.initiate(&connection, child, context)
        });
        started.ok()?;
        self.exchange_messages()
    }

    /// Rekeys an IKE SA of the left peer.
    #[cfg(feature = "selftest")]
    pub(crate) fn rekey(&mut self, ike: IkeSaId) -> Option<()> {
        let started =
            with_endpoint(&mut self.left, self.providers, |endpoint, context| endpoint.rekey(ike, context));
        started.then_some(())?;
        self.exchange_messages()
    }

    /// Rekeys a Child SA of the left peer.
    #[cfg(feature = "selftest")]
    pub(crate) fn rekey_child(&mut self, child: ChildId) -> Option<()> {
        let started = with_endpoint(&mut self.left, self.providers, |endpoint, context| {
            endpoint.rekey_child(child, context)
        });
        started.then_some(())?;
        self.exchange_messages()
    }

    /// Returns the established IKE SAs of each peer.
    pub(crate) fn established(&self) -> [Vec<EstablishedSa>; 2] {
        [&self.left, &self.right].map(|peer| {
            let sas = peer.endpoint.ike().status().filter(|ike| ike.state == IkeState::Established);
            let children = |ike: &IkeStatus| ike.children.iter().map(|child| child.id).collect();
            sas.map(|ike| EstablishedSa { ike: ike.id, children: children(&ike) }).collect()
        })
    }

    /// Sends a packet in each direction over the SAs.
    #[cfg(feature = "selftest")]
    pub(crate) fn exchange_packets(&mut self) -> Option<()> {
        let (left, right) = (self.left.endpoint.datapath_mut(), self.right.endpoint.datapath_mut());
        traffic::round_trip(left, right, traffic::Path::TO_RIGHT, NOW)?;
        traffic::round_trip(right, left, traffic::Path::TO_LEFT, NOW)
    }

    /// Delivers messages until none is left. Returns `None` if that takes too long.
    fn exchange_messages(&mut self) -> Option<()> {
        const MAX_ROUNDS: usize = 100;
        for _ in 0..MAX_ROUNDS {
            let is_idle = !deliver_messages(&mut self.left, &mut self.right, self.providers)
                & !deliver_messages(&mut self.right, &mut self.left, self.providers);
            if is_idle {
                return Some(());
            }
        }
        None
    }
}

fn deliver_messages(from: &mut Peer<'_>, to: &mut Peer<'_>, providers: &Providers<'_>) -> bool {
    let mut is_any_sent = false;
    while let Some(Transmit { path, mut message, .. }) = from.endpoint.next_transmit() {
        is_any_sent = true;
        let path = Path { local: path.remote, remote: path.local };
        with_endpoint(to, providers, |endpoint, context| endpoint.receive_ike(&mut message, path, context));
    }
    is_any_sent
}

/// Name and address of a peer.
#[derive(Clone, Copy)]
pub(crate) struct NamedAddr {
    pub(crate) name: &'static str,
    pub(crate) addr: IpAddr,
}

/// Returns the connection with this number between two peers.
pub(crate) fn connection(number: u8, own: NamedAddr, peer: NamedAddr, auth: AuthMethod) -> Connection {
    let id = |name: &str| match auth {
        AuthMethod::Certificate => Identity::Fqdn([name, ".casemate.test"].concat()),
        AuthMethod::SharedKey => {
            Identity::Fqdn([name, NUMBERS.get(usize::from(number)).unwrap_or(&"")].concat())
        }
    };
    let only = |addr| vec![AddrPattern::Range(AddrRange::single(addr))];
    let (local, remote) = match auth {
        AuthMethod::SharedKey => (LocalMethod::SharedKey, RemoteMethod::SharedKey),
        AuthMethod::Certificate => {
            (LocalMethod::Certificate(Vec::new()), RemoteMethod::Certificate(String::new()))
        }
    };
    let local = LocalAuth { id: Some(id(own.name)), method: local };
    let remote = RemoteAuth { id: IdPattern::Exact(id(peer.name)), method: remote };
    let mut connection = Connection::new(NUMBERS.get(usize::from(number)).unwrap_or(&""), local, remote);
    connection.local_addrs = only(own.addr);
    connection.remote_addrs = only(peer.addr);
    connection.proposals = vec![IkeProposal {
        encryption: IkeEncryption::Combined(vec![GCM]),
        prfs: vec![PrfAlg::HmacSha256],
        kex: vec![KexMethod::X25519],
        additional: AdditionalKexes::new(),
    }];
    connection.children = vec![Arc::new(child())];
    connection
}

const NUMBERS: [&str; 4] = ["0", "1", "2", "3"];
const GCM: AeadAlg = AeadAlg::AesGcm { bits: AesBits::B128, icv: 16 };

fn child() -> ChildConfig {
    let proposal = ChildProposal {
        algorithms: ChildAlgorithms::EspCombined(vec![EspCombined::Aead(GCM)]),
        kex: Vec::new(),
        additional: AdditionalKexes::new(),
        esn: EsnPolicy::Allowed,
    };
    ChildConfig { proposals: vec![proposal], mode: ChildMode::Transport, ..ChildConfig::new("packets") }
}

macro_rules! file {
    ($name:literal) => {
        include_bytes!(concat!("../../../core/pki/tests/data/", $name))
    };
}

/// A certificate and its private key in PEM, from the test data of core/pki.
#[derive(Clone, Copy)]
pub(crate) struct KeyPair {
    certificate: &'static [u8],
    key: &'static [u8],
}

/// An Ed25519 key pair.
pub(crate) const MOON: KeyPair = KeyPair { certificate: file!("moon.pem"), key: file!("moon.key") };
/// A P-384 key pair.
pub(crate) const SUN: KeyPair = KeyPair { certificate: file!("sun.pem"), key: file!("sun.key") };

/// A local certificate, and a trust store with one root.
pub(crate) struct Certificates {
    own: LocalCert,
    store: TrustStore,
}

impl Certificates {
    /// Loads the credentials of one peer.
    pub(crate) fn load(pair: KeyPair, providers: &Providers<'_>) -> Option<Self> {
        let first = |text: &[u8]| pem::certificates(text).ok()?.into_iter().next();
        let key =
            PrivateKey::from_der(pem::private_key(pair.key).ok()?.expose(), KeyLimits::default()).ok()?;
        let key = providers.signing_key(&key).ok()?;
        let chain = [first(pair.certificate)?, first(file!("sub.pem"))?];
        let chain: Vec<&[u8]> = chain.iter().map(Vec::as_slice).collect();
        let own = LocalCert::new(&chain, key, KeyLimits::default()).ok()?;
        let mut store = TrustStore::new(StoreLimits::default());
        store.add_root(&first(file!("root.pem"))?).ok()?;
        Some(Self { own, store })
    }
}

impl Credentials for Certificates {
    fn shared_key(&self, _: &Connection, _: &Identity, _: &Identity) -> Option<&SecretBytes> {
        None
    }

    fn own_key(&self, _: &Connection, _: &[AuthorityHash]) -> Option<OwnKey<'_>> {
        Some(OwnKey { key: self.own.key(), chain: self.own.chain().collect(), subject: None })
    }

    fn authorities(&self, _: &Connection) -> Vec<AuthorityHash> {
        // The hash is not used, because each peer has only one certificate.
        Vec::from([[0; 20]])
    }

    fn verify_peer(
        &self,
        _: &Connection,
        shown: &PeerCertificates<'_>,
        providers: &Providers<'_>,
    ) -> Result<PublicKey, NotTrusted> {
        let Identity::Fqdn(name) = shown.id else { return Err(NotTrusted) };
        let verified = self.store.verify(shown.chain, shown.unix_time, &VerifyOptions::default(), providers);
        let verified = verified.map_err(|_| NotTrusted)?;
        if verified.has_name(&PeerName::Dns(name)) {
            Ok(verified.public_key().clone())
        } else {
            Err(NotTrusted)
        }
    }

    fn accepts_signature(&self, _: &Connection, _: &Identity, _: SignatureAlg) -> bool {
        true
    }

    fn signature_algorithms(&self, _: &Connection) -> &[SignatureAlg] {
        &[]
    }

    fn dn_matches(&self, _: &str, _: &[u8]) -> bool {
        false
    }
}
