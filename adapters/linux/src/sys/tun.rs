//! Calls that make a file descriptor a TUN interface.

use super::check;
use libc::c_int;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

/// Makes a clone-device file descriptor a TUN interface of this name.
pub(crate) fn tun_set_iff(fd: BorrowedFd<'_>, name: &str, flags: c_int) -> io::Result<()> {
    // SAFETY: ifreq is plain old data, for which all zeros is a valid value.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    // The last byte stays zero and ends the string.
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

/// Says how long the header is that stands in front of each packet of a TUN interface.
pub(crate) fn tun_set_header_len(fd: BorrowedFd<'_>, len: usize) -> io::Result<()> {
    let len = c_int::try_from(len).map_err(io::Error::other)?;
    // SAFETY: TUNSETVNETHDRSZ reads one int, which lives for the whole call.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETVNETHDRSZ as _, ptr::from_ref(&len)) }).map(drop)
}

/// Lets a program choose the queue of each packet that a TUN interface hands over.
pub(crate) fn tun_set_steering(fd: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    let program = program.as_raw_fd();
    // SAFETY: TUNSETSTEERINGEBPF reads one int, which lives for the whole call; the kernel keeps the program and not the descriptor.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETSTEERINGEBPF as _, ptr::from_ref(&program)) })
        .map(drop)
}

/// Says what kinds of segments a TUN interface may hand over in one piece.
pub(crate) fn tun_set_offload(fd: BorrowedFd<'_>, kinds: libc::c_uint) -> io::Result<()> {
    // SAFETY: TUNSETOFFLOAD takes a number and touches no memory of ours.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETOFFLOAD as _, libc::c_ulong::from(kinds)) })
        .map(drop)
}
