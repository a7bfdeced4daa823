//! The functions that C calls. `include/casemate.h` says what each does; here pointers become references, once.
#![allow(clippy::missing_safety_doc, reason = "include/casemate.h is the contract, for all of them")]

use crate::convert::{self, Secrets};
use crate::costs;
use crate::host::Host;
use crate::types::{Costs, Emit, PacketRef, Policy, Sa, Setup, Tables};
use crate::{Code, memory};
use alloc::boxed::Box;
use casemate_sa::Instant;
use core::ffi::{CStr, c_char, c_void};
use core::slice;

pub(crate) type Done = Result<(), Code>;

pub(crate) const fn answer(done: Done) -> i32 {
    match done {
        Ok(()) => Code::Ok as i32,
        Err(code) => code as i32,
    }
}

/// The value behind a pointer.
///
/// # Safety
///
/// It is null or points to a value that nobody changes meanwhile.
pub(crate) unsafe fn read<'a, T>(pointer: *const T) -> Result<&'a T, Code> {
    // SAFETY: by this function's own contract.
    unsafe { pointer.as_ref() }.ok_or(Code::Null)
}

/// The same, to be changed.
///
/// # Safety
///
/// It is null or points to a value that nobody else looks at meanwhile.
pub(crate) unsafe fn change<'a, T>(pointer: *mut T) -> Result<&'a mut T, Code> {
    // SAFETY: by this function's own contract.
    unsafe { pointer.as_mut() }.ok_or(Code::Null)
}

/// Bytes behind a pointer, which may be null where there is none.
///
/// # Safety
///
/// It points to as many bytes that nobody changes meanwhile.
pub(crate) unsafe fn bytes<'a>(pointer: *const u8, len: usize) -> Result<&'a [u8], Code> {
    match len {
        0 => Ok(&[]),
        _ if pointer.is_null() => Err(Code::Null),
        // No memory is longer than that.
        _ if isize::try_from(len).is_err() => Err(Code::Value),
        // SAFETY: by this function's own contract; it is neither null nor too long.
        _ => Ok(unsafe { slice::from_raw_parts(pointer, len) }),
    }
}

/// Bytes behind a pointer, to be changed.
///
/// # Safety
///
/// It points to as many bytes that nobody else looks at meanwhile.
pub(crate) unsafe fn bytes_mut<'a>(pointer: *mut u8, len: usize) -> Result<&'a mut [u8], Code> {
    if pointer.is_null() {
        return Err(Code::Null);
    }
    if isize::try_from(len).is_err() {
        return Err(Code::Value);
    }
    // SAFETY: by this function's own contract; it is neither null nor too long.
    Ok(unsafe { slice::from_raw_parts_mut(pointer, len) })
}

/// `casemate_strerror`.
#[unsafe(no_mangle)]
pub extern "C" fn casemate_strerror(code: i32) -> *const c_char {
    let known = Code::ALL.into_iter().find(|known| *known as i32 == code);
    known.map_or(c"no answer of this library's", Code::text).as_ptr()
}

/// `casemate_memory`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_memory(memory: *mut c_void, bytes: usize) -> i32 {
    if memory.is_null() {
        return Code::Null as i32;
    }
    // SAFETY: the header: the memory is the library's alone from now on.
    answer(unsafe { memory::give(memory.cast(), bytes) })
}

/// `casemate_memory_free`.
#[unsafe(no_mangle)]
pub extern "C" fn casemate_memory_free() -> usize {
    memory::free()
}

/// `casemate_limits`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_limits(tables: *const Tables, costs: *mut Costs) -> i32 {
    // SAFETY: the header: pointers are null or valid during the call.
    answer(unsafe { read(tables) }.and_then(|tables| {
        // SAFETY: as above.
        *unsafe { change(costs) }? = costs::costs(tables)?;
        Ok(())
    }))
}

/// `casemate_create`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_create(setup: *const Setup, host: *mut *mut Host) -> i32 {
    let create = || {
        // SAFETY: the header: pointers are null or valid during the call.
        let (setup, place) = unsafe { (read(setup)?, change(host)?) };
        let random = setup.random.ok_or(Code::Null)?;
        *place = Box::into_raw(Box::new(Host::new(setup, random)?));
        Ok(())
    };
    answer(create())
}

/// `casemate_destroy`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_destroy(host: *mut Host) {
    if !host.is_null() {
        // SAFETY: the header: it came from casemate_create, and is used no more.
        drop(unsafe { Box::from_raw(host) });
    }
}

