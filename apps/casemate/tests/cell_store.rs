//! The store of a cell in the sandbox of a running instance, where threads start and connect after system
//! calls are limited; and the section `cell` at a reload.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

#[allow(dead_code, reason = "other tests use the rest")]
mod testnet;

use casemate_app::providers;
use casemate_app::run::TokenKeys;
use casemate_app::run::cell_store::{self, OpenedCell};
use casemate_app::swanctl::{Config, SystemEnvironment};
use casemate_etcd::{EtcdStore, Seen};
use casemate_linux::sandbox;
use casemate_store::{
    Comparison, Lease, Outcome, Range, Request, RequestId, Revision, Store, StoreError, Transaction,
    WatchEvent, WatchId, Write,
};
use casemate_test_support::etcd::{Certificate, Cluster, ServerFiles};
use casemate_test_support::{Program, TempDir, eventually, skip};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use testnet::TestNet;

/// Directory of the test, for the process in the sandbox.
const DIRECTORY: &str = "CELL_STORE_DIRECTORY";
/// Longest wait for an answer or for the other process.
const PATIENCE: Duration = Duration::from_secs(60);
/// Files with which the two processes wait for each other.
const CONNECTED: &str = "connected";
const KILLED: &str = "killed";
const LOST: &str = "lost";

fn write_private(directory: &TempDir, name: &str, content: &[u8]) {
    fs::write(directory.file(name), content).unwrap();
    fs::set_permissions(directory.file(name), fs::Permissions::from_mode(0o600)).unwrap();
}

/// The configuration of a node whose store has these servers, with TLS and a user.
fn configuration(servers: &str) -> String {
    format!(
        "cell {{\n name = berlin\n node = gw1\n wrapping_key = cell.key\n etcd {{\n  servers = {servers}\n  \
         ca = authority.pem\n  cert = client.pem\n  key = client.key\n  user = gw1\n  password = password\n }}\n}}\n"
    )
}

#[test]
fn store_works_in_the_sandbox() {
    if !Path::new("/usr/bin/openssl").exists() {
        return skip("openssl (Debian package openssl)");
    }
    let directory = TempDir::new("cell-store").unwrap();
    let authority = Certificate::new(&directory, "authority", None);
    let server = Certificate::new(&directory, "server", Some(&authority));
    Certificate::new(&directory, "client", Some(&authority));
    let files =
        ServerFiles { authority: authority.certificate, certificate: server.certificate, key: server.key };
    // Tokens end quickly, so that the store has to log in again.
    let Some(mut cluster) = Cluster::start("cell-store", Some(files), &["--auth-token-ttl", "2"]) else {
        return;
    };
    for arguments in [
        &["user", "add", "root:top"][..],
        &["user", "grant-role", "root", "root"],
        &["role", "add", "cell"],
        &["role", "grant-permission", "cell", "readwrite", "casemate/berlin/", "--prefix"],
        &["user", "add", "gw1:a password"],
        &["user", "grant-role", "gw1", "cell"],
        &["auth", "enable"],
    ] {
        cluster.control(Some(0), arguments).unwrap();
    }
    let servers = cluster.addresses_from(0).iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    write_private(&directory, "cell.key", &[7; 32]);
    write_private(&directory, "password", b"a password\n");
    write_private(&directory, "swanctl.conf", configuration(&servers).as_bytes());

    let log = directory.file("log");
    let mut process = Program::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "--nocapture", "runs_in_the_sandbox"])
        .env(DIRECTORY, directory.path())
        .log_to(&log)
        .start();
    let mut wait_for = |name: &str| {
        eventually(name, || {
            let status = process.exit_status();
            let has_failed = status.is_some_and(|status| !status.success());
            assert!(!has_failed, "{name}: {}", process.log());
            (status.is_some() || directory.file(name).exists()).then_some(())
        });
    };
    wait_for(CONNECTED);
    (0..3).for_each(|index| cluster.kill(index));
    write_private(&directory, KILLED, b"");
    wait_for(LOST);
    (0..3).for_each(|index| cluster.start_member(index));
    let status = process.wait(PATIENCE);
    assert!(status.success() && process.log().contains("1 passed"), "{}", process.log());
    if process.log().contains(NO_SECCOMP) {
        return skip("a seccomp filter: this kernel has none");
    }
    assert_eq!(process.log().matches("watched: ").count(), 2, "{}", process.log());
    check_what_was_seen(directory.path());
    cluster.stop();
}

