//! The control socket against malicious clients.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

#[allow(dead_code, reason = "other tests use the rest")]
mod testnet;

use casemate_linux::Error;
use casemate_linux::instance::Instance;
use casemate_test_support::{Program, TempDir, TestRng};
use std::fs::Permissions;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};
use testnet::{Host, Running, TestNet};

/// Limits of the instance: clients that send requests, and the timeout of a request.
const CLIENTS: usize = 32;
const TIMEOUT: Duration = Duration::from_secs(2);
/// Additional time for a busy machine.
const GRACE: Duration = Duration::from_secs(20);

struct ControlTarget<'l> {
    host: &'l Host,
    socket: PathBuf,
    running: Running,
}

impl<'l> ControlTarget<'l> {
    fn start(host: &'l Host) -> Self {
        let running = host.run_xfrm("ip xfrm policy add dst 10.99.0.0/16 dir out action block\n");
        let socket = host.run(|| Ok::<_, Error>(Instance::new(testnet::TUN)?.control_socket())).unwrap();
        Self { host, socket, running }
    }

    fn connect(&self) -> UnixStream {
        let client = UnixStream::connect(&self.socket).unwrap();
        client.set_read_timeout(Some(TIMEOUT + GRACE)).unwrap();
        client.set_write_timeout(Some(TIMEOUT + GRACE)).unwrap();
        client
    }

    /// The response to these bytes. The instance may disconnect before all bytes are sent.
    fn answer(&self, bytes: &[u8]) -> Vec<u8> {
        let mut client = self.connect();
        let _ = client.write_all(bytes);
        let _ = client.shutdown(std::net::Shutdown::Write);
        read_all(&mut client)
    }

    /// Waits until the instance accepts a client again, then checks it. The slots of disconnected clients
    /// are not free at once.
    fn gets_well(&mut self) {
        let start = Instant::now();
        while !self.host.casemate(&["status"]).status.success() {
            assert!(start.elapsed() < TIMEOUT + GRACE, "no slot became free: {}", self.running.log());
            thread::sleep(Duration::from_millis(50));
        }
        self.is_well();
    }

    fn is_well(&mut self) {
        assert!(!self.running.has_ended(), "the instance ended: {}", self.running.log());
        assert_eq!(self.host.status()["policies"].as_array().map(Vec::len), Some(1));
        assert!(!self.running.log().contains("panicked"), "{}", self.running.log());
    }

    /// Resident memory of the instance in KiB.
    fn memory(&self) -> usize {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.running.pid())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }
}

/// Reads to the end, or to a reset because the instance has not read all that was sent.
fn read_all(client: &mut UnixStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    match client.read_to_end(&mut bytes) {
        Err(error) if error.kind() != ErrorKind::ConnectionReset => panic!("{error}"),
        _ => bytes,
    }
}

/// CVE-2018-5388 of strongSwan: the length field of a message to its control socket was trusted for
/// allocating and reading memory.
#[test]
fn strongswan_2018_5388_malformed_requests_do_no_harm() {
    let Some(net) = TestNet::build("strongswan_2018_5388") else { return };
    let mut target = ControlTarget::start(&net.left);
    target.is_well();
    let before = target.memory();
    let mut hostile: Vec<Vec<u8>> = vec![
        vec![],
        vec![b'\n'],
        vec![0; 4],
        // Messages of strongSwan's protocol with lengths that are too large, too small, and truncated.
        [&u32::MAX.to_be_bytes()[..], &[0, 5], b"stats"].concat(),
        [&0x8000_0000u32.to_be_bytes()[..], &[0, 0]].concat(),
        [&1u32.to_be_bytes()[..], &[0, 255], b"version"].concat(),
        vec![b'{'; 100_000],
        vec![b'['; 4_000],
        [vec![b'['; 4_000], vec![b'\n']].concat(),
        [&b"{\"do\": \"initiate\", \"name\": \""[..], &vec![b'a'; 1 << 20], b"\"}\n"].concat(),
        b"{\"do\": \"status\"".to_vec(),
        b"{\"do\": \"status\"}\xff\n".to_vec(),
        b"{\"do\": \"terminate\", \"name\": \"\\u0000\\ud800\"}\n".to_vec(),
        b"{\"do\": 1e999999999}\n".to_vec(),
        vec![0xff; 5_000],
    ];
    let mut rng = TestRng::new(0x5388);
    for _ in 0..200 {
        let len = rng.below(256) * 8;
        hostile.push(rng.bytes(len));
    }
    for bytes in &hostile {
        let answer = target.answer(bytes);
        assert!(answer.is_empty(), "{} to {:?}", String::from_utf8_lossy(&answer), bytes.get(..40));
    }
    // An unknown name is a valid request that gets a response.
    let answer = target.answer(b"{\"do\": \"terminate\", \"name\": \"$(reboot)\\n\"}\n");
    assert!(String::from_utf8(answer).unwrap().starts_with("{\"error\":"));
    target.is_well();
    let grown = target.memory().saturating_sub(before);
    assert!(grown < 8_192, "{grown} KiB more than before");
    assert!(target.running.stop().success());
}

