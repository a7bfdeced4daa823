//! Hosts inside this host: network namespaces that have no name and so cannot be left behind.
//!
//! A namespace lives as long as its [`Netns`], a socket or a process in it, also after a panic or a kill. Work is done in
//! one by a thread that moves there and ends there. Used by `casemate demo` and by tests; nothing here moves packets.

mod capture;
mod echo;
mod inject;

pub use capture::Capture;
pub use echo::Echo;
pub use inject::Inject;

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

/// Takes this process out of the system's view of files and, unless it may change networks as it is, out of the system's
/// users: in a user namespace of its own it is root. Afterwards /run is an empty directory in memory that nobody else sees.
///
/// To be called before the process starts any thread, for the kernel moves only such a process into a user namespace.
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

/// Enters a new user namespace, whose root is the present user.
fn become_root() -> Result<(), Error> {
    let user = fs::metadata("/proc/self").map_err(|error| Error::new("/proc/self", error))?;
    let failed = |what: &str| {
        let what = format!("as root of a user namespace: {what}");
        move |error| Error::new(what, error)
    };
    unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNS).map_err(failed("unshare"))?;
    // Without this the kernel lets nobody but the system's root map a group (user_namespaces(7)).
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
    // SAFETY: the strings end in zero and live for the whole call; neither flags nor file systems used here need data.
    sys::check(unsafe { libc::mount(source.as_ptr(), target.as_ptr(), kind, flags, ptr::null()) }).map(drop)
}

/// A network namespace.
#[derive(Debug)]
pub struct Netns(File);

impl Netns {
    /// A new one, in which nothing but the loopback interface is, and that is up.
    pub fn new() -> Result<Self, Error> {
        let failed = |error| Error::new("new network namespace", error);
        let make = || {
            unshare(libc::CLONE_NEWNET)?;
            File::open("/proc/thread-self/ns/net")
        };
        let netns = Self(in_thread(make).map_err(failed)?.map_err(failed)?);
        netns.run(|| {
            // No address is given out twice here, so those of interfaces that come later are valid at once.
            // Without IPv6 the file is not there.
            let _ = fs::write("/proc/sys/net/ipv6/conf/default/accept_dad", "0");
            let mut netlink = Netlink::open()?;
            let lo = netlink.link("lo")?;
            netlink.set_up(lo.index, lo.mtu)
        })??;
        Ok(netns)
    }

    /// Does something inside, in a thread of its own. Sockets that are opened there stay there, whoever uses them.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, Error> {
        let inside = || {
            enter(self.0.as_fd())?;
            Ok(work())
        };
        in_thread(inside).and_then(|result| result).map_err(|error| Error::new("network namespace", error))
    }

    /// Starts a program inside. It ends with the thread that calls this, however that ends.
    pub fn spawn(&self, command: &mut Command) -> Result<Child, Error> {
        let netns = self.0.try_clone().map_err(|error| Error::new("network namespace", error))?;
        let parent = std::process::id();
        let prepare = move || {
            enter(netns.as_fd())?;
            sys::die_with_parent(parent)
        };
        // SAFETY: between fork and exec only what is async-signal-safe may be done: `prepare` makes system calls, compares
        // numbers and, in an error, carries a number; it neither allocates nor locks.
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
    // SAFETY: setns takes two numbers and touches no memory of ours; the descriptor is borrowed for the whole call.
    sys::check(unsafe { libc::setns(netns.as_raw_fd(), libc::CLONE_NEWNET) }).map(drop)
}

/// The calling thread stays where it is.
fn in_thread<T: Send>(work: impl FnOnce() -> T + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().spawn_scoped(scope, work)?;
        thread.join().map_err(|_| io::Error::other("the thread inside panicked"))
    })
}

/// Adds the route to `dst` through the router `via`, from the address `src` unless the sender chooses another.
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

/// Asks a program to end (SIGTERM), waits, and kills it when `patience` is over.
pub fn terminate(child: &mut Child, patience: Duration) -> io::Result<ExitStatus> {
    if let Some(status) = child.try_wait()? {
        return Ok(status);
    }
    let pid = c_int::try_from(child.id()).map_err(io::Error::other)?;
    // SAFETY: kill takes two numbers. The child was not waited for, so that the number is still its own.
    sys::check(unsafe { libc::kill(pid, libc::SIGTERM) })?;
    let start = Instant::now();
    while start.elapsed() < patience {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        thread::sleep(Duration::from_millis(2));
    }
    child.kill()?;
    child.wait()
}

#[cfg(test)]
mod tests;
