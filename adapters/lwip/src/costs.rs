//! What the tables cost in memory.

use crate::Code;
use crate::host::Host;
use crate::types::{Costs, Tables};
use casemate::Endpoint;
use casemate_datapath::{Direction, HEAD_ROOM, TAIL_ROOM};
use casemate_ike::Settings;
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

/// Who makes an exchange of IKE necessary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// A peer that is known, or the time.
    Known,
    /// Somebody who wants a new IKE SA: there must be something left for those that are there.
    New,
}

/// What one exchange of IKE may take while it lasts: a message of ours and of the peer's, a key exchange, two signatures, and what is
/// kept of it. A test measures it.
const EXCHANGE: usize = 40_000;
/// An IKE SA with what a peer may have it keep: a message that is put together, the last answer, a request on its way.
const IKE_SA: usize = 16_384;
/// A request that is due, as it is kept and as it is sent: one call may begin as many as there are IKE SAs.
const REQUEST: usize = 3_072;
/// A Child SA within it.
const IKE_CHILD: usize = 2_048;

/// What must be free before an exchange begins.
pub(crate) fn exchange(endpoint: &Endpoint, need: Need) -> usize {
    let datapath = endpoint.datapath();
    let policies = |direction| datapath.policies(direction).count();
    let policies = policies(Direction::Outbound).saturating_add(policies(Direction::Inbound));
    let limits = datapath.limits();
    let tables = growth(limits.sas, datapath.sas().count())
        .saturating_add(growth(limits.policies.saturating_mul(2), policies));
    let requests = endpoint.ike().counts().0.saturating_mul(REQUEST);
    let one = tables.saturating_add(requests).saturating_add(EXCHANGE);
    match need {
        Need::Known => one,
        Need::New => one.saturating_add(IKE_SA),
    }
}

/// What a table may take that grows to its limit in one exchange: a peer may fill that of the policies with a Child SA of many
/// selectors.
fn growth(limit: usize, entries: usize) -> usize {
    if entries < limit { limit.saturating_add(4).saturating_mul(PLACE_BYTES).saturating_mul(2) } else { 0 }
}

/// What it may take to read a connection of which the caller says so many bytes, and so many children.
pub(crate) fn of_connection(bytes: usize, children: usize) -> usize {
    EXCHANGE.saturating_add(bytes.saturating_mul(4)).saturating_add(children.saturating_mul(IKE_CHILD))
}

/// Bounds of IKE for tables of these sizes.
pub(crate) fn settings(tables: &Tables) -> Result<Settings, Code> {
    let size = |value: u32| usize::try_from(value).ok().filter(|_| value <= MOST).ok_or(Code::Value);
    let (ike_sas, children) = (size(tables.ike_sas)?, size(tables.ike_children)?);
    if ike_sas == 0 {
        let nothing = Settings { ike_sas, half_open: 0, children: 0, message_bytes: 0, ..Settings::DEVICE };
        return Ok(nothing);
    }
    // Strangers may take half of the table.
    Ok(Settings { ike_sas, half_open: ike_sas.div_ceil(2), children: children.max(1), ..Settings::DEVICE })
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
    let settings = settings(tables)?;
    // The peer's first message, the one that is built, and the one that is sent.
    let host = host.saturating_add(settings.message_bytes.saturating_mul(3));
    let (ike_sas, ike_children) = (settings.ike_sas, settings.ike_sas.saturating_mul(settings.children));
    let ike = if ike_sas == 0 { 0 } else { ike_sas.saturating_mul(IKE_SA).saturating_add(EXCHANGE) };
    let total = [ike, ike_children.saturating_mul(IKE_CHILD)].into_iter().fold(total, usize::saturating_add);
    let (ike_sa, ike_child, ike_exchange) = (IKE_SA, IKE_CHILD, EXCHANGE);
    Ok(Costs { host, sa, policy: POLICY_BYTES, ike_sa, ike_child, ike_exchange, total })
}
