//! Dropping privileges of a process.

use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use rustix::thread::{
    CapabilitySet, CapabilitySets, clear_ambient_capability_set, set_capabilities, set_no_new_privs,
    set_thread_gid, set_thread_groups, set_thread_uid,
};
use std::io;

/// Marks this process as not dumpable. Only root can then read its memory through `/proc`, ptrace or a
/// core dump; other processes of the same user cannot. Call this before the process reads a key.
pub fn deny_memory_access() -> io::Result<()> {
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

/// Switches to the user `uid` and to the group of the same number, without supplementary groups. Requires
/// root.
///
/// Call this before the process starts threads: the kernel stores the user per thread.
pub fn switch_user(uid: u32) -> io::Result<()> {
    set_thread_groups(&[])?;
    set_thread_gid(rustix::fs::Gid::from_raw(uid))?;
    set_thread_uid(rustix::fs::Uid::from_raw(uid))?;
    // The kernel has reset the flag to the value of fs.suid_dumpable.
    deny_memory_access()
}

/// Drops all capabilities, and sets no_new_privs so that the process cannot gain any by executing another
/// program.
///
/// Call this before the process starts threads: the kernel stores capabilities per thread.
pub fn drop_privileges() -> io::Result<()> {
    set_no_new_privs(true)?;
    clear_ambient_capability_set()?;
    let none = CapabilitySet::empty();
    Ok(set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?)
}
