//! The three gateways of a cell, their configuration, and that of their peers.

use crate::clock_steps::Clocks;
use crate::etcd::CLIENT_PORT;
use crate::net::{
    BEHIND_CHARON, BEHIND_PEER, CHARON, CellNet, GATEWAYS, INSIDE_ROUTED, INSIDE_VIRTUAL, NODES,
    OUTSIDE_VIRTUAL, PEER, many, server_address,
};
use crate::scrape::{Page, get_over_tcp};
use crate::testnet::{Running, casemate};
use casemate_test_support::eventually;
use serde_json::Value;
use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

/// Networks behind the peers, and the one behind the cell.
const INSIDE_NETWORK: &str = "10.1.0.0/24";

/// Lease of a cell whose packets the test steers. Beside other tests, an owner must not lose it because it
/// waits for a processor: nothing would lead packets to the next one.
const STEERED_LEASE: &str = if cfg!(debug_assertions) { "8s" } else { "2s" };

/// Bytes of the wrapping key, unless a test changes it.
pub(crate) const FIRST_KEY: u8 = 0x5a;
/// Longest wait for a role of a gateway, and interval of looking at it.
const PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(5);

/// Where each gateway serves its metrics.
const METRICS: &str = "127.0.0.1:9464";

/// One tunnel of the cell and a peer.
struct Tunnel {
    name: String,
    peer: Ipv4Addr,
    network: Ipv4Addr,
}

impl Tunnel {
    /// Connection and secret. `is_cell` says on which side.
    fn configuration(&self, is_cell: bool) -> String {
        let Self { name, peer, network } = self;
        let (cell_network, peer_network) = (INSIDE_NETWORK.to_owned(), format!("{network}/32"));
        let mut ends = [
            (OUTSIDE_VIRTUAL, "cell.test".to_owned(), cell_network),
            (*peer, format!("{name}.test"), peer_network),
        ];
        if !is_cell {
            ends.reverse();
        }
        let [(local, local_id, local_ts), (remote, remote_id, remote_ts)] = ends;
        let action = if is_cell { "none" } else { "start" };
        format!(
            "connections {{ {name} {{\n local_addrs = {local}\n remote_addrs = {remote}\n version = 2\n mobike = no\n \
             proposals = aes128gcm16-prfsha256-x25519\n local {{ auth = psk\n id = {local_id} }}\n \
             remote {{ auth = psk\n id = {remote_id} }}\n children {{ net {{\n local_ts = {local_ts}\n \
             remote_ts = {remote_ts}\n esp_proposals = aes128gcm16\n start_action = {action} }} }} }} }}\n\
             secrets {{ ike-{name} {{ id = {name}.test\n secret = \"the secret of {name}\" }} }}\n"
        )
    }
}

fn peer_tunnel() -> Tunnel {
    Tunnel { name: "peer".into(), peer: PEER, network: BEHIND_PEER }
}

fn charon_tunnel() -> Tunnel {
    Tunnel { name: "charon".into(), peer: CHARON, network: BEHIND_CHARON }
}

fn many_tunnels(count: u16) -> impl Iterator<Item = Tunnel> {
    (0..count).map(|n| Tunnel { name: format!("c{n}"), peer: many(n).0, network: many(n).1 })
}

/// Configuration of the peer, with this number of further tunnels.
pub(crate) fn peer_configuration(tunnels: u16) -> String {
    [peer_tunnel()]
        .into_iter()
        .chain(many_tunnels(tunnels))
        .map(|tunnel| tunnel.configuration(false))
        .collect()
}

/// Configuration of charon.
pub(crate) fn charon_configuration() -> String {
    charon_tunnel().configuration(false)
}

/// How the addresses of a cell get to its owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Addresses {
    /// The owner assigns them on its links.
    OnLink,
    /// The owner assigns them, and routers learn them by BGP.
    Routed,
    /// Another program assigns them.
    OtherProgram,
    /// All gateways have the outside one, and forward packets to the owner.
    AllGateways,
}

