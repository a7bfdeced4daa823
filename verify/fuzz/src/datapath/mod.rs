//! Inbound and outbound paths of casemate-datapath, and its tables.

pub(crate) mod fragment;
mod generate;
pub(crate) mod icmp;
pub(crate) mod inbound;
pub(crate) mod outbound;
pub(crate) mod reassembly;
pub(crate) mod replay;
pub(crate) mod spd;

use casemate_test_support::hosts::Host;

/// Packets that a host dropped, for any reason.
fn dropped(host: &Host) -> u64 {
    host.dp.drops().iter().map(|(_, count)| count).sum()
}
