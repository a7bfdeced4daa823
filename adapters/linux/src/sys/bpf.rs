//! The calls that load a program into the kernel, and that let tests run one.

use super::check;
use crate::steer::Instruction;
use libc::{c_int, c_long};
use std::ffi::CStr;
use std::io;
use std::iter;
use std::mem;
use std::os::fd::{FromRawFd, OwnedFd};
use std::ptr;

// linux/bpf.h.
const PROGRAM_LOAD: c_int = 5;
const SOCKET_FILTER: u32 = 1;
/// How often a program is offered to a verifier that is interrupted.
const TRIES: usize = 20;
/// None of the helpers that are called asks for a licence of the GPL.
const LICENSE: &CStr = c"MIT OR Apache-2.0";

/// What the kernel reads of `union bpf_attr` for a program.
#[repr(C)]
struct Load {
    kind: u32,
    instruction_count: u32,
    instructions: u64,
    license: u64,
}

/// Loads a program that looks at packets. It is gone when nothing has it any more.
pub(crate) fn bpf_load(program: &[Instruction]) -> io::Result<OwnedFd> {
    let attr = Load {
        kind: SOCKET_FILTER,
        instruction_count: u32::try_from(program.len()).map_err(io::Error::other)?,
        instructions: program.as_ptr() as u64,
        license: LICENSE.as_ptr() as u64,
    };
    // SAFETY: the kernel reads as many bytes of `attr` as the size says, and copies instructions and licence, which live for the
    // whole call. What it does not find in `attr` it takes for zeros.
    let call = || unsafe {
        libc::syscall(libc::SYS_bpf, PROGRAM_LOAD, ptr::from_ref(&attr), mem::size_of::<Load>())
    };
    // The verifier gives up when a signal comes meanwhile.
    let gave_up = |result: &io::Result<c_int>| {
        result.as_ref().is_err_and(|error| error.raw_os_error() == Some(libc::EAGAIN))
    };
    let mut tries = iter::repeat_with(|| check_long(call())).take(TRIES);
    let loaded = tries.find(|result| !gave_up(result));
    let fd = loaded.unwrap_or_else(|| Err(io::Error::from_raw_os_error(libc::EAGAIN)))?;
    // SAFETY: the descriptor is new and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn check_long(result: c_long) -> io::Result<c_int> {
    check(c_int::try_from(result).map_err(io::Error::other)?)
}

/// What the kernel reads and writes of `union bpf_attr` for a run of a program.
#[cfg(test)]
#[repr(C)]
struct Run {
    program: u32,
    answer: u32,
    in_len: u32,
    out_len: u32,
    in_at: u64,
    out_at: u64,
    repeat: u32,
    duration: u32,
}

/// What a program answers to an Ethernet frame. It sees what is behind the frame's header.
#[cfg(test)]
pub(crate) fn bpf_run(program: std::os::fd::BorrowedFd<'_>, frame: &[u8]) -> io::Result<u32> {
    use std::os::fd::AsRawFd;
    const PROGRAM_RUN: c_int = 10;
    let mut attr = Run {
        program: program.as_raw_fd() as u32,
        answer: 0,
        in_len: frame.len() as u32,
        out_len: 0,
        in_at: frame.as_ptr() as u64,
        out_at: 0,
        repeat: 0,
        duration: 0,
    };
    // SAFETY: the kernel reads and writes as many bytes of `attr` as the size says, and reads the frame, which lives for the whole
    // call. It writes no packet, for it has no place for one.
    check_long(unsafe {
        libc::syscall(libc::SYS_bpf, PROGRAM_RUN, ptr::from_mut(&mut attr), mem::size_of::<Run>())
    })?;
    Ok(attr.answer)
}
