//! Clusters of real etcd servers on loopback, in a temporary directory. All servers end with the test.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "called by tests only, which may fail"
)]

use crate::{Process, Program, TempDir, eventually, skip};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Path of a program of etcd: below the target directory, where `cargo xtask test` unpacks it, or installed.
/// `None` if it is in neither place.
pub fn program(name: &str) -> Option<PathBuf> {
    let test = std::env::current_exe().unwrap();
    let unpacked = test.ancestors().skip(1).map(|directory| directory.join("etcd/usr/bin"));
    let installed = ["/usr/bin", "/usr/local/bin"].map(PathBuf::from);
    unpacked.chain(installed).map(|directory| directory.join(name)).find(|path| path.is_file())
}

/// Certificates of the servers of a cluster, which then ask clients for one.
#[derive(Debug, Clone)]
pub struct ServerFiles {
    /// Certificate of the authority of servers and clients.
    pub authority: PathBuf,
    /// Certificate of all servers.
    pub certificate: PathBuf,
    /// The private key of that certificate.
    pub key: PathBuf,
}

/// A certificate and its private key, in PEM.
#[derive(Debug, Clone)]
pub struct Certificate {
    /// File with the certificate.
    pub certificate: PathBuf,
    /// File with the key, not encrypted.
    pub key: PathBuf,
}

impl Certificate {
    /// Makes a certificate with OpenSSL: that of an authority, or one that `issuer` has signed, for 127.0.0.1
    /// and `etcd.example`. It has no common name.
    pub fn new(directory: &TempDir, name: &str, issuer: Option<&Self>) -> Self {
        Self::with_subject(directory, name, &format!("/O={name}"), issuer)
    }

    /// Like [`new`](Self::new), with this subject, such as `/CN=name`.
    pub fn with_subject(directory: &TempDir, name: &str, subject: &str, issuer: Option<&Self>) -> Self {
        let made = Self {
            certificate: directory.file(&format!("{name}.pem")),
            key: directory.file(&format!("{name}.key")),
        };
        let mut program = Program::new("openssl")
            .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"])
            .args(["-days", "2", "-subj", subject, "-out"])
            .arg(&made.certificate)
            .arg("-keyout")
            .arg(&made.key);
        if let Some(issuer) = issuer {
            program = program
                .args(["-addext", "basicConstraints=critical,CA:FALSE"])
                // The gateway is a client of its own server, with the same certificate.
                .args(["-addext", "extendedKeyUsage=serverAuth,clientAuth"])
                .args(["-addext", "subjectAltName=IP:127.0.0.1,DNS:etcd.example"])
                .arg("-CA")
                .arg(&issuer.certificate)
                .arg("-CAkey")
                .arg(&issuer.key);
        }
        let output = program.output();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        made
    }
}

/// A server and where it listens.
#[derive(Debug)]
struct Member {
    name: String,
    client: SocketAddr,
    peer: SocketAddr,
    process: Option<Process>,
}

/// A cluster of three servers.
#[derive(Debug)]
pub struct Cluster {
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
    pub fn start(name: &str, files: Option<ServerFiles>, options: &[&str]) -> Option<Self> {
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
    pub fn start_member(&mut self, index: usize) {
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
    pub fn kill(&mut self, index: usize) {
        self.members[index].process.take().unwrap().kill();
    }

    /// Sends a signal to a server, such as `STOP`.
    pub fn signal(&self, index: usize, signal: &str) {
        let pid = self.members[index].process.as_ref().unwrap().pid().to_string();
        let output = Program::new("sh").args(["-c", &format!("kill -{signal} $0"), &pid]).output();
        assert!(output.status.success());
    }

    /// Process IDs of the servers that run.
    pub fn pids(&self) -> Vec<u32> {
        self.members.iter().filter_map(|member| member.process.as_ref()).map(Process::pid).collect()
    }

    /// Addresses of the servers for clients, beginning with the one with this index.
    pub fn addresses_from(&self, first: usize) -> Vec<SocketAddr> {
        let count = self.members.len();
        (0..count).map(|index| self.members[(first + index) % count].client).collect()
    }

    /// Index of the leader, if the servers agree on one.
    pub fn leader(&self) -> Option<usize> {
        let mut leaders = (0..self.members.len()).filter(|&index| {
            let member = &self.members[index];
            let Some(status) = member.process.as_ref().and_then(|_| self.status(index)) else { return false };
            status.0 == status.1
        });
        leaders.next()
    }

    /// Identifiers of a server and of its leader.
    fn status(&self, index: usize) -> Option<(u64, u64)> {
        let output = self.control(Some(index), &["endpoint", "status", "--write-out", "fields"]).ok()?;
        let field = |name: &str| {
            let prefix = format!("\"{name}\" : ");
            output.lines().find_map(|line| line.strip_prefix(&prefix)?.parse().ok())
        };
        Some((field("MemberID")?, field("Leader")?))
    }

    /// Runs etcdctl with one server, or with all. Returns its output, as an error if it fails.
    pub fn control(&self, index: Option<usize>, arguments: &[&str]) -> Result<String, String> {
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
    pub fn save_snapshot(&self, file: &Path) {
        self.control(Some(0), &["snapshot", "save", file.to_str().unwrap()]).unwrap();
    }

    /// Stops all servers, replaces their data by a snapshot, and starts them again.
    pub fn restore_snapshot(&mut self, file: &Path) {
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
    pub fn file(&self, name: &str) -> PathBuf {
        self.directory.file(name)
    }

    /// What the servers have logged.
    pub fn logs(&self) -> String {
        let processes = self.members.iter().filter_map(|member| member.process.as_ref());
        processes.map(Process::log).collect()
    }

    /// Stops the servers in the regular way.
    pub fn stop(&mut self) {
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