impl Addresses {
    /// The sections of a gateway that depend on it.
    fn sections(self, gateway: usize) -> String {
        let (outside, inside) = match self {
            Self::OnLink => (format!("{OUTSIDE_VIRTUAL}/24"), format!("{INSIDE_VIRTUAL}/24")),
            Self::Routed => (format!("{OUTSIDE_VIRTUAL}/32"), format!("{INSIDE_ROUTED}/32")),
            Self::OtherProgram => return String::new(),
            Self::AllGateways => {
                return format!("lease = {STEERED_LEASE}\n forward {{ address = 10.99.0.{} }}", 21 + gateway);
            }
        };
        format!(
            "addresses {{\n outside {{ address = {outside}\n interface = out0 }}\n \
             inside {{ address = {inside}\n interface = in0 }} }}"
        )
    }
}

/// What the gateways share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sharing {
    /// A cell, with the servers of the network.
    Cell(Addresses),
    /// The store file of the network, one gateway after the other. The test assigns the addresses.
    File,
    /// Nothing: one gateway alone, whose addresses the test assigns.
    Nothing,
}

/// Gateways with the same configuration. All end on drop.
pub(crate) struct Gateways<'n> {
    net: &'n CellNet,
    sharing: Sharing,
    tunnels: u16,
    /// Bytes of the first and the second wrapping key of each gateway.
    wrapping_keys: [(u8, Option<u8>); NODES],
    running: [Option<Running>; NODES],
    /// `None` if all have the clock of the machine.
    clocks: Option<Clocks>,
    /// Logs of ended processes.
    former_logs: String,
}

impl<'n> Gateways<'n> {
    /// Gateways that do not run yet, for this number of further tunnels.
    pub(crate) fn new(net: &'n CellNet, sharing: Sharing, tunnels: u16) -> Self {
        let wrapping_keys = [(FIRST_KEY, None); NODES];
        let (running, clocks, former_logs) = ([const { None }; NODES], None, String::new());
        Self { net, sharing, tunnels, wrapping_keys, running, clocks, former_logs }
    }

    /// The same, with clocks that can be set.
    pub(crate) fn with_clocks(self, clocks: Clocks) -> Self {
        Self { clocks: Some(clocks), ..self }
    }

    /// Sets the clock of a gateway this number of seconds ahead of that of the machine.
    pub(crate) fn set_clock(&self, index: usize, ahead: i64) {
        self.clocks.as_ref().unwrap().set(index, ahead);
    }

    /// Gives a gateway other wrapping keys at its next start.
    pub(crate) fn set_keys(&mut self, index: usize, keys: (u8, Option<u8>)) {
        self.wrapping_keys[index] = keys;
    }

    /// Starts a gateway and waits until it is ready.
    pub(crate) fn start(&mut self, index: usize) {
        let host = &self.net.gateways[index];
        let path = host.file("gateway.conf");
        fs::write(&path, self.configuration(index)).unwrap();
        // What a node has seen of its cluster stays on the node, and ends with the network.
        let state = host.file("state");
        if !state.exists() {
            fs::create_dir(&state).unwrap();
            fs::set_permissions(&state, fs::Permissions::from_mode(0o700)).unwrap();
        }
        let mut program = casemate().args(["run", "--metrics", METRICS]).arg("--config").arg(path);
        program = program.env("STATE_DIRECTORY", state);
        if let Some(clocks) = &self.clocks {
            program = clocks.configure(index, program);
        }
        if self.sharing == Sharing::File {
            program = program.arg("--store").arg(self.net.scratch.file("store"));
        }
        self.running[index] = Some(host.start(program));
    }

    /// Starts all gateways.
    pub(crate) fn start_all(&mut self) {
        (0..NODES).for_each(|index| self.start(index));
    }

    fn configuration(&self, index: usize) -> String {
        let tunnels = [peer_tunnel(), charon_tunnel()].into_iter().chain(many_tunnels(self.tunnels));
        let connections: String = tunnels.map(|tunnel| tunnel.configuration(true)).collect();
        match self.sharing {
            Sharing::File | Sharing::Nothing => connections,
            Sharing::Cell(addresses) => format!("{connections}{}", self.cell_section(index, addresses)),
        }
    }

