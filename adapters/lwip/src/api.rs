//! The functions for C. `include/casemate.h` documents them. This module converts pointers to references.
#![allow(clippy::missing_safety_doc, reason = "include/casemate.h is the contract of all functions")]

use crate::convert::{self, SaKey, Secrets};
use crate::host::Host;
use crate::memory_costs;
use crate::types::{Costs, EmitFn, PacketRef, Policy, Sa, Setup, Tables};
use crate::{Status, allocator};
use alloc::boxed::Box;
use casemate_sa::Instant;
use core::ffi::{CStr, c_char, c_void};
use core::slice;

pub(crate) type StatusResult = Result<(), Status>;

pub(crate) const fn to_status(done: StatusResult) -> i32 {
    match done {
        Ok(()) => Status::Ok as i32,
        Err(code) => code as i32,
    }
}

/// Returns the value behind a pointer, or [`Status::Null`].
///
/// # Safety
///
/// The pointer is null or refers to a value that does not change during the lifetime.
pub(crate) unsafe fn read<'a, T>(pointer: *const T) -> Result<&'a T, Status> {
    // SAFETY: guaranteed by the caller.
    unsafe { pointer.as_ref() }.ok_or(Status::Null)
}

/// Returns the value behind a pointer for modification, or [`Status::Null`].
///
/// # Safety
///
/// The pointer is null or refers to a value that is not accessed otherwise during the lifetime.
pub(crate) unsafe fn read_mut<'a, T>(pointer: *mut T) -> Result<&'a mut T, Status> {
    // SAFETY: guaranteed by the caller.
    unsafe { pointer.as_mut() }.ok_or(Status::Null)
}

/// Returns a byte slice. The pointer may be null if `len` is 0.
///
/// # Safety
///
/// The pointer refers to `len` bytes that do not change during the lifetime.
pub(crate) unsafe fn bytes<'a>(pointer: *const u8, len: usize) -> Result<&'a [u8], Status> {
    match len {
        0 => Ok(&[]),
        _ if pointer.is_null() => Err(Status::Null),
        // The maximum length of a Rust slice.
        _ if isize::try_from(len).is_err() => Err(Status::Value),
        // SAFETY: guaranteed by the caller; the pointer is not null and the length is valid.
        _ => Ok(unsafe { slice::from_raw_parts(pointer, len) }),
    }
}

/// Returns a mutable byte slice.
///
/// # Safety
///
/// The pointer refers to `len` bytes that are not accessed otherwise during the lifetime.
pub(crate) unsafe fn bytes_mut<'a>(pointer: *mut u8, len: usize) -> Result<&'a mut [u8], Status> {
    if pointer.is_null() {
        return Err(Status::Null);
    }
    if isize::try_from(len).is_err() {
        return Err(Status::Value);
    }
    // SAFETY: guaranteed by the caller; the pointer is not null and the length is valid.
    Ok(unsafe { slice::from_raw_parts_mut(pointer, len) })
}

/// `casemate_strerror`.
#[unsafe(no_mangle)]
pub extern "C" fn casemate_strerror(code: i32) -> *const c_char {
    let known = Status::ALL.into_iter().find(|known| *known as i32 == code);
    known.map_or(c"unknown status code", Status::text).as_ptr()
}

/// `casemate_memory`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_memory(memory: *mut c_void, bytes: usize) -> i32 {
    if memory.is_null() {
        return Status::Null as i32;
    }
    // SAFETY: required by the header: from now on only the library uses the memory.
    to_status(unsafe { allocator::give(memory.cast(), bytes) })
}

/// `casemate_memory_free`.
#[unsafe(no_mangle)]
pub extern "C" fn casemate_memory_free() -> usize {
    allocator::free()
}

/// `casemate_limits`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_limits(tables: *const Tables, costs: *mut Costs) -> i32 {
    // SAFETY: required by the header: pointers are null or valid during the call.
    to_status(unsafe { read(tables) }.and_then(|tables| {
        // SAFETY: as above.
        *unsafe { read_mut(costs) }? = memory_costs::costs(tables)?;
        Ok(())
    }))
}

/// `casemate_create`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_create(setup: *const Setup, host: *mut *mut Host) -> i32 {
    let create = || {
        // SAFETY: required by the header: pointers are null or valid during the call.
        let (setup, out) = unsafe { (read(setup)?, read_mut(host)?) };
        let random = setup.random.ok_or(Status::Null)?;
        *out = Box::into_raw(Box::new(Host::new(setup, random)?));
        Ok(())
    };
    to_status(create())
}

/// `casemate_destroy`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_destroy(host: *mut Host) {
    if !host.is_null() {
        // SAFETY: required by the header: the pointer came from casemate_create and is not used afterwards.
        drop(unsafe { Box::from_raw(host) });
    }
}

