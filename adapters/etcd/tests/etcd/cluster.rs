//! Clusters of real etcd servers on loopback, in a temporary directory. All servers end with the test.

use casemate_etcd::Endpoint;
use casemate_test_support::{Process, Program, TempDir, eventually, skip};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Directories in which `cargo xtask test` and distributions have the programs.
fn directories() -> [PathBuf; 3] {
    let unpacked = Path::new(env!("CARGO_TARGET_TMPDIR")).join("../etcd/usr/bin");
    [unpacked, "/usr/bin".into(), "/usr/local/bin".into()]
}

/// Path of a program of etcd.
fn program(name: &str) -> Option<PathBuf> {
    directories().map(|directory| directory.join(name)).into_iter().find(|path| path.is_file())
}

/// Certificates of the servers of a cluster.
pub(crate) struct ServerFiles {
    pub(crate) authority: PathBuf,
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

/// A server and where it listens.
struct Member {
    name: String,
    client: SocketAddr,
    peer: SocketAddr,
    process: Option<Process>,
}

/// A cluster of three servers.
pub(crate) struct Cluster {
    directory: TempDir,
    members: Vec<Member>,
    files: Option<ServerFiles>,
    /// Further options of the servers.
    options: Vec<String>,
}

const LIMIT: Duration = Duration::from_secs(20);
/// Attempts to start a cluster: other programs may take a port in the meantime.
const ATTEMPTS: usize = 5;

impl Cluster {
    /// Starts a cluster. Reports the skipped test and returns `None` if etcd is not installed.
    pub(crate) fn start(name: &str, files: Option<ServerFiles>, options: &[&str]) -> Option<Self> {
        if program("etcd").is_none() || program("etcdctl").is_none() {
            skip("etcd (Debian packages etcd-server and etcd-client)");
            return None;
        }
        let mut cluster = Self {
            directory: TempDir::new(&format!("etcd-{name}")).unwrap(),
            members: Vec::new(),
            files,
            options: options.iter().map(|option| (*option).into()).collect(),
        };
        for attempt in 0..ATTEMPTS {
            cluster.members = members(attempt);
            (0..3).for_each(|index| cluster.start_member(index));
            if cluster.becomes_ready() {
                return Some(cluster);
            }
        }
        panic!("no cluster in {ATTEMPTS} attempts: {}", cluster.logs());
    }

    fn becomes_ready(&mut self) -> bool {
        eventually("a cluster starts or a server ends", || {
            let has_ended = |member: &mut Member| member.process.as_mut().unwrap().exit_status().is_some();
            if self.members.iter_mut().any(has_ended) {
                return Some(false);
            }
            self.leader().map(|_| true)
        })
    }

    fn url(&self, address: SocketAddr) -> String {
        format!("http{}://{address}", if self.files.is_some() { "s" } else { "" })
    }

    /// Starts a server, with the data that it has.
    pub(crate) fn start_member(&mut self, index: usize) {
        let initial: Vec<String> =
            self.members.iter().map(|member| format!("{}=http://{}", member.name, member.peer)).collect();
        let member = &self.members[index];
        let (client, peer) = (self.url(member.client), format!("http://{}", member.peer));
        let mut program = Program::new(program("etcd").unwrap())
            .args(["--name", &member.name, "--log-level", "error", "--initial-cluster-token", "cell"])
            .args(["--initial-cluster", &initial.join(","), "--initial-advertise-peer-urls", &peer])
            .args(["--listen-peer-urls", &peer])
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .arg("--data-dir")
            .arg(self.data_of(index))
            .args(&self.options);
        if let Some(files) = &self.files {
            program = program
                .args(["--client-cert-auth", "--trusted-ca-file"])
                .arg(&files.authority)
                .arg("--cert-file")
                .arg(&files.certificate)
                .arg("--key-file")
                .arg(&files.key);
        }
        let log = self.directory.file(&format!("{}.log", member.name));
        self.members[index].process = Some(program.log_to(&log).start());
    }

    /// Directory with the data of a server.
    fn data_of(&self, index: usize) -> PathBuf {
        self.directory.file(&self.members[index].name)
    }

    /// Kills a server.
    pub(crate) fn kill(&mut self, index: usize) {
        self.members[index].process.take().unwrap().kill();
    }

    /// Sends a signal to a server.
    pub(crate) fn signal(&self, index: usize, signal: &str) {
        let pid = self.members[index].process.as_ref().unwrap().pid().to_string();
        let output = Program::new("sh").args(["-c", &format!("kill -{signal} $0"), &pid]).output();
        assert!(output.status.success());
    }

