//! Network namespaces without a name, which therefore cannot be left behind: hosts inside this host.
//!
//! A namespace lives as long as its [`Netns`], a socket or a process in it, and ends also after a panic or a
//! kill. Work inside is done by a thread that enters the namespace and ends there. Used by `casemate demo`
//! and by tests; packets of a running engine never pass this module.

mod frames;
mod ping;

pub use frames::{FrameCapture, FrameInjector};
pub use ping::{EchoReply, Ping};

use crate::netlink::{Netlink, family, route_address};
use crate::route::Prefix;
use crate::{Error, sys};
use libc::c_int;
use netlink_packet_route::route::{RouteAttribute, RouteMessage, RouteProtocol, RouteScope, RouteType};
use std::ffi::CStr;
use std::fs::{self, File};
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::ptr;
use std::thread;
use std::time::{Duration, Instant};

/// Moves this process into a mount namespace and, unless it may change networks already, into a user
/// namespace in which it is root. Afterwards /run is an empty directory in memory that no other process sees.
///
/// Must be called before the process starts a thread, because the kernel moves only such a process into a
/// user namespace.
pub fn isolate() -> Result<(), Error> {
    if let Err(direct) = unshare(libc::CLONE_NEWNS) {
        become_root().map_err(|error| {
            Error::other("namespaces", format!("as the user that this is: unshare: {direct}; {error}"))
        })?;
    }
    mount(c"none", c"/", None, libc::MS_REC | libc::MS_PRIVATE)
        .map_err(|error| Error::new("mount namespace: make / private", error))?;
    mount(c"tmpfs", c"/run", Some(c"tmpfs"), libc::MS_NOSUID | libc::MS_NODEV)
        .map_err(|error| Error::new("mount namespace: tmpfs on /run", error))
}

/// Enters a new user namespace in which the current user is root.
fn become_root() -> Result<(), Error> {
    let user = fs::metadata("/proc/self").map_err(|error| Error::new("/proc/self", error))?;
    let failed = |what: &str| {
        let what = format!("as root of a user namespace: {what}");
        move |error| Error::new(what, error)
    };
    unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNS).map_err(failed("unshare"))?;
    // Without this, the kernel lets only root of the system map a group (user_namespaces(7)).
    fs::write("/proc/self/setgroups", "deny").map_err(failed("/proc/self/setgroups"))?;
    fs::write("/proc/self/uid_map", format!("0 {} 1", user.uid())).map_err(failed("/proc/self/uid_map"))?;
    fs::write("/proc/self/gid_map", format!("0 {} 1", user.gid())).map_err(failed("/proc/self/gid_map"))
}

fn unshare(flags: c_int) -> io::Result<()> {
    // SAFETY: unshare takes a number and touches no memory of ours.
    sys::check(unsafe { libc::unshare(flags) }).map(drop)
}

fn mount(source: &CStr, target: &CStr, kind: Option<&CStr>, flags: libc::c_ulong) -> io::Result<()> {
    let kind = kind.map_or(ptr::null(), CStr::as_ptr);
    // SAFETY: the strings end in zero and live for the whole call; neither flags nor file systems used here
    // need data.
    sys::check(unsafe { libc::mount(source.as_ptr(), target.as_ptr(), kind, flags, ptr::null()) }).map(drop)
}

/// A network namespace.
#[derive(Debug)]
pub struct Netns(File);

impl Netns {
    /// Creates a namespace with only the loopback interface, which is up.
    pub fn new() -> Result<Self, Error> {
        let failed = |error| Error::new("new network namespace", error);
        let make = || {
            unshare(libc::CLONE_NEWNET)?;
            File::open("/proc/thread-self/ns/net")
        };
        let netns = Self(in_thread(make).map_err(failed)?.map_err(failed)?);
        netns.run(|| {
            // Addresses are unique here, so those of later interfaces are valid at once. Without IPv6 the
            // file does not exist.
            let _ = fs::write("/proc/sys/net/ipv6/conf/default/accept_dad", "0");
            let mut netlink = Netlink::open()?;
            let lo = netlink.link("lo")?;
            netlink.set_up(lo.index, lo.mtu)
        })??;
        Ok(netns)
    }

