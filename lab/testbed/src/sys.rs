//! System calls that std does not provide: CPU affinity, priorities, CPU time, memory, namespaces, TUN
//! interfaces, and socket options.

use crate::{Error, Result};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::time::Duration;

/// Length of the array that SO_MEMINFO returns (linux/sock_diag.h). The drop counter is the last element.
const MEMORY_NUMBERS: usize = libc::SK_MEMINFO_DROPS as usize + 1;

/// Pins this thread and its future children to the first `count` CPUs that it may use.
pub fn pin_to_first_cpus(count: usize) -> io::Result<()> {
    let mut cpus = allowed_cpus()?;
    cpus.truncate(count);
    pin_to_cpus(&cpus)
}

/// CPUs that this thread may use.
pub fn allowed_cpus() -> io::Result<Vec<usize>> {
    // SAFETY: cpu_set_t is plain data, and all zeros (no CPU) is a valid value.
    let mut allowed: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes one cpu_set_t and receives its size.
    check(unsafe { libc::sched_getaffinity(0, size_of_val(&allowed), &mut allowed) })?;
    let numbers = 0..libc::CPU_SETSIZE as usize;
    // SAFETY: the numbers are below the size of the set, so CPU_ISSET stays within it.
    Ok(numbers.filter(|cpu| unsafe { libc::CPU_ISSET(*cpu, &allowed) }).collect())
}

/// Pins this thread and its future children to these CPUs.
pub fn pin_to_cpus(cpus: &[usize]) -> io::Result<()> {
    // SAFETY: cpu_set_t is plain data, and all zeros (no CPU) is a valid value.
    let mut chosen: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    let numbers = cpus.iter().filter(|cpu| **cpu < libc::CPU_SETSIZE as usize);
    // SAFETY: the numbers are below the size of the set, so CPU_SET stays within it.
    numbers.for_each(|cpu| unsafe { libc::CPU_SET(*cpu, &mut chosen) });
    // SAFETY: the kernel reads one cpu_set_t and receives its size.
    check(unsafe { libc::sched_setaffinity(0, size_of_val(&chosen), &chosen) })
}

/// Gives this thread a real-time priority (SCHED_FIFO) from 1 to 99. Until it sleeps, it runs before all
/// threads of lower priority.
pub fn set_fifo_priority(priority: i32) -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: priority };
    // SAFETY: the kernel reads one sched_param.
    check(unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &parameters) })
}

/// Stops a process until [`continue_process`] (SIGSTOP).
pub fn stop_process(pid: u32) -> io::Result<()> {
    signal(pid, libc::SIGSTOP)
}

/// Continues a stopped process (SIGCONT).
pub fn continue_process(pid: u32) -> io::Result<()> {
    signal(pid, libc::SIGCONT)
}

fn signal(pid: u32, number: libc::c_int) -> io::Result<()> {
    // Zero and negative numbers would reach several processes.
    let pid = libc::pid_t::try_from(pid).ok().filter(|pid| *pid > 0);
    let pid = pid.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    // SAFETY: the call takes numbers only.
    check(unsafe { libc::kill(pid, number) })
}