/// A later process refuses a cluster whose revision is lower than the one that was seen.
fn check_what_was_seen(directory: &Path) {
    let config = Config::load(&directory.join("swanctl.conf"), &SystemEnvironment).unwrap();
    let cell = config.cell.unwrap();
    let read = || {
        let opened = cell_store::open(&cell, directory, &TokenKeys::default(), &providers::all(), || ());
        let OpenedCell { store, seen, .. } = opened.unwrap_or_else(|error| panic!("{error}"));
        let mut user = User { store, next_id: 0 };
        let range = Range { prefix: Vec::new(), after: None, limit: 10 };
        (user.run(Request::Read(range)).map(|_| ()), seen.path().to_owned())
    };
    let (outcome, path) = read();
    assert_eq!(outcome, Ok(()));
    let text = fs::read_to_string(&path).unwrap();
    let (cluster, _) = text.split_once(" revision ").unwrap();
    fs::write(&path, format!("{cluster} revision 1000000\n")).unwrap();
    assert_eq!(read().0, Err(StoreError::Damaged));
}

const NO_SECCOMP: &str = "no seccomp filter";

/// A user of a store that waits for each completion.
struct User {
    store: EtcdStore,
    next_id: u64,
}

impl User {
    fn run(&mut self, request: Request) -> Result<Outcome, StoreError> {
        let id = RequestId(self.next_id);
        self.next_id += 1;
        self.store.submit(id, request).unwrap();
        let store = &mut self.store;
        let completion = eventually("a completion", || store.next_completion());
        assert_eq!(completion.id, id);
        completion.outcome
    }

    fn put(&mut self, key: &str, lease: Option<Lease>) -> Result<Revision, StoreError> {
        let key: Vec<u8> = key.into();
        let transaction = Transaction {
            comparisons: vec![Comparison::Created(key.clone(), Revision::ABSENT)],
            writes: vec![Write::Put { key, value: b"value".into(), lease }],
        };
        match self.run(Request::Commit(transaction)) {
            Ok(Outcome::Committed(revision)) => Ok(revision),
            Ok(other) => panic!("{other:?}"),
            Err(error) => Err(error),
        }
    }

    /// The key of the next event.
    fn watched(&mut self) -> String {
        let store = &mut self.store;
        match eventually("an event", || store.next_event()) {
            WatchEvent::Put(_, entry) => String::from_utf8(entry.key).unwrap(),
            other => panic!("{other:?}"),
        }
    }
}