    /// Calls `work` inside, in a thread of its own. Sockets that it opens stay inside, whichever thread uses
    /// them.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, Error> {
        let inside = || {
            enter(self.0.as_fd())?;
            Ok(work())
        };
        in_thread(inside).and_then(|result| result).map_err(|error| Error::new("network namespace", error))
    }

    /// Starts a program inside. It ends with the calling thread, whatever ends that thread.
    pub fn spawn(&self, command: &mut Command) -> Result<Child, Error> {
        let netns = self.0.try_clone().map_err(|error| Error::new("network namespace", error))?;
        let parent = std::process::id();
        let prepare = move || {
            enter(netns.as_fd())?;
            sys::die_with_parent(parent)
        };
        // SAFETY: between fork and exec only what is async-signal-safe may be done: `prepare` makes system
        // calls, compares numbers and, in an error, carries a number; it neither allocates nor locks.
        unsafe { command.pre_exec(prepare) };
        command
            .spawn()
            .map_err(|error| Error::new(format!("start of {}", command.get_program().display()), error))
    }
}

impl AsFd for Netns {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Moves the calling thread into a network namespace.
fn enter(netns: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: setns takes two numbers and touches no memory of ours; the descriptor is borrowed for the whole
    // call.
    sys::check(unsafe { libc::setns(netns.as_raw_fd(), libc::CLONE_NEWNET) }).map(drop)
}

/// Calls `work` in a new thread; the calling thread stays in its namespace.
fn in_thread<T: Send>(work: impl FnOnce() -> T + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().spawn_scoped(scope, work)?;
        thread.join().map_err(|_| io::Error::other("the thread inside panicked"))
    })
}

/// Adds the route to `dst` through the router `via`, with the source address `src` unless the sender chooses
/// another.
pub fn add_route(netlink: &mut Netlink, dst: Prefix, via: IpAddr, src: IpAddr) -> Result<(), Error> {
    let mut message = RouteMessage::default();
    message.header.address_family = family(dst.is_ipv4());
    message.header.destination_prefix_length = dst.len;
    message.header.table = libc::RT_TABLE_MAIN;
    message.header.protocol = RouteProtocol::Static;
    message.header.scope = RouteScope::Universe;
    message.header.kind = RouteType::Unicast;
    message.attributes = vec![
        RouteAttribute::Destination(route_address(dst.addr)),
        RouteAttribute::Gateway(route_address(via)),
        RouteAttribute::PrefSource(route_address(src)),
    ];
    netlink.add_route(message).map_err(|error| Error::new(format!("route to {dst} via {via}"), error))
}

/// Sends SIGTERM to a program and waits for its end; kills it when `timeout` is over.
pub fn terminate(child: &mut Child, timeout: Duration) -> io::Result<ExitStatus> {
    if let Some(status) = child.try_wait()? {
        return Ok(status);
    }
    let pid = c_int::try_from(child.id()).map_err(io::Error::other)?;
    // SAFETY: kill takes two numbers. The child was not waited for, so that the number is still its own.
    sys::check(unsafe { libc::kill(pid, libc::SIGTERM) })?;
    let start = Instant::now();
    while start.elapsed() < timeout {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        thread::sleep(Duration::from_millis(2));
    }
    child.kill()?;
    child.wait()
}

#[cfg(test)]
mod tests {
    use super::*;
    use casemate_test_support::eventually;
    use std::io::Read;
    use std::net::{Ipv4Addr, TcpListener, TcpStream};
    use std::os::unix::process::ExitStatusExt;
    use std::process::Stdio;

    /// `None` where tests may not make namespaces.
    fn netns() -> Option<Netns> {
        match Netns::new() {
            Ok(netns) => Some(netns),
            Err(error) => {
                casemate_test_support::skip(error);
                None
            }
        }
    }