/// Makes the kernel split what this UDP socket sends into datagrams of `bytes` bytes (UDP_SEGMENT).
pub fn set_udp_segment_size(socket: &impl AsRawFd, bytes: u16) -> io::Result<()> {
    let value = libc::c_int::from(bytes);
    // SAFETY: the kernel reads one int and receives its size.
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
pub fn process_cpu_time(pid: u32) -> io::Result<Duration> {
    let pid = libc::pid_t::try_from(pid).map_err(io::Error::other)?;
    let (mut clock, mut time) = (0, libc::timespec { tv_sec: 0, tv_nsec: 0 });
    // SAFETY: each call writes one value of the type that its pointer has.
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

/// Turns an open /dev/net/tun into a TUN interface that transfers one packet per call, without a header.
pub(crate) fn create_tun(device: &File, name: &str) -> io::Result<()> {
    let mut request = interface_request(name);
    request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short;
    // SAFETY: TUNSETIFF reads and writes one ifreq, which lives for the whole call.
    check(unsafe { libc::ioctl(device.as_raw_fd(), libc::TUNSETIFF as _, &mut request) })
}

/// Disables TCP segmentation offload on an interface in the namespace of this thread (ethtool's `tso off`).
/// The kernel then segments in software, as before network cards did so.
pub fn disable_tso(interface: &str) -> io::Result<()> {
    // From linux/ethtool.h.
    const ETHTOOL_STSO: u32 = 0x1f;
    let socket = std::net::UdpSocket::bind("0.0.0.0:0")?;
    let mut off: [u32; 2] = [ETHTOOL_STSO, 0];
    let mut request = interface_request(interface);
    request.ifr_ifru.ifru_data = (&raw mut off).cast();
    // SAFETY: SIOCETHTOOL reads an ifreq, and the command and value that it points to; both live for the
    // whole call.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as _, &mut request) })
}

/// Returns an ifreq for an interface.
fn interface_request(name: &str) -> libc::ifreq {
    // SAFETY: ifreq is plain data, and all zeros is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // The last byte stays zero and terminates the name.
    let room = request.ifr_name.len().saturating_sub(1);
    for (place, byte) in request.ifr_name.iter_mut().take(room).zip(name.bytes()) {
        *place = byte as libc::c_char;
    }
    request
}

/// Voluntary and involuntary context switches of all threads of a process (proc_pid_status(5)).
pub fn process_context_switches(pid: u32) -> io::Result<u64> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task"))?;
    threads
        .map(|thread| {
            std::fs::read_to_string(thread?.path().join("status")).map(|text| parse_context_switches(&text))
        })
        .sum()
}

fn parse_context_switches(status: &str) -> u64 {
    let kinds = ["voluntary_ctxt_switches:", "nonvoluntary_ctxt_switches:"];
    let numbers = status.lines().filter_map(|line| kinds.iter().find_map(|kind| line.strip_prefix(kind)));
    numbers.filter_map(|number| number.trim().parse::<u64>().ok()).sum()
}

/// Bytes that a process has written so far to files, pipes and sockets (proc_pid_io(5)).
pub fn bytes_written(pid: u32) -> io::Result<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/io"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("wchar:"));
    let bytes = line.and_then(|line| line.trim().parse().ok());
    bytes.ok_or_else(|| {
        io::Error::other(
            "the kernel does not count the bytes that a process writes \
         (/proc/PID/io has no wchar)",
        )
    })
}

/// Moves this thread into the network namespace of a process.
pub fn enter_netns_of(pid: u32) -> io::Result<()> {
    let namespace = File::open(format!("/proc/{pid}/ns/net"))?;
    // SAFETY: setns takes an open descriptor and a number, and changes only this thread.
    check(unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) })
}

/// Number of datagrams that a socket has dropped so far, modulo 2^32.
pub fn socket_drops(socket: &impl AsRawFd) -> io::Result<u32> {
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

/// Resident memory of a process in bytes.
pub fn resident_memory(pid: u32) -> io::Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kib.map(|kib| kib << 10).ok_or_else(|| io::Error::other("/proc/PID/status has no VmRSS"))
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

const DEVICE: &str = "/dev/net/tun";

/// A TUN interface that transfers one packet per call, as a plain device driver does. It is removed when the
/// last clone is dropped. Reads block.
///
/// The TUN interface of `adapters/linux` transfers many segments at once. Experiments that measure the cost
/// of a packet must not do so.
#[derive(Debug)]
pub struct Tun(File);

impl Tun {
    /// Creates the interface `name` in the network namespace of this process. It is not up yet.
    pub fn create(name: &str) -> Result<Self> {
        let file = File::options().read(true).write(true).open(DEVICE).map_err(Error::context(DEVICE))?;
        create_tun(&file, name).map_err(Error::context(format!("TUN interface {name}")))?;
        Ok(Self(file))
    }

    /// Reads the next packet that the host sends and returns its length.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        (&self.0).read(buffer)
    }

    /// Passes a packet to the host.
    pub fn deliver(&self, packet: &[u8]) -> io::Result<()> {
        (&self.0).write(packet).map(drop)
    }

    /// Returns another handle to the same interface.
    pub fn try_clone(&self) -> io::Result<Self> {
        self.0.try_clone().map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_bytes_are_counted() {
        let own = std::process::id();
        let before = bytes_written(own).unwrap();
        std::fs::write("/dev/null", [0; 1000]).unwrap();
        assert!(bytes_written(own).unwrap() >= before + 1000);
    }

    #[test]
    fn both_kinds_of_switches_count() {
        let status = "Name:\tx\nvoluntary_ctxt_switches:\t40\nnonvoluntary_ctxt_switches:\t2\n";
        assert_eq!(parse_context_switches(status), 42);
        // A process with one thread: the switches of a thread that ends are no longer counted.
        let script = "for i in 1 2 3 4 5 6 7 8 9; do sleep 0.01; done; echo; read line";
        let mut shell = std::process::Command::new("/bin/sh");
        shell.args(["-c", script]).stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
        let mut shell = shell.spawn().unwrap();
        let before = process_context_switches(shell.id()).unwrap();
        std::io::Read::read_exact(shell.stdout.as_mut().unwrap(), &mut [0]).unwrap();
        let after = process_context_switches(shell.id()).unwrap();
        drop(shell.stdin.take());
        shell.wait().unwrap();
        assert!(after > before);
    }
}
