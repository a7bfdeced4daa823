//! What policies ask of the system, and in which order.

use casemate_datapath::spd::{Action, Policy};
use casemate_sa::Selector;
use std::net::IpAddr;

/// Where a policy stands among those of its direction: by priority, then as they were added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank {
    pub(crate) priority: u32,
    pub(crate) serial: u64,
}

impl Rank {
    /// None is before it.
    pub(crate) const FIRST: Self = Self { priority: 0, serial: 0 };
    /// None is behind it.
    pub(crate) const LAST: Self = Self { priority: u32::MAX, serial: u64::MAX };
}

/// What a policy asks of the system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Demand {
    /// Of which packets.
    pub(crate) selector: Selector,
    /// What is to become of them.
    pub(crate) purpose: Purpose,
}

/// Where packets belong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Into the data path and nowhere else, for it protects or discards them.
    Inside {
        /// Our end of the outermost tunnel.
        end: Option<IpAddr>,
    },
    /// They pass in clear.
    Bypass,
}

impl Demand {
    pub(crate) fn of(policy: &Policy) -> Self {
        let purpose = match &policy.action {
            Action::Protect(bundle) => {
                Purpose::Inside { end: bundle.templates().last().and_then(|template| template.src) }
            }
            Action::Discard => Purpose::Inside { end: None },
            Action::Bypass => Purpose::Bypass,
        };
        Self { selector: policy.selector, purpose }
    }
}
