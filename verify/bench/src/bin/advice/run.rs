//! End-to-end measurement of one suite: a device, `casemate stack` on the measured machine, and a gateway
//! of this machine, `casemate run`, with an SA negotiated by IKEv2. One TCP stream flows from the device,
//! and then another one to it.
//!
//! The application of the device runs in this program, over the memory that it shares with the stack.

use casemate_advise::rank::ScoredSuite;
use casemate_advise::rules::{Filter, Keying};
use casemate_advise::suites;
use casemate_advise::suites::proposal_keyword;
use casemate_crypto::EspSuite;
use casemate_socketd_client::{Session, TcpStream};
use casemate_testbed::{Background, Error, Netns, Result, sys};
use serde_json::Value;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{fs, thread};

const DEVICE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));
/// Timeout of programs and sockets. Emulated programs are slow.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Time until TCP reaches its full rate.
const WARM_UP: Duration = Duration::from_millis(500);
const CHUNK: usize = 16 << 10;

/// Nanoseconds per byte in the slower direction.
pub(crate) fn run(
    machine: &Machine,
    own: &Machine,
    suite: EspSuite,
    seconds: Duration,
    directory: &Path,
) -> Result<f64> {
    fs::create_dir_all(directory).map_err(Error::context(directory.display()))?;
    let netns = Netns::new()?;
    let (socket, device_conf) = (directory.join("sock"), directory.join("device.conf"));
    write(&device_conf, &conf(DEVICE, PEER, suite))?;
    let mut device = netns.command(&machine.program);
    device.args(["stack", "--tap", "tap0", "--address", "192.0.2.1/24", "--socket"]).arg(&socket);
    device.arg("--config").arg(&device_conf);
    let _device = start("casemate stack", device, &directory.join("device"))?;
    netns.ip("addr add 192.0.2.2/24 dev tap0\n")?;
    let peer_conf = directory.join("peer.conf");
    write(&peer_conf, &conf(PEER, DEVICE, suite))?;
    let mut peer = netns.command(&own.program);
    peer.arg("run").arg("--config").arg(&peer_conf);
    let _peer = start("casemate run", peer, &directory.join("peer"))?;
    let stack = Session::connect(&socket).map_err(Error::context(socket.display()))?;
    streams(&netns, &stack, seconds).map_err(Error::context(format!("{} with {suite}", machine.name)))
}

fn start(name: &str, command: std::process::Command, output: &Path) -> Result<Background> {
    let mut process = Background::start(name, command, output)?;
    process.wait_until(TIMEOUT, |said| said.lines().any(|line| line == "ready"))?;
    Ok(process)
}

fn write(file: &Path, text: &str) -> Result<()> {
    fs::write(file, text).map_err(Error::context(file.display()))
}

/// Configuration of a connection in transport mode. The IKE proposal is an AEAD cipher for every suite.
fn conf(own: IpAddr, other: IpAddr, suite: EspSuite) -> String {
    format!(
        "connections {{\n  device {{\n    local_addrs = {own}\n    remote_addrs = {other}\n    \
         proposals = chacha20poly1305-prfsha256-x25519\n    local {{\n      auth = psk\n    }}\n    \
         remote {{\n      auth = psk\n    }}\n    children {{\n      all {{\n        mode = transport\n        \
         esp_proposals = {}\n        start_action = trap\n      }}\n    }}\n  }}\n}}\n\
         secrets {{\n  ike {{\n    secret = \"for a measurement and nothing else\"\n  }}\n}}\n",
        proposal_keyword(suite)
    )
}

fn streams(netns: &Netns, stack: &Session, seconds: Duration) -> io::Result<f64> {
    let pid = netns.pid();
    let listen = || {
        sys::enter_netns_of(pid)?;
        TcpListener::bind((PEER, 0))
    };
    let listener = thread::scope(|scope| scope.spawn(listen).join())
        .unwrap_or_else(|_| Err(io::Error::other("the listener panicked")))?;
    let to: SocketAddr = listener.local_addr()?;
    let connect = || {
        let near = TcpStream::connect_timeout(stack, to, TIMEOUT)?;
        near.set_read_timeout(Some(TIMEOUT));
        near.set_write_timeout(Some(TIMEOUT));
        let (far, _) = listener.accept()?;
        far.set_read_timeout(Some(TIMEOUT))?;
        far.set_write_timeout(Some(TIMEOUT))?;
        Ok::<_, io::Error>((near, far))
    };
    let (near, far) = connect()?;
    let out = rate(near, far, seconds)?;
    let (near, far) = connect()?;
    let back = rate(far, near, seconds)?;
    Ok(1e9 / out.min(back))
}

