//! Three real etcd servers, each on a host of its own.

use crate::disk::{Disk, Space};
use crate::net::{CellNet, NODES, SERVERS, server_address};
use casemate_test_support::etcd::program;
use casemate_test_support::{Process, Program, eventually, skip};

/// Port for the gateways, and for the other servers.
pub(crate) const CLIENT_PORT: u16 = 2379;
const SERVER_PORT: u16 = 2380;

/// The servers. All end on drop.
pub(crate) struct Servers<'n> {
    net: &'n CellNet,
    space: Space,
    /// The disks, if each server has one.
    disks: Vec<Disk>,
    processes: [Option<Process>; NODES],
    /// Logs of ended processes.
    former_logs: String,
}

/// What a server says of itself.
struct Status {
    id: u64,
    leader: u64,
    revision: u64,
}

impl<'n> Servers<'n> {
    /// Starts a cluster. Reports the skipped test and returns `None` if etcd is not installed.
    pub(crate) fn start(net: &'n CellNet) -> Option<Self> {
        Self::start_with(net, Space::Unlimited)
    }

    /// Like [`start`](Self::start), with this space for the data of each server.
    pub(crate) fn start_with(net: &'n CellNet, space: Space) -> Option<Self> {
        if program("etcd").is_none() || program("etcdctl").is_none() {
            skip("etcd (Debian packages etcd-server and etcd-client)");
            return None;
        }
        let disk = |host| Disk::mount(host, space);
        let disks = net.servers.iter().filter_map(disk).collect();
        let (processes, former_logs) = ([const { None }; NODES], String::new());
        let mut servers = Self { net, space, disks, processes, former_logs };
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
        let etcd = program("etcd").unwrap();
        let (program, data) = match self.disks.get(index) {
            Some(disk) => (disk.program(&etcd), disk.data()),
            None => (Program::new(etcd), host.file("data")),
        };
        let program = program
            .args(["--name", SERVERS[index], "--log-level", "error", "--initial-cluster-token", "cell"])
            .args(["--initial-cluster", &members.join(","), "--initial-advertise-peer-urls", &server])
            .args(["--listen-peer-urls", &server])
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(self.space.options())
            .arg("--data-dir")
            .arg(data);
        program.log_to(&host.file("log")).start_with(|command| host.netns.spawn(command))
    }

    /// Kills a server.
    pub(crate) fn kill(&mut self, index: usize) {
        // A dropped process is killed.
        if let Some(process) = self.processes[index].take() {
            self.former_logs += &process.log();
        }
    }

    /// Indices of the servers whose process has ended by itself.
    pub(crate) fn ended(&mut self) -> Vec<usize> {
        let has_ended = |process: &mut Process| process.exit_status().is_some();
        (0..NODES).filter(|index| self.processes[*index].as_mut().is_some_and(has_ended)).collect()
    }

    /// The disk of a server.
    pub(crate) fn disk(&self, index: usize) -> &Disk {
        &self.disks[index]
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
        self.running().find(|index| {
            let status = self.status(*index);
            status.is_some_and(|Status { id, leader, .. }| id == leader)
        })
    }

