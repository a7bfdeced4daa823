//! The system calls that an instance may make, those of the processes that start programs for it, and those
//! that updown scripts must not make (seccomp(2)). All other calls fail with EPERM.
//!
//! An instance starts threads and no processes. The flags of clone3(2) are in memory, which a filter cannot
//! read, so clone3 fails with ENOSYS and the C library uses clone(2). The lists were taken from runs of the
//! test suite under strace, and from what glibc calls for the same work on other versions and processors.
//! Important calls that are not allowed: ptrace, process_vm_readv and process_vm_writev, bpf,
//! perf_event_open, io_uring, keyctl, mount and everything about namespaces, kernel modules, kexec,
//! userfaultfd, setuid and similar calls, chmod and chown of files that exist elsewhere.

use crate::{Error, sys};
use libc::c_long;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};
use std::collections::BTreeMap;
use std::io;

/// Files, and descriptors of all kinds.
const FILES: &[c_long] = &[
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_lseek,
    libc::SYS_fcntl,
    libc::SYS_ioctl,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_pipe2,
    libc::SYS_openat,
    libc::SYS_newfstatat,
    libc::SYS_fstat,
    libc::SYS_statx,
    libc::SYS_statfs,
    libc::SYS_fstatfs,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_readlinkat,
    libc::SYS_unlinkat,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_mkdirat,
    libc::SYS_getdents64,
    libc::SYS_getcwd,
    libc::SYS_chdir,
    libc::SYS_flock,
    libc::SYS_ftruncate,
    libc::SYS_fallocate,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_fadvise64,
    libc::SYS_umask,
];

/// Waiting, and clocks.
const WAITING: &[c_long] = &[
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_eventfd2,
    libc::SYS_signalfd4,
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_gettimeofday,
    libc::SYS_restart_syscall,
];

/// Sockets; `socket` itself is limited to some families.
const SOCKETS: &[c_long] = &[
    libc::SYS_socketpair,
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_connect,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_sendto,
    libc::SYS_recvfrom,
    libc::SYS_sendmsg,
    libc::SYS_recvmsg,
    libc::SYS_sendmmsg,
    libc::SYS_recvmmsg,
    libc::SYS_shutdown,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
];

/// Memory, threads and signals.
const PROCESS: &[c_long] = &[
    libc::SYS_brk,
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_mprotect,
    libc::SYS_madvise,
    libc::SYS_membarrier,
    libc::SYS_clone3,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_tgkill,
    libc::SYS_futex,
    libc::SYS_set_robust_list,
    libc::SYS_get_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_rseq,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_gettid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_prctl,
    libc::SYS_prlimit64,
    libc::SYS_capget,
    libc::SYS_capset,
    libc::SYS_getrandom,
    libc::SYS_uname,
    libc::SYS_sysinfo,
];

/// Start and end of `nft`.
const PROGRAMS: &[c_long] = &[
    libc::SYS_clone,
    libc::SYS_execve,
    libc::SYS_wait4,
    libc::SYS_waitid,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_send_signal,
    libc::SYS_kill,
];

/// What the scripts of resolvconf need besides: files of their own, and job control of the shell.
const SCRIPTS: &[c_long] = &[
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_symlinkat,
    libc::SYS_linkat,
    libc::SYS_utimensat,
    libc::SYS_fchdir,
    libc::SYS_copy_file_range,
    libc::SYS_sendfile,
    libc::SYS_getgroups,
    libc::SYS_getresuid,
    libc::SYS_getresgid,
    libc::SYS_getpgid,
    libc::SYS_setpgid,
    libc::SYS_getsid,
    libc::SYS_getrusage,
    libc::SYS_times,
];

/// Calls that newer processors do not have.
#[cfg(target_arch = "x86_64")]
const OLD: &[c_long] = &[
    libc::SYS_arch_prctl,
    libc::SYS_open,
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_access,
    libc::SYS_readlink,
    libc::SYS_unlink,
    libc::SYS_rename,
    libc::SYS_mkdir,
    libc::SYS_pipe,
    libc::SYS_dup2,
    libc::SYS_poll,
    libc::SYS_select,
    libc::SYS_epoll_wait,
];
#[cfg(not(target_arch = "x86_64"))]
const OLD: &[c_long] = &[];

/// Another such call, for the start of `nft`.
#[cfg(target_arch = "x86_64")]
const OLD_PROGRAMS: &[c_long] = &[libc::SYS_vfork];
#[cfg(not(target_arch = "x86_64"))]
const OLD_PROGRAMS: &[c_long] = &[];

/// Another such call, for scripts.
#[cfg(target_arch = "x86_64")]
const OLD_SCRIPTS: &[c_long] = &[libc::SYS_chmod, libc::SYS_getpgrp, libc::SYS_fork, libc::SYS_rmdir];
#[cfg(not(target_arch = "x86_64"))]
const OLD_SCRIPTS: &[c_long] = &[];

/// Calls that a script must not make: no list of allowed calls is complete for programs of the administrator.
const FORBIDDEN: &[c_long] = &[
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_userfaultfd,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_open_by_handle_at,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_reboot,
];

/// The program that a filter is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Program {
    /// `casemate run`.
    Instance,
    /// The process that starts `nft`, and `nft`.
    Nft,
    /// The process that starts updown scripts, and the scripts.
    Script,
    /// The process that changes name servers, `resolvectl` and `resolvconf`.
    NameServers,
}

