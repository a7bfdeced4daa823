//! System calls for which there is no suitable safe crate, each in one safe function.
//!
//! This module and `netns`, which changes the namespaces of threads, have the only unsafe code of this crate.

mod event;
mod link;
mod message;
mod tun;

pub(crate) use event::{Epoll, EventFd, NumberedFd};
pub(crate) use link::{LINK_ADDRESS_LEN, LinkAddress, LinkPacket, send_to_links};
pub(crate) use message::{DatagramMeta, receive_batch, send_batch, send_from, send_gso};
#[cfg(test)]
pub(crate) use tun::bpf_run;
pub(crate) use tun::{
    bpf_load, tun_set_header_len, tun_set_iff, tun_set_offload, tun_set_persistent, tun_set_steering,
};

use crate::unix_socket::PollFd;
use libc::c_int;
use socket2::{SockFilter, Socket};
use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;
use std::time::Duration;

/// From `asm-generic/socket.h`: the crate `libc` has it only for some processors.
const SO_NETNS_COOKIE: c_int = 71;

/// Converts the result of a C function into an error if it failed.
pub(crate) fn check(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Converts the result of a C function, a number of items, into an error if it is negative.
pub(crate) fn check_count(result: c_int) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// The effective user ID of this process.
pub(crate) fn effective_user() -> u32 {
    // SAFETY: the call takes no pointers and cannot fail.
    unsafe { libc::geteuid() }
}

/// Makes the kernel kill this process when the thread that started it ends. To be called between fork and
/// exec in a child of `parent`: it neither allocates nor locks.
pub(crate) fn die_with_parent(parent: u32) -> io::Result<()> {
    // SAFETY: this prctl takes a number and touches no memory of ours.
    check(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) })?;
    // The parent may have ended just before.
    if std::os::unix::process::parent_id() == parent { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
}

/// Unblocks all signals of this thread. To be called between fork and exec: it neither allocates nor locks.
pub(crate) fn unblock_signals() -> io::Result<()> {
    // SAFETY: a signal set is plain data, which sigemptyset writes completely before it is read.
    let result = unsafe {
        let mut none: libc::sigset_t = mem::zeroed();
        libc::sigemptyset(&mut none);
        libc::pthread_sigmask(libc::SIG_SETMASK, &none, ptr::null_mut())
    };
    if result == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(result)) }
}

/// Waits until one of `fds` is readable or `timeout` is over, and sets `ready` for each readable one. A
/// signal ends the wait early.
pub(crate) fn poll_readable<const N: usize>(
    fds: &[BorrowedFd<'_>; N],
    ready: &mut [bool; N],
    timeout: Duration,
) -> io::Result<()> {
    let mut polled =
        fds.each_ref().map(|fd| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 });
    // SAFETY: `polled` is a valid array of that many pollfd for the whole call.
    let result =
        check(unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, millis(timeout)) });
    match result {
        Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
        _ => {}
    }
    for (ready, polled) in ready.iter_mut().zip(&polled) {
        *ready = polled.revents != 0;
    }
    Ok(())
}

/// Waits until one of the descriptors is readable or writable, as each asks, or `timeout` is over. A signal
/// ends the wait early.
pub(crate) fn poll(descriptors: &mut [PollFd<'_>], timeout: Duration) -> io::Result<()> {
    let event = |wanted: bool, event| if wanted { event } else { 0 };
    let mut polled: Vec<libc::pollfd> = descriptors
        .iter()
        .map(|d| libc::pollfd {
            fd: d.fd.as_raw_fd(),
            events: event(d.reading, libc::POLLIN) | event(d.writing, libc::POLLOUT),
            revents: 0,
        })
        .collect();
    // SAFETY: `polled` is a valid array of that many pollfd for the whole call.
    let result =
        check(unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, millis(timeout)) });
    match result {
        Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
        _ => {}
    }
    for (descriptor, polled) in descriptors.iter_mut().zip(&polled) {
        descriptor.readable = polled.revents & libc::POLLIN != 0;
        descriptor.writable = polled.revents & libc::POLLOUT != 0;
        descriptor.hung_up = polled.revents & (libc::POLLHUP | libc::POLLERR | libc::POLLNVAL) != 0;
    }
    Ok(())
}

