//! Memory requirements of tables and exchanges.

use crate::Status;
use crate::host::Host;
use crate::types::{Costs, Tables};
use casemate::Endpoint;
use casemate_datapath::{Direction, HEAD_ROOM, TAIL_ROOM};
use casemate_ike::IkeSettings;
use casemate_sa::Limits;

/// Upper limit in bytes for an SA without its replay window: its slots in the tables, which have room to
/// grow, and the key schedules of the largest suite. Tests with full tables check it.
const SA_BYTES: usize = 4_096;
/// Upper limit in bytes for a policy: its slots in the tables, which have room to grow.
const POLICY_BYTES: usize = 2_048;
/// Size of a table slot in bytes.
const SLOT_BYTES: usize = 512;
/// Additional memory of an entry in bytes.
const ENTRY_BYTES: usize = 2_048;
/// Number of policies that `bypass_control_plane` adds in both directions.
pub(crate) const CONTROL_PLANE_POLICIES: usize = 20;

/// Size of a cached flow in bytes.
const FLOW_BYTES: usize = 64;
/// Overhead of a reassembly in bytes.
const REASSEMBLY_BYTES: usize = 1_024;
/// Number of audit events, which are only read with a debugger.
const AUDIT_EVENTS: usize = 4;
/// Other memory of a host in bytes: table headers and small objects.
const HOST_BYTES: usize = 4_096;
/// Maximum table size. It keeps sums of sizes from overflowing 32 bits.
const MAX_ENTRIES: u32 = 65_535;

fn size(value: u32, min: u32) -> Result<usize, Status> {
    let size = (min..=MAX_ENTRIES).contains(&value).then_some(value).ok_or(Status::Value)?;
    usize::try_from(size).map_err(|_| Status::Value)
}

/// Returns the number of concurrent reassemblies of received fragments.
pub(crate) fn inbound_fragments(tables: &Tables) -> Result<usize, Status> {
    size(tables.arrivals, 0)
}

pub(crate) fn limits(tables: &Tables) -> Result<Limits, Status> {
    if tables.replay_window > MAX_ENTRIES {
        return Err(Status::Value);
    }
    Ok(Limits {
        sas: size(tables.sas, 1)?,
        policies: size(tables.policies, 1)?,
        flows: size(tables.flows, 1)?,
        audit_events: AUDIT_EVENTS,
        replay_window: tables.replay_window,
        reassemblies: size(tables.reassemblies, 0)?,
        reassembly_bytes: size(tables.reassembly_bytes, 0)?,
    })
}

/// Returns the memory that adding one SA or policy may allocate. While the table grows, the old one and
/// one of twice its size exist.
pub(crate) const fn of_new_entry(entries: usize) -> usize {
    ENTRY_BYTES.saturating_add(entries.saturating_add(4).saturating_mul(2).saturating_mul(SLOT_BYTES))
}

/// The reason for an IKE exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Requester {
    /// A message of a known peer, or a timer.
    Known,
    /// A request for a new IKE SA. Memory for the existing IKE SAs must be left afterwards.
    Unknown,
}

/// Maximum temporary memory of an exchange in bytes: a message in each direction, a key exchange, two
/// signatures, and the kept state. A test measures it.
const EXCHANGE_BYTES: usize = 40_000;
/// Maximum memory of an IKE SA in bytes, including what a peer can make it keep: a reassembled message,
/// the last response, a pending request.
const IKE_SA_BYTES: usize = 16_384;
/// A pending request, stored and in transmission, in bytes. One call may start as many as there are IKE SAs.
const REQUEST_BYTES: usize = 3_072;
/// A Child SA of an IKE SA in bytes.
const CHILD_BYTES: usize = 2_048;

/// Returns the memory that must be free before an exchange begins.
pub(crate) fn exchange(endpoint: &Endpoint, requester: Requester) -> usize {
    let datapath = endpoint.datapath();
    let policies = |direction| datapath.policies(direction).count();
    let policies = policies(Direction::Outbound).saturating_add(policies(Direction::Inbound));
    let limits = datapath.limits();
    let tables = growth(limits.sas, datapath.sas().count())
        .saturating_add(growth(limits.policies.saturating_mul(2), policies));
    let requests = endpoint.ike().ike_sa_count().saturating_mul(REQUEST_BYTES);
    let one = tables.saturating_add(requests).saturating_add(EXCHANGE_BYTES);
    match requester {
        Requester::Known => one,
        Requester::Unknown => one.saturating_add(IKE_SA_BYTES),
    }
}

