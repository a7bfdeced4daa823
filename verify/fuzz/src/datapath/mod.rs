//! The roads through casemate-datapath, and its tables.

pub(crate) mod fragment;
pub(crate) mod icmp;
pub(crate) mod inbound;
mod inner;
pub(crate) mod outbound;
pub(crate) mod reassembly;
pub(crate) mod replay;
pub(crate) mod spd;
mod specs;
mod window;

use casemate_datapath_tests::Host;

/// How many packets a host dropped, for whatever reason.
fn dropped(host: &Host) -> u64 {
    host.dp.drops().iter().map(|(_, count)| count).sum()
}
