//! The cases of the matrix: what both sides are told, and what has to happen then.

mod addresses;
mod auth;
mod classes;
mod devices;
mod fragments;
mod hosts;
mod kernel;
mod keys;
mod loss;
mod nat;
mod negotiation;
mod proposals;
mod rekey;
mod select;

use crate::arena::Arena;
use crate::options::matches;
use crate::plan::Plan;
use crate::side::{Family, Side};
use crate::strongswan::Esp;
use casemate_interop::{Error, Result};

type Script = Box<dyn Fn(&mut Arena) -> Result<String> + Send + Sync>;

/// One case.
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) plan: Plan,
    /// What happens once both sides serve. What it returns is said of the case when it passes.
    pub(crate) script: Script,
    /// Whether ESP hides what it carries.
    pub(crate) is_encrypted: bool,
    /// Whose ESP strongSwan has.
    pub(crate) esp: Esp,
    /// The errors of `/proc/net/xfrm_stat` that belong to it, where that ESP is a kernel's. There may be no others.
    pub(crate) errors: &'static [&'static str],
    /// Whether it runs while no other does. A guest that shares the machine with another one loses packets now and then, which
    /// nobody counts and a case that allows no loss would blame on the peers.
    pub(crate) is_alone: bool,
    /// Who can play the left side.
    pub(crate) whom: Whom,
}

/// Who can play the left side of a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whom {
    Everybody,
    /// `casemate run`, in whose configuration there is a key of its own.
    Casemate,
    /// A device that takes orders, with the services of one.
    Device,
    /// The machine without an operating system.
    Firmware,
    /// lwIP.
    Lwip,
}

impl Case {
    /// A case; its name tells which part the program under test plays.
    fn new(
        name: &str,
        plan: Plan,
        script: impl Fn(&mut Arena) -> Result<String> + Send + Sync + 'static,
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
            is_alone: false,
            whom: Whom::Everybody,
        }
    }

    /// Whether a device runs it when no cases are named.
    pub(crate) fn is_for_devices(&self) -> bool {
        devices::CHOICE.iter().any(|pattern| matches(pattern, &self.name))
    }
}

/// All cases, each with a name of its own.
pub(crate) fn all() -> Vec<Case> {
    let mut cases = Vec::new();
    for initiator in Side::BOTH {
        for add in [
            addresses::add,
            auth::add,
            classes::add,
            devices::add,
            fragments::add,
            hosts::add,
            kernel::add,
            keys::add,
            loss::add,
            nat::add,
            negotiation::add,
            proposals::add,
            rekey::add,
            select::add,
        ] {
            add(&mut cases, initiator);
        }
    }
    cases.sort_by(|one, other| one.name.cmp(&other.name));
    cases
}

/// Sets up the child, and sends through it.
fn establish_and_talk(arena: &mut Arena) -> Result<String> {
    arena.establish()?;
    arena.traffic(Family::V4)
}

fn demand(holds: bool, otherwise: &str) -> Result<()> {
    if holds { Ok(()) } else { Err(Error::new(otherwise)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique() {
        let cases = all();
        let names: BTreeSet<_> = cases.iter().map(|case| &case.name).collect();
        assert_eq!(names.len(), cases.len());
    }

    #[test]
    fn whatever_devices_run_is_there() {
        let cases = all();
        for pattern in devices::CHOICE {
            assert!(cases.iter().any(|case| matches(pattern, &case.name)), "{pattern}");
        }
    }
}
