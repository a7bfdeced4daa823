//! System calls that std does not have: CPUs and priorities, CPU time and memory, the namespace of a thread, and what a socket cuts and
//! drops.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::time::Duration;

/// How many numbers SO_MEMINFO gives (linux/sock_diag.h); the drops are the last.
const MEMORY_NUMBERS: usize = libc::SK_MEMINFO_DROPS as usize + 1;

/// Keeps this thread, and what it starts from now on, on the first CPUs that it may use.
pub fn stay_on_cpus(count: usize) -> io::Result<()> {
    let mut cpus = allowed_cpus()?;
    cpus.truncate(count);
    stay_on(&cpus)
}

/// The numbers of the CPUs that this thread may use.
pub fn allowed_cpus() -> io::Result<Vec<usize>> {
    // SAFETY: cpu_set_t is plain data, for which all zeros are valid: no CPU.
    let mut allowed: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes one cpu_set_t, whose size it is told.
    check(unsafe { libc::sched_getaffinity(0, size_of_val(&allowed), &mut allowed) })?;
    let numbers = 0..libc::CPU_SETSIZE as usize;
    // SAFETY: CPU_ISSET stays within the set, because the numbers are below its size.
    Ok(numbers.filter(|cpu| unsafe { libc::CPU_ISSET(*cpu, &allowed) }).collect())
}

/// Keeps this thread, and what it starts from now on, on these CPUs.
pub fn stay_on(cpus: &[usize]) -> io::Result<()> {
    // SAFETY: cpu_set_t is plain data, for which all zeros are valid: no CPU.
    let mut chosen: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    let numbers = cpus.iter().filter(|cpu| **cpu < libc::CPU_SETSIZE as usize);
    // SAFETY: CPU_SET stays within the set, because the numbers are below its size.
    numbers.for_each(|cpu| unsafe { libc::CPU_SET(*cpu, &mut chosen) });
    // SAFETY: the kernel reads one cpu_set_t, whose size it is told.
    check(unsafe { libc::sched_setaffinity(0, size_of_val(&chosen), &chosen) })
}

/// Lets this thread run before all others that have no such priority, from 1 to 99, until it sleeps.
pub fn run_before_others(priority: i32) -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: priority };
    // SAFETY: the kernel reads one sched_param.
    check(unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &parameters) })
}

/// Has the kernel cut what this UDP socket sends into datagrams of so many bytes.
pub fn cut_into(socket: &impl AsRawFd, bytes: u16) -> io::Result<()> {
    let value = libc::c_int::from(bytes);
    // SAFETY: the kernel reads one int, whose size it is told.
    check(unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_UDP,
            libc::UDP_SEGMENT,
            (&raw const value).cast(),
            size_of_val(&value) as libc::socklen_t,
        )
    })
}

/// CPU time of all threads of a process so far.
pub fn cpu_time_of(pid: u32) -> io::Result<Duration> {
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

/// Makes an open /dev/net/tun a TUN interface of this name, one packet at a time with nothing in front of it.
pub(crate) fn make_tun(device: &File, name: &str) -> io::Result<()> {
    let mut request = request_of(name);
    request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short;
    // SAFETY: TUNSETIFF reads and writes one ifreq, which lives for the whole call.
    check(unsafe { libc::ioctl(device.as_raw_fd(), libc::TUNSETIFF as _, &mut request) })
}

/// Has the kernel cut what TCP sends into segments before an interface of this thread's namespace gets it, as it was before network cards
/// cut them (ethtool's `tso off`).
pub fn cut_before(interface: &str) -> io::Result<()> {
    // From linux/ethtool.h.
    const ETHTOOL_STSO: u32 = 0x1f;
    let socket = std::net::UdpSocket::bind("0.0.0.0:0")?;
    let mut off: [u32; 2] = [ETHTOOL_STSO, 0];
    let mut request = request_of(interface);
    request.ifr_ifru.ifru_data = (&raw mut off).cast();
    // SAFETY: SIOCETHTOOL reads an ifreq, and the command and value that it points to; both live for the whole call.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as _, &mut request) })
}

/// A request about an interface.
fn request_of(name: &str) -> libc::ifreq {
    // SAFETY: ifreq is plain data, for which all zeros are valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // The last byte stays zero and ends the name.
    let room = request.ifr_name.len().saturating_sub(1);
    for (place, byte) in request.ifr_name.iter_mut().take(room).zip(name.bytes()) {
        *place = byte as libc::c_char;
    }
    request
}

/// How often the kernel has taken the processor from the threads of a process, or they have given it up (proc_pid_status(5)).
pub fn switches_of(pid: u32) -> io::Result<u64> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task"))?;
    threads
        .map(|thread| std::fs::read_to_string(thread?.path().join("status")).map(|text| switches(&text)))
        .sum()
}

fn switches(status: &str) -> u64 {
    let kinds = ["voluntary_ctxt_switches:", "nonvoluntary_ctxt_switches:"];
    let numbers = status.lines().filter_map(|line| kinds.iter().find_map(|kind| line.strip_prefix(kind)));
    numbers.filter_map(|number| number.trim().parse::<u64>().ok()).sum()
}

/// Bytes that a process has written so far, to files, pipes and sockets (proc_pid_io(5)).
pub fn written_by(pid: u32) -> io::Result<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/io"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("wchar:"));
    let bytes = line.and_then(|line| line.trim().parse().ok());
    bytes.ok_or_else(|| io::Error::other("the kernel does not count what a process writes"))
}

/// Moves this thread into the network namespace of a process.
pub fn enter_network_of(pid: u32) -> io::Result<()> {
    let namespace = File::open(format!("/proc/{pid}/ns/net"))?;
    // SAFETY: setns takes an open descriptor and a number, and changes only this thread.
    check(unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) })
}

/// How many datagrams a socket has dropped so far; it begins again at zero after 2^32.
pub fn drops(socket: &impl AsRawFd) -> io::Result<u32> {
    let mut numbers = [0_u32; MEMORY_NUMBERS];
    let mut len = size_of_val(&numbers) as libc::socklen_t;
    // SAFETY: the kernel writes no more than `len` bytes to `numbers`.
    check(unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            numbers.as_mut_ptr().cast(),
            &mut len,
        )
    })?;
    Ok(numbers[MEMORY_NUMBERS - 1])
}

/// Bytes of a process that are in memory.
pub fn memory_of(pid: u32) -> io::Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kib.map(|kib| kib << 10).ok_or_else(|| io::Error::other("the process has no memory"))
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_counts() {
        let own = std::process::id();
        let before = written_by(own).unwrap();
        std::fs::write("/dev/null", [0; 1000]).unwrap();
        assert!(written_by(own).unwrap() >= before + 1000);
    }

    #[test]
    fn both_kinds_of_switches_count() {
        let status = "Name:\tx\nvoluntary_ctxt_switches:\t40\nnonvoluntary_ctxt_switches:\t2\n";
        assert_eq!(switches(status), 42);
        let own = std::process::id();
        let before = switches_of(own).unwrap();
        std::thread::sleep(Duration::from_millis(2));
        assert!(switches_of(own).unwrap() > before);
    }
}
