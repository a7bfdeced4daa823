//! Properties of the device: processor, memory, and crypto hardware that the kernel reports.

use serde_json::{Value, json};
use std::fs;
use std::num::NonZeroUsize;
use std::thread;

/// Detected properties. What the system does not report is `None`.
#[derive(Debug, Clone, PartialEq)]
pub struct Device {
    /// Name of the processor.
    pub processor: Option<String>,
    /// Architecture for which this program was built.
    pub architecture: &'static str,
    /// Relevant extensions of the instruction set.
    pub instructions: Vec<InstructionSet>,
    /// Number of processors that this program may use.
    pub processors: usize,
    /// Clock frequency in MHz, as the kernel reports it.
    pub clock_mhz: Option<f64>,
    /// Frequency governor.
    pub governor: Option<String>,
    /// Memory in MiB.
    pub memory_mib: Option<u64>,
    /// Load average of the last minute, as the kernel reports it. Other programs make measurements noisier.
    pub load: Option<f64>,
    /// Drivers of crypto hardware in the kernel. Casemate does not use them.
    pub accelerators: Vec<String>,
}

/// Extension of the instruction set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InstructionSet {
    /// Name, as the kernel spells it.
    pub name: &'static str,
    /// Whether the processor has it.
    pub is_available: bool,
}

impl Device {
    /// Detects the properties of this machine.
    pub fn probe() -> Self {
        let read = |file: &str| fs::read_to_string(file).ok();
        let cpuinfo = read("/proc/cpuinfo").unwrap_or_default();
        let governor = read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
        let clock = read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq");
        let memory = read("/proc/meminfo").unwrap_or_default();
        Self {
            processor: field(&cpuinfo, &["model name", "Hardware", "Model"]),
            architecture: std::env::consts::ARCH,
            instructions: instructions(),
            processors: thread::available_parallelism().map_or(1, NonZeroUsize::get),
            clock_mhz: kilohertz(clock.as_deref()).or_else(|| field(&cpuinfo, &["cpu MHz"])?.parse().ok()),
            governor: governor.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty()),
            memory_mib: mebibytes(&memory),
            load: read("/proc/loadavg").and_then(|text| text.split(' ').next()?.parse().ok()),
            accelerators: accelerators(&read("/proc/crypto").unwrap_or_default()),
        }
    }

    /// Whether the processor has AES instructions.
    pub fn has_aes(&self) -> bool {
        self.instructions.iter().any(|set| set.name == "aes" && set.is_available)
    }

    /// Returns the properties as one JSON object.
    pub fn json(&self) -> Value {
        let has = |wanted: bool| {
            let sets = self.instructions.iter().filter(|set| set.is_available == wanted);
            sets.map(|set| set.name).collect::<Vec<_>>()
        };
        json!({
            "processor": self.processor,
            "architecture": self.architecture,
            "instructions": has(true),
            "missing_instructions": has(false),
            "processors": self.processors,
            "clock_mhz": self.clock_mhz,
            "governor": self.governor,
            "memory_mib": self.memory_mib,
            "load": self.load,
            "accelerators": self.accelerators,
        })
    }

    /// Returns the properties as a few lines of text.
    pub fn text(&self) -> String {
        let unknown = || "unknown".to_owned();
        let processor = self.processor.clone().unwrap_or_else(|| "unnamed processor".into());
        let clock = self.clock_mhz.map_or_else(unknown, |clock| format!("{clock:.0} MHz"));
        let memory = self.memory_mib.map_or_else(unknown, |memory| format!("{memory} MiB"));
        let governor = self.governor.clone().unwrap_or_else(unknown);
        let load = self.load.map_or_else(unknown, |load| format!("{load:.2}"));
        let instructions = self
            .instructions
            .iter()
            .map(|set| format!("{} {}", set.name, if set.is_available { "yes" } else { "no" }));
        let accelerators = match self.accelerators.as_slice() {
            [] => "none known to the kernel".into(),
            drivers => format!("{} (of the kernel, not used by Casemate)", drivers.join(", ")),
        };
        format!(
            "  {processor}, {} of them, {}, clock {clock}, governor {governor}, memory {memory}, load {load}\n  \
             instructions: {}\n  accelerators: {accelerators}\n",
            self.processors,
            self.architecture,
            instructions.collect::<Vec<_>>().join(", "),
        )
    }
}

