//! CPU time and context switches of a tunnel's processes.

use crate::sys;
use crate::{Background, Error, Result};
use std::time::Duration;

/// The clock of the processes of a tunnel, both ends together.
pub struct Meter<'p> {
    processes: &'p [Background],
}

impl<'p> Meter<'p> {
    /// Of these processes.
    pub const fn new(processes: &'p [Background]) -> Self {
        Self { processes }
    }

    /// CPU time so far, of all threads, in their own code and in the kernel. Not that of the kernel's own threads.
    pub fn cpu(&self) -> Result<Duration> {
        let time = |process: &Background| {
            sys::cpu_time_of(process.pid()).map_err(Error::in_front("a tunnel's process"))
        };
        self.processes.iter().map(time).sum()
    }

    /// Context switches so far, of all threads that still run.
    pub fn switches(&self) -> Result<u64> {
        let count = |process: &Background| {
            sys::switches_of(process.pid()).map_err(Error::in_front("a tunnel's process"))
        };
        self.processes.iter().map(count).sum()
    }
}