#[test]
fn slow_clients_are_disconnected() {
    let Some(net) = TestNet::build("slow_clients_are_disconnected") else { return };
    let mut target = ControlTarget::start(&net.left);
    let start = Instant::now();
    // They occupy every slot and write one byte at a time, each within the timeout.
    let slow: Vec<UnixStream> = (0..CLIENTS).map(|_| target.connect()).collect();
    // Clients are accepted in order of arrival.
    let turned_away = read_all(&mut target.connect());
    assert!(turned_away.is_empty());
    let mut open: Vec<&UnixStream> = slow.iter().collect();
    while !open.is_empty() && start.elapsed() < TIMEOUT + GRACE {
        open.retain(|client| (&mut &**client).write_all(b" ").is_ok());
        thread::sleep(Duration::from_millis(100));
    }
    assert!(open.is_empty(), "{} clients still have their slots", open.len());
    target.is_well();
    // Clients that never read lose their slots too, and block nothing.
    let deaf: Vec<UnixStream> = (0..CLIENTS * 4)
        .map(|_| {
            let mut client = target.connect();
            let _ = client.write_all(b"{\"do\": \"status\"}\n");
            client
        })
        .collect();
    target.gets_well();
    drop(deaf);
    assert!(target.running.stop().success());
}

const FOLLOW: &[u8] = b"{\"do\": \"log\", \"follow\": true}\n";

/// Previously, 34 such clients kept every other client out.
#[test]
fn log_followers_leave_room_for_other_clients() {
    let Some(net) = TestNet::build("clients_that_follow") else { return };
    let mut target = ControlTarget::start(&net.left);
    let mut followers: Vec<UnixStream> = (0..3 * CLIENTS)
        .map(|_| {
            let mut client = target.connect();
            client.write_all(FOLLOW).unwrap();
            // The slot of a requesting client is free when its request has been read.
            target.is_well();
            client
        })
        .collect();
    // The newest clients still follow and receive new lines.
    let newest = followers.pop().unwrap();
    newest.set_read_timeout(Some(GRACE)).unwrap();
    assert!(!net.left.casemate(&["reload"]).status.success(), "manual keys cannot be reloaded");
    let mut line = String::new();
    BufReader::new(&newest).read_line(&mut line).unwrap();
    assert!(line.contains(" error: reload: "), "{line}");
    // The oldest clients were disconnected.
    assert!(read_all(&mut followers[0]).is_empty());
    let descriptors = std::fs::read_dir(format!("/proc/{}/fd", target.running.pid())).unwrap().count();
    assert!(descriptors < 3 * CLIENTS, "{descriptors} descriptors");
    target.is_well();
    assert!(target.running.stop().success());
}