    fn cell_section(&self, index: usize, addresses: Addresses) -> String {
        let key_file = |key: u8| {
            let path = self.net.scratch.file(&format!("wrapping-key-{key}"));
            if !path.exists() {
                fs::write(&path, [key; 32]).unwrap();
                fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            }
            path.display().to_string()
        };
        let (first, second) = self.wrapping_keys[index];
        let second = second.map_or(String::new(), |key| format!("second_wrapping_key = {}\n", key_file(key)));
        let servers: Vec<String> =
            (0..NODES).map(|index| format!("{}:{CLIENT_PORT}", server_address(index))).collect();
        format!(
            "cell {{\n name = test\n node = {}\n wrapping_key = {}\n {second} etcd {{ servers = {} }}\n \
             {} }}\n",
            GATEWAYS[index],
            key_file(first),
            servers.join(", "),
            addresses.sections(index),
        )
    }

    /// Whether the process of a gateway runs, as far as the test has not ended it.
    pub(crate) fn is_running(&mut self, index: usize) -> bool {
        self.running[index].as_mut().is_some_and(|running| !running.has_ended())
    }

    fn take(&mut self, index: usize) -> Running {
        let running = self.running[index].take().unwrap();
        self.former_logs += &format!("--- {}, ended:\n{}", GATEWAYS[index], end_of(&running.log()));
        running
    }

    /// Kills a gateway, as a crash does. Its addresses stay on its interfaces, as far as the system keeps
    /// them.
    pub(crate) fn kill(&mut self, index: usize) {
        self.take(index).crash();
    }

    /// Ends a gateway with SIGUSR1, as before a restart.
    pub(crate) fn drain(&mut self, index: usize) {
        assert!(self.take(index).end_for_restart().success(), "{}", self.logs());
    }

    /// Ends a gateway with SIGTERM.
    pub(crate) fn stop(&mut self, index: usize) {
        assert!(self.take(index).stop().success(), "{}", self.logs());
    }

    /// Runs `casemate cell COMMAND` on a gateway, which must succeed.
    pub(crate) fn cell(&self, index: usize, command: &str) -> String {
        let output = self.net.gateways[index].casemate(&["cell", command]);
        assert!(output.status.success(), "{command}: {output:?}\n{}", self.logs());
        String::from_utf8(output.stdout).unwrap()
    }

    /// Starts a gateway whose process must end by itself, as the service manager does.
    pub(crate) fn start_again(&mut self, index: usize) {
        eventually("the process ends", || (!self.is_running(index)).then_some(()));
        self.take(index);
        self.start(index);
    }

    /// Sends a signal to a gateway.
    pub(crate) fn signal(&self, index: usize, signal: &str) {
        let pid = self.running[index].as_ref().unwrap().pid().to_string();
        assert!(Command::new("kill").args([&format!("-{signal}"), &pid]).status().unwrap().success());
    }

    /// Role of a gateway in its cell, as `casemate cell status` shows it. `None` if it does not run.
    pub(crate) fn role(&self, index: usize) -> Option<String> {
        let output = self.net.gateways[index].casemate(&["cell", "status", "--json"]);
        let cell: Value = serde_json::from_slice(&output.stdout).ok()?;
        Some(cell["role"].as_str()?.to_owned())
    }

    /// Whether the metric of a gateway reports that the store does not write.
    pub(crate) fn is_store_failing(&self, index: usize) -> bool {
        let host = &self.net.gateways[index];
        let page = host.run(|| Ok::<_, std::io::Error>(get_over_tcp(METRICS, "text/plain"))).unwrap();
        Page::parse(&page).get("casemate_store_failing") == Some(1)
    }

    /// Waits until exactly one of the running gateways says that it is the owner and has the virtual
    /// addresses. Returns its index. Does not look at `except`, which may be stopped.
    pub(crate) fn wait_for_owner(&self, except: Option<usize>) -> usize {
        let is_asked = |index: &usize| self.running[*index].is_some() && Some(*index) != except;
        self.eventually("a gateway owns the cell", || {
            let is_owner = |index: &usize| self.role(*index).as_deref() == Some("owner");
            let owners: Vec<usize> = (0..NODES).filter(is_asked).filter(is_owner).collect();
            let [owner] = owners[..] else { return None };
            self.net.holders(OUTSIDE_VIRTUAL).contains(&owner).then_some(owner)
        })
    }

