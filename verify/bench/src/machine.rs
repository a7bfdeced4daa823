//! What the numbers depend on besides.

use crate::program::CPUS;
use std::fs;

/// How many CPUs were used, the kernel, and how busy the machine was.
pub fn describe() -> String {
    let read = |file: &str| fs::read_to_string(file).unwrap_or_default().trim().to_owned();
    let kernel = read("/proc/sys/kernel/osrelease");
    format!("{CPUS} CPUs, Linux {kernel}, load {}", read("/proc/loadavg"))
}
