//! ioctls of TUN interfaces, and the system calls that load a BPF program, which selects their queues.

use super::check;
use crate::queue_steering::Instruction;
use libc::{c_int, c_long};
use std::ffi::CStr;
use std::io;
use std::iter;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;

// Constants of linux/bpf.h.
const PROGRAM_LOAD: c_int = 5;
const SOCKET_FILTER: u32 = 1;
/// Attempts to load a program if the verifier is interrupted.
const LOAD_TRIES: usize = 20;
/// The helpers that are called do not require a GPL licence.
const LICENSE: &CStr = c"MIT OR Apache-2.0";

/// The part of `union bpf_attr` that loads a program.
#[repr(C)]
struct Load {
    kind: u32,
    instruction_count: u32,
    instructions: u64,
    license: u64,
}

/// Attaches a descriptor of the clone device to the TUN interface of this name.
pub(crate) fn tun_set_iff(fd: BorrowedFd<'_>, name: &str, flags: c_int) -> io::Result<()> {
    // SAFETY: ifreq is plain old data, for which all zeros is a valid value.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    // The last byte stays zero and terminates the string.
    let room = request.ifr_name.len().saturating_sub(1);
    if name.is_empty() || name.len() > room {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "an interface's name has 1 to 15 characters",
        ));
    }
    for (place, byte) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *place = byte as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = flags as i16;
    // SAFETY: TUNSETIFF reads and writes one ifreq, which lives for the whole call.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETIFF as _, &mut request) }).map(drop)
}

/// Sets whether the interface stays when its last descriptor is closed.
pub(crate) fn tun_set_persistent(fd: BorrowedFd<'_>, stays: bool) -> io::Result<()> {
    // SAFETY: TUNSETPERSIST takes a number and touches no memory of ours.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETPERSIST as _, libc::c_ulong::from(stays)) })
        .map(drop)
}

/// Sets the length of the header in front of each packet.
pub(crate) fn tun_set_header_len(fd: BorrowedFd<'_>, len: usize) -> io::Result<()> {
    let len = c_int::try_from(len).map_err(io::Error::other)?;
    // SAFETY: TUNSETVNETHDRSZ reads one int, which lives for the whole call.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETVNETHDRSZ as _, ptr::from_ref(&len)) }).map(drop)
}

/// Attaches a program that selects the queue of each packet that the host sends.
pub(crate) fn tun_set_steering(fd: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    let program = program.as_raw_fd();
    // SAFETY: TUNSETSTEERINGEBPF reads one int, which lives for the whole call; the kernel keeps the program
    // and not the descriptor.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETSTEERINGEBPF as _, ptr::from_ref(&program)) })
        .map(drop)
}

/// Sets the types of large packets that the interface may hand over.
pub(crate) fn tun_set_offload(fd: BorrowedFd<'_>, kinds: libc::c_uint) -> io::Result<()> {
    // SAFETY: TUNSETOFFLOAD takes a number and touches no memory of ours.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETOFFLOAD as _, libc::c_ulong::from(kinds)) })
        .map(drop)
}

/// Loads a program that inspects packets. The kernel removes it when its last user is closed.
pub(crate) fn bpf_load(program: &[Instruction]) -> io::Result<OwnedFd> {
    let attr = Load {
        kind: SOCKET_FILTER,
        instruction_count: u32::try_from(program.len()).map_err(io::Error::other)?,
        instructions: program.as_ptr() as u64,
        license: LICENSE.as_ptr() as u64,
    };
    // SAFETY: the kernel reads as many bytes of `attr` as the size says, and copies instructions and licence,
    // which live for the whole call. The kernel treats the missing rest of `attr` as zeros.
    let call = || unsafe {
        libc::syscall(libc::SYS_bpf, PROGRAM_LOAD, ptr::from_ref(&attr), mem::size_of::<Load>())
    };
    // The verifier gives up when a signal arrives.
    let gave_up = |result: &io::Result<c_int>| {
        result.as_ref().is_err_and(|error| error.raw_os_error() == Some(libc::EAGAIN))
    };
    let mut tries = iter::repeat_with(|| check_long(call())).take(LOAD_TRIES);
    let loaded = tries.find(|result| !gave_up(result));
    let fd = loaded.unwrap_or_else(|| Err(io::Error::from_raw_os_error(libc::EAGAIN)))?;
    // SAFETY: the descriptor is new and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn check_long(result: c_long) -> io::Result<c_int> {
    check(c_int::try_from(result).map_err(io::Error::other)?)
}

/// The part of `union bpf_attr` that runs a program.
#[cfg(test)]
#[repr(C)]
struct Run {
    program: u32,
    result: u32,
    in_len: u32,
    out_len: u32,
    in_at: u64,
    out_at: u64,
    repeat: u32,
    duration: u32,
}

/// Runs a program on an Ethernet frame and returns its result. The program sees the bytes behind the frame
/// header.
#[cfg(test)]
pub(crate) fn bpf_run(program: BorrowedFd<'_>, frame: &[u8]) -> io::Result<u32> {
    const PROGRAM_RUN: c_int = 10;
    let mut attr = Run {
        program: program.as_raw_fd() as u32,
        result: 0,
        in_len: frame.len() as u32,
        out_len: 0,
        in_at: frame.as_ptr() as u64,
        out_at: 0,
        repeat: 0,
        duration: 0,
    };
    // SAFETY: the kernel reads and writes as many bytes of `attr` as the size says, and reads the frame,
    // which lives for the whole call. It writes no packet, because no output buffer is given.
    check_long(unsafe {
        libc::syscall(libc::SYS_bpf, PROGRAM_RUN, ptr::from_mut(&mut attr), mem::size_of::<Run>())
    })?;
    Ok(attr.result)
}