/// `casemate_add_sa`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_add_sa(host: *mut Host, direction: u32, sa: *const Sa, now: u64) -> i32 {
    let add = || {
        // SAFETY: the header: pointers, also those within the SA, are null or valid during the call, and a suite is a string
        // that ends with 0.
        let (host, sa) = unsafe { (change(host)?, read(sa)?) };
        if sa.suite.is_null() {
            return Err(Code::Null);
        }
        // SAFETY: as above.
        let secrets = unsafe {
            Secrets {
                suite: CStr::from_ptr(sa.suite).to_str().map_err(|_| Code::Suite)?,
                encryption: bytes(sa.encryption_key, sa.encryption_key_bytes)?,
                integrity: bytes(sa.integrity_key, sa.integrity_key_bytes)?,
            }
        };
        let params = convert::sa(sa, &secrets)?;
        host.add_sa(&params, convert::direction(direction)?, Instant::from_micros(now))
    };
    answer(add())
}

/// `casemate_remove_sa`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_remove_sa(host: *mut Host, direction: u32, sa: *const Sa) -> i32 {
    let remove = || {
        // SAFETY: the header: pointers are null or valid during the call.
        let (host, sa) = unsafe { (change(host)?, read(sa)?) };
        host.remove_sa(convert::name(sa)?, convert::direction(direction)?)
    };
    answer(remove())
}

/// `casemate_add_policy`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_add_policy(host: *mut Host, direction: u32, policy: *const Policy) -> i32 {
    let add = || {
        // SAFETY: the header: pointers are null or valid during the call.
        let (host, policy) = unsafe { (change(host)?, read(policy)?) };
        host.add_policy(convert::direction(direction)?, convert::policy(policy)?)
    };
    answer(add())
}

/// `casemate_remove_policy`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_remove_policy(
    host: *mut Host,
    direction: u32,
    policy: *const Policy,
) -> i32 {
    let remove = || {
        // SAFETY: the header: pointers are null or valid during the call.
        let (host, policy) = unsafe { (change(host)?, read(policy)?) };
        host.remove_policy(convert::direction(direction)?, &convert::policy(policy)?)
    };
    answer(remove())
}

/// `casemate_housekeeping`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_housekeeping(host: *mut Host) -> i32 {
    // SAFETY: the header: the pointer is null or valid during the call.
    answer(unsafe { change(host) }.and_then(Host::add_housekeeping))
}

/// `casemate_is_idle`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_is_idle(host: *const Host) -> i32 {
    // SAFETY: the header: the pointer is null or valid during the call.
    unsafe { read(host) }.map_or_else(|code| code as i32, |host| i32::from(host.is_idle()))
}

/// `casemate_outbound`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_outbound(host: *mut Host, packet: *mut PacketRef, now: u64) -> i32 {
    let protect = || {
        // SAFETY: the header: pointers are null or valid during the call, and nobody else uses the buffer meanwhile.
        let (host, place) = unsafe { (change(host)?, change(packet)?) };
        // SAFETY: as above.
        let storage = unsafe { bytes_mut(place.buffer, place.size)? };
        Ok(host.outbound(Instant::from_micros(now), storage, place))
    };
    protect().unwrap_or_else(|code: Code| code as i32)
}

/// `casemate_inbound`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_inbound(host: *mut Host, packet: *mut PacketRef, now: u64) -> i32 {
    let open = || {
        // SAFETY: the header: pointers are null or valid during the call, and nobody else uses the buffer meanwhile.
        let (host, place) = unsafe { (change(host)?, change(packet)?) };
        // SAFETY: as above.
        let storage = unsafe { bytes_mut(place.buffer, place.size)? };
        Ok(host.inbound(Instant::from_micros(now), storage, place))
    };
    open().unwrap_or_else(|code: Code| code as i32)
}

/// `casemate_cut`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_cut(
    host: *mut Host,
    packet: *const PacketRef,
    emit: Option<Emit>,
    context: *mut c_void,
) -> i32 {
    let cut = || {
        // SAFETY: the header: pointers are null or valid during the call, and nobody else uses the buffer meanwhile.
        let (host, place) = unsafe { (change(host)?, read(packet)?) };
        let emit = emit.ok_or(Code::Null)?;
        // SAFETY: as above.
        let storage = unsafe { bytes_mut(place.buffer, place.size)? };
        let end = place.start.checked_add(place.len).ok_or(Code::Value)?;
        let data = storage.get_mut(place.start..end).ok_or(Code::Value)?;
        // SAFETY: the header: the function may be called with this context, and calls no function of the library.
        unsafe { host.cut(data, place.cut_to, emit, context) }
    };
    answer(cut())
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
    let look = || {
        // SAFETY: the header: pointers are null or valid during the call.
        let (host, name, name_bytes, count) =
            unsafe { (read(host)?, change(name)?, change(name_bytes)?, change(count)?) };
        let (text, dropped) = host.drops(index)?;
        (*name, *name_bytes, *count) = (text.as_ptr().cast(), text.len(), dropped);
        Ok(())
    };
    answer(look())
}