/// What a process in the sandbox does, after [`sandbox::enter`] as in `casemate run`.
#[test]
#[ignore = "store_works_in_the_sandbox starts it as a process of its own"]
fn runs_in_the_sandbox() {
    let directory = PathBuf::from(std::env::var_os(DIRECTORY).unwrap());
    let config = Config::load(&directory.join("swanctl.conf"), &SystemEnvironment).unwrap();
    let wakes = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&wakes);
    let wake = move || {
        count.fetch_add(1, Ordering::Relaxed);
    };
    let opened =
        cell_store::open(&config.cell.unwrap(), &directory, &TokenKeys::default(), &providers::all(), wake);
    let OpenedCell { store, mut seen, .. } = opened.unwrap_or_else(|error| panic!("{error}"));
    sandbox::protect_memory().unwrap();
    if !sandbox::enter().unwrap() {
        println!("{NO_SECCOMP}");
        return;
    }
    assert_eq!(std::process::Command::new("/bin/true").status().unwrap_err().raw_os_error(), Some(1));

    // The first connections, TLS handshakes and log-ins: the threads were started before.
    let mut user = User { store, next_id: 0 };
    let first = user
        .put("a", None)
        .unwrap_or_else(|error| panic!("{error}: {:?}", user.store.monitor().last_failure()));
    let Ok(Outcome::LeaseGranted(lease)) = user.run(Request::NewLease(Duration::from_secs(60))) else {
        panic!("no lease: {:?}", user.store.monitor().last_failure())
    };
    // A thread that is started now.
    let watch = Request::Watch { watch: WatchId(1), prefix: Vec::new(), from: Revision(first.0 + 1) };
    assert_eq!(user.run(watch), Ok(Outcome::Watching), "{:?}", user.store.monitor().last_failure());
    user.put("b", Some(lease)).unwrap();
    println!("watched: {}", user.watched());
    // The token of the log-in ends.
    thread::sleep(Duration::from_secs(4));
    assert_eq!(user.run(Request::Renew(lease)), Ok(Outcome::Renewed));
    user.put("c", None).unwrap();
    assert_eq!(user.watched(), "c");

    // All servers are killed and start again. The next transactions and the watch need new connections.
    fs::write(directory.join(CONNECTED), "").unwrap();
    eventually(KILLED, || directory.join(KILLED).exists().then_some(()));
    assert_eq!(user.put("d", None), Err(StoreError::Unavailable));
    fs::write(directory.join(LOST), "").unwrap();
    let start = Instant::now();
    while let Err(error) = user.put("e", None) {
        assert!(start.elapsed() < PATIENCE, "{error}: {:?}", user.store.monitor().last_failure());
    }
    assert_eq!(user.run(Request::Renew(lease)), Ok(Outcome::Renewed));
    println!("watched: {}", user.watched());

    let state = user.store.monitor().seen().unwrap();
    seen.note(state);
    eventually("the file of what was seen", || {
        let Seen { cluster, revision } = state;
        let text = fs::read_to_string(seen.path()).ok()?;
        text.contains(&format!("cluster {cluster} revision {revision}")).then_some(())
    });
    assert_eq!(seen.take_problem(), None);
    assert!(wakes.load(Ordering::Relaxed) >= usize::try_from(user.next_id).unwrap());
    check_threads();
    drop(seen);
}

/// Threads of the store have no capabilities, and all threads have the filter.
fn check_threads() {
    let mut names = Vec::new();
    for task in fs::read_dir("/proc/self/task").unwrap() {
        // A thread may have ended.
        let Ok(status) = fs::read_to_string(task.unwrap().path().join("status")) else { continue };
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim();
        assert_eq!((field("NoNewPrivs:"), field("Seccomp:")), ("1", "2"), "{status}");
        let name = field("Name:");
        if name.starts_with("etcd") || name == "cell seen" {
            let held = ["CapEff:", "CapPrm:", "CapInh:", "CapAmb:"].map(field);
            assert!(held.iter().all(|set| set.bytes().all(|digit| digit == b'0')), "{status}");
            names.push(name.to_owned());
        }
    }
    names.sort();
    assert_eq!(names, ["cell seen", "etcd-data", "etcd-leases", "etcd-watch"]);
}

#[test]
fn a_reload_does_not_begin_a_cell() {
    let Some(net) = TestNet::build("cell_reload") else { return };
    let running = net.left.run_config("", None);
    let warning = "cell: the changes take effect when the instance is restarted";
    // The warning precedes the line that a reload ends with.
    for (reloads, conf) in [(1, configuration("127.0.0.1:2379")), (2, String::new())] {
        fs::write(net.left.file("conf"), conf).unwrap();
        assert!(net.left.casemate(&["reload"]).status.success());
        let done = "the configuration was read again";
        eventually("the end of a reload", || (running.log().matches(done).count() == reloads).then_some(()));
        assert_eq!(running.log().matches(warning).count(), 1, "reload {reloads}: {}", running.log());
    }
    assert!(running.stop().success());
}
