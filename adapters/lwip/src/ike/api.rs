//! The functions of IKE that C calls. `include/casemate_ike.h` says what each does.
#![allow(clippy::missing_safety_doc, reason = "include/casemate_ike.h is the contract, for all of them")]

use super::convert::{Wanted, WantedChild};
use super::path;
use super::types::{Bytes, ChildSpec, ConnectionSpec, Counts, Datagram, Home, Told};
use crate::api::{Done, answer, bytes, bytes_mut, change, read};
use crate::convert::{address, required};
use crate::host::Host;
use crate::{Code, costs, memory};
use alloc::vec::Vec;
use casemate_sa::Instant;
use core::ffi::{CStr, c_char};
use core::slice;

/// The most children of one connection.
const MOST_CHILDREN: usize = 16;

/// A string that must be there.
///
/// # Safety
///
/// It is null or points to a string that ends with 0 and that nobody changes meanwhile.
unsafe fn string<'a>(pointer: *const c_char) -> Result<&'a str, Code> {
    // SAFETY: by this function's own contract.
    unsafe { optional_string(pointer) }?.ok_or(Code::Null)
}

/// A string that may be null.
///
/// # Safety
///
/// As for [`string`].
unsafe fn optional_string<'a>(pointer: *const c_char) -> Result<Option<&'a str>, Code> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: by this function's own contract; it is not null.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map(Some).map_err(|_| Code::Value)
}

/// # Safety
///
/// As for [`bytes`].
unsafe fn key<'a>(key: &Bytes) -> Result<&'a [u8], Code> {
    // SAFETY: by this function's own contract.
    unsafe { bytes(key.data, key.bytes) }
}

/// What the pointers of a connection lead to.
///
/// # Safety
///
/// All of them are null or lead to what the header says, which nobody changes meanwhile.
unsafe fn wanted(spec: &ConnectionSpec) -> Result<Wanted<'_>, Code> {
    if spec.child_count > MOST_CHILDREN || (spec.children.is_null() && spec.child_count > 0) {
        return Err(Code::Value);
    }
    let specs: &[ChildSpec] = match spec.child_count {
        0 => &[],
        // SAFETY: by this function's own contract; it is not null, and few.
        count => unsafe { slice::from_raw_parts(spec.children, count) },
    };
    // SAFETY: by this function's own contract.
    let mut wanted = unsafe {
        Wanted {
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
            children: Vec::new(),
        }
    };
    memory::check(costs::of_connection(wanted.bytes(), specs.len()))?;
    for child in specs {
        // SAFETY: by this function's own contract.
        wanted.children.push(unsafe {
            WantedChild {
                spec: child,
                name: string(child.name)?,
                proposals: optional_string(child.proposals)?,
                local_traffic: optional_string(child.local_traffic)?,
                remote_traffic: optional_string(child.remote_traffic)?,
            }
        });
    }
    memory::check(costs::of_connection(wanted.bytes(), specs.len()))?;
    Ok(wanted)
}

/// `casemate_ike_home`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_ike_home(host: *mut Host, home: *const Home) -> i32 {
    let set = || {
        // SAFETY: the header: pointers are null or valid during the call.
        let (host, home) = unsafe { (change(host)?, read(home)?) };
        host.set_home(*home);
        Ok(())
    };
    answer(set())
}

/// `casemate_ike_clock`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_ike_clock(host: *mut Host, unix_seconds: u64, now: u64) -> i32 {
    // SAFETY: the header: the pointer is null or valid during the call.
    answer(unsafe { change(host) }.map(|host| host.set_clock(unix_seconds, Instant::from_micros(now))))
}

/// `casemate_add_connection`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_add_connection(
    host: *mut Host,
    connection: *const ConnectionSpec,
    now: u64,
) -> i32 {
    let add = || {
        // SAFETY: the header: pointers, also those within the connection, are null or valid during the call.
        let (host, wanted) = unsafe { (change(host)?, wanted(read(connection)?)?) };
        host.add_connection(&wanted, Instant::from_micros(now))
    };
    answer(add())
}

/// Lets a host do something with what has a name.
///
/// # Safety
///
/// Pointers are null or valid during the call.
unsafe fn named(host: *mut Host, name: *const c_char, act: impl FnOnce(&mut Host, &str) -> Done) -> i32 {
    // SAFETY: by this function's own contract.
    answer(
        unsafe { change(host).and_then(|host| Ok((host, string(name)?))) }
            .and_then(|(host, name)| act(host, name)),
    )
}