/// The process at the other end of a Unix socket, as of its connect or listen.
pub(crate) struct PeerProcess {
    /// Effective user ID.
    pub(crate) user: u32,
    /// Process ID; 0 in another PID namespace.
    pub(crate) pid: i32,
}

/// Returns the process at the other end of a Unix socket.
pub(crate) fn peer_process(fd: BorrowedFd<'_>) -> io::Result<PeerProcess> {
    let mut who = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut len = mem::size_of::<libc::ucred>() as u32;
    // SAFETY: the pointers are to one ucred and to its size, which the kernel does not exceed.
    check(unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            ptr::from_mut(&mut who).cast(),
            &mut len,
        )
    })?;
    Ok(PeerProcess { user: who.uid, pid: who.pid })
}

/// Number of the network namespace in which a socket was opened (SO_NETNS_COOKIE). The kernel never uses it
/// again.
pub(crate) fn netns_cookie(fd: BorrowedFd<'_>) -> io::Result<u64> {
    let mut cookie: u64 = 0;
    let mut len = mem::size_of::<u64>() as u32;
    // SAFETY: the pointers are to one u64 and to its size, which the kernel does not exceed.
    check(unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_NETNS_COOKIE,
            ptr::from_mut(&mut cookie).cast(),
            &mut len,
        )
    })?;
    Ok(cookie)
}

/// Installs a seccomp filter in all threads of this process, which must have `no_new_privs`.
///
/// Without SECCOMP_FILTER_FLAG_SPEC_ALLOW, kernels before 5.16 switch speculative store bypass off for the
/// process, which is meant for code that is not trusted.
pub(crate) fn install_filter(program: &[seccompiler::sock_filter]) -> io::Result<()> {
    let program = libc::sock_fprog {
        len: u16::try_from(program.len()).map_err(io::Error::other)?,
        filter: program.as_ptr().cast_mut().cast(),
    };
    let flags = libc::SECCOMP_FILTER_FLAG_TSYNC | libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW;
    // SAFETY: the kernel copies the program, which lives for the whole call and is laid out as `sock_filter`.
    let result = unsafe {
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, ptr::from_ref(&program))
    };
    match result {
        0 => Ok(()),
        thread if thread > 0 => Err(io::Error::other(format!("thread {thread} cannot install it"))),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Timeout in milliseconds, rounded up, so that a wait of less than a millisecond does not become a busy
/// loop.
fn millis(timeout: Duration) -> c_int {
    c_int::try_from(timeout.as_micros().div_ceil(1_000)).unwrap_or(c_int::MAX)
}

/// Sets whether IPv4 packets from this socket have DF, independently of the path MTU that the kernel knows.
pub(crate) fn set_df(socket: &Socket, df: bool) -> io::Result<()> {
    if socket.domain()? == socket2::Domain::IPV6 {
        return set_option(
            socket.as_fd(),
            libc::IPPROTO_IPV6,
            libc::IPV6_MTU_DISCOVER,
            libc::IPV6_PMTUDISC_PROBE,
        );
    }
    let discovery = if df { libc::IP_PMTUDISC_PROBE } else { libc::IP_PMTUDISC_DONT };
    set_option(socket.as_fd(), libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, discovery)
}

/// Sets the size of the send buffer, in bytes; limited by the system if the process lacks the privilege.
pub(crate) fn enlarge_send_buffer(socket: &Socket, len: usize) -> io::Result<()> {
    let wanted = c_int::try_from(len).unwrap_or(c_int::MAX);
    set_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, wanted)
        .or_else(|_| socket.set_send_buffer_size(len))
}