/// Asks the processor itself, because the kernel may report instructions that an emulator does not provide.
#[cfg(target_arch = "x86_64")]
fn instructions() -> Vec<InstructionSet> {
    use std::arch::is_x86_feature_detected as has;
    let found = [
        ("aes", has!("aes")),
        ("pclmulqdq", has!("pclmulqdq")),
        ("vaes", has!("vaes")),
        ("vpclmulqdq", has!("vpclmulqdq")),
        ("sha", has!("sha")),
        ("avx2", has!("avx2")),
        ("avx512f", has!("avx512f")),
    ];
    found.map(|(name, is_available)| InstructionSet { name, is_available }).into()
}

#[cfg(target_arch = "aarch64")]
fn instructions() -> Vec<InstructionSet> {
    use std::arch::is_aarch64_feature_detected as has;
    let found =
        [("aes", has!("aes")), ("pmull", has!("pmull")), ("sha2", has!("sha2")), ("neon", has!("neon"))];
    found.map(|(name, is_available)| InstructionSet { name, is_available }).into()
}

/// Asks the kernel on architectures for which the standard library has no detection.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn instructions() -> Vec<InstructionSet> {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let features = field(&cpuinfo, &["Features", "flags"]).unwrap_or_default();
    let is_available = |name| features.split(' ').any(|word| word == name);
    ["aes", "pmull", "sha2", "neon"]
        .map(|name| InstructionSet { name, is_available: is_available(name) })
        .into()
}

/// Returns the value of the first of these fields.
fn field(text: &str, names: &[&str]) -> Option<String> {
    let of_line = |line: &str, name: &str| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim().to_owned())
    };
    names.iter().find_map(|name| text.lines().find_map(|line| of_line(line, name)))
}

fn kilohertz(text: Option<&str>) -> Option<f64> {
    text?.trim().parse::<f64>().ok().map(|kilohertz| kilohertz / 1e3)
}

fn mebibytes(meminfo: &str) -> Option<u64> {
    let total = field(meminfo, &["MemTotal"])?;
    total.strip_suffix(" kB")?.trim().parse::<u64>().ok().map(|kibibytes| kibibytes / 1_024)
}

/// Returns asynchronous drivers in /proc/crypto, which are hardware unless they are the kernel's wrappers
/// around CPU instructions.
fn accelerators(crypto: &str) -> Vec<String> {
    const SOFTWARE: [&str; 6] = ["generic", "cryptd", "aesni", "simd", "-ce", "-neon"];
    let driver = |entry: &str| {
        let driver = field(entry, &["driver"])?;
        let is_late = field(entry, &["async"]).as_deref() == Some("yes");
        let is_software = SOFTWARE.iter().any(|word| driver.contains(word)) || driver.starts_with("__");
        (is_late && !is_software).then_some(driver)
    };
    let mut drivers: Vec<String> = crypto.split("\n\n").filter_map(driver).collect();
    drivers.sort();
    drivers.dedup();
    drivers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_fields_and_units() {
        let cpuinfo = "processor\t: 0\nmodel name\t: A processor\ncpu MHz\t\t: 2100.000\n";
        assert_eq!(field(cpuinfo, &["Model", "model name"]).as_deref(), Some("A processor"));
        assert_eq!(field(cpuinfo, &["Hardware"]), None);
        assert_eq!(mebibytes("MemTotal:        2048000 kB\n"), Some(2_000));
        assert_eq!(kilohertz(Some("700000\n")), Some(700.0));
        assert!(Device::probe().processors >= 1);
    }

    #[test]
    fn hardware_is_distinguished_from_asynchronous_software() {
        let entry =
            |driver: &str, is_async: &str| format!("name : x\ndriver : {driver}\nasync : {is_async}\n\n");
        let crypto = [
            entry("rfc4106-gcm-aesni", "yes"),
            entry("cryptd(__cbc-aes-aesni)", "yes"),
            entry("ctr-aes-generic", "no"),
            entry("authenc-hmac-sha1-cbc-aes-caam", "yes"),
            entry("safexcel-gcm-aes", "yes"),
        ];
        assert_eq!(accelerators(&crypto.concat()), ["authenc-hmac-sha1-cbc-aes-caam", "safexcel-gcm-aes"]);
    }
}