/// `casemate_remove_connection`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_remove_connection(host: *mut Host, name: *const c_char, now: u64) -> i32 {
    // SAFETY: the header: pointers are null or valid during the call.
    unsafe { named(host, name, |host, name| host.remove_connection(name, Instant::from_micros(now))) }
}

/// `casemate_initiate`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_initiate(host: *mut Host, name: *const c_char, now: u64) -> i32 {
    // SAFETY: the header: pointers are null or valid during the call.
    unsafe { named(host, name, |host, name| host.initiate(name, Instant::from_micros(now))) }
}

/// `casemate_terminate`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_terminate(host: *mut Host, name: *const c_char, now: u64) -> i32 {
    // SAFETY: the header: pointers are null or valid during the call.
    unsafe { named(host, name, |host, name| host.terminate(name, Instant::from_micros(now))) }
}

/// `casemate_rekey`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_rekey(host: *mut Host, name: *const c_char, now: u64) -> i32 {
    // SAFETY: the header: pointers are null or valid during the call.
    unsafe { named(host, name, |host, name| host.rekey(name, Instant::from_micros(now))) }
}

/// `casemate_child_sas`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_child_sas(
    host: *const Host,
    name: *const c_char,
    count: *mut usize,
) -> i32 {
    let look = || {
        // SAFETY: the header: pointers are null or valid during the call.
        let (host, name, count) = unsafe { (read(host)?, string(name)?, change(count)?) };
        *count = host.count_children(name)?;
        Ok(())
    };
    answer(look())
}

/// `casemate_ike_receive`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_ike_receive(host: *mut Host, datagram: *const Datagram, now: u64) -> i32 {
    let take = || {
        // SAFETY: the header: pointers are null or valid during the call, and nobody else uses the data meanwhile.
        let (host, datagram) = unsafe { (change(host)?, read(datagram)?) };
        // SAFETY: as above.
        let data = unsafe { bytes_mut(datagram.data, datagram.bytes)? };
        let local = (required(&datagram.local)?, datagram.local_port);
        let remote = (required(&datagram.remote)?, datagram.remote_port);
        host.receive_ike(path(local, remote), data, Instant::from_micros(now))
    };
    answer(take())
}

/// `casemate_ike_serve`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_ike_serve(host: *mut Host, now: u64) -> i32 {
    // SAFETY: the header: the pointer is null or valid during the call.
    answer(unsafe { change(host) }.and_then(|host| host.serve_ike(Instant::from_micros(now))))
}

/// `casemate_ike_due`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_ike_due(host: *const Host, due: *mut u64) -> i32 {
    let look = || {
        // SAFETY: the header: pointers are null or valid during the call.
        let (host, due) = unsafe { (read(host)?, change(due)?) };
        *due = host.due().ok_or(Code::Absent)?.as_micros();
        Ok(())
    };
    answer(look())
}

/// `casemate_ike_transmit`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_ike_transmit(host: *mut Host, datagram: *mut Datagram) -> i32 {
    let give = || {
        // SAFETY: the header: pointers are null or valid during the call.
        let (host, datagram) = unsafe { (change(host)?, change(datagram)?) };
        let (path, data) = host.next_message().ok_or(Code::Absent)?;
        *datagram = Datagram {
            local: address(Some(path.local.ip())),
            remote: address(Some(path.remote.ip())),
            local_port: path.local.port(),
            remote_port: path.remote.port(),
            data: data.as_mut_ptr(),
            bytes: data.len(),
        };
        Ok(())
    };
    answer(give())
}

/// `casemate_ike_event`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_ike_event(host: *mut Host, event: *mut Told) -> i32 {
    let give = || {
        // SAFETY: the header: pointers are null or valid during the call.
        let (host, event) = unsafe { (change(host)?, change(event)?) };
        *event = host.next_told().ok_or(Code::Absent)?;
        Ok(())
    };
    answer(give())
}

/// `casemate_ike_count`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_ike_count(host: *const Host, counts: *mut Counts) -> i32 {
    let look = || {
        // SAFETY: the header: pointers are null or valid during the call.
        let (host, counts) = unsafe { (read(host)?, change(counts)?) };
        *counts = host.ike_counts();
        Ok(())
    };
    answer(look())
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
    let look = || {
        // SAFETY: the header: pointers are null or valid during the call.
        let (host, name, name_bytes, count) =
            unsafe { (read(host)?, change(name)?, change(name_bytes)?, change(count)?) };
        let (text, times) = host.ike_faults(index)?;
        (*name, *name_bytes, *count) = (text.as_ptr().cast(), text.len(), times);
        Ok(())
    };
    answer(look())
}