/// Bytes per second from one side to the other, as the reader counts them.
fn rate(from: impl Write + Send, mut to: impl Read, seconds: Duration) -> io::Result<f64> {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut from = from;
            let chunk = vec![0x5a; CHUNK];
            let mut is_open = true;
            while is_open {
                is_open = from.write_all(&chunk).is_ok() && !is_over.load(Ordering::Relaxed);
            }
            // The reader sees the end of the stream.
            drop(from);
        });
        let result = read_for(&mut to, WARM_UP).and_then(|_| read_for(&mut to, seconds));
        is_over.store(true, Ordering::Relaxed);
        // Without a reader, the writer would wait for its whole timeout.
        let rest = read_for(&mut to, TIMEOUT);
        match rest {
            Ok(_) => Err(io::ErrorKind::TimedOut.into()),
            Err(_) => result,
        }
    })
}

fn read_for(from: &mut impl Read, time: Duration) -> io::Result<f64> {
    let (start, mut bytes, mut chunk) = (Instant::now(), 0, vec![0; CHUNK]);
    while start.elapsed() < time {
        match from.read(&mut chunk)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            len => bytes += len,
        }
    }
    Ok(bytes as f64 / start.elapsed().as_secs_f64())
}

/// Machine that runs `casemate`.
pub(crate) struct Machine {
    pub(crate) name: String,
    /// Program that runs `casemate` on the machine.
    pub(crate) program: PathBuf,
}

impl Machine {
    /// The machine that runs the benchmark.
    pub(crate) fn own(programs: &Path) -> Self {
        Self { name: "this machine".into(), program: programs.join("casemate") }
    }

    /// Output of `casemate advise` on the machine, with these additional arguments.
    pub(crate) fn advice(&self, arguments: &[&str]) -> Result<Value> {
        let mut command = Command::new(&self.program);
        let output = command.args(["advise", "--json"]).args(arguments).output();
        let output = output.map_err(Error::context(self.program.display()))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(Error::new(format!("{}: casemate advise: {said}", self.name)));
        }
        serde_json::from_slice(&output.stdout).map_err(Error::context(&self.name))
    }
}

/// Ranking in the output of `casemate advise`. Only the medians of its measurements are kept.
pub(crate) fn ranking(answer: &Value) -> Result<Vec<ScoredSuite>> {
    let wrong = || Error::new("the output of casemate advise has no ranking");
    let places = answer["ranking"].as_array().filter(|places| !places.is_empty()).ok_or_else(wrong)?;
    places.iter().map(|place| spot(place).ok_or_else(wrong)).collect()
}

fn spot(place: &Value) -> Option<ScoredSuite> {
    let suite = named(place["suite"].as_str()?)?;
    let admitted = Filter::new(None, false).ok()?.esp(suite, Keying::Negotiated).ok()?;
    let median = place["number"]["median"].as_f64()?;
    let (cpu, bytes) = (place["cpu_ns_per_byte"].as_f64()?, place["air_bytes_per_byte"].as_f64()?);
    Some(ScoredSuite { suite, admitted, scores: vec![median], median, cpu, bytes })
}

fn named(name: &str) -> Option<EspSuite> {
    suites::all().into_iter().find(|suite| suite.to_string() == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn ranking_is_parsed() {
        let place = |suite: &str| json!({ "suite": suite, "number": { "median": 2.5 }, "cpu_ns_per_byte": 3.0, "air_bytes_per_byte": 1.1 });
        let answer = json!({ "ranking": [place("ENCR_CHACHA20_POLY1305"), place("ENCR_AES_GCM_16-128")] });
        let spots = ranking(&answer).unwrap();
        assert_eq!(spots[1].suite.to_string(), "ENCR_AES_GCM_16-128");
        assert!((spots[0].median - 2.5).abs() < f64::EPSILON);
        assert!(ranking(&json!({ "ranking": [] })).is_err());
        assert!(ranking(&json!({ "ranking": [place("ENCR_DES-64")] })).is_err());
    }
}