    fn running(&self) -> impl Iterator<Item = usize> + '_ {
        (0..NODES).filter(|index| self.processes[*index].is_some())
    }

    fn status(&self, index: usize) -> Option<Status> {
        let output = self.control(index, &["endpoint", "status", "--write-out", "json"]).ok()?;
        let status: serde_json::Value = serde_json::from_str(&output).ok()?;
        let status = status.get(0)?.get("Status")?;
        let number = |value: &serde_json::Value| value.as_u64();
        let header = status.get("header")?;
        Some(Status {
            id: number(header.get("member_id")?)?,
            leader: number(status.get("leader")?)?,
            revision: number(header.get("revision")?)?,
        })
    }

    /// The present revision of the data.
    pub(crate) fn revision(&self) -> u64 {
        self.status(self.wait_for_leader()).unwrap().revision
    }

    /// Another server becomes the leader. Returns its index, or `None` if that was refused or takes long.
    pub(crate) fn move_leader(&self) -> Option<usize> {
        let leader = self.wait_for_leader();
        let next = self.running().find(|index| *index != leader)?;
        let id = format!("{:x}", self.status(next)?.id);
        self.control(leader, &["move-leader", &id]).ok().map(|_| next)
    }

    /// Removes all revisions before the present one, and returns the freed memory to the disk.
    pub(crate) fn compact(&self) {
        self.compact_to(self.revision());
        self.defragment();
    }

    /// Removes all revisions before this one.
    pub(crate) fn compact_to(&self, revision: u64) {
        let leader = self.wait_for_leader();
        let compacted = self.control(leader, &["compaction", "--physical", &revision.to_string()]);
        // A revision without a change since the last compaction.
        assert!(compacted.is_ok() || is_compacted(&compacted), "{compacted:?}");
    }

    /// Returns freed memory to the disk, on one server after the other.
    pub(crate) fn defragment(&self) {
        for index in self.running() {
            self.control(index, &["defrag"]).unwrap();
        }
    }

    /// Writes a value of this length, outside of the cell. Returns whether it was written.
    pub(crate) fn write(&self, length: usize) -> bool {
        let Some(leader) = self.leader() else { return false };
        let program = self.program(leader, &["put", "filler"]).input(vec![b'f'; length]);
        self.net.etcd.host.output_of(program).status.success()
    }

    /// Whether the servers refuse writes because their data has reached the quota.
    pub(crate) fn has_alarm(&self) -> bool {
        self.control(self.wait_for_leader(), &["alarm", "list"]).unwrap().contains("NOSPACE")
    }

    /// Lets the servers accept writes again.
    pub(crate) fn disarm(&self) {
        self.control(self.wait_for_leader(), &["alarm", "disarm"]).unwrap();
    }

    /// Number of keys that begin with this prefix.
    pub(crate) fn count(&self, prefix: &str) -> usize {
        let arguments = ["get", prefix, "--prefix", "--keys-only"];
        let keys = self.control(self.wait_for_leader(), &arguments).unwrap();
        keys.lines().filter(|line| !line.is_empty()).count()
    }

    /// The last revision at which a key with this prefix was changed.
    pub(crate) fn last_change(&self, prefix: &str) -> u64 {
        let arguments = ["get", prefix, "--prefix", "--keys-only", "--write-out", "json"];
        let found = self.control(self.wait_for_leader(), &arguments).unwrap();
        let found: serde_json::Value = serde_json::from_str(&found).unwrap();
        let entries = found["kvs"].as_array().unwrap().iter();
        entries.map(|entry| entry["mod_revision"].as_u64().unwrap()).max().unwrap()
    }

    /// Runs etcdctl with one server, from the bridge. Returns the standard output, or what it has printed
    /// with an error.
    fn control(&self, index: usize, arguments: &[&str]) -> Result<String, String> {
        let output = self.net.etcd.host.output_of(self.program(index, arguments));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let error = String::from_utf8_lossy(&output.stderr);
        if output.status.success() { Ok(text) } else { Err(format!("{text}{error}")) }
    }

    fn program(&self, index: usize, arguments: &[&str]) -> Program {
        let endpoint = format!("http://{}:{CLIENT_PORT}", server_address(index));
        Program::new(program("etcdctl").unwrap())
            .env("ETCDCTL_API", "3")
            .args(["--endpoints", &endpoint, "--command-timeout", "5s", "--dial-timeout", "2s"])
            .args(arguments)
    }

    /// What the servers have logged.
    pub(crate) fn logs(&self) -> String {
        let present: String = self.processes.iter().flatten().map(Process::log).collect();
        format!("{}{present}", self.former_logs)
    }
}

fn is_compacted(result: &Result<String, String>) -> bool {
    result.as_ref().is_err_and(|error| error.contains("has been compacted"))
}