/// `casemate_add_sa`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_add_sa(host: *mut Host, direction: u32, sa: *const Sa, now: u64) -> i32 {
    let add = || {
        // SAFETY: required by the header: pointers, including those in the SA, are null or valid during
        // the call, and the suite is NUL-terminated.
        let (host, sa) = unsafe { (read_mut(host)?, read(sa)?) };
        if sa.suite.is_null() {
            return Err(Status::Null);
        }
        // SAFETY: as above.
        let secrets = unsafe {
            Secrets {
                suite: CStr::from_ptr(sa.suite).to_str().map_err(|_| Status::Suite)?,
                encryption: bytes(sa.encryption_key, sa.encryption_key_bytes)?,
                integrity: bytes(sa.integrity_key, sa.integrity_key_bytes)?,
            }
        };
        let params = convert::sa(sa, &secrets)?;
        host.add_sa(&params, convert::direction(direction)?, Instant::from_micros(now))
    };
    to_status(add())
}

/// `casemate_remove_sa`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_remove_sa(host: *mut Host, direction: u32, sa: *const Sa) -> i32 {
    let remove = || {
        // SAFETY: required by the header: pointers are null or valid during the call.
        let (host, sa) = unsafe { (read_mut(host)?, read(sa)?) };
        host.remove_sa(SaKey::of(sa)?, convert::direction(direction)?)
    };
    to_status(remove())
}

/// `casemate_add_policy`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_add_policy(host: *mut Host, direction: u32, policy: *const Policy) -> i32 {
    let add = || {
        // SAFETY: required by the header: pointers are null or valid during the call.
        let (host, policy) = unsafe { (read_mut(host)?, read(policy)?) };
        host.add_policy(convert::direction(direction)?, convert::policy(policy)?)
    };
    to_status(add())
}

/// `casemate_remove_policy`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_remove_policy(
    host: *mut Host,
    direction: u32,
    policy: *const Policy,
) -> i32 {
    let remove = || {
        // SAFETY: required by the header: pointers are null or valid during the call.
        let (host, policy) = unsafe { (read_mut(host)?, read(policy)?) };
        host.remove_policy(convert::direction(direction)?, &convert::policy(policy)?)
    };
    to_status(remove())
}

/// `casemate_bypass_control_plane`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_bypass_control_plane(host: *mut Host) -> i32 {
    // SAFETY: required by the header: the pointer is null or valid during the call.
    to_status(unsafe { read_mut(host) }.and_then(Host::add_control_plane_policies))
}

/// `casemate_is_idle`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_is_idle(host: *const Host) -> i32 {
    // SAFETY: required by the header: the pointer is null or valid during the call.
    unsafe { read(host) }.map_or_else(|code| code as i32, |host| i32::from(host.is_idle()))
}

/// `casemate_outbound`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_outbound(host: *mut Host, packet: *mut PacketRef, now: u64) -> i32 {
    let protect = || {
        // SAFETY: required by the header: pointers are null or valid during the call, and the buffer is
        // not used otherwise.
        let (host, position) = unsafe { (read_mut(host)?, read_mut(packet)?) };
        // SAFETY: as above.
        let storage = unsafe { bytes_mut(position.buffer, position.size)? };
        Ok(host.outbound(Instant::from_micros(now), storage, position))
    };
    protect().unwrap_or_else(|code: Status| code as i32)
}

/// `casemate_inbound`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_inbound(host: *mut Host, packet: *mut PacketRef, now: u64) -> i32 {
    let open = || {
        // SAFETY: required by the header: pointers are null or valid during the call, and the buffer is
        // not used otherwise.
        let (host, position) = unsafe { (read_mut(host)?, read_mut(packet)?) };
        // SAFETY: as above.
        let storage = unsafe { bytes_mut(position.buffer, position.size)? };
        Ok(host.inbound(Instant::from_micros(now), storage, position))
    };
    open().unwrap_or_else(|code: Status| code as i32)
}

/// `casemate_cut`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_cut(
    host: *mut Host,
    packet: *const PacketRef,
    emit: Option<EmitFn>,
    context: *mut c_void,
) -> i32 {
    let cut = || {
        // SAFETY: required by the header: pointers are null or valid during the call, and the buffer is
        // not used otherwise.
        let (host, position) = unsafe { (read_mut(host)?, read(packet)?) };
        let emit = emit.ok_or(Status::Null)?;
        // SAFETY: as above.
        let storage = unsafe { bytes_mut(position.buffer, position.size)? };
        let end = position.start.checked_add(position.len).ok_or(Status::Value)?;
        let data = storage.get_mut(position.start..end).ok_or(Status::Value)?;
        // SAFETY: required by the header: the function can be called with this context and does not call
        // the library.
        unsafe { host.cut(data, position.cut_to, emit, context) }
    };
    to_status(cut())
}

/// `casemate_drops`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_drops(
    host: *const Host,
    index: usize,
    name: *mut *const c_char,
    name_bytes: *mut usize,
    count: *mut u64,
) -> i32 {
    let get = || {
        // SAFETY: required by the header: pointers are null or valid during the call.
        let (host, name, name_bytes, count) =
            unsafe { (read(host)?, read_mut(name)?, read_mut(name_bytes)?, read_mut(count)?) };
        let (text, dropped) = host.drops(index)?;
        (*name, *name_bytes, *count) = (text.as_ptr().cast(), text.len(), dropped);
        Ok(())
    };
    to_status(get())
}
