//! Drops the privileges of root that are not needed once everything is set up.
//!
//! [`protect_memory`] is called before a key is read, [`enter`] once interface, routes and sockets exist.
//! SECURITY.md lists what is kept, and why. Capabilities belong to threads, so the thread that starts the
//! other threads calls [`enter`]; a thread that was started before calls [`drop_capabilities`].

mod seccomp;

use crate::{Error, sys};
use rustix::io;
use rustix::mm::{MlockAllFlags, mlockall};
use rustix::process::{
    DumpableBehavior, Resource, Rlimit, Signal, getrlimit, set_dumpable_behavior,
    set_parent_process_death_signal, setrlimit,
};
use rustix::thread::{
    CapabilitySet, CapabilitySets, Gid, Uid, capabilities, clear_ambient_capability_set,
    configure_capability_in_ambient_set, remove_capability_from_bounding_set, set_capabilities,
    set_keep_capabilities, set_no_new_privs, set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};

/// Keeps the memory of this process from other processes, core dumps and, if the limits allow it, swap.
///
/// After this call, no process of the same user can attach or read `/proc/PID/mem`, and there is no core
/// dump. Pages are locked in memory when they are used first, if the limit on locked memory can be lifted:
/// reaching a limit later would end the process. Returns whether pages are locked.
pub fn protect_memory() -> Result<bool, Error> {
    let failed = |what: &'static str| move |error: io::Errno| Error::new(what, error.into());
    set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(failed("PR_SET_DUMPABLE"))?;
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    setrlimit(Resource::Core, none).map_err(failed("RLIMIT_CORE"))?;
    let unlimited = Rlimit { current: None, maximum: None };
    let is_lifted =
        getrlimit(Resource::Memlock).current.is_none() || setrlimit(Resource::Memlock, unlimited).is_ok();
    let flags = MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT;
    Ok(is_lifted && mlockall(flags).is_ok())
}

/// The capabilities of an instance that this thread lacks: CAP_NET_ADMIN for interfaces, routes and the
/// packet filter, CAP_NET_RAW for raw and packet sockets.
pub fn missing_capabilities() -> Result<Vec<&'static str>, Error> {
    let held = capabilities(None).map_err(|error| Error::new("capabilities", error.into()))?.effective;
    let needed = [(CapabilitySet::NET_ADMIN, "CAP_NET_ADMIN"), (CapabilitySet::NET_RAW, "CAP_NET_RAW")];
    Ok(needed.into_iter().filter(|(one, _)| !held.contains(*one)).map(|(_, name)| name).collect())
}

/// Drops every capability except CAP_NET_ADMIN (routes, rules, the packet filter, interfaces) and CAP_NET_RAW
/// (raw and packet sockets), for this thread and the threads that it starts. They cannot be regained
/// (`no_new_privs`). Then limits all threads to the system calls in `seccomp`, with which no other process
/// can be started. Returns whether the kernel can do that.
pub fn enter() -> Result<bool, Error> {
    reduce_to(CapabilitySet::NET_ADMIN | CapabilitySet::NET_RAW)?;
    seccomp::Program::Instance.install()
}

/// Drops the privileges of the process that starts `nft`, like [`enter`]. The process keeps only
/// CAP_NET_ADMIN, which `nft` inherits, and the system calls of both. The kernel kills it when its parent
/// ends.
pub(crate) fn keep_for_nft() -> Result<bool, Error> {
    reduce_to(CapabilitySet::NET_ADMIN)?;
    // For a process that does not run as root but was given its capabilities. As root, `nft` has them anyway.
    let _ = configure_capability_in_ambient_set(CapabilitySet::NET_ADMIN, true);
    // After the capabilities, because the kernel may reset this when they change.
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|error| Error::new("PR_SET_PDEATHSIG", error.into()))?;
    seccomp::Program::Nft.install()
}

/// User and group of scripts if the instance runs as root: the one that owns no files. Linux distributions
/// use this number for it, and so does the kernel (overflowuid).
pub(crate) const UNPRIVILEGED: u32 = 65_534;

/// The user of scripts, if this process starts their process.
pub(crate) fn user_of_scripts() -> Result<u32, Error> {
    let failed = |error: io::Errno| Error::new("capabilities", error.into());
    let needed = CapabilitySet::SETUID | CapabilitySet::SETGID;
    let may_change = capabilities(None).map_err(failed)?.effective.contains(needed);
    Ok(if sys::effective_user() == 0 && may_change { UNPRIVILEGED } else { sys::effective_user() })
}

