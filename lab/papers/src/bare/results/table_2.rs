//! Cost of each operation of the paper's table II.
//!
//! The data path has no checkpoints inside a packet, so most costs are differences: between packets that are
//! dropped at consecutive steps, and between packets with and without padding.

use super::{Costs, TUNNEL};
use crate::bare::benchmark::{DROPPED, DropStep, Operation, PADDED, UNPADDED};
use casemate_datapath::Direction;
use casemate_measure::report::Table;
use casemate_measure::stats::Spread;

/// A cost in every block of rounds.
type Cost<'c> = dyn Fn(usize) -> Option<f64> + 'c;

/// Table II with costs in nanoseconds.
pub(super) fn table(costs: &Costs<'_>) -> Table {
    let of = |operation, direction, size| move |block| costs.block(operation, direction, size, block);
    let dropped = |step| of(Operation::Dropped(step), Direction::Inbound, DROPPED);
    let (look_up, replay) = (dropped(DropStep::LookUp), dropped(DropStep::Replay));
    let window = |block| Some(replay(block)? - look_up(block)?);
    let padding = |direction| {
        let (with, without) = (of(TUNNEL, direction, PADDED), of(TUNNEL, direction, UNPADDED));
        move |block| Some(with(block)? - without(block)?)
    };
    let [check, pad] = [Direction::Inbound, Direction::Outbound].map(padding);
    let mac = |direction| of(Operation::Mac, direction, DROPPED);
    let cipher = |direction| of(Operation::Cipher, direction, DROPPED);
    let (inbound, outbound) = (Direction::Inbound, Direction::Outbound);
    let rows = [
        ("inbound: SA look-up", "packets with an unknown SPI, until they are dropped", &look_up as &Cost<'_>),
        ("inbound: anti-replay window", "replayed packets, less those with an unknown SPI", &window),
        ("inbound: data integrity verification", "HMAC-SHA1 alone", &mac(inbound)),
        ("inbound: packet decryption", "AES-CBC alone", &cipher(inbound)),
        ("inbound: decryption verification", "15 bytes of padding, less no padding", &check),
        ("outbound: padding", "15 bytes of padding, less no padding", &pad),
        ("outbound: encryption", "AES-CBC alone", &cipher(outbound)),
        ("outbound: MAC calculation", "HMAC-SHA1 alone", &mac(outbound)),
    ];
    let rows = rows.into_iter().map(|(operation, how, cost)| {
        let cost = Costs::blocks(cost).map_or_else(|| "-".into(), |spread: Spread| spread.text(0));
        vec![operation.into(), how.into(), cost]
    });
    Table {
        title: "Table II: what each operation costs, 1,024 bytes".into(),
        columns: ["Operation", "Measured as", "ns"].map(Into::into).into(),
        rows: rows.collect(),
    }
}
