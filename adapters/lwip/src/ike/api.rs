//! The IKE functions for C. `include/casemate_ike.h` documents them.
#![allow(clippy::missing_safety_doc, reason = "include/casemate_ike.h is the contract of all functions")]

use super::OutgoingDatagram;
use super::convert::{ChildInput, ConnectionInput};
use super::types::{Bytes, ChildSpec, ConnectionSpec, Datagram, IkeCallbacks, IkeCounts, IkeEvent};
use crate::api::{StatusResult, bytes, bytes_mut, read, read_mut, to_status};
use crate::convert::{address, required};
use crate::host::Host;
use crate::{Status, allocator, memory_costs};
use alloc::vec::Vec;
use casemate_ike::Path;
use casemate_sa::Instant;
use core::ffi::{CStr, c_char};
use core::net::SocketAddr;
use core::slice;

/// Maximum number of children per connection.
const MAX_CHILDREN: usize = 16;

/// Returns a string that must not be null.
///
/// # Safety
///
/// The pointer is null or refers to a NUL-terminated string that does not change during the lifetime.
unsafe fn string<'a>(pointer: *const c_char) -> Result<&'a str, Status> {
    // SAFETY: guaranteed by the caller.
    unsafe { optional_string(pointer) }?.ok_or(Status::Null)
}

/// Returns a string that may be null.
///
/// # Safety
///
/// As for [`string`].
unsafe fn optional_string<'a>(pointer: *const c_char) -> Result<Option<&'a str>, Status> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: guaranteed by the caller; the pointer is not null.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map(Some).map_err(|_| Status::Value)
}

/// # Safety
///
/// As for [`bytes`].
unsafe fn key<'a>(key: &Bytes) -> Result<&'a [u8], Status> {
    // SAFETY: guaranteed by the caller.
    unsafe { bytes(key.data, key.bytes) }
}

/// Reads the strings and keys that the pointers of a connection refer to.
///
/// # Safety
///
/// All pointers are null or refer to the values that the header describes, which do not change during the
/// lifetime.
unsafe fn connection_input(spec: &ConnectionSpec) -> Result<ConnectionInput<'_>, Status> {
    if spec.child_count > MAX_CHILDREN || (spec.children.is_null() && spec.child_count > 0) {
        return Err(Status::Value);
    }
    let specs: &[ChildSpec] = match spec.child_count {
        0 => &[],
        // SAFETY: guaranteed by the caller; the pointer is not null, and the count is small.
        count => unsafe { slice::from_raw_parts(spec.children, count) },
    };
    // SAFETY: guaranteed by the caller.
    let mut input = unsafe {
        ConnectionInput {
            spec,
            name: string(spec.name)?,
            proposals: optional_string(spec.proposals)?,
            local_id: optional_string(spec.local_id)?,
            remote_id: optional_string(spec.remote_id)?,
            shared_key: key(&spec.shared_key)?,
            private_key: key(&spec.private_key)?,
            certificates: key(&spec.certificates)?,
            peer_key: key(&spec.peer_key)?,
            authorities: key(&spec.authorities)?,
            ppk_id: optional_string(spec.ppk_id)?,
            ppk: key(&spec.ppk)?,
            children: Vec::new(),
        }
    };
    allocator::check(memory_costs::of_connection(input.bytes(), specs.len()))?;
    for child in specs {
        // SAFETY: guaranteed by the caller.
        input.children.push(unsafe {
            ChildInput {
                spec: child,
                name: string(child.name)?,
                proposals: optional_string(child.proposals)?,
                local_traffic: optional_string(child.local_traffic)?,
                remote_traffic: optional_string(child.remote_traffic)?,
            }
        });
    }
    allocator::check(memory_costs::of_connection(input.bytes(), specs.len()))?;
    Ok(input)
}

/// `casemate_ike_set_callbacks`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_ike_set_callbacks(host: *mut Host, callbacks: *const IkeCallbacks) -> i32 {
    let set = || {
        // SAFETY: required by the header: pointers are null or valid during the call.
        let (host, callbacks) = unsafe { (read_mut(host)?, read(callbacks)?) };
        host.set_callbacks(*callbacks);
        Ok(())
    };
    to_status(set())
}

/// `casemate_ike_clock`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_ike_clock(host: *mut Host, unix_seconds: u64, now: u64) -> i32 {
    // SAFETY: required by the header: the pointer is null or valid during the call.
    to_status(unsafe { read_mut(host) }.map(|host| host.set_clock(unix_seconds, Instant::from_micros(now))))
}

/// `casemate_add_connection`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_add_connection(
    host: *mut Host,
    connection: *const ConnectionSpec,
    now: u64,
) -> i32 {
    let add = || {
        // SAFETY: required by the header: pointers, including those in the connection, are null or valid
        // during the call.
        let (host, input) = unsafe { (read_mut(host)?, connection_input(read(connection)?)?) };
        host.add_connection(&input, Instant::from_micros(now))
    };
    to_status(add())
}