/// Returns the memory of a table that grows to its limit in one exchange. A Child SA with many selectors
/// can fill the table of policies.
fn growth(limit: usize, entries: usize) -> usize {
    if entries < limit { limit.saturating_add(4).saturating_mul(SLOT_BYTES).saturating_mul(2) } else { 0 }
}

/// Returns the memory needed to parse a connection with `bytes` bytes of strings and keys, and `children`
/// children.
pub(crate) fn of_connection(bytes: usize, children: usize) -> usize {
    EXCHANGE_BYTES
        .saturating_add(bytes.saturating_mul(4))
        .saturating_add(children.saturating_mul(CHILD_BYTES))
}

/// Returns the limits of IKE for tables of these sizes.
pub(crate) fn settings(tables: &Tables) -> Result<IkeSettings, Status> {
    let size = |value: u32| usize::try_from(value).ok().filter(|_| value <= MAX_ENTRIES).ok_or(Status::Value);
    let (ike_sas, children) = (size(tables.ike_sas)?, size(tables.ike_children)?);
    if ike_sas == 0 {
        let nothing = IkeSettings {
            max_ike_sas: ike_sas,
            max_half_open: 0,
            max_children: 0,
            max_message_bytes: 0,
            ..IkeSettings::DEVICE
        };
        return Ok(nothing);
    }
    // Unknown peers may use half of the table.
    Ok(IkeSettings {
        max_ike_sas: ike_sas,
        max_half_open: ike_sas.div_ceil(2),
        max_children: children.max(1),
        ..IkeSettings::DEVICE
    })
}

/// Returns the memory for tables of these sizes. Sums saturate.
pub(crate) fn costs(tables: &Tables) -> Result<Costs, Status> {
    let limits = limits(tables)?;
    // Rounded up to a power of two, at least 4; one table per direction.
    let flows = limits.flows.max(4).next_power_of_two().saturating_mul(2).saturating_mul(FLOW_BYTES);
    let rooms = const { HEAD_ROOM.saturating_add(TAIL_ROOM).saturating_add(REASSEMBLY_BYTES) };
    // A reassembler has one buffer more than slots.
    let buffers = limits.reassemblies.saturating_add(1).saturating_add(match inbound_fragments(tables)? {
        0 => 0,
        slots => slots.saturating_add(1),
    });
    let reassemblies = buffers.saturating_mul(limits.reassembly_bytes.saturating_add(rooms));
    let host =
        size_of::<Host>().saturating_add(HOST_BYTES).saturating_add(flows).saturating_add(reassemblies);
    let window = usize::try_from(limits.replay_window.div_ceil(8)).map_err(|_| Status::Value)?;
    let sa = SA_BYTES.saturating_add(window);
    let sas = limits.sas.saturating_mul(sa);
    let policies = limits.policies.saturating_mul(2).saturating_mul(POLICY_BYTES);
    let total = [sas, policies, of_new_entry(0)].into_iter().fold(host, usize::saturating_add);
    let settings = settings(tables)?;
    // Buffers: a received first message, a message under construction, and a message to send.
    let host = host.saturating_add(settings.max_message_bytes.saturating_mul(3));
    let (ike_sas, ike_children) =
        (settings.max_ike_sas, settings.max_ike_sas.saturating_mul(settings.max_children));
    let ike =
        if ike_sas == 0 { 0 } else { ike_sas.saturating_mul(IKE_SA_BYTES).saturating_add(EXCHANGE_BYTES) };
    let total =
        [ike, ike_children.saturating_mul(CHILD_BYTES)].into_iter().fold(total, usize::saturating_add);
    let (ike_sa, ike_child, ike_exchange) = (IKE_SA_BYTES, CHILD_BYTES, EXCHANGE_BYTES);
    Ok(Costs { host, sa, policy: POLICY_BYTES, ike_sa, ike_child, ike_exchange, total })
}