impl Program {
    /// Installs the filters in all threads of the process. Returns whether the kernel has seccomp; without it
    /// nothing changes.
    pub(super) fn install(self) -> Result<bool, Error> {
        let failed = |error: io::Error| Error::new("seccomp filter", error);
        let filters = self.filters().map_err(failed)?;
        for filter in &filters {
            match sys::install_filter(filter) {
                Ok(()) => {}
                Err(error) if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EINVAL)) => {
                    return Ok(false);
                }
                Err(error) => return Err(failed(error)),
            }
        }
        Ok(!filters.is_empty())
    }

    /// The filters, in the order in which they are installed. There are none for a processor that the filter
    /// compiler does not support.
    fn filters(self) -> io::Result<Vec<BpfProgram>> {
        let Ok(arch) = std::env::consts::ARCH.try_into() else { return Ok(Vec::new()) };
        let refusal = SeccompAction::Errno(libc::EPERM as u32);
        // Of the results of several filters, an error takes precedence.
        let missing = SeccompAction::Errno(libc::ENOSYS as u32);
        let rules = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
        let without_clone3 = compile(SeccompFilter::new(rules, SeccompAction::Allow, missing, arch))?;
        if self == Self::Script {
            let rules = SeccompFilter::new(forbidden()?, SeccompAction::Allow, refusal, arch);
            return Ok(vec![without_clone3, compile(rules)?]);
        }
        let allowed = compile(SeccompFilter::new(self.rules()?, refusal, SeccompAction::Allow, arch))?;
        if self != Self::Instance {
            return Ok(vec![allowed]);
        }
        Ok(vec![without_clone3, allowed])
    }

    /// The allowed calls, with conditions on their arguments.
    fn rules(self) -> io::Result<BTreeMap<i64, Vec<SeccompRule>>> {
        let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
            self.calls().into_iter().map(|call| (call, Vec::new())).collect();
        let family = |family: &i32| rule(SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, *family as u64);
        let families = self.families().iter().map(family).collect::<Result<_, _>>()?;
        rules.insert(libc::SYS_socket, families);
        if self == Self::Instance {
            let thread = libc::CLONE_THREAD as u64;
            let is_thread = rule(SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(thread), thread)?;
            rules.insert(libc::SYS_clone, vec![is_thread]);
        }
        Ok(rules)
    }

    /// The calls in the list of the program: the allowed ones, or those that a script must not make.
    fn calls(self) -> Vec<c_long> {
        let both = [FILES, WAITING, SOCKETS, PROCESS, OLD].concat();
        match self {
            Self::Instance => both,
            Self::Nft => [&both[..], PROGRAMS, OLD_PROGRAMS].concat(),
            Self::NameServers => [&both[..], PROGRAMS, OLD_PROGRAMS, SCRIPTS, OLD_SCRIPTS].concat(),
            Self::Script => FORBIDDEN.to_vec(),
        }
    }

    /// Allowed families of sockets.
    const fn families(self) -> &'static [i32] {
        match self {
            Self::Instance => {
                &[libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK, libc::AF_PACKET]
            }
            Self::Nft | Self::NameServers => &[libc::AF_UNIX, libc::AF_NETLINK],
            Self::Script => &[],
        }
    }
}

/// A condition on the first argument of a call.
fn rule(length: SeccompCmpArgLen, operator: SeccompCmpOp, value: u64) -> io::Result<SeccompRule> {
    let condition = SeccompCondition::new(0, length, operator, value).map_err(io::Error::other)?;
    SeccompRule::new(vec![condition]).map_err(io::Error::other)
}

/// What a script must not do: the calls, and the start of a process in a user namespace of its own.
fn forbidden() -> io::Result<BTreeMap<i64, Vec<SeccompRule>>> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        FORBIDDEN.iter().map(|call| (*call, Vec::new())).collect();
    let namespace = libc::CLONE_NEWUSER as u64;
    let is_new = rule(SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(namespace), namespace)?;
    rules.insert(libc::SYS_clone, vec![is_new]);
    Ok(rules)
}

fn compile(filter: Result<SeccompFilter, seccompiler::BackendError>) -> io::Result<BpfProgram> {
    filter.and_then(BpfProgram::try_from).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lists_compile_without_duplicates() {
        for program in [Program::Instance, Program::Nft, Program::NameServers, Program::Script] {
            let filters = program.filters().unwrap();
            assert!(filters.iter().all(|filter| filter.len() < 4_096), "BPF_MAXINSNS");
            let mut calls = program.calls();
            let count = calls.len();
            calls.sort_unstable();
            calls.dedup();
            assert_eq!(calls.len(), count);
            if program == Program::Script {
                continue;
            }
            let never =
                [libc::SYS_ptrace, libc::SYS_bpf, libc::SYS_mount, libc::SYS_setns, libc::SYS_init_module];
            assert!(!never.iter().any(|call| calls.contains(call)), "{program:?}");
            let starts = [libc::SYS_execve, libc::SYS_execveat, libc::SYS_clone, libc::SYS_kill];
            let allowed = starts.iter().filter(|call| calls.contains(call)).count();
            assert_eq!(allowed, if program == Program::Instance { 0 } else { 3 }, "{program:?}");
        }
    }
}
