//! System calls that std does not have: CPU affinity and CPU time, the namespace of a thread, and many datagrams at once.

use std::fs::File;
use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::time::Duration;

/// Datagrams in one call.
const MANY: usize = 64;
/// Longer than any datagram that is received so.
const LONGEST: usize = 2_048;

/// Keeps this process, and what it starts from now on, on its first CPUs.
pub(crate) fn stay_on_cpus(count: usize) -> io::Result<()> {
    // SAFETY: cpu_set_t is plain data, for which all zeros are valid: no CPU.
    let (mut allowed, mut chosen): (libc::cpu_set_t, libc::cpu_set_t) = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes one cpu_set_t, whose size it is told; CPU_ISSET and CPU_SET stay within it, because the
    // numbers are below its size.
    unsafe {
        check(libc::sched_getaffinity(0, size_of_val(&allowed), &mut allowed))?;
        let numbers = 0..libc::CPU_SETSIZE as usize;
        numbers.filter(|cpu| libc::CPU_ISSET(*cpu, &allowed)).take(count).for_each(|cpu| {
            libc::CPU_SET(cpu, &mut chosen);
        });
        check(libc::sched_setaffinity(0, size_of_val(&chosen), &chosen))
    }
}

/// CPU time of all threads of a process so far.
pub(crate) fn cpu_time_of(pid: u32) -> io::Result<Duration> {
    let pid = libc::pid_t::try_from(pid).map_err(io::Error::other)?;
    let (mut clock, mut time) = (0, libc::timespec { tv_sec: 0, tv_nsec: 0 });
    // SAFETY: both calls write one value, of the type that they are given a pointer to.
    unsafe {
        match libc::clock_getcpuclockid(pid, &mut clock) {
            0 => check(libc::clock_gettime(clock, &mut time))?,
            error => return Err(io::Error::from_raw_os_error(error)),
        }
    }
    let (seconds, nanoseconds) = (time.tv_sec.try_into(), time.tv_nsec.try_into());
    match (seconds, nanoseconds) {
        (Ok(seconds), Ok(nanoseconds)) => Ok(Duration::new(seconds, nanoseconds)),
        _ => Err(io::Error::other("a negative time")),
    }
}

/// Moves this thread into the network namespace of a process.
pub(crate) fn enter_network_of(pid: u32) -> io::Result<()> {
    let namespace = File::open(format!("/proc/{pid}/ns/net"))?;
    // SAFETY: setns takes an open descriptor and a number, and changes only this thread.
    check(unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) })
}

/// Takes datagrams, many in one call, and throws them away.
pub(crate) struct Sieve {
    /// Never read.
    bytes: Box<[u8]>,
}

impl Sieve {
    pub(crate) fn new() -> Self {
        Self { bytes: vec![0; LONGEST].into() }
    }

    /// Waits for datagrams, as long as the socket's time-out says, and takes those that are there: how many.
    pub(crate) fn receive(&mut self, socket: &UdpSocket) -> io::Result<usize> {
        let mut part = libc::iovec { iov_base: self.bytes.as_mut_ptr().cast(), iov_len: self.bytes.len() };
        // SAFETY: mmsghdr is plain data, for which all zeros are valid.
        let mut messages: [libc::mmsghdr; MANY] = unsafe { std::mem::zeroed() };
        for message in &mut messages {
            message.msg_hdr.msg_iov = &raw mut part;
            message.msg_hdr.msg_iovlen = 1;
        }
        // SAFETY: the kernel writes to `messages` and, each over the one before, to `bytes`, no more than the lengths that
        // are said; both live until the call is over.
        let count = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                messages.as_mut_ptr(),
                MANY as libc::c_uint,
                libc::MSG_WAITFORONE,
                std::ptr::null_mut(),
            )
        };
        match usize::try_from(count) {
            Ok(count) => Ok(count),
            Err(_) => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
                error => Err(error),
            },
        }
    }
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