/// Drops the privileges of the process that starts updown scripts. A process of root becomes one of
/// [`UNPRIVILEGED`], if it may. It keeps only CAP_NET_ADMIN, which scripts inherit. System calls that no
/// script needs and that have often led to faults of the kernel fail. The kernel kills the process when its
/// parent ends.
pub(crate) fn keep_for_scripts() -> Result<bool, Error> {
    become_unprivileged()?;
    reduce_to(CapabilitySet::NET_ADMIN)?;
    let failed = |error: io::Errno| Error::new("ambient capabilities", error.into());
    configure_capability_in_ambient_set(CapabilitySet::NET_ADMIN, true).map_err(failed)?;
    // After the user and the capabilities, because the kernel resets this when they change.
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|error| Error::new("PR_SET_PDEATHSIG", error.into()))?;
    seccomp::Program::Script.install()
}

/// Makes a process of root one of [`UNPRIVILEGED`], with the same capabilities. The process has one thread.
fn become_unprivileged() -> Result<(), Error> {
    let failed = |error: io::Errno| Error::new("change to the user 65534 (nobody)", error.into());
    let held = capabilities(None).map_err(failed)?;
    if user_of_scripts()? == sys::effective_user() {
        return Ok(());
    }
    let (user, group) = (Uid::from_raw(UNPRIVILEGED), Gid::from_raw(UNPRIVILEGED));
    set_keep_capabilities(true).map_err(failed)?;
    set_thread_groups(&[]).map_err(failed)?;
    set_thread_res_gid(group, group, group).map_err(failed)?;
    set_thread_res_uid(user, user, user).map_err(failed)?;
    // The change of the user has cleared the effective set.
    let sets = CapabilitySets { effective: held.permitted, ..held };
    set_capabilities(None, sets).map_err(failed)
}

/// Drops all capabilities of the process that changes name servers, and limits its system calls to those of
/// the programs that do so. The kernel kills it when its parent ends.
pub(crate) fn keep_for_dns() -> Result<bool, Error> {
    reduce_to(CapabilitySet::empty())?;
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|error| Error::new("PR_SET_PDEATHSIG", error.into()))?;
    seccomp::Program::NameServers.install()
}

/// Drops all capabilities of this thread.
pub fn drop_capabilities() -> Result<(), Error> {
    reduce_to(CapabilitySet::empty())
}

fn reduce_to(kept: CapabilitySet) -> Result<(), Error> {
    let failed = |error: io::Errno| Error::new("capabilities", error.into());
    set_no_new_privs(true).map_err(failed)?;
    clear_ambient_capability_set().map_err(failed)?;
    let had = capabilities(None).map_err(failed)?;
    if had.effective.contains(CapabilitySet::SETPCAP) {
        for capability in CapabilitySet::all().difference(kept).iter() {
            match remove_capability_from_bounding_set(capability) {
                // This kernel does not know the capability.
                Err(io::Errno::INVAL) => {}
                removed => removed.map_err(failed)?,
            }
        }
    }
    let kept = kept.intersection(had.permitted);
    let sets = CapabilitySets { effective: kept, permitted: kept, inheritable: kept };
    set_capabilities(None, sets).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// What a process in the sandbox can do. It runs as a process of its own, because a sandbox cannot be
    /// left.
    #[test]
    #[ignore = "threads_can_start_and_processes_cannot starts it as a process of its own"]
    fn runs_in_the_sandbox() {
        if !enter().unwrap() {
            return casemate_test_support::skip("a seccomp filter: this kernel has none");
        }
        assert_eq!(std::thread::spawn(|| 7).join().unwrap(), 7);
        let error = Command::new("/bin/true").status().unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EPERM), "{error}");
        // With a hook the standard library forks; without one it uses another call.
        assert!(sys::forks().is_err());
        assert!(std::net::UdpSocket::bind("127.0.0.1:0").is_ok());
    }

    #[test]
    fn threads_can_start_and_processes_cannot() {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--ignored", "--exact", "sandbox::tests::runs_in_the_sandbox", "--test-threads=1"]);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"));
    }
}