/// Calls `act` with the host and a name.
///
/// # Safety
///
/// The pointers are null or valid during the call.
unsafe fn named(
    host: *mut Host,
    name: *const c_char,
    act: impl FnOnce(&mut Host, &str) -> StatusResult,
) -> i32 {
    // SAFETY: guaranteed by the caller.
    to_status(
        unsafe { read_mut(host).and_then(|host| Ok((host, string(name)?))) }
            .and_then(|(host, name)| act(host, name)),
    )
}

/// `casemate_remove_connection`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_remove_connection(host: *mut Host, name: *const c_char, now: u64) -> i32 {
    // SAFETY: required by the header: pointers are null or valid during the call.
    unsafe { named(host, name, |host, name| host.remove_connection(name, Instant::from_micros(now))) }
}

/// `casemate_initiate`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_initiate(host: *mut Host, name: *const c_char, now: u64) -> i32 {
    // SAFETY: required by the header: pointers are null or valid during the call.
    unsafe { named(host, name, |host, name| host.initiate(name, Instant::from_micros(now))) }
}

/// `casemate_terminate`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_terminate(host: *mut Host, name: *const c_char, now: u64) -> i32 {
    // SAFETY: required by the header: pointers are null or valid during the call.
    unsafe { named(host, name, |host, name| host.terminate(name, Instant::from_micros(now))) }
}

/// `casemate_rekey`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_rekey(host: *mut Host, name: *const c_char, now: u64) -> i32 {
    // SAFETY: required by the header: pointers are null or valid during the call.
    unsafe { named(host, name, |host, name| host.rekey(name, Instant::from_micros(now))) }
}

/// `casemate_child_sas`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_child_sas(
    host: *const Host,
    name: *const c_char,
    count: *mut usize,
) -> i32 {
    let get = || {
        // SAFETY: required by the header: pointers are null or valid during the call.
        let (host, name, count) = unsafe { (read(host)?, string(name)?, read_mut(count)?) };
        *count = host.count_children(name)?;
        Ok(())
    };
    to_status(get())
}

/// `casemate_ike_receive`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_ike_receive(host: *mut Host, datagram: *const Datagram, now: u64) -> i32 {
    let receive = || {
        // SAFETY: required by the header: pointers are null or valid during the call, and the data is not
        // used otherwise.
        let (host, datagram) = unsafe { (read_mut(host)?, read(datagram)?) };
        // SAFETY: as above.
        let data = unsafe { bytes_mut(datagram.data, datagram.bytes)? };
        let path = Path {
            local: SocketAddr::new(required(&datagram.local)?, datagram.local_port),
            remote: SocketAddr::new(required(&datagram.remote)?, datagram.remote_port),
        };
        host.receive_ike(path, data, Instant::from_micros(now))
    };
    to_status(receive())
}

/// `casemate_ike_serve`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_ike_serve(host: *mut Host, now: u64) -> i32 {
    // SAFETY: required by the header: the pointer is null or valid during the call.
    to_status(unsafe { read_mut(host) }.and_then(|host| host.serve_ike(Instant::from_micros(now))))
}

/// `casemate_ike_due`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_ike_due(host: *const Host, due: *mut u64) -> i32 {
    let get = || {
        // SAFETY: required by the header: pointers are null or valid during the call.
        let (host, due) = unsafe { (read(host)?, read_mut(due)?) };
        *due = host.due().ok_or(Status::Absent)?.as_micros();
        Ok(())
    };
    to_status(get())
}

/// `casemate_ike_transmit`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_ike_transmit(host: *mut Host, datagram: *mut Datagram) -> i32 {
    let get = || {
        // SAFETY: required by the header: pointers are null or valid during the call.
        let (host, datagram) = unsafe { (read_mut(host)?, read_mut(datagram)?) };
        let OutgoingDatagram { path, payload } = host.next_message().ok_or(Status::Absent)?;
        *datagram = Datagram {
            local: address(Some(path.local.ip())),
            remote: address(Some(path.remote.ip())),
            local_port: path.local.port(),
            remote_port: path.remote.port(),
            data: payload.as_mut_ptr(),
            bytes: payload.len(),
        };
        Ok(())
    };
    to_status(get())
}

/// `casemate_ike_event`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_ike_event(host: *mut Host, event: *mut IkeEvent) -> i32 {
    let get = || {
        // SAFETY: required by the header: pointers are null or valid during the call.
        let (host, event) = unsafe { (read_mut(host)?, read_mut(event)?) };
        *event = host.next_event().ok_or(Status::Absent)?;
        Ok(())
    };
    to_status(get())
}

/// `casemate_ike_count`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_ike_count(host: *const Host, counts: *mut IkeCounts) -> i32 {
    let get = || {
        // SAFETY: required by the header: pointers are null or valid during the call.
        let (host, counts) = unsafe { (read(host)?, read_mut(counts)?) };
        *counts = host.ike_counts();
        Ok(())
    };
    to_status(get())
}

/// `casemate_ike_faults`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_ike_faults(
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
        let (text, times) = host.ike_faults(index)?;
        (*name, *name_bytes, *count) = (text.as_ptr().cast(), text.len(), times);
        Ok(())
    };
    to_status(get())
}
