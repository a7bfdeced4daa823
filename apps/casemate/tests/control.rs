//! The control socket against clients that mean no good.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

#[allow(dead_code, reason = "other tests use the rest")]
mod lab;

use casemate_linux::Error;
use casemate_linux::instance::Instance;
use lab::{Host, Lab, Running};
use std::fs::Permissions;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// How many clients the instance hears at a time, and how long it waits for a request.
const CLIENTS: usize = 32;
const PATIENCE: Duration = Duration::from_secs(2);
/// What a busy machine may add to a time.
const GRACE: Duration = Duration::from_secs(20);

struct Target<'l> {
    host: &'l Host,
    socket: PathBuf,
    running: Running,
}

impl<'l> Target<'l> {
    fn start(host: &'l Host) -> Self {
        let running = host.protect("ip xfrm policy add dst 10.99.0.0/16 dir out action block\n");
        let socket = host.run(|| Ok::<_, Error>(Instance::new(lab::TUN)?.socket())).unwrap();
        Self { host, socket, running }
    }

    fn connect(&self) -> UnixStream {
        let client = UnixStream::connect(&self.socket).unwrap();
        client.set_read_timeout(Some(PATIENCE + GRACE)).unwrap();
        client.set_write_timeout(Some(PATIENCE + GRACE)).unwrap();
        client
    }

    /// What it answers to these bytes; the client may be left before it has said everything.
    fn answer(&self, bytes: &[u8]) -> Vec<u8> {
        let mut client = self.connect();
        let _ = client.write_all(bytes);
        let _ = client.shutdown(std::net::Shutdown::Write);
        read_all(&mut client)
    }

    /// The same as soon as it has a place for one more client: places of clients who left are not free at once.
    fn gets_well(&mut self) {
        let start = Instant::now();
        while !self.host.casemate(&["status"]).status.success() {
            assert!(start.elapsed() < PATIENCE + GRACE, "no place came free: {}", self.running.said());
            thread::sleep(Duration::from_millis(50));
        }
        self.is_well();
    }

    fn is_well(&mut self) {
        assert!(self.running.child.try_wait().unwrap().is_none(), "it ended: {}", self.running.said());
        assert_eq!(self.host.status()["policies"].as_array().map(Vec::len), Some(1));
        assert!(!self.running.said().contains("panicked"), "{}", self.running.said());
    }

    /// Memory that it has in use, in KiB.
    fn memory(&self) -> usize {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.running.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }
}

/// Everything up to the end, or to the reset by a host that has not read all that it was sent.
fn read_all(client: &mut UnixStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    match client.read_to_end(&mut bytes) {
        Err(error) if error.kind() != ErrorKind::ConnectionReset => panic!("{error}"),
        _ => bytes,
    }
}

/// CVE-2018-5388 of strongSwan: a length in a message to its control socket was believed, and memory was allocated or read by it.
#[test]
fn strongswan_2018_5388_no_length_and_no_bytes_harm_the_control_socket() {
    let Some(lab) = Lab::build("strongswan_2018_5388") else { return };
    let mut target = Target::start(&lab.left);
    target.is_well();
    let before = target.memory();
    let mut hostile: Vec<Vec<u8>> = vec![
        vec![],
        vec![b'\n'],
        vec![0; 4],
        // Messages of strongSwan's own protocol, with lengths that are huge, too short, and not all there.
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
    // Numbers that look random: whatever they are, they are the same in each run.
    let mut state = 0x5388u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    };
    for _ in 0..200 {
        let len = usize::from(next()) * 8;
        hostile.push((0..len).map(|_| next()).collect());
    }
    for bytes in &hostile {
        let answer = target.answer(bytes);
        assert!(answer.is_empty(), "{} to {:?}", String::from_utf8_lossy(&answer), bytes.get(..40));
    }
    // A name that is nobody's is a request like others, and answered.
    let answer = target.answer(b"{\"do\": \"terminate\", \"name\": \"$(reboot)\\n\"}\n");
    assert!(String::from_utf8(answer).unwrap().starts_with("{\"error\":"));
    target.is_well();
    let grown = target.memory().saturating_sub(before);
    assert!(grown < 8_192, "{grown} KiB more than before");
    assert!(target.running.stop().success());
}