    /// CPU time of all servers in clock ticks (proc(5), fields utime and stime).
    pub(crate) fn cpu_ticks(&self) -> u64 {
        let of = |member: &Member| {
            let pid = member.process.as_ref().unwrap().pid();
            crate::user::ticks_in(&std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap())
        };
        self.members.iter().map(of).sum()
    }

    /// Servers, beginning with the one with this index.
    pub(crate) fn endpoints_from(&self, first: usize) -> Vec<Endpoint> {
        let count = self.members.len();
        (0..count).map(|index| Endpoint::new(self.members[(first + index) % count].client)).collect()
    }

    /// Index of the leader, if the servers agree on one.
    pub(crate) fn leader(&self) -> Option<usize> {
        let mut leaders = (0..self.members.len()).filter(|&index| {
            let member = &self.members[index];
            let Some(status) = member.process.as_ref().and_then(|_| self.status(index)) else { return false };
            status.0 == status.1
        });
        leaders.next()
    }

    /// Identifiers of a server and of its leader.
    fn status(&self, index: usize) -> Option<(u64, u64)> {
        let output = self.control(Some(index), &["endpoint", "status", "--write-out", "json"]).ok()?;
        let status: serde_json::Value = serde_json::from_str(&output).ok()?;
        let status = status.get(0)?.get("Status")?;
        Some((status.get("header")?.get("member_id")?.as_u64()?, status.get("leader")?.as_u64()?))
    }

    /// Runs etcdctl with one server, or with all, and returns its output.
    pub(crate) fn control(&self, index: Option<usize>, arguments: &[&str]) -> Result<String, String> {
        let chosen = self.members.iter().enumerate().filter(|(at, _)| index.is_none_or(|index| index == *at));
        let endpoints: Vec<String> = chosen.map(|(_, member)| self.url(member.client)).collect();
        let mut program = Program::new(program("etcdctl").unwrap()).env("ETCDCTL_API", "3").args([
            "--endpoints",
            &endpoints.join(","),
            "--command-timeout",
            "5s",
            "--dial-timeout",
            "2s",
        ]);
        if let Some(files) = &self.files {
            program = program
                .arg("--cacert")
                .arg(&files.authority)
                .arg("--cert")
                .arg(&files.certificate)
                .arg("--key")
                .arg(&files.key);
        }
        let output = program.args(arguments).output();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let error = String::from_utf8_lossy(&output.stderr);
        if output.status.success() { Ok(text) } else { Err(format!("{text}{error}")) }
    }

    /// Writes a snapshot of the data to a file.
    pub(crate) fn save_snapshot(&self, file: &Path) {
        self.control(Some(0), &["snapshot", "save", file.to_str().unwrap()]).unwrap();
    }

    /// Stops all servers, replaces their data by a snapshot, and starts them again.
    pub(crate) fn restore_snapshot(&mut self, file: &Path) {
        let initial: Vec<String> =
            self.members.iter().map(|member| format!("{}=http://{}", member.name, member.peer)).collect();
        (0..self.members.len()).for_each(|index| self.kill(index));
        for index in 0..self.members.len() {
            let data = self.data_of(index);
            std::fs::remove_dir_all(&data).unwrap();
            let peer = format!("http://{}", self.members[index].peer);
            self.control(
                None,
                &[
                    &["snapshot", "restore", file.to_str().unwrap()][..],
                    &["--name", &self.members[index].name, "--initial-cluster", &initial.join(",")],
                    &["--initial-cluster-token", "cell", "--initial-advertise-peer-urls", &peer],
                    &["--data-dir", data.to_str().unwrap()],
                ]
                .concat(),
            )
            .unwrap();
        }
        (0..self.members.len()).for_each(|index| self.start_member(index));
        assert!(self.becomes_ready(), "{}", self.logs());
    }

    /// Path of a file in the directory of the cluster.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.directory.file(name)
    }

    /// What the servers have logged.
    pub(crate) fn logs(&self) -> String {
        let processes = self.members.iter().filter_map(|member| member.process.as_ref());
        processes.map(Process::log).collect()
    }

    /// Stops the servers in the regular way.
    pub(crate) fn stop(&mut self) {
        for member in &mut self.members {
            if let Some(mut process) = member.process.take() {
                process.stop(LIMIT);
            }
        }
    }
}

/// Three members with free ports. The data of an earlier attempt has other names.
fn members(attempt: usize) -> Vec<Member> {
    let listeners: Vec<_> = (0..6).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let mut addresses = listeners.iter().map(|listener| listener.local_addr().unwrap());
    let member = |index| {
        let [client, peer] = [(); 2].map(|()| addresses.next().unwrap());
        Member { name: format!("m{attempt}-{index}"), client, peer, process: None }
    };
    (0..3).map(member).collect()
}