/// Attaches a classic BPF program that selects one of the sockets that share a UDP port. It returns the index
/// of a socket, in the order of binding.
pub(crate) fn set_reuseport_program(fd: BorrowedFd<'_>, program: &[SockFilter]) -> io::Result<()> {
    let program = libc::sock_fprog {
        len: u16::try_from(program.len()).map_err(io::Error::other)?,
        filter: program.as_ptr().cast_mut().cast(),
    };
    let len = mem::size_of::<libc::sock_fprog>() as u32;
    // SAFETY: the pointer is to one sock_fprog, and the size says so; the kernel only reads the instructions,
    // which socket2 lays out as `sock_filter` and which live for the whole call.
    check(unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_REUSEPORT_CBPF,
            ptr::from_ref(&program).cast(),
            len,
        )
    })
    .map(drop)
}

/// Sets an option of type `int`.
pub(crate) fn set_option(fd: BorrowedFd<'_>, level: c_int, name: c_int, value: c_int) -> io::Result<()> {
    // SAFETY: the pointer is to one int, and the size says so.
    check(unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            name,
            ptr::from_ref(&value).cast(),
            mem::size_of::<c_int>() as u32,
        )
    })
    .map(drop)
}

/// Whether a process can be forked. The child ends at once.
#[cfg(test)]
pub(crate) fn forks() -> io::Result<()> {
    // SAFETY: the child does nothing but end, without any handler.
    match check(unsafe { libc::fork() })? {
        // SAFETY: the call takes a number and does not return.
        0 => unsafe { libc::_exit(0) },
        _ => Ok(()),
    }
}

/// Sets an option that is a byte string.
#[cfg(test)]
pub(crate) fn set_option_bytes(
    fd: BorrowedFd<'_>,
    level: c_int,
    name: c_int,
    value: &[u8],
) -> io::Result<()> {
    // SAFETY: the pointer is to as many bytes as the size says, and they live for the whole call.
    check(unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, value.as_ptr().cast(), value.len() as u32) })
        .map(drop)
}

/// Binds a packet socket to an EtherType on one interface, or on all if `ifindex` is 0.
pub(crate) fn bind_packet(fd: BorrowedFd<'_>, ethertype: u16, ifindex: u32) -> io::Result<()> {
    // SAFETY: sockaddr_ll is plain old data, for which all zeros is a valid value.
    let mut name: libc::sockaddr_ll = unsafe { mem::zeroed() };
    name.sll_family = libc::AF_PACKET as u16;
    name.sll_protocol = ethertype.to_be();
    name.sll_ifindex = c_int::try_from(ifindex).map_err(io::Error::other)?;
    let len = mem::size_of::<libc::sockaddr_ll>() as u32;
    // SAFETY: the pointer is to one sockaddr_ll, and the size says so.
    check(unsafe { libc::bind(fd.as_raw_fd(), ptr::from_ref(&name).cast(), len) }).map(drop)
}

/// Blocks these signals in the calling thread, and in threads that it starts, and opens a descriptor that is
/// readable when one of them has arrived.
pub(crate) fn signal_fd(signals: &[c_int]) -> io::Result<OwnedFd> {
    // SAFETY: sigset_t is plain old data, and sigemptyset makes it a valid empty set before it is used.
    let mut set: libc::sigset_t = unsafe { mem::zeroed() };
    // SAFETY: `set` is a valid object for the calls.
    unsafe {
        libc::sigemptyset(&mut set);
        for signal in signals {
            libc::sigaddset(&mut set, *signal);
        }
    }
    // SAFETY: `set` is initialised; no old mask is requested.
    let blocked = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &set, ptr::null_mut()) };
    if blocked != 0 {
        return Err(io::Error::from_raw_os_error(blocked));
    }
    // SAFETY: `set` is initialised, and -1 asks for a new descriptor.
    let fd = check(unsafe { libc::signalfd(-1, &set, libc::SFD_NONBLOCK | libc::SFD_CLOEXEC) })?;
    // SAFETY: the descriptor is new and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
