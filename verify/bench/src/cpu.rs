//! Which CPU a thread runs on. Left alone, the kernel may put two busy threads on one CPU for longer than a row takes.
#![allow(unsafe_code)]

use std::io;
use std::mem;

/// The numbers of the CPUs that this thread may use.
pub(crate) fn allowed() -> io::Result<Vec<usize>> {
    // SAFETY: cpu_set_t is plain data, for which all zeros are valid: no CPU.
    let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
    // SAFETY: the kernel writes one cpu_set_t, whose size it is told.
    check(unsafe { libc::sched_getaffinity(0, size_of_val(&set), &mut set) })?;
    // SAFETY: CPU_ISSET stays within the set, because the numbers are below its size.
    Ok((0..libc::CPU_SETSIZE as usize).filter(|cpu| unsafe { libc::CPU_ISSET(*cpu, &set) }).collect())
}

/// Keeps this thread, and those that it starts, on one of these.
pub(crate) fn stay_on(cpu: usize) -> io::Result<()> {
    assert!(cpu < libc::CPU_SETSIZE as usize);
    // SAFETY: all zeros are a set; CPU_SET stays within it, as was checked; the kernel reads it, and is told its size.
    check(unsafe {
        let mut set: libc::cpu_set_t = mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &set)
    })
}

fn check(status: libc::c_int) -> io::Result<()> {
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