#[test]
fn slow_clients_lose_their_places() {
    let Some(lab) = Lab::build("slow_clients_lose_their_places") else { return };
    let mut target = Target::start(&lab.left);
    let start = Instant::now();
    // They fill every place, and write one byte after the other, each of them in time.
    let slow: Vec<UnixStream> = (0..CLIENTS).map(|_| target.connect()).collect();
    // They are let in as they came.
    let turned_away = read_all(&mut target.connect());
    assert!(turned_away.is_empty());
    let mut open: Vec<&UnixStream> = slow.iter().collect();
    while !open.is_empty() && start.elapsed() < PATIENCE + GRACE {
        open.retain(|client| (&mut &**client).write_all(b" ").is_ok());
        thread::sleep(Duration::from_millis(100));
    }
    assert!(open.is_empty(), "{} still have their places", open.len());
    target.is_well();
    // Nor does one that never reads keep its place, or hold anything up.
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

/// The audit's case: 34 of these were enough to keep every other client out.
#[test]
fn clients_that_follow_the_log_or_wait_leave_room_for_others() {
    let Some(lab) = Lab::build("clients_that_follow") else { return };
    let mut target = Target::start(&lab.left);
    let mut followers: Vec<UnixStream> = (0..3 * CLIENTS)
        .map(|_| {
            let mut client = target.connect();
            client.write_all(FOLLOW).unwrap();
            // A place of those who ask is free again when the request has been read.
            target.is_well();
            client
        })
        .collect();
    // The newest ones still follow: they get what is written now.
    let mut newest = followers.pop().unwrap();
    newest.set_read_timeout(Some(GRACE)).unwrap();
    assert!(!lab.left.casemate(&["reload"]).status.success(), "manual keys are not read again");
    let mut line = [0; 7];
    newest.read_exact(&mut line).unwrap();
    assert_eq!(&line, b"reload:");
    // The oldest ones had to give way.
    assert!(read_all(&mut followers[0]).is_empty());
    let descriptors = std::fs::read_dir(format!("/proc/{}/fd", target.running.child.id())).unwrap().count();
    assert!(descriptors < 3 * CLIENTS, "{descriptors} descriptors");
    target.is_well();
    assert!(target.running.stop().success());
}

#[test]
fn a_client_that_does_not_read_the_log_is_left() {
    let Some(lab) = Lab::build("a_client_that_does_not_read") else { return };
    let mut target = Target::start(&lab.left);
    let mut deaf = target.connect();
    deaf.write_all(FOLLOW).unwrap();
    target.is_well();
    // More than a socket holds, each with a line of the log.
    let reload = b"{\"do\": \"reload\"}\n";
    for _ in 0..1_000 {
        assert!(!target.answer(reload).is_empty());
    }
    let start = Instant::now();
    while deaf.write_all(b" ").is_ok() {
        assert!(start.elapsed() < PATIENCE + GRACE, "it still has its place");
        thread::sleep(Duration::from_millis(100));
    }
    let got = read_all(&mut deaf);
    assert!(got.len() < 1_000 * 70, "everything went into the socket: {}", got.len());
    target.is_well();
    assert!(target.running.stop().success());
}

/// A process that passes for an instance: whatever is asked, it says this.
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

/// What `casemate` with these arguments says with this temporary directory.
fn says(host: &Host, temporary: &Path, args: &[&str]) -> (bool, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_casemate"));
    command.args(args).env("TMPDIR", temporary).env_remove("XDG_RUNTIME_DIR");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let output = host.netns.spawn(&mut command).unwrap().wait_with_output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

/// The audit's case: another user made root's directory below /tmp, with a socket in it.
#[test]
fn another_user_cannot_pass_for_an_instance() {
    let Some(lab) = Lab::build("another_user_cannot_pass") else { return };
    let scratch = casemate_scratch::Scratch::new("impostor");
    std::fs::set_permissions(scratch.path(), Permissions::from_mode(0o1777)).unwrap();
    let namespace = lab.left.run(|| std::fs::metadata("/proc/thread-self/ns/net")).unwrap().ino();
    let directory = scratch.file(&format!("casemate-{}", std::fs::metadata(scratch.path()).unwrap().uid()));
    std::fs::create_dir(&directory).unwrap();
    let listener = UnixListener::bind(directory.join(format!("net{namespace}-evil0.sock"))).unwrap();
    pass_off(
        listener,
        "{\"ok\": false, \"error\": \"\\u001b[2Jgotcha\\n\\u009b31m\", \"version\": \"\\u001b[2Jgotcha\\u202e\", \"tun\": \"a\\nb\"}\n",
    );
    let ask = || {
        [&["status"][..], &["status", "--json"], &["terminate", "t"], &["log"]]
            .map(|args| says(&lab.left, scratch.path(), args))
    };
    // As its owner would have it: for this user alone. What is shown is escaped all the same.
    std::fs::set_permissions(&directory, Permissions::from_mode(0o700)).unwrap();
    for (_, said) in ask() {
        assert!(said.contains("gotcha"), "the socket was not found: {said}");
        let raw = |sign: char| sign != '\n' && (sign.is_control() || sign == '\u{202e}');
        assert!(!said.contains(raw), "{said:?}");
    }
    // Open for others, a symbolic link, or another user's: it is not even asked.
    std::fs::set_permissions(&directory, Permissions::from_mode(0o755)).unwrap();
    assert!(ask().iter().all(|(found, said)| !found && !said.contains("gotcha")), "{:?}", ask());
    std::fs::set_permissions(&directory, Permissions::from_mode(0o700)).unwrap();
    std::os::unix::fs::chown(&directory, Some(12_345), None).unwrap();
    assert!(ask().iter().all(|(found, said)| !found && !said.contains("gotcha")), "{:?}", ask());
    // The real instance is found beside it.
    let running = lab.left.protect("ip xfrm policy add dst 10.99.0.0/16 dir out action block\n");
    let (found, said) = says(&lab.left, scratch.path(), &["status"]);
    assert!(found && said.contains(lab::TUN) && !said.contains("gotcha"), "{said}");
    assert!(running.stop().success());
}
