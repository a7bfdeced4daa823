//! Cases of the matrix: the configuration of both sides and the expected result.

mod addresses;
mod algorithms;
mod auth;
mod classes;
mod devices;
mod eap;
mod eap_tls;
mod hosts;
mod kernel;
mod mobike;
mod negotiation;
mod post_quantum;
mod ppk;
mod redirect;
mod rekey;
mod rounds;
mod select;

use crate::options::matches;
use crate::peer::{Family, Side};
use crate::plan::Plan;
use crate::strongswan::Esp;
use crate::testbed::Testbed;
use casemate_interop::{Error, Result};

type Script = Box<dyn Fn(&mut Testbed) -> Result<String> + Send + Sync>;

/// Case of the matrix.
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) plan: Plan,
    /// Runs after both sides have started. Returns the text that the report prints for a case that passes.
    pub(crate) script: Script,
    /// Whether ESP encrypts.
    pub(crate) is_encrypted: bool,
    /// ESP implementation of strongSwan.
    pub(crate) esp: Esp,
    /// Error counters of `/proc/net/xfrm_stat` that may increase in this case. All other counters must stay
    /// unchanged.
    pub(crate) errors: &'static [&'static str],
    /// Whether the case runs while no other case runs. A guest that shares the CPUs with another guest
    /// sometimes loses packets without counting them. A case that allows no loss would fail.
    pub(crate) is_exclusive: bool,
    /// Implementations of the left side that can run the case.
    pub(crate) runs_on: RunsOn,
    /// Whether strongSwan must have additional key exchanges and ML-KEM.
    pub(crate) needs_ml_kem: bool,
}

/// Implementations of the left side that can run a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RunsOn {
    All,
    /// `casemate run`, with a key of its own in the configuration.
    Casemate,
    /// Device that accepts commands, with the services of a device.
    Device,
    /// Firmware without an operating system.
    Firmware,
    /// lwIP.
    Lwip,
}

impl Case {
    /// Creates a case. Its name includes the role of the program under test.
    fn new(
        name: &str,
        plan: Plan,
        script: impl Fn(&mut Testbed) -> Result<String> + Send + Sync + 'static,
    ) -> Self {
        let part = if plan.initiator == Side::Left { "initiate" } else { "respond" };
        let name = format!("{name}/{part}");
        let script = Box::new(script);
        Self {
            name,
            plan,
            script,
            is_encrypted: true,
            esp: Esp::Libipsec,
            errors: &[],
            is_exclusive: false,
            runs_on: RunsOn::All,
            needs_ml_kem: false,
        }
    }

    /// Returns whether a device runs the case by default.
    pub(crate) fn is_default_for_devices(&self) -> bool {
        devices::DEFAULT_CASES.iter().any(|pattern| matches(pattern, &self.name))
    }
}

/// Returns all cases. Each has a unique name.
pub(crate) fn all() -> Vec<Case> {
    let mut cases = Vec::new();
    for initiator in Side::BOTH {
        for add in [
            addresses::add,
            auth::add,
            classes::add,
            devices::add,
            eap::add,
            eap_tls::add,
            hosts::add,
            kernel::add,
            mobike::add,
            mobike::add_streams,
            addresses::add_nat,
            negotiation::add,
            algorithms::add,
            post_quantum::add,
            ppk::add,
            redirect::add,
            rekey::add,
            rounds::add,
            select::add,
        ] {
            add(&mut cases, initiator);
        }
    }
    cases.sort_by(|one, other| one.name.cmp(&other.name));
    cases
}

/// Sets up the child and sends traffic through it.
fn establish_and_talk(testbed: &mut Testbed) -> Result<String> {
    testbed.establish()?;
    testbed.traffic(Family::V4)
}

fn ensure(holds: bool, otherwise: &str) -> Result<()> {
    if holds { Ok(()) } else { Err(Error::new(otherwise)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn case_names_are_unique() {
        let cases = all();
        let names: BTreeSet<_> = cases.iter().map(|case| &case.name).collect();
        assert_eq!(names.len(), cases.len());
    }

    #[test]
    fn default_cases_of_devices_exist() {
        let cases = all();
        for pattern in devices::DEFAULT_CASES {
            assert!(cases.iter().any(|case| matches(pattern, &case.name)), "{pattern}");
        }
    }
}
