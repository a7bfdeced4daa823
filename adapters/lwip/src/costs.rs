//! What the tables cost in memory.

use crate::Code;
use crate::host::Host;
use crate::types::{Costs, Tables};
use casemate_datapath::{HEAD_ROOM, TAIL_ROOM};
use casemate_sa::Limits;

/// An SA without its window, or a policy: its place in the tables, which have room to grow, and the key schedules of the
/// largest suite. Tests with full tables hold them to it.
const SA_BYTES: usize = 4_096;
/// A policy, likewise.
const POLICY_BYTES: usize = 2_048;
/// The place of one entry in a table.
const PLACE_BYTES: usize = 512;
/// What an entry holds besides its place.
const KEPT_BYTES: usize = 2_048;
/// Policies that housekeeping adds, both directions together.
pub(crate) const HOUSEKEEPING: usize = 20;

/// A remembered flow.
const FLOW_BYTES: usize = 64;
/// Of a reassembly, besides its bytes.
const SLOT_BYTES: usize = 1_024;
/// Audit events, which nobody but a debugger reads here.
const EVENTS: usize = 4;
/// What is left: heads of tables and odds and ends.
const BASE: usize = 4_096;
/// No table is larger. Sums of sizes do not overflow on machines of 32 bits then.
const MOST: u32 = 65_535;

fn size(value: u32, least: u32) -> Result<usize, Code> {
    let size = (least..=MOST).contains(&value).then_some(value).ok_or(Code::Value)?;
    usize::try_from(size).map_err(|_| Code::Value)
}

/// Packets that may be in reassembly as they come from the wire.
pub(crate) fn arrivals(tables: &Tables) -> Result<usize, Code> {
    size(tables.arrivals, 0)
}

pub(crate) fn limits(tables: &Tables) -> Result<Limits, Code> {
    if tables.replay_window > MOST {
        return Err(Code::Value);
    }
    Ok(Limits {
        sas: size(tables.sas, 1)?,
        policies: size(tables.policies, 1)?,
        flows: size(tables.flows, 1)?,
        audit_events: EVENTS,
        replay_window: tables.replay_window,
        reassemblies: size(tables.reassemblies, 0)?,
        reassembly_bytes: size(tables.reassembly_bytes, 0)?,
    })
}

/// What one more SA or policy may allocate. Where the table grows, one of twice the length stands beside the old one for a
/// moment.
pub(crate) const fn of_one_more(entries: usize) -> usize {
    KEPT_BYTES.saturating_add(entries.saturating_add(4).saturating_mul(2).saturating_mul(PLACE_BYTES))
}

/// What tables of these sizes cost. Sums that no memory holds end at the greatest number.
pub(crate) fn costs(tables: &Tables) -> Result<Costs, Code> {
    let limits = limits(tables)?;
    // Rounded up to a power of two, at least 4, once for each direction.
    let flows = limits.flows.max(4).next_power_of_two().saturating_mul(2).saturating_mul(FLOW_BYTES);
    let rooms = const { HEAD_ROOM.saturating_add(TAIL_ROOM).saturating_add(SLOT_BYTES) };
    // A reassembler has one more buffer than slots.
    let buffers = limits.reassemblies.saturating_add(1).saturating_add(match arrivals(tables)? {
        0 => 0,
        slots => slots.saturating_add(1),
    });
    let reassemblies = buffers.saturating_mul(limits.reassembly_bytes.saturating_add(rooms));
    let host = size_of::<Host>().saturating_add(BASE).saturating_add(flows).saturating_add(reassemblies);
    let window = usize::try_from(limits.replay_window.div_ceil(8)).map_err(|_| Code::Value)?;
    let sa = SA_BYTES.saturating_add(window);
    let sas = limits.sas.saturating_mul(sa);
    let policies = limits.policies.saturating_mul(2).saturating_mul(POLICY_BYTES);
    let total = [sas, policies, of_one_more(0)].into_iter().fold(host, usize::saturating_add);
    Ok(Costs { host, sa, policy: POLICY_BYTES, total })
}