    /// Calls `look` until it returns a value, and returns the value. Fails the test after a minute.
    fn eventually<T>(&self, what: &str, look: impl Fn() -> Option<T>) -> T {
        let start = Instant::now();
        loop {
            if let Some(found) = look() {
                return found;
            }
            let roles = || GATEWAYS.iter().enumerate().map(|(index, name)| (*name, self.role(index)));
            assert!(
                start.elapsed() < PATIENCE,
                "{what}: not within {PATIENCE:?}: {:?}\n{}",
                roles().collect::<Vec<_>>(),
                self.logs()
            );
            thread::sleep(POLL);
        }
    }

    /// Waits until this gateway alone has the outside address.
    pub(crate) fn wait_for_holder(&self, index: usize) {
        let is_only = || self.net.holders(OUTSIDE_VIRTUAL) == [index];
        self.eventually("it alone has the address", || is_only().then_some(()));
    }

    /// Waits until a gateway stands by or is the owner.
    pub(crate) fn wait_until_joined(&self, index: usize) {
        let is_joined = || matches!(self.role(index)?.as_str(), "standby" | "owner").then_some(());
        self.eventually("it stands by or owns the SAs", is_joined);
    }

    /// Waits until a gateway stands by.
    pub(crate) fn wait_until_standby(&self, index: usize) {
        self.wait_for_role(index, "standby");
    }

    /// Waits until a gateway has this role.
    pub(crate) fn wait_for_role(&self, index: usize, role: &str) {
        self.eventually(role, || (self.role(index)? == role).then_some(()));
    }

    /// Waits until a former owner stands by, or has ended, for example because it has lost the cell. Starts
    /// it again in that case, as the service manager does.
    pub(crate) fn rejoin(&mut self, index: usize) {
        let has_ended = eventually("the former owner stands by or ends", || {
            if !self.is_running(index) {
                return Some(true);
            }
            (self.role(index)? == "standby").then_some(false)
        });
        if has_ended {
            if self.running[index].is_some() {
                self.take(index);
            }
            self.start(index);
            self.wait_until_standby(index);
        }
    }

    /// What all gateways have logged.
    pub(crate) fn logs(&self) -> String {
        let of = |(running, name): (&Option<Running>, &str)| {
            let log = running.as_ref().map(|running| end_of(&running.log())).unwrap_or_default();
            format!("--- {name}:\n{log}")
        };
        format!("{}{}", self.former_logs, self.running.iter().zip(GATEWAYS).map(of).collect::<String>())
    }
}

/// Most lines of a log that a failed test shows.
const MAX_LINES: usize = 200;

/// The last lines of a log.
pub(crate) fn end_of(log: &str) -> String {
    let count = log.lines().count();
    log.lines().skip(count.saturating_sub(MAX_LINES)).map(|line| format!("{line}\n")).collect()
}

/// SPIs of the IKE SAs in a status, sorted.
pub(crate) fn ike_spis(status: &Value) -> Vec<String> {
    let sas = status["ike_sas"].as_array().unwrap().iter();
    let mut spis: Vec<String> = sas.map(|sa| format!("{} {}", sa["spi_i"], sa["spi_r"])).collect();
    spis.sort_unstable();
    spis
}

/// SPIs of the IKE SAs in a status that have Child SAs: others are being closed.
pub(crate) fn spis_in_use(status: &Value) -> Vec<String> {
    let sas = status["ike_sas"].as_array().unwrap().iter();
    let in_use = sas.filter(|sa| !sa["children"].as_array().unwrap().is_empty());
    in_use.map(|sa| format!("{} {}", sa["spi_i"], sa["spi_r"])).collect()
}

/// SPIs of all Child SAs in a status, of both directions.
pub(crate) fn child_spis(status: &Value) -> Vec<u32> {
    let sas = status["ike_sas"].as_array().unwrap().iter();
    let children = sas.flat_map(|sa| sa["children"].as_array().unwrap());
    let spis = children.flat_map(|child| [&child["spi_in"], &child["spi_out"]]);
    spis.map(|spi| u32::from_str_radix(spi.as_str().unwrap(), 16).unwrap()).collect()
}