#[test]
fn client_that_does_not_read_the_log_is_disconnected() {
    let Some(net) = TestNet::build("a_client_that_does_not_read") else { return };
    let mut target = ControlTarget::start(&net.left);
    let mut deaf = target.connect();
    deaf.write_all(FOLLOW).unwrap();
    target.is_well();
    // More log lines than a socket buffer holds.
    let reload = b"{\"do\": \"reload\"}\n";
    for _ in 0..1_000 {
        assert!(!target.answer(reload).is_empty());
    }
    let start = Instant::now();
    while deaf.write_all(b" ").is_ok() {
        assert!(start.elapsed() < TIMEOUT + GRACE, "the client still has its slot");
        thread::sleep(Duration::from_millis(100));
    }
    let got = read_all(&mut deaf);
    assert!(got.len() < 1_000 * 70, "everything went into the socket: {}", got.len());
    target.is_well();
    assert!(target.running.stop().success());
}

/// Imitates an instance: gives the same response to every request.
fn pass_off(listener: UnixListener, answer: &'static str) {
    thread::spawn(move || {
        for client in listener.incoming() {
            let Ok(mut client) = client else { return };
            let mut request = [0; 256];
            let _ = client.read(&mut request);
            let _ = client.write_all(answer.as_bytes());
        }
    });
}

/// Result of a command.
#[derive(Debug)]
struct CommandResult {
    is_success: bool,
    /// Standard output and standard error.
    text: String,
}

/// Runs `casemate` with these arguments and this temporary directory.
fn run_in(temporary: &Path, host: &Host, args: &[&str]) -> CommandResult {
    let program = Program::new(env!("CARGO_BIN_EXE_casemate")).args(args).env("TMPDIR", temporary);
    let output = host.output_of(program.configure(|command| command.env_remove("XDG_RUNTIME_DIR")));
    let text = [output.stdout, output.stderr].concat();
    CommandResult { is_success: output.status.success(), text: String::from_utf8_lossy(&text).into_owned() }
}

/// Another user created root's directory below /tmp, with a socket in it.
#[test]
fn another_user_cannot_impersonate_an_instance() {
    let Some(net) = TestNet::build("another_user_cannot_pass") else { return };
    let scratch = TempDir::new("impostor").unwrap();
    std::fs::set_permissions(scratch.path(), Permissions::from_mode(0o1777)).unwrap();
    let namespace = net.left.run(|| std::fs::metadata("/proc/thread-self/ns/net")).unwrap().ino();
    let directory = scratch.file(&format!("casemate-{}", std::fs::metadata(scratch.path()).unwrap().uid()));
    std::fs::create_dir(&directory).unwrap();
    let listener = UnixListener::bind(directory.join(format!("net{namespace}-evil0.sock"))).unwrap();
    pass_off(
        listener,
        "{\"ok\": false, \"error\": \"\\u001b[2Jgotcha\\n\\u009b31m\", \"version\": \"\\u001b[2Jgotcha\\u202e\", \"tun\": \"a\\nb\"}\n",
    );
    let ask = || {
        [&["status"][..], &["status", "--json"], &["terminate", "t"], &["log"]]
            .map(|args| run_in(scratch.path(), &net.left, args))
    };
    let is_refused = |result: &CommandResult| !result.is_success && !result.text.contains("gotcha");
    // With correct owner and mode the socket is used, and its text is escaped.
    std::fs::set_permissions(&directory, Permissions::from_mode(0o700)).unwrap();
    for CommandResult { text: output, .. } in ask() {
        assert!(output.contains("gotcha"), "the socket was not found: {output}");
        let raw = |sign: char| sign != '\n' && (sign.is_control() || sign == '\u{202e}');
        assert!(!output.contains(raw), "{output:?}");
    }
    // With another mode or owner, the directory is not used.
    std::fs::set_permissions(&directory, Permissions::from_mode(0o755)).unwrap();
    assert!(ask().iter().all(is_refused), "{:?}", ask());
    std::fs::set_permissions(&directory, Permissions::from_mode(0o700)).unwrap();
    std::os::unix::fs::chown(&directory, Some(12_345), None).unwrap();
    assert!(ask().iter().all(is_refused), "{:?}", ask());
    // The real instance is found.
    let running = net.left.run_xfrm("ip xfrm policy add dst 10.99.0.0/16 dir out action block\n");
    let CommandResult { is_success, text } = run_in(scratch.path(), &net.left, &["status"]);
    assert!(is_success && text.contains(testnet::TUN) && !text.contains("gotcha"), "{text}");
    assert!(running.stop().success());
}
