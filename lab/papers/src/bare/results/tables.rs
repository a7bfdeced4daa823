//! Tables of the costs in memory: the fitted lines, and each operation of the paper's table II.
//!
//! The data path has no checkpoints inside a packet, so most costs are differences: between packets that are
//! dropped at consecutive steps, and between packets with and without padding.

use super::{Costs, TUNNEL};
use crate::bare::benchmark::{
    DIRECTIONS, DROPPED, DropStep, OPERATIONS, Operation, PADDED, UNPADDED, direction_name,
};
use casemate_datapath::Direction;
use casemate_measure::report::Table;
use casemate_measure::stats::{LinearFit, Spread};

/// Table of the fitted lines, with the cost besides cipher and MAC.
pub(super) fn lines(costs: &Costs<'_>) -> Table {
    let pairs =
        OPERATIONS.into_iter().flat_map(|operation| DIRECTIONS.map(|direction| (operation, direction)));
    let rows = pairs.filter_map(|(operation, direction)| {
        let LinearFit { intercept: fixed, slope, r_squared } = costs.line(operation, direction)?;
        let name = format!("{}, {}", operation.name(), direction_name(direction));
        let last = costs.median(operation, direction, 1024)?;
        let rest = (operation == TUNNEL).then(|| costs.overhead(direction, 1024)).flatten();
        let rest = rest.map_or_else(|| "-".into(), |rest| format!("{rest:.0}"));
        Some(vec![
            name,
            format!("{fixed:.0}"),
            format!("{slope:.3}"),
            format!("{r_squared:.4}"),
            format!("{last:.0}"),
            rest,
        ])
    });
    let columns = [
        "Operation",
        "At no payload, ns",
        "For each byte, ns",
        "R²",
        "At 1,024 bytes, ns",
        "Besides MAC and cipher, at 1,024 bytes, ns",
    ];
    Table {
        title: "Lines fitted to the medians".into(),
        columns: columns.map(Into::into).into(),
        rows: rows.collect(),
    }
}

/// A cost in every block of rounds.
type Cost<'c> = dyn Fn(usize) -> Option<f64> + 'c;

/// Table II with costs in nanoseconds.
pub(super) fn operations(costs: &Costs<'_>) -> Table {
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
        (
            "inbound: SA look-up",
            "packets of 1,024 bytes with an unknown SPI, until they are dropped",
            &look_up as &Cost<'_>,
        ),
        ("inbound: anti-replay window", "replayed packets, less those with an unknown SPI", &window),
        ("inbound: data integrity verification", "HMAC-SHA1 alone, 1,024 bytes", &mac(inbound)),
        ("inbound: packet decryption", "AES-CBC alone, 1,024 bytes", &cipher(inbound)),
        (
            "inbound: decryption verification",
            "packets with 15 bytes of padding, less those without, of 51 and 66 bytes",
            &check,
        ),
        (
            "outbound: padding",
            "packets with 15 bytes of padding, less those without, of 51 and 66 bytes",
            &pad,
        ),
        ("outbound: encryption", "AES-CBC alone, 1,024 bytes", &cipher(outbound)),
        ("outbound: MAC calculation", "HMAC-SHA1 alone, 1,024 bytes", &mac(outbound)),
    ];
    let rows = rows.into_iter().map(|(operation, how, cost)| {
        let cost = Costs::blocks(cost).map_or_else(|| "-".into(), |spread: Spread| spread.text(0));
        vec![operation.into(), how.into(), cost]
    });
    Table {
        title: "Table II: what each operation costs".into(),
        columns: ["Operation", "Measured as", "ns"].map(Into::into).into(),
        rows: rows.collect(),
    }
}
