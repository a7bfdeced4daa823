//! Description of the machine on which a measurement ran.

use serde::{Deserialize, Serialize};
use std::fs;

/// CPU flags that affect the speed of cryptography, as the kernel names them on x86-64 and ARM, and
/// `hypervisor`, which marks a virtual machine.
const FLAGS: [&str; 13] = [
    "aes",
    "pclmulqdq",
    "sha_ni",
    "avx2",
    "avx512f",
    "vaes",
    "vpclmulqdq",
    "asimd",
    "pmull",
    "sha1",
    "sha2",
    "sha512",
    "hypervisor",
];

/// Properties of the machine that affect the numbers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// Name of the processor.
    pub cpu: String,
    /// Number of CPUs that this process may use.
    pub cpus: usize,
    /// CPU flags that cryptography uses, and `hypervisor` in a virtual machine.
    pub flags: Vec<String>,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// Kernel release.
    pub kernel: String,
    /// Frequency governor, if the kernel shows it.
    pub governor: Option<String>,
}

impl Machine {
    /// Detects the properties of this machine. What cannot be read stays empty.
    pub fn detect() -> Self {
        let cpuinfo = read("/proc/cpuinfo");
        Self {
            cpu: field(&cpuinfo, &["model name", "CPU part", "uarch"]).unwrap_or("unknown").into(),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            flags: flags(&cpuinfo),
            memory_mib: memory_mib(&read("/proc/meminfo")),
            kernel: read("/proc/sys/kernel/osrelease").trim().into(),
            governor: governor(),
        }
    }

    /// Description in one line.
    pub fn line(&self) -> String {
        let Self { cpu, cpus, memory_mib, kernel, .. } = self;
        let flags =
            if self.flags.is_empty() { String::new() } else { format!(" ({})", self.flags.join(" ")) };
        let governor = self.governor.as_ref().map(|name| format!(", governor {name}")).unwrap_or_default();
        format!("{cpu}{flags}, {cpus} processors, {memory_mib} MiB, Linux {kernel}{governor}")
    }
}

fn read(file: &str) -> String {
    fs::read_to_string(file).unwrap_or_default()
}

fn governor() -> Option<String> {
    let name = read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
    Some(name.trim().to_owned()).filter(|name| !name.is_empty())
}

/// Returns the value of the first field in /proc/cpuinfo with one of these names.
fn field<'t>(cpuinfo: &'t str, names: &[&str]) -> Option<&'t str> {
    let mut pairs = cpuinfo.lines().filter_map(|line| line.split_once(':'));
    pairs.find(|(name, _)| names.contains(&name.trim())).map(|(_, value)| value.trim())
}

fn flags(cpuinfo: &str) -> Vec<String> {
    let here: Vec<&str> =
        field(cpuinfo, &["flags", "Features"]).unwrap_or_default().split_whitespace().collect();
    FLAGS.iter().filter(|flag| here.contains(*flag)).map(|flag| (*flag).into()).collect()
}

fn memory_mib(meminfo: &str) -> u64 {
    let total = field(meminfo, &["MemTotal"]).and_then(|value| value.strip_suffix(" kB"));
    total.and_then(|kib| kib.parse::<u64>().ok()).unwrap_or_default() >> 10
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_cpu_name_and_flags() {
        let cpuinfo = "processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\nflags\t\t: fpu sse aes sha_ni vaesx\n";
        assert_eq!(field(cpuinfo, &["model name"]), Some("Some CPU @ 2 GHz"));
        assert_eq!(flags(cpuinfo), ["aes", "sha_ni"]);
        assert_eq!(memory_mib("MemTotal:        2048000 kB\n"), 2000);
    }
}
