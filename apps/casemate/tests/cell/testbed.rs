//! A running cell with its servers, peers, traffic and oracle.

use crate::charon::Charon;
use crate::clock_steps::Clocks;
use crate::disk::Space;
use crate::etcd::Servers;
use crate::failover::{IS_ALONE, TAKEOVER};
use crate::gateways::{self, Addresses, Gateways, Sharing, end_of, ike_spis, spis_in_use};
use crate::net::{BEHIND_CHARON, BEHIND_PEER, CellNet, INNER, NODES, OUTSIDE_PORTS, many};
use crate::testnet::{Running, eventually};
use crate::traffic::{self, Delivery, Flow};
use crate::wire::Wire;
use std::collections::BTreeSet;
use std::fs;
use std::time::{Duration, Instant};

/// Time between two datagrams of one direction of a tunnel.
const INTERVAL: Duration = Duration::from_millis(2);

/// Number of tunnels that are set up at a time.
const GROUP: u16 = 1_000;

/// The cell and what surrounds it.
pub(crate) struct Testbed<'n> {
    pub(crate) net: &'n CellNet,
    pub(crate) servers: Option<Servers<'n>>,
    pub(crate) gateways: Gateways<'n>,
    pub(crate) wire: Wire,
    peer: Running,
    charon: Option<Charon<'n>>,
    tunnels: u16,
}

impl<'n> Testbed<'n> {
    /// Starts servers, three gateways and two peers, and waits until the tunnels are up. Reports the skipped
    /// test and returns `None` if a program is not installed. strongSwan is a peer where it is installed.
    pub(crate) fn cell(net: &'n CellNet) -> Option<Self> {
        Self::cell_with(net, Addresses::OnLink, 0)
    }

    /// Like [`cell`](Self::cell), with this number of further tunnels of the peer.
    pub(crate) fn cell_with_tunnels(net: &'n CellNet, tunnels: u16) -> Option<Self> {
        Self::cell_with(net, Addresses::OnLink, tunnels)
    }

    /// Like [`cell`](Self::cell), with addresses that get to the owner in this way.
    pub(crate) fn cell_with_addresses(net: &'n CellNet, addresses: Addresses) -> Option<Self> {
        Self::cell_with(net, addresses, 0)
    }

    /// Like [`cell`](Self::cell), with this space for the data of each server.
    pub(crate) fn cell_with_space(net: &'n CellNet, space: Space) -> Option<Self> {
        let servers = Servers::start_with(net, space)?;
        Some(Self::cell_on(net, servers, Gateways::new(net, Sharing::Cell(Addresses::OnLink), 0), 0))
    }

    /// Like [`cell_with_tunnels`](Self::cell_with_tunnels), with gateways whose clocks can be set.
    pub(crate) fn cell_with_clocks(net: &'n CellNet, tunnels: u16) -> Option<Self> {
        let clocks = Clocks::build(net)?;
        let servers = Servers::start(net)?;
        let gateways = Gateways::new(net, Sharing::Cell(Addresses::OnLink), tunnels).with_clocks(clocks);
        Some(Self::cell_on(net, servers, gateways, tunnels))
    }

    fn cell_with(net: &'n CellNet, addresses: Addresses, tunnels: u16) -> Option<Self> {
        let servers = Servers::start(net)?;
        Some(Self::cell_on(net, servers, Gateways::new(net, Sharing::Cell(addresses), tunnels), tunnels))
    }

    fn cell_on(net: &'n CellNet, servers: Servers<'n>, mut gateways: Gateways<'n>, tunnels: u16) -> Self {
        gateways.start_all();
        gateways.wait_for_owner(None);
        Self::start(net, Some(servers), gateways, tunnels)
    }

    /// Like [`cell_with_tunnels`](Self::cell_with_tunnels), with gateways that forward packets. Those of the
    /// peers arrive at a gateway that stands by, the one behind the owner.
    pub(crate) fn steered(net: &'n CellNet, tunnels: u16) -> Option<Self> {
        let servers = Servers::start(net)?;
        net.assign_to_all();
        let mut gateways = Gateways::new(net, Sharing::Cell(Addresses::AllGateways), tunnels);
        gateways.start_all();
        let owner = gateways.wait_for_owner(None);
        net.steer(owner, (owner + 1) % NODES);
        for index in (0..NODES).filter(|index| *index != owner) {
            gateways.wait_until_standby(index);
        }
        Some(Self::start(net, Some(servers), gateways, tunnels))
    }

    /// Starts one gateway that shares nothing, with this number of further tunnels.
    pub(crate) fn single(net: &'n CellNet, tunnels: u16) -> Self {
        Self::first_gateway(net, Sharing::Nothing, tunnels)
    }

