//! A turn of one suite: a device, `casemate stack` on the machine that is asked about, and a gateway of this one, `casemate run`, with an
//! SA by IKEv2 between them. A TCP stream flows out of the device, then another one into it.
//!
//! The application on the device is this program, over the memory that it shares with the stack.

use crate::machine::Machine;
use casemate_advise::suites::spelling;
use casemate_crypto::EspSuite;
use casemate_shm::{Stack, TcpStream};
use casemate_stage::{Background, Error, Netns, Result, sys};
use std::fs;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const DEVICE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));
/// An emulated program takes its time.
const PATIENCE: Duration = Duration::from_secs(30);
/// Of TCP, until it goes as fast as it can.
const WARM_UP: Duration = Duration::from_millis(500);
const PIECE: usize = 16 << 10;

/// Nanoseconds for a byte in the slower direction.
pub(crate) fn run(
    machine: &Machine,
    own: &Machine,
    suite: EspSuite,
    seconds: Duration,
    directory: &Path,
) -> Result<f64> {
    fs::create_dir_all(directory).map_err(Error::in_front(directory.display()))?;
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
    let stack = Stack::connect(&socket).map_err(Error::in_front(socket.display()))?;
    streams(&netns, &stack, seconds).map_err(Error::in_front(format!("{} with {suite}", machine.name)))
}

fn start(name: &str, command: std::process::Command, output: &Path) -> Result<Background> {
    let mut process = Background::start(name, command, output)?;
    process.wait_until(PATIENCE, |said| said.lines().any(|line| line == "ready"))?;
    Ok(process)
}

fn write(file: &Path, text: &str) -> Result<()> {
    fs::write(file, text).map_err(Error::in_front(file.display()))
}

/// A connection in transport mode. The key exchange is one of an authenticated cipher, whatever the suite is.
fn conf(own: IpAddr, other: IpAddr, suite: EspSuite) -> String {
    format!(
        "connections {{\n  device {{\n    local_addrs = {own}\n    remote_addrs = {other}\n    \
         proposals = chacha20poly1305-prfsha256-x25519\n    local {{\n      auth = psk\n    }}\n    \
         remote {{\n      auth = psk\n    }}\n    children {{\n      all {{\n        mode = transport\n        \
         esp_proposals = {}\n        start_action = trap\n      }}\n    }}\n  }}\n}}\n\
         secrets {{\n  ike {{\n    secret = \"for a measurement and nothing else\"\n  }}\n}}\n",
        spelling(suite)
    )
}

fn streams(netns: &Netns, stack: &Stack, seconds: Duration) -> io::Result<f64> {
    let pid = netns.pid();
    let listen = || {
        sys::enter_network_of(pid)?;
        TcpListener::bind((PEER, 0))
    };
    let listener = thread::scope(|scope| scope.spawn(listen).join())
        .unwrap_or_else(|_| Err(io::Error::other("the listener panicked")))?;
    let to: SocketAddr = listener.local_addr()?;
    let connect = || {
        let near = TcpStream::connect_timeout(stack, to, PATIENCE)?;
        near.set_read_timeout(Some(PATIENCE));
        near.set_write_timeout(Some(PATIENCE));
        let (far, _) = listener.accept()?;
        far.set_read_timeout(Some(PATIENCE))?;
        far.set_write_timeout(Some(PATIENCE))?;
        Ok::<_, io::Error>((near, far))
    };
    let (near, far) = connect()?;
    let out = rate(near, far, seconds)?;
    let (near, far) = connect()?;
    let back = rate(far, near, seconds)?;
    Ok(1e9 / out.min(back))
}

/// Bytes a second from one to the other, as they are read.
fn rate(from: impl Write + Send, mut to: impl Read, seconds: Duration) -> io::Result<f64> {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut from = from;
            let piece = vec![0x5a; PIECE];
            let mut goes_on = true;
            while goes_on {
                goes_on = from.write_all(&piece).is_ok() && !is_over.load(Ordering::Relaxed);
            }
            // The reader sees the end.
            drop(from);
        });
        let result = read_for(&mut to, WARM_UP).and_then(|_| read_for(&mut to, seconds));
        is_over.store(true, Ordering::Relaxed);
        // A writer whose bytes nobody takes would wait for its whole patience.
        let rest = read_for(&mut to, PATIENCE);
        match rest {
            Ok(_) => Err(io::ErrorKind::TimedOut.into()),
            Err(_) => result,
        }
    })
}

fn read_for(from: &mut impl Read, time: Duration) -> io::Result<f64> {
    let (start, mut bytes, mut piece) = (Instant::now(), 0, vec![0; PIECE]);
    while start.elapsed() < time {
        match from.read(&mut piece)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            len => bytes += len,
        }
    }
    Ok(bytes as f64 / start.elapsed().as_secs_f64())
}
