//! How a process gives up what it does not need any more.

use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use rustix::thread::{
    CapabilitySet, CapabilitySets, clear_ambient_capability_set, set_capabilities, set_no_new_privs,
    set_thread_gid, set_thread_groups, set_thread_uid,
};
use std::io;

/// Nobody but root looks into this process's memory any more, also nobody of the same user: not through `/proc`, not with
/// ptrace, not in a core dump. To be called before it reads a key.
pub fn hide() -> io::Result<()> {
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

/// Becomes this user, with the group of the same number and no other. Needs to be root.
///
/// To be called before the process starts any thread: the kernel knows users of threads.
pub fn become_user(uid: u32) -> io::Result<()> {
    set_thread_groups(&[])?;
    set_thread_gid(rustix::fs::Gid::from_raw(uid))?;
    set_thread_uid(rustix::fs::Uid::from_raw(uid))?;
    // The kernel has set that anew, as the administrator says in fs.suid_dumpable.
    hide()
}

/// Gives up all capabilities, and the means to get any by starting another program.
///
/// To be called before the process starts any thread: the kernel knows capabilities of threads.
pub fn drop_privileges() -> io::Result<()> {
    set_no_new_privs(true)?;
    clear_ambient_capability_set()?;
    let none = CapabilitySet::empty();
    Ok(set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?)
}
