//! What else a machine did while something was measured on it.

use serde::{Deserialize, Serialize};
use std::fs;

/// Load for each processor above which others are thought to disturb.
const BUSY: f64 = 0.5;
/// Share of its time that a virtual machine may lose to others.
const STOLEN: f64 = 0.02;

/// How busy the machine was.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Activity {
    /// Processes that ran or wanted to, in the minute before (the first number of /proc/loadavg).
    pub load_before: f64,
    /// The same at the end; most of it is the experiment's own.
    pub load_after: f64,
    /// Share of the processors' time, of 1, that another virtual machine had meanwhile.
    pub stolen: f64,
}

/// Looks at a machine from now on.
#[derive(Debug)]
pub struct Watch {
    load: f64,
    ticks: Ticks,
}

/// Time of all processors so far, in ticks of the kernel.
#[derive(Debug, Clone, Copy, Default)]
struct Ticks {
    all: f64,
    stolen: f64,
}

impl Watch {
    /// Begins.
    pub fn begin() -> Self {
        Self { load: load(), ticks: Ticks::now() }
    }

    /// What was seen since.
    pub fn end(&self) -> Activity {
        let now = Ticks::now();
        let all = now.all - self.ticks.all;
        let stolen = if all > 0.0 { (now.stolen - self.ticks.stolen) / all } else { 0.0 };
        Activity { load_before: self.load, load_after: load(), stolen }
    }
}

impl Activity {
    /// What may have disturbed, with numbers.
    pub fn noise(&self, cpus: usize) -> Vec<String> {
        let mut reasons = Vec::new();
        if self.load_before > BUSY * cpus as f64 {
            let load = self.load_before;
            reasons.push(format!("others were at work: load {load:.1} on {cpus} processors before it began"));
        }
        if self.stolen > STOLEN {
            let percent = self.stolen * 100.0;
            reasons.push(format!("other virtual machines had {percent:.0} % of the processors' time"));
        }
        reasons
    }
}

impl Ticks {
    fn now() -> Self {
        Self::parse(&fs::read_to_string("/proc/stat").unwrap_or_default())
    }

    /// The line `cpu` of /proc/stat (proc_stat(5)): user, nice, system, idle, iowait, irq, softirq, steal. Guests are counted in user.
    fn parse(text: &str) -> Self {
        let line = text.lines().find_map(|line| line.strip_prefix("cpu ")).unwrap_or_default();
        let numbers: Vec<f64> =
            line.split_whitespace().take(8).filter_map(|word| word.parse().ok()).collect();
        Self { all: numbers.iter().sum(), stolen: numbers.get(7).copied().unwrap_or_default() }
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
    fn stolen_time_is_the_eighth_number() {
        let ticks = Ticks::parse("cpu  10 20 30 40 50 60 70 80 1000 2000\ncpu0 1 2 3\n");
        assert_eq!((ticks.all, ticks.stolen), (360.0, 80.0));
    }

    #[test]
    fn a_busy_machine_is_said_to_be_noisy() {
        let quiet = Activity { load_before: 0.9, load_after: 8.0, stolen: 0.01 };
        assert!(quiet.noise(2).is_empty());
        assert_eq!(quiet.noise(1).len(), 1);
        let robbed = Activity { stolen: 0.25, ..quiet };
        assert!(robbed.noise(2)[0].contains("25 %"));
    }
}
