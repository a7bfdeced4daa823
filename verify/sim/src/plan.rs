//! Plan of a run, drawn from the seed: topology, addresses, SA configuration, network conditions, and
//! disruptions.

use crate::post_quantum::PostQuantum;
use casemate_ike::config::{Childless, CloseAction, Unique};
use casemate_test_support::TestRng;
use std::time::Duration;

/// Plan of a run.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// Which nodes connect to each other.
    pub(crate) topology: Topology,
    /// Whether only the second of two sites initiates at first.
    pub(crate) single_initiator: bool,
    /// Conditions of the network.
    pub(crate) conditions: NetworkConditions,
    /// Addresses and SA configuration.
    pub(crate) setup: Setup,
    /// Rates of disruptions.
    pub(crate) disruptions: Disruptions,
    /// Duration of the disruptions.
    pub(crate) disrupted_for: Duration,
}

/// Which nodes connect to each other. The first node is the gateway, or one of two sites.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Topology {
    /// Two sites. Either may initiate.
    Sites,
    /// One gateway and this number of clients. The clients initiate.
    Clients(usize),
}

/// Delays and faults of datagrams.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NetworkConditions {
    /// Lost datagrams, per mille.
    pub(crate) loss: u32,
    /// Duplicated datagrams, per mille.
    pub(crate) duplicate: u32,
    /// Corrupted datagrams, per mille.
    pub(crate) corrupt: u32,
    /// Shortest delay.
    pub(crate) min_delay: Duration,
    /// Longest delay. Datagrams may be reordered within it.
    pub(crate) max_delay: Duration,
    /// Upper bound of the additional delay of INFORMATIONAL messages.
    pub(crate) informational_delay: Duration,
    /// UDP datagrams in longer IP packets are dropped.
    pub(crate) max_ip_len: Option<usize>,
    /// After this number of retransmissions of a request, IKE messages are not lost for a while. Otherwise,
    /// each lifetime ends sooner or later during an exchange of many fragments that is lost every time.
    pub(crate) max_losses: Option<u32>,
}

/// Rates of disruptions, per thousand seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Disruptions {
    /// Commands that rekey, close or initiate an SA.
    pub(crate) commands: u32,
    /// Restricts the commands to those that rekey.
    pub(crate) only_rekeys: bool,
    /// Restarts of a node, which loses its state.
    pub(crate) restarts: u32,
    /// Forward jumps of a node's clock.
    pub(crate) clock_jumps: u32,
    /// Configuration reloads.
    pub(crate) reloads: u32,
    /// Losses of all NAT mappings.
    pub(crate) nat_rebinds: u32,
    /// Outages of one node.
    pub(crate) outages: u32,
    /// Attacks.
    pub(crate) attacks: u32,
}

impl Plan {
    /// Draws a plan.
    pub(crate) fn draw(rng: &mut TestRng) -> Self {
        let topology = if rng.coin() { Topology::Sites } else { Topology::Clients(1 + rng.below(3)) };
        // One run in four has a lossless network. One in sixteen has a lossless network and an attacker.
        let lossless = rng.below(4) == 0;
        let mut setup = Setup::draw(rng, topology, lossless);
        let max_ip_len = rng.coin().then_some(setup.fragment_bytes.max(MIN_PATH_LIMIT));
        let conditions = if lossless { NetworkConditions::PERFECT } else { NetworkConditions::draw(rng) };
        let disruptions = match (lossless, rng.below(4)) {
            (true, 0) => Disruptions::UNDER_ATTACK,
            (true, _) => Disruptions::ONLY_REKEYS,
            (false, _) => Disruptions::draw(rng),
        };
        if disruptions == Disruptions::UNDER_ATTACK {
            // Without cookies, a flood fills the table of half-open SAs.
            setup.cookie_threshold = setup.cookie_threshold.min(HALF_OPEN / 2);
        }
        let disrupted_for = Duration::from_secs(60 + rng.below(240) as u64);
        let conditions = NetworkConditions { max_ip_len, ..conditions };
        Self { topology, single_initiator: false, conditions, setup, disruptions, disrupted_for }
    }

    /// Number of nodes.
    pub(crate) fn nodes(&self) -> usize {
        match self.topology {
            Topology::Sites => 2,
            Topology::Clients(clients) => 1 + clients,
        }
    }

    /// Whether the node has keys that no other node trusts.
    pub(crate) fn is_untrusted(&self, node: usize) -> bool {
        self.setup.untrusted && node + 1 == self.nodes()
    }

    /// Whether every packet has to arrive.
    pub(crate) fn is_lossless(&self) -> bool {
        self.conditions.loss == 0 && self.disruptions.only_rekeys
    }
}

/// Largest number of half-open IKE SAs of a node.
pub(crate) const HALF_OPEN: usize = 32;
/// Smallest limit of the path. IKE_SA_INIT requests are never fragmented, so they have to fit.
const MIN_PATH_LIMIT: usize = 576;

impl NetworkConditions {
    /// No loss and no reordering.
    pub(crate) const PERFECT: Self = Self {
        loss: 0,
        duplicate: 0,
        corrupt: 0,
        min_delay: Duration::from_millis(20),
        max_delay: Duration::from_millis(20),
        informational_delay: Duration::ZERO,
        max_ip_len: None,
        max_losses: None,
    };