    /// Starts the first one of the gateways that use the store file of the network one after the other.
    pub(crate) fn with_file(net: &'n CellNet) -> Self {
        Self::first_gateway(net, Sharing::File, 0)
    }

    fn first_gateway(net: &'n CellNet, sharing: Sharing, tunnels: u16) -> Self {
        net.assign_virtual_addresses(0);
        let mut gateways = Gateways::new(net, sharing, tunnels);
        gateways.start(0);
        Self::start(net, None, gateways, tunnels)
    }

    fn start(net: &'n CellNet, servers: Option<Servers<'n>>, gateways: Gateways<'n>, tunnels: u16) -> Self {
        let wire = Wire::start(&net.outside, &OUTSIDE_PORTS);
        let mut count = tunnels.min(GROUP);
        let peer = net.peer.run_config(&gateways::peer_configuration(count), None);
        let charon = Charon::start(&net.charon, &gateways::charon_configuration());
        let testbed = Self { net, servers, gateways, wire, peer, charon, tunnels };
        testbed.wait_for_tunnels(count);
        while count < tunnels {
            count = tunnels.min(count + GROUP);
            fs::write(net.peer.file("conf"), gateways::peer_configuration(count)).unwrap();
            let output = net.peer.casemate(&["reload"]);
            assert!(output.status.success(), "{output:?}");
            testbed.wait_for_tunnels(count);
        }
        testbed
    }

    /// Number of IKE SAs of the peer that have Child SAs.
    fn tunnels_up(&self) -> usize {
        spis_in_use(&self.net.peer.status()).len()
    }

    fn wait_for_tunnels(&self, count: u16) {
        let expected = usize::from(count) + 1;
        let limit = Duration::from_secs(20) + Duration::from_millis(100) * u32::from(GROUP);
        let start = Instant::now();
        while self.tunnels_up() < expected {
            let up = self.tunnels_up();
            assert!(start.elapsed() < limit, "{up} of {expected} tunnels:\n{}", self.logs());
            std::thread::sleep(Duration::from_millis(100));
        }
        if let Some(charon) = &self.charon {
            let is_up = || charon.swanctl.output(&["--list-sas"]).contains("INSTALLED");
            eventually("charon has a Child SA", is_up);
        }
    }

    /// Kills the owner.
    pub(crate) fn kill_owner(&mut self, owner: usize) {
        self.gateways.kill(owner);
    }

    /// Ends the owner with SIGUSR1.
    pub(crate) fn drain_owner(&mut self, owner: usize) {
        self.gateways.drain(owner);
    }

    /// Stops the process of the owner until another gateway owns the cell, and lets it continue.
    pub(crate) fn suspend_owner(&mut self, owner: usize) {
        self.gateways.signal(owner, "STOP");
        self.gateways.wait_for_owner(Some(owner));
        self.gateways.signal(owner, "CONT");
    }