    #[test]
    fn sockets_stay_in_their_namespace() {
        let Some(netns) = netns() else { return };
        let listener = netns.run(|| TcpListener::bind((Ipv4Addr::LOCALHOST, 7)).unwrap()).unwrap();
        let addr = listener.local_addr().unwrap();
        assert!(TcpStream::connect(addr).is_err(), "the namespace is not the one outside");
        assert!(netns.run(|| TcpStream::connect(addr)).unwrap().is_ok());
        let links = netns.run(|| Netlink::open().unwrap().links().unwrap()).unwrap();
        assert!(links.iter().any(|link| link.name == "lo"), "{links:?}");
    }

    #[test]
    fn ping_returns_the_payload_and_is_captured() {
        let Some(netns) = netns() else { return };
        let heard = netns.run(|| {
            let capture = FrameCapture::open(Netlink::open().unwrap().link("lo").unwrap().index).unwrap();
            for dst in ["127.0.0.1", "::1"] {
                let mut echo = Ping::open(dst.parse().unwrap()).unwrap();
                for payload in [&b"is anybody there"[..], &[7; 3000]] {
                    let reply = echo.send(payload, Duration::from_secs(20)).unwrap().payload;
                    assert_eq!(reply, payload, "{dst}");
                }
            }
            assert_eq!(capture.lost().unwrap(), 0);
            let (mut frames, mut buffer) = (Vec::new(), vec![0; 70_000]);
            while let Some(len) = capture.next(&mut buffer, Duration::from_millis(10)).unwrap() {
                frames.push(buffer[..len].to_vec());
            }
            frames
        });
        let heard = heard.unwrap();
        let words = |frame: &&Vec<u8>| frame.windows(16).any(|window| window == b"is anybody there");
        // Request and reply of both IP versions, each of them sent and received.
        assert_eq!(heard.iter().filter(words).count(), 8);
    }

    #[test]
    fn ping_without_reply_times_out() {
        let Some(netns) = netns() else { return };
        let error = netns.run(|| {
            // No host replies, but there is no error either: the loopback interface takes every packet.
            let mut netlink = Netlink::open().unwrap();
            let lo = netlink.link("lo").unwrap();
            netlink.add_address(lo.index, [10, 0, 0, 1].into(), 24).unwrap();
            std::fs::write("/proc/sys/net/ipv4/icmp_echo_ignore_all", "1").unwrap();
            Ping::open([10, 0, 0, 1].into()).unwrap().send(b"hello", Duration::from_millis(50)).unwrap_err()
        });
        assert_eq!(error.unwrap().kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn programs_run_inside_and_can_be_terminated() {
        let Some(netns) = netns() else { return };
        let outside = fs::metadata("/proc/self/ns/net").unwrap().ino();
        let mut child = netns.spawn(Command::new("sleep").arg("60")).unwrap();
        let inside = fs::metadata(format!("/proc/{}/ns/net", child.id())).unwrap().ino();
        assert_ne!(inside, outside);
        assert_eq!(inside, netns.0.metadata().unwrap().ino());
        let status = terminate(&mut child, Duration::from_secs(20)).unwrap();
        assert_eq!(status.signal(), Some(libc::SIGTERM));
        let mut deaf = Command::new("sh");
        deaf.args(["-c", "trap '' TERM; echo deaf; while :; do sleep 0.1; done"]).stdout(Stdio::piped());
        let mut child = netns.spawn(&mut deaf).unwrap();
        child.stdout.take().unwrap().read_exact(&mut [0; 5]).unwrap();
        assert_eq!(terminate(&mut child, Duration::from_millis(50)).unwrap().signal(), Some(libc::SIGKILL));
    }

    #[test]
    fn programs_end_with_the_thread_that_started_them() {
        let Some(netns) = netns() else { return };
        let start = || netns.spawn(Command::new("sleep").arg("60"));
        let mut child = in_thread(start).unwrap().unwrap();
        eventually("it ends", || child.try_wait().unwrap());
    }
}
