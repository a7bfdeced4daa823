//! A model of cells (docs/decisions/0140-cells.md): ownership of a slot, reserves of sequence numbers, IVs of
//! IKE messages, messages that wait for writes. A model checker visits every state that the bounds of a run
//! allow, and looks for one in which a property does not hold.
//!
//! ```text
//!  protocol     the formula of the reserves, defects, bounds              the protocol
//!  store        entries of one slot, transactions, a backup
//!  node         what a node knows and believes
//!  cell         the state, and the steps that are possible in it          the state machine
//!  steps        what each step does
//!  wire         what the network has seen; the properties                 the observer
//!  runs         bounds, exploration, reports
//!  fence        lease and clock of a node, in ticks                       models of their own
//!  message_ids  message IDs of the owner's requests, and the peer
//!  handover     orderly ends: the numbers that an owner has used, and the next owner
//! ```
//!
//! Any step may come between two others: a node may stop for any time before each of its steps, lose all
//! it knows, or not receive an answer; the store may execute a request late, and requests in any order; the
//! network may deliver packets to any node, again and again. So no property but those of `fence` depends on
//! a clock.
//!
//! Limits. There is one slot with one SA and its record, and one negotiation. A node waits for one request at
//! a time. Reads are executed at once, but a node may act on them late. Numbers, owners and faults of a run
//! are few. The checker identifies states by 64 bits: of 10^7 states, two have the same ones with a
//! probability of 3 in 10^6.
#![allow(clippy::indexing_slicing, reason = "indices are those of the state that offers the step")]

pub mod cell;
pub mod fence;
pub mod handover;
pub mod message_ids;
pub mod node;
pub mod protocol;
pub mod runs;
mod steps;
pub mod store;
pub mod wire;

pub use cell::Cell;
pub use protocol::{Bounds, Defect, HIGHEST_NUMBER, Protocol};
pub use runs::{LARGE_RUNS, RUNS, Report, Run};
