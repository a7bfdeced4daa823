//! The system calls that the process and `nft`, which it starts, may make (seccomp(2)). Every other one fails
//! with EPERM.
//!
//! The list was taken from runs of the test suite under strace, and from what glibc calls for the same work
//! on other versions and processors. What is not in it and matters: ptrace, process_vm_readv and
//! process_vm_writev, bpf, perf_event_open, io_uring, keyctl, mount and everything about namespaces, kernel
//! modules, kexec, userfaultfd, setuid and its like, chmod and chown of what exists elsewhere.

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

/// Memory, threads, signals, and the start and end of `nft`.
const PROCESS: &[c_long] = &[
    libc::SYS_brk,
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_mprotect,
    libc::SYS_madvise,
    libc::SYS_membarrier,
    libc::SYS_clone,
    libc::SYS_clone3,
    libc::SYS_execve,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_wait4,
    libc::SYS_waitid,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_send_signal,
    libc::SYS_kill,
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

/// Calls that newer processors do not have any more.
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
    libc::SYS_vfork,
];
#[cfg(not(target_arch = "x86_64"))]
const OLD: &[c_long] = &[];

/// Families of sockets.
const FAMILIES: [i32; 5] = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK, libc::AF_PACKET];

/// Installs the filter in all threads of the process. Returns whether the kernel has seccomp; without it
/// nothing changes.
pub(super) fn install() -> Result<bool, Error> {
    let failed = |error: io::Error| Error::new("seccomp filter", error);
    let Some(program) = program().map_err(failed)? else { return Ok(false) };
    match sys::install_filter(&program) {
        Ok(()) => Ok(true),
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EINVAL)) => Ok(false),
        Err(error) => Err(failed(error)),
    }
}

/// The filter; `None` on a processor that the compiler of filters does not know.
fn program() -> io::Result<Option<BpfProgram>> {
    let Ok(arch) = std::env::consts::ARCH.try_into() else { return Ok(None) };
    let plain = [FILES, WAITING, SOCKETS, PROCESS, OLD].concat();
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        plain.into_iter().map(|call| (call, Vec::new())).collect();
    let family = |family: i32| {
        let is_it = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, family as u64)?;
        SeccompRule::new(vec![is_it])
    };
    let families: Result<Vec<_>, _> = FAMILIES.into_iter().map(family).collect();
    rules.insert(libc::SYS_socket, families.map_err(io::Error::other)?);
    let refusal = SeccompAction::Errno(libc::EPERM as u32);
    let filter = SeccompFilter::new(rules, refusal, SeccompAction::Allow, arch).map_err(io::Error::other)?;
    BpfProgram::try_from(filter).map(Some).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_compiles_and_names_nothing_twice() {
        assert!(program().unwrap().is_none_or(|program| program.len() < 4_096), "BPF_MAXINSNS");
        let mut calls = [FILES, WAITING, SOCKETS, PROCESS, OLD].concat();
        let count = calls.len();
        calls.sort_unstable();
        calls.dedup();
        assert_eq!(calls.len(), count);
        for dangerous in
            [libc::SYS_ptrace, libc::SYS_bpf, libc::SYS_mount, libc::SYS_setns, libc::SYS_init_module]
        {
            assert!(!calls.contains(&dangerous));
        }
    }
}
