//! The machine on which a measurement ran: its description, and its activity during the measurement.

use serde::{Deserialize, Serialize};
use std::fs;
use std::time::Duration;

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

/// Load average per CPU above which other programs may have disturbed the measurement.
const MAX_LOAD_PER_CPU: f64 = 0.5;
/// Share of CPU time that the hypervisor may give to other virtual machines.
const MAX_STOLEN: f64 = 0.02;

/// How busy the machine was.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Activity {
    /// One-minute load average before the measurement (first number of /proc/loadavg).
    pub load_before: f64,
    /// One-minute load average after the measurement. The experiment itself causes most of it.
    pub load_after: f64,
    /// Share of CPU time, from 0 to 1, that the hypervisor gave to other virtual machines.
    pub stolen: f64,
}

/// Records the activity of the machine from [`start`](Self::start) on.
#[derive(Debug)]
pub struct ActivityMonitor {
    load: f64,
    ticks: Ticks,
}

/// CPU time of all processors since boot, in clock ticks.
#[derive(Debug, Clone, Copy, Default)]
struct Ticks {
    all: f64,
    idle: f64,
    stolen: f64,
}

/// Sleeps for this time, and returns the share of the processors' time, from 0 to 1, that other programs took
/// meanwhile.
pub fn share_of_others(time: Duration) -> f64 {
    let before = Ticks::now();
    std::thread::sleep(time);
    Ticks::now().busy_since(before)
}

impl ActivityMonitor {
    /// Starts recording.
    pub fn start() -> Self {
        Self { load: load(), ticks: Ticks::now() }
    }

    /// Returns the activity since the start.
    pub fn finish(&self) -> Activity {
        let now = Ticks::now();
        let all = now.all - self.ticks.all;
        let stolen = if all > 0.0 { (now.stolen - self.ticks.stolen) / all } else { 0.0 };
        Activity { load_before: self.load, load_after: load(), stolen }
    }
}

impl Activity {
    /// Returns possible disturbances, each with its number.
    pub fn noise(&self, cpus: usize) -> Vec<String> {
        let mut reasons = Vec::new();
        if self.load_before > MAX_LOAD_PER_CPU * cpus as f64 {
            let load = self.load_before;
            reasons.push(format!(
                "other programs were running: load {load:.1} on {cpus} processors \
                 before the start"
            ));
        }
        if self.stolen > MAX_STOLEN {
            let percent = self.stolen * 100.0;
            reasons.push(format!("other virtual machines took {percent:.0} % of the CPU time"));
        }
        reasons
    }
}

impl Ticks {
    fn now() -> Self {
        Self::parse(&fs::read_to_string("/proc/stat").unwrap_or_default())
    }

    /// Parses the line `cpu` of /proc/stat (proc_stat(5)): user, nice, system, idle, iowait, irq, softirq,
    /// steal. Guest time is part of user time.
    fn parse(text: &str) -> Self {
        let line = text.lines().find_map(|line| line.strip_prefix("cpu ")).unwrap_or_default();
        let numbers: Vec<f64> =
            line.split_whitespace().take(8).filter_map(|word| word.parse().ok()).collect();
        let number = |place: usize| numbers.get(place).copied().unwrap_or_default();
        Self { all: numbers.iter().sum(), idle: number(3) + number(4), stolen: number(7) }
    }

    fn busy_since(self, before: Self) -> f64 {
        let all = self.all - before.all;
        if all > 0.0 { 1.0 - (self.idle - before.idle) / all } else { 0.0 }
    }
}

fn load() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or_default()
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

    #[test]
    fn stolen_time_is_the_eighth_number() {
        let ticks = Ticks::parse("cpu  10 20 30 40 50 60 70 80 1000 2000\ncpu0 1 2 3\n");
        assert_eq!((ticks.all, ticks.stolen), (360.0, 80.0));
    }

    #[test]
    fn others_take_what_is_neither_idle_nor_waiting() {
        let before = Ticks::parse("cpu  10 20 30 40 50 60 70 80 1000 2000\n");
        let after = Ticks::parse("cpu  70 20 30 50 60 60 90 80 1000 2000\n");
        assert_eq!(after.busy_since(before), 0.8);
        assert_eq!(after.busy_since(after), 0.0);
    }

    #[test]
    fn a_busy_machine_is_noisy() {
        let quiet = Activity { load_before: 0.9, load_after: 8.0, stolen: 0.01 };
        assert!(quiet.noise(2).is_empty());
        assert_eq!(quiet.noise(1).len(), 1);
        let robbed = Activity { stolen: 0.25, ..quiet };
        assert!(robbed.noise(2)[0].contains("25 %"));
    }
}