    /// Both directions of the tunnels of both peers.
    pub(crate) fn flows(&self) -> Vec<Flow<'n>> {
        let net = self.net;
        let flow = |name, from, source, to, destination| Flow {
            name,
            from,
            sources: vec![source],
            to,
            destinations: vec![destination],
            interval: INTERVAL,
        };
        let mut flows = vec![
            flow("peer to cell", &net.peer, BEHIND_PEER, &net.inner, INNER),
            flow("cell to peer", &net.inner, INNER, &net.peer, BEHIND_PEER),
        ];
        if self.charon.is_some() {
            flows.push(flow("charon to cell", &net.charon, BEHIND_CHARON, &net.inner, INNER));
            flows.push(flow("cell to charon", &net.inner, INNER, &net.charon, BEHIND_CHARON));
        }
        flows
    }

    /// Both directions of the many tunnels, with this number of datagrams a second in each direction.
    pub(crate) fn many_flows(&self, rate: u32) -> Vec<Flow<'n>> {
        let net = self.net;
        let hosts: Vec<_> = (0..self.tunnels).map(|n| many(n).1).collect();
        let interval = Duration::from_secs(1) / rate;
        let [inner, outer] = [(&net.inner, vec![INNER]), (&net.peer, hosts)];
        let flow = |name, (from, sources), (to, destinations)| Flow {
            name,
            from,
            sources,
            to,
            destinations,
            interval,
        };
        vec![
            flow("many tunnels to cell", outer.clone(), inner.clone()),
            flow("cell to many tunnels", inner, outer),
        ]
    }

    /// SPIs of the IKE SAs as the peers have them.
    pub(crate) fn identities(&self) -> BTreeSet<String> {
        let mut spis: BTreeSet<String> = ike_spis(&self.net.peer.status()).into_iter().collect();
        if let Some(charon) = &self.charon {
            let text = charon.swanctl.output(&["--list-sas"]);
            // A line for each IKE SA ends with `IKEv2, SPI_i SPI_r*`.
            let of_sa = text.lines().filter(|line| line.contains("IKEv2, "));
            spis.extend(
                of_sa.filter_map(|line| line.rsplit_once("IKEv2, ")).map(|(_, spis)| spis.to_owned()),
            );
        }
        spis
    }

    /// Runs `work` while datagrams flow through the tunnels of both peers. Fails the test if a peer has
    /// another IKE SA afterwards or if a host has tried to set one up.
    pub(crate) fn during<T>(&mut self, work: impl FnOnce(&mut Self) -> T) -> (T, Vec<Delivery>) {
        let flows = self.flows();
        self.during_flows(&flows, work)
    }

    /// Like [`during`](Self::during), with these flows.
    pub(crate) fn during_flows<T>(
        &mut self,
        flows: &[Flow<'n>],
        work: impl FnOnce(&mut Self) -> T,
    ) -> (T, Vec<Delivery>) {
        let before = (self.identities(), self.wire.look(|oracle| oracle.initial_requests()));
        let result = traffic::during(flows, || work(self));
        let after = (self.identities(), self.wire.look(|oracle| oracle.initial_requests()));
        assert_eq!(
            after,
            before,
            "IKE SAs of the peers, and number of IKE_SA_INIT requests: {}",
            self.logs()
        );
        result
    }

    /// Like [`during_flows`](Self::during_flows), while IKE SAs may be rekeyed: the number of those with
    /// Child SAs does not change. If the owner ends with the response to a Delete, the peer sends that for
    /// two more minutes.
    pub(crate) fn during_rekeyings<T>(
        &mut self,
        flows: &[Flow<'n>],
        work: impl FnOnce(&mut Self) -> T,
    ) -> (T, Vec<Delivery>) {
        let before = (self.tunnels_up(), self.wire.look(|oracle| oracle.initial_requests()));
        let result = traffic::during(flows, || work(self));
        self.wait_for_tunnels(self.tunnels);
        eventually("each tunnel has one IKE SA", || self.tunnels_up() == before.0);
        let requests = self.wire.look(|oracle| oracle.initial_requests());
        assert_eq!(requests, before.1, "IKE_SA_INIT requests: {}", self.logs());
        result
    }

    /// What all programs have logged.
    pub(crate) fn logs(&self) -> String {
        let charon = self.charon.as_ref().map(|charon| end_of(&charon.log())).unwrap_or_default();
        let servers = self.servers.as_ref().map(Servers::logs).unwrap_or_default();
        let (gateways, peer) = (self.gateways.logs(), end_of(&self.peer.log()));
        format!("{gateways}--- peer:\n{peer}--- charon:\n{charon}--- servers:\n{servers}")
    }

    /// Fails the test if a datagram arrived twice.
    pub(crate) fn check_once(&self, deliveries: &[Delivery]) {
        deliveries.iter().for_each(|delivery| delivery.check_once(|| self.logs()));
    }

    /// Fails the test if a datagram arrived twice, or if a tunnel had a gap above `limit`.
    pub(crate) fn check(&self, deliveries: &[Delivery], limit: Duration) {
        self.check_once(deliveries);
        deliveries.iter().for_each(|delivery| delivery.check_gap(limit, || self.logs()));
    }

    /// Fails the test if a datagram was lost or arrived twice.
    pub(crate) fn check_nothing_lost(&self, deliveries: &[Delivery]) {
        self.check(deliveries, Duration::from_secs(1));
        for delivery in deliveries {
            assert_eq!(delivery.lost(), 0, "{delivery}\n{}", self.logs());
        }
    }

    /// Fails the test if a datagram was lost or arrived twice. Beside other tests, an owner that waits for a
    /// processor may lose its addresses for a moment; then a gap as after a takeover is allowed.
    pub(crate) fn check_uninterrupted(&self, deliveries: &[Delivery]) {
        if IS_ALONE {
            self.check_nothing_lost(deliveries);
        } else {
            self.check(deliveries, TAKEOVER);
        }
    }

    /// Ends the capture, and fails the test if the oracle has found anything.
    pub(crate) fn finish(self) {
        println!(
            "  {} ESP SAs, {} copies of ESP packets over {} hosts at most, {} IKE messages, {} IKE_SA_INIT requests",
            self.wire.look(|oracle| oracle.esp_sas()),
            self.wire.look(|oracle| oracle.esp_copies()),
            self.wire.look(|oracle| oracle.most_hops()),
            self.wire.look(|oracle| oracle.ike_encrypted()),
            self.wire.look(|oracle| oracle.initial_requests()),
        );
        self.wire.finish();
    }
}
