//! The paper's table 2, computed anew: which mode is best for which packets.

use crate::homenet::setting::{Aes, MODES, Mode, PAPERS_MODES, Setting};
use crate::homenet::sweep::{QUANTITIES, Quantity, Sweep};
use casemate_report::Table;

/// Modes whose cost is so close to the least are as good.
const TIE: f64 = 0.03;

/// Best modes for one MTU, the very best first, of these; with those as good.
pub(super) fn best(sweep: &Sweep, aes: Aes, mtu: u32, quantity: Quantity, of: &[Mode]) -> Vec<Mode> {
    let cost = |mode: &Mode| Some((*mode, sweep.cost(Setting::of(*mode, aes), mtu, quantity)?.median));
    let mut costs: Vec<(Mode, f64)> = of.iter().filter_map(cost).collect();
    costs.sort_by(|one, other| one.1.total_cmp(&other.1));
    let least = costs.first().map_or(0.0, |(_, cost)| *cost);
    costs.into_iter().filter(|(_, cost)| *cost <= least * (1.0 + TIE)).map(|(mode, _)| mode).collect()
}

/// What the paper's table 2 says for an MTU. Its text has CBC better than CTR from 600 bytes on already.
pub(super) const fn papers(aes: Aes, mtu: u32, quantity: Quantity) -> Mode {
    match (aes, mtu, quantity) {
        (Aes::Software, 200..=999, _) => Mode::Ctr,
        (Aes::Instructions, 200.., Quantity::Elapsed) => Mode::Ctr,
        _ => Mode::Cbc,
    }
}

/// Table 2: the paper's best of its four modes, ours of the same four, and ours of all.
pub(super) fn table(sweep: &Sweep, kinds: &[Aes]) -> Table {
    let columns = ["AES", "By", "Who", "Of"].map(str::to_owned).into_iter();
    let columns = columns.chain(sweep.mtus.iter().map(|mtu| format!("MTU {mtu}")));
    let mut rows = Vec::new();
    for (aes, quantity) in kinds.iter().flat_map(|aes| QUANTITIES.map(|quantity| (*aes, quantity))) {
        let mut row = |who: &str, of: &str, cell: &dyn Fn(u32) -> String| {
            let head = [aes.to_string(), quantity.name().into(), who.into(), of.into()];
            rows.push(head.into_iter().chain(sweep.mtus.iter().map(|mtu| cell(*mtu))).collect());
        };
        row("paper", "its four", &|mtu| papers(aes, mtu, quantity).to_string());
        row("here", "its four", &|mtu| names(&best(sweep, aes, mtu, quantity, &PAPERS_MODES)));
        if aes == Aes::Instructions {
            row("here", "all five", &|mtu| names(&best(sweep, aes, mtu, quantity, &MODES)));
        }
    }
    Table {
        title: "Table 2, recomputed: the best mode, and after it those within 3 %".into(),
        columns: columns.collect(),
        rows,
    }
}

/// Such as `GCM, CTR`.
pub(super) fn names(modes: &[Mode]) -> String {
    let names: Vec<String> = modes.iter().map(ToString::to_string).collect();
    if names.is_empty() { "-".into() } else { names.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_comes_first_and_ties_follow() {
        let settings = MODES.map(|mode| Setting::of(mode, Aes::Instructions));
        let sweep = Sweep::with(&settings, &[180, 1_500], |setting, mtu| match setting.mode {
            Mode::Gcm => 10.0,
            Mode::Ctr if mtu == 180 => 10.2,
            Mode::ChaCha => 9.0,
            _ => 20.0,
        });
        let best = |mtu, of: &[Mode]| best(&sweep, Aes::Instructions, mtu, Quantity::Cpu, of);
        assert_eq!(best(180, &PAPERS_MODES), [Mode::Gcm, Mode::Ctr]);
        assert_eq!(best(1_500, &PAPERS_MODES), [Mode::Gcm]);
        assert_eq!(best(180, &MODES), [Mode::ChaCha]);
        let table = table(&sweep, &[Aes::Instructions]);
        assert_eq!(table.rows.len(), 6);
        assert_eq!(table.rows[1][4..], ["GCM, CTR", "GCM"]);
    }

    /// Table 2 of the paper.
    #[test]
    fn the_papers_bands_are_those_of_its_table() {
        let software = [180, 200, 999, 1_000, 1_500].map(|mtu| papers(Aes::Software, mtu, Quantity::Cpu));
        assert_eq!(software, [Mode::Cbc, Mode::Ctr, Mode::Ctr, Mode::Cbc, Mode::Cbc]);
        let instructions = |quantity| [180, 1_500].map(|mtu| papers(Aes::Instructions, mtu, quantity));
        assert_eq!(instructions(Quantity::Elapsed), [Mode::Cbc, Mode::Ctr]);
        assert_eq!(instructions(Quantity::Cpu), [Mode::Cbc, Mode::Cbc]);
    }
}