    /// Same delays, without loss, duplication and corruption.
    pub(crate) const fn without_faults(self) -> Self {
        Self { loss: 0, duplicate: 0, corrupt: 0, informational_delay: Duration::ZERO, ..self }
    }

    fn draw(rng: &mut TestRng) -> Self {
        let mut rate = |most: usize| if rng.coin() { rng.below(most) as u32 } else { 0 };
        let (loss, duplicate, corrupt) = (rate(300), rate(200), rate(100));
        let min_delay = Duration::from_millis(1 + rng.below(50) as u64);
        let max_delay = min_delay + Duration::from_millis(rng.pick(&[0, 20, 200, 3_000]));
        Self { loss, duplicate, corrupt, min_delay, max_delay, ..Self::PERFECT }
    }
}

impl Disruptions {
    /// Only disruptions that must not interrupt traffic.
    pub(crate) const ONLY_REKEYS: Self = Self {
        commands: 200,
        only_rekeys: true,
        restarts: 0,
        clock_jumps: 0,
        reloads: 0,
        nat_rebinds: 0,
        outages: 0,
        attacks: 0,
    };

    /// [`ONLY_REKEYS`](Self::ONLY_REKEYS) with an attacker who can do everything except drop packets.
    pub(crate) const UNDER_ATTACK: Self = Self { attacks: 3_000, ..Self::ONLY_REKEYS };

    fn draw(rng: &mut TestRng) -> Self {
        let mut rate = |most: usize| if rng.coin() { rng.below(most) as u32 } else { 0 };
        Self {
            commands: rate(300),
            only_rekeys: false,
            restarts: rate(20),
            clock_jumps: rate(20),
            reloads: rate(30),
            nat_rebinds: rate(60),
            outages: rate(20),
            attacks: rate(3_000),
        }
    }
}

/// Parameters of the nodes' configurations.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Setup {
    /// Rekey time of Child SAs.
    pub(crate) child_life: Duration,
    /// Rekey time of IKE SAs.
    pub(crate) ike_life: Duration,
    /// Reauthentication time.
    pub(crate) reauth: Option<Duration>,
    /// Which nodes reauthenticate.
    pub(crate) reauth_by: PerNode<bool>,
    /// Packets after which a Child SA is rekeyed.
    pub(crate) rekey_packets: Option<u64>,
    /// Whether Child SAs have a key exchange of their own.
    pub(crate) pfs: bool,
    /// The second side accepts only the second key exchange method of the first side, so that every guess
    /// is wrong.
    pub(crate) wrong_kex_guess: bool,
    /// Protocol and algorithms of Child SAs.
    pub(crate) protection: Protection,
    /// Whether Child SAs use extended sequence numbers.
    pub(crate) esn: bool,
    /// Whether tunnels with ESP compress headers.
    pub(crate) rohc: bool,
    /// IPv6 between the nodes.
    pub(crate) outer_v6: bool,
    /// IPv6 between the protected hosts.
    pub(crate) inner_v6: bool,
    /// Child SAs of each connection.
    pub(crate) children: usize,
    /// Traffic of the Child SAs.
    pub(crate) layout: Layout,
    /// One side proposes wider traffic selectors than the other side accepts.
    pub(crate) narrowed: bool,
    /// Shunts pass the traffic of some hosts in clear and drop the traffic of others.
    pub(crate) shunts: bool,
    /// Largest IP packet of an IKE message. Longer messages are fragmented.
    pub(crate) fragment_bytes: usize,
    /// Nodes authenticate with certificates.
    pub(crate) certificates: bool,
    /// Childless IKE SAs.
    pub(crate) childless: PerNode<Childless>,
    /// Uniqueness policy for IKE SAs with the same peer.
    pub(crate) unique: Unique,
    /// Source of the clients' inner addresses.
    pub(crate) virtual_addrs: VirtualAddrs,
    /// Clients are behind NATs.
    pub(crate) nat: bool,
    /// Packets trigger Child SAs.
    pub(crate) traps: bool,
    /// Number of half-open IKE SAs from which on a node requests cookies.
    pub(crate) cookie_threshold: usize,
    /// The first two nodes have SAs with manual keys, if the rest of the setup permits it.
    pub(crate) manual: bool,
    /// The last node has keys that no other node trusts.
    pub(crate) untrusted: bool,
    /// Close action of Child SAs. `None`: the initiator sets the Child SA up again.
    pub(crate) on_close: Option<CloseAction>,
    /// Nodes run liveness checks.
    pub(crate) liveness: bool,
    /// Retransmissions of a request.
    pub(crate) tries: u32,
    /// Largest number of IKE SAs of a node.
    pub(crate) max_ike_sas: usize,
    /// Largest number of IKE SAs of a node with the same pair of identities.
    pub(crate) max_ike_sas_per_peer: usize,
    /// Largest number of half-open IKE SAs of a node.
    pub(crate) max_half_open: usize,
    /// Additional key exchanges and post-quantum pre-shared keys.
    pub(crate) post_quantum: PostQuantum,
    /// Nodes request, grant and accept tickets (RFC 5723).
    pub(crate) tickets: bool,
}

