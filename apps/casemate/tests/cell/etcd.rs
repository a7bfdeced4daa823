//! Three real etcd servers, each on a host of its own.

use crate::net::{CellNet, NODES, SERVERS, server_address};
use casemate_test_support::etcd::program;
use casemate_test_support::{Process, Program, eventually, skip};

/// Port for the gateways, and for the other servers.
pub(crate) const CLIENT_PORT: u16 = 2379;
const SERVER_PORT: u16 = 2380;

/// The servers. All end on drop.
pub(crate) struct Servers<'n> {
    net: &'n CellNet,
    processes: [Option<Process>; NODES],
}

impl<'n> Servers<'n> {
    /// Starts a cluster. Reports the skipped test and returns `None` if etcd is not installed.
    pub(crate) fn start(net: &'n CellNet) -> Option<Self> {
        if program("etcd").is_none() || program("etcdctl").is_none() {
            skip("etcd (Debian packages etcd-server and etcd-client)");
            return None;
        }
        let mut servers = Self { net, processes: [const { None }; NODES] };
        servers.start_all();
        Some(servers)
    }

    /// Starts the servers that do not run, with the data that they have, and waits for a leader.
    pub(crate) fn start_all(&mut self) {
        for index in 0..NODES {
            if self.processes[index].is_none() {
                self.processes[index] = Some(self.start_one(index));
            }
        }
        self.wait_for_leader();
    }

    fn start_one(&self, index: usize) -> Process {
        let url = |index: usize, port: u16| format!("http://{}:{port}", server_address(index));
        let members: Vec<String> =
            (0..NODES).map(|index| format!("{}={}", SERVERS[index], url(index, SERVER_PORT))).collect();
        let (client, server) = (url(index, CLIENT_PORT), url(index, SERVER_PORT));
        let host = &self.net.servers[index];
        let program = Program::new(program("etcd").unwrap())
            .args(["--name", SERVERS[index], "--log-level", "error", "--initial-cluster-token", "cell"])
            .args(["--initial-cluster", &members.join(","), "--initial-advertise-peer-urls", &server])
            .args(["--listen-peer-urls", &server])
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .arg("--data-dir")
            .arg(host.file("data"));
        program.log_to(&host.file("log")).start_with(|command| host.netns.spawn(command))
    }

    /// Kills a server.
    pub(crate) fn kill(&mut self, index: usize) {
        // A dropped process is killed.
        self.processes[index] = None;
    }

    /// Kills all servers.
    pub(crate) fn kill_all(&mut self) {
        (0..NODES).for_each(|index| self.kill(index));
    }

    /// Waits until the servers have a leader. Returns its index.
    pub(crate) fn wait_for_leader(&self) -> usize {
        eventually("the servers have a leader", || self.leader())
    }

    fn leader(&self) -> Option<usize> {
        (0..NODES).filter(|index| self.processes[*index].is_some()).find(|index| {
            let status = self.status(*index);
            status.is_some_and(|(own, leader, _)| own == leader)
        })
    }

    /// Identifiers of a server and of its leader, and the revision of the data.
    fn status(&self, index: usize) -> Option<(u64, u64, u64)> {
        let output = self.control(index, &["endpoint", "status", "--write-out", "json"]).ok()?;
        let status: serde_json::Value = serde_json::from_str(&output).ok()?;
        let status = status.get(0)?.get("Status")?;
        let number = |value: &serde_json::Value| value.as_u64();
        let header = status.get("header")?;
        Some((
            number(header.get("member_id")?)?,
            number(status.get("leader")?)?,
            number(header.get("revision")?)?,
        ))
    }

    /// Removes all former revisions, and returns the freed memory to the disk.
    pub(crate) fn compact(&self) {
        let leader = self.wait_for_leader();
        let (_, _, revision) = self.status(leader).unwrap();
        let compacted = self.control(leader, &["compaction", "--physical", &revision.to_string()]);
        // A revision without a change since the last compaction.
        assert!(compacted.is_ok() || is_compacted(&compacted), "{compacted:?}");
        for index in (0..NODES).filter(|index| self.processes[*index].is_some()) {
            self.control(index, &["defrag"]).unwrap();
        }
    }

    /// Number of keys that begin with this prefix.
    pub(crate) fn count(&self, prefix: &str) -> usize {
        let arguments = ["get", prefix, "--prefix", "--keys-only"];
        let keys = self.control(self.wait_for_leader(), &arguments).unwrap();
        keys.lines().filter(|line| !line.is_empty()).count()
    }

    /// Runs etcdctl with one server, from the bridge. Returns the standard output, or what it has printed
    /// with an error.
    fn control(&self, index: usize, arguments: &[&str]) -> Result<String, String> {
        let endpoint = format!("http://{}:{CLIENT_PORT}", server_address(index));
        let program = Program::new(program("etcdctl").unwrap())
            .env("ETCDCTL_API", "3")
            .args(["--endpoints", &endpoint, "--command-timeout", "5s", "--dial-timeout", "2s"])
            .args(arguments);
        let output = self.net.etcd.host.output_of(program);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let error = String::from_utf8_lossy(&output.stderr);
        if output.status.success() { Ok(text) } else { Err(format!("{text}{error}")) }
    }

    /// What the servers have logged.
    pub(crate) fn logs(&self) -> String {
        self.processes.iter().flatten().map(Process::log).collect()
    }
}

fn is_compacted(result: &Result<String, String>) -> bool {
    result.as_ref().is_err_and(|error| error.contains("has been compacted"))
}
