//! Simulation of another device on this one.
//!
//! `no-aes` is measured: AWS-LC does not use the instructions for AES and carry-less multiplication
//! (`lab/testbed/src/gateway.rs`) and runs its code for processors without them. `clock` is not measured: the
//! results are scaled, as if memory slowed down with the processor.

use std::fmt;
use std::str::FromStr;

/// Differences of the simulated device.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct AsIf {
    /// Whether instructions for AES and carry-less multiplication are missing.
    pub no_aes: bool,
    /// Clock frequency in MHz.
    pub clock_mhz: Option<f64>,
}

impl AsIf {
    /// Returns how many times slower the simulated processor is, given this machine's clock frequency.
    pub fn slowdown(self, own_mhz: Option<f64>) -> Result<f64, String> {
        match (self.clock_mhz, own_mhz) {
            (None, _) => Ok(1.0),
            (Some(asked), Some(own)) => Ok(own / asked),
            (Some(_), None) => Err("clock: results cannot be scaled, because the kernel does not report \
                 the clock frequency of this processor"
                .into()),
        }
    }
}

impl FromStr for AsIf {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut as_if = Self::default();
        for word in text.split(',').map(str::trim) {
            match word.split_once('=') {
                None if word == "no-aes" => as_if.no_aes = true,
                Some(("clock", clock)) => as_if.clock_mhz = Some(megahertz(clock)?),
                _ => return Err(format!("`{word}`: no-aes or clock=700MHz was expected")),
            }
        }
        Ok(as_if)
    }
}

fn megahertz(text: &str) -> Result<f64, String> {
    let (number, factor) = match (text.strip_suffix("MHz"), text.strip_suffix("GHz")) {
        (Some(number), _) => (number, 1.0),
        (_, Some(number)) => (number, 1e3),
        _ => (text, f64::NAN),
    };
    let clock = number.parse::<f64>().unwrap_or(f64::NAN) * factor;
    let in_range = (1.0..=100_000.0).contains(&clock);
    in_range
        .then_some(clock)
        .ok_or_else(|| format!("`clock={text}`: a clock such as 700MHz or 1.2GHz was expected"))
}

impl fmt::Display for AsIf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words = Vec::new();
        if self.no_aes {
            words.push("without AES instructions (measured)".to_owned());
        }
        words.extend(self.clock_mhz.map(|clock| format!("at {clock} MHz (scaled)")));
        f.write_str(&words.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_as_if() {
        let as_if = |text: &str| text.parse::<AsIf>();
        assert_eq!(as_if("no-aes"), Ok(AsIf { no_aes: true, clock_mhz: None }));
        let both = AsIf { no_aes: true, clock_mhz: Some(1200.0) };
        assert_eq!(as_if("clock=1.2GHz, no-aes"), Ok(both));
        assert_eq!(both.to_string(), "without AES instructions (measured), at 1200 MHz (scaled)");
        for wrong in
            ["", "no-sha", "clock", "clock=700", "clock=0MHz", "clock=xGHz", "clock=-1MHz", "clock=NaNMHz"]
        {
            assert!(as_if(wrong).unwrap_err().contains("expected"), "{wrong}");
        }
    }

    #[test]
    fn a_third_of_the_clock_is_three_times_slower() {
        let slow = AsIf { no_aes: false, clock_mhz: Some(700.0) };
        assert_eq!(slow.slowdown(Some(2100.0)), Ok(3.0));
        assert!(slow.slowdown(None).is_err());
        assert_eq!(AsIf::default().slowdown(None), Ok(1.0));
    }
}