/// More IKE SAs than a run needs.
pub(crate) const MAX_IKE_SAS: usize = 64;

/// Setting that the first node may have and the other nodes may lack, or the other way round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PerNode<T> {
    pub(crate) first: T,
    pub(crate) others: T,
}

impl<T: Copy> PerNode<T> {
    /// Setting of a node.
    pub(crate) const fn of(self, node: usize) -> T {
        if node == 0 { self.first } else { self.others }
    }
}

/// Protocol and algorithms of Child SAs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protection {
    /// ESP with AES-GCM.
    Combined,
    /// ESP with AES-CBC and HMAC.
    Separate,
    /// AH with HMAC.
    Ah,
}

/// Traffic of the Child SAs of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layout {
    /// Networks behind the nodes, one for each Child SA, in tunnel mode.
    Networks,
    /// As `Networks`, but the networks of the first Child SA contain those of the others.
    Nested,
    /// UDP ports of the nodes themselves, one for each Child SA, in transport mode.
    Ports,
}

/// Source of the clients' inner addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum VirtualAddrs {
    /// Clients have networks of their own.
    No,
    /// The gateway assigns them from a large pool.
    Plenty,
    /// The gateway assigns them from a pool of one address.
    One,
}

impl Setup {
    /// Reauthentication time of a node.
    pub(crate) fn reauth_of(&self, node: usize) -> Option<Duration> {
        self.reauth.filter(|_| self.reauth_by.of(node))
    }

    /// Draws a setup. With a `lossless` network it draws no option that interrupts traffic.
    pub(crate) fn draw(rng: &mut TestRng, topology: Topology, lossless: bool) -> Self {
        let clients = topology != Topology::Sites;
        let virtual_addrs = match rng.below(4) {
            0 | 1 if clients && !lossless => rng.pick(&[VirtualAddrs::Plenty, VirtualAddrs::One]),
            0 if clients => VirtualAddrs::Plenty,
            _ => VirtualAddrs::No,
        };
        let plain = virtual_addrs == VirtualAddrs::No;
        let nat = clients && rng.below(5) < 2;
        let layout = match rng.below(6) {
            // An endpoint does not repair checksums behind a NAT (RFC 3948 section 3.1.2).
            0 if plain && !nat => Layout::Ports,
            1 | 2 if plain => Layout::Nested,
            _ => Layout::Networks,
        };
        let outer_v6 = rng.below(3) == 0;
        let inner_v6 = if layout == Layout::Ports { outer_v6 } else { rng.below(3) == 0 };
        // AH does not pass NATs.
        let protections: &[_] =
            if nat { &[Protection::Separate] } else { &[Protection::Separate, Protection::Ah] };
        Self {
            child_life: Duration::from_secs(15 + rng.below(60) as u64),
            ike_life: Duration::from_secs(25 + rng.below(120) as u64),
            reauth: (!lossless && rng.below(5) == 0).then(|| Duration::from_secs(30 + rng.below(90) as u64)),
            reauth_by: PerNode { first: false, others: true },
            rekey_packets: rng.coin().then(|| 20 + rng.below(50) as u64),
            pfs: rng.coin(),
            wrong_kex_guess: rng.below(5) == 0,
            protection: if rng.below(3) == 0 { rng.pick(protections) } else { Protection::Combined },
            esn: rng.coin(),
            outer_v6,
            inner_v6,
            children: if plain { 1 + rng.below(3) } else { 1 },
            layout,
            // A narrowed nested network may overlap another one.
            narrowed: layout != Layout::Nested && rng.below(3) == 0,
            shunts: plain && layout != Layout::Ports && rng.below(4) == 0,
            fragment_bytes: rng.pick(&[1_280, 576, 256]),
            certificates: rng.below(6) == 0,
            childless: draw_childless(rng),
            unique: rng.pick(&[Unique::No, Unique::No, Unique::Never, Unique::Keep, Unique::Replace]),
            virtual_addrs,
            nat,
            traps: plain && rng.coin(),
            cookie_threshold: rng.pick(&[0, 2, 64]),
            manual: rng.below(4) == 0,
            untrusted: clients && rng.below(8) == 0,
            on_close: None,
            liveness: true,
            tries: 4,
            max_ike_sas: MAX_IKE_SAS,
            max_ike_sas_per_peer: MAX_IKE_SAS,
            max_half_open: HALF_OPEN,
            rohc: rng.below(3) == 0,
            post_quantum: PostQuantum::draw(rng),
            tickets: rng.below(3) == 0,
        }
    }
}

/// Draws a pair of settings with which either side can initiate.
fn draw_childless(rng: &mut TestRng) -> PerNode<Childless> {
    use Childless::{Allow, Force, Never, Prefer};
    let (first, others) = rng.pick(&[
        (Allow, Allow),
        (Allow, Allow),
        (Never, Never),
        (Never, Allow),
        (Prefer, Allow),
        (Force, Force),
    ]);
    PerNode { first, others }
}
