//! What the process keeps of root's privileges once everything is set up.
//!
//! [`hide`] is called before a key is read, [`keep`] when interface, routes and sockets are there.
//! SECURITY.md says what is kept and why. The kernel knows capabilities of threads, so [`keep`] is called by
//! the thread that starts the others; a thread that was started before calls [`renounce`].

mod filter;

use crate::Error;
use rustix::io;
use rustix::mm::{MlockAllFlags, mlockall};
use rustix::process::{
    DumpableBehavior, Resource, Rlimit, Signal, getrlimit, set_dumpable_behavior,
    set_parent_process_death_signal, setrlimit,
};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set,
    configure_capability_in_ambient_set, remove_capability_from_bounding_set, set_capabilities,
    set_no_new_privs,
};

/// Keeps the memory of this process from other processes, core dumps and, where the limits allow, swap.
///
/// After this call, no process of the same user can attach or read `/proc/PID/mem`, and there is no core
/// dump. Pages are locked in memory as they are touched, if the limit on locked memory can be lifted: a limit
/// that is reached later would end the process. Returns whether they are.
pub fn hide() -> Result<bool, Error> {
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

/// Gives up every capability but CAP_NET_ADMIN (routes, rules, the packet filter, interfaces) and CAP_NET_RAW
/// (raw and packet sockets), for this thread and the threads that it starts. Nothing gives one back
/// (`no_new_privs`). Then limits all threads to the system calls in `filter`, with which no other process can
/// be started; returns whether the kernel can do that.
pub fn keep() -> Result<bool, Error> {
    reduce_to(CapabilitySet::NET_ADMIN | CapabilitySet::NET_RAW)?;
    filter::Program::Instance.install()
}

/// The same for the process that starts `nft`: it keeps CAP_NET_ADMIN alone, which `nft` gets, the system
/// calls of both, and is killed when its parent ends.
pub(crate) fn keep_for_nft() -> Result<bool, Error> {
    reduce_to(CapabilitySet::NET_ADMIN)?;
    // Where this process does not run as root but was given its capabilities. Without it, root's `nft` has
    // them.
    let _ = configure_capability_in_ambient_set(CapabilitySet::NET_ADMIN, true);
    // After the capabilities: the kernel may forget it when they change.
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|error| Error::new("PR_SET_PDEATHSIG", error.into()))?;
    filter::Program::Nft.install()
}

/// Gives up all capabilities of this thread.
pub fn renounce() -> Result<(), Error> {
    reduce_to(CapabilitySet::empty())
}

fn reduce_to(kept: CapabilitySet) -> Result<(), Error> {
    let failed = |error: io::Errno| Error::new("capabilities", error.into());
    set_no_new_privs(true).map_err(failed)?;
    clear_ambient_capability_set().map_err(failed)?;
    let had = capabilities(None).map_err(failed)?;
    if had.effective.contains(CapabilitySet::SETPCAP) {
        // A number that this kernel does not know is no error of ours.
        for capability in CapabilitySet::all().difference(kept).iter() {
            let _ = remove_capability_from_bounding_set(capability);
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

    /// What a confined process can do and what not; it is a process of its own, for there is no way back.
    #[test]
    #[ignore = "no_process_is_started_and_threads_are starts it as a process of its own"]
    fn is_confined() {
        if !keep().unwrap() {
            return casemate_left_out::note("a seccomp filter: this kernel has none");
        }
        assert_eq!(std::thread::spawn(|| 7).join().unwrap(), 7);
        let error = Command::new("/bin/true").status().unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EPERM), "{error}");
        // With a hook the standard library forks, without one it may not.
        assert!(crate::sys::forks().is_err());
        assert!(std::net::UdpSocket::bind("127.0.0.1:0").is_ok());
    }

    #[test]
    fn no_process_is_started_and_threads_are() {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--ignored", "--exact", "confine::tests::is_confined", "--test-threads=1"]);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"));
    }
}
