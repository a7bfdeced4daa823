//! Plan of a run, drawn from the seed: topology, configuration, network conditions, and disruptions.

use crate::setup::Setup;
use casemate_test_support::TestRng;
use std::time::Duration;

/// Plan of a run.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// Which nodes connect to each other.
    pub(crate) topology: Topology,
    /// Of two sites, only the second initiates at first.
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
