//! Comparison with section 4 of the paper.

use super::{TIE, best, names, paper_best};
use crate::homenet::scenario::{Aes, Mode, PAPERS_MODES, Scenario};
use crate::homenet::sweep::{QUANTITIES, Quantity, Ratio, Sweep};
use casemate_measure::report::{Agreement, Bound, Claim, Finding};
use casemate_measure::stats::Spread;

/// Ratios closer to 1 than this count as equal.
const SAME: f64 = 0.05;

/// Findings about figures 1 and 2, and table 2.
pub(super) fn of_modes(sweep: &Sweep, kinds: &[Aes]) -> Vec<Finding> {
    let mut findings: Vec<Finding> = Vec::new();
    if kinds.contains(&Aes::Software) {
        findings.extend(QUANTITIES.iter().filter_map(|quantity| slower_without(sweep, *quantity)));
    }
    findings.extend(contradiction(sweep));
    findings.extend(small_packets(sweep));
    findings.extend(gcm_against_ccm(sweep));
    findings.extend(QUANTITIES.iter().filter_map(|quantity| gcm_against_cbc(sweep, *quantity)));
    findings.extend(kinds.iter().flat_map(|aes| QUANTITIES.map(|quantity| table_2(sweep, *aes, quantity))));
    findings
}

fn longest(sweep: &Sweep) -> u32 {
    sweep.mtus.last().copied().unwrap_or_default()
}

/// Ratio of two modes with one kind of AES.
fn times(sweep: &Sweep, aes: Aes, [own, base]: [Mode; 2], mtu: u32, quantity: Quantity) -> Option<Spread> {
    sweep.ratio(Scenario::of(own, aes), Scenario::of(base, aes), mtu, quantity)
}

fn slower_without(sweep: &Sweep, quantity: Quantity) -> Option<Finding> {
    let mtu = longest(sweep);
    let of = |mode| times(sweep, Aes::Software, [mode, Mode::Cbc], mtu, quantity);
    let (ccm, gcm) = (of(Mode::Ccm)?, of(Mode::Gcm)?);
    let [first, second] = [ccm, gcm].map(|ratio| ratio.text(2));
    let claim = Claim {
        what: &format!("AES in software: CCM and GCM against CBC, {}", quantity.name()),
        paper: "1.2 to 1.4 times CBC",
        holds: Bound::Above(1.0 + SAME),
        agrees: SOFTWARE_AGREES,
        differs: SOFTWARE_DIFFERS,
    };
    Some(claim.judge(format!("CCM {first} times, GCM {second} times, with an MTU of {mtu}"), &[ccm, gcm]))
}

/// MTU in bytes at which the paper's text and its table 2 disagree.
const CONTRADICTED: u32 = 600;

/// The paper contradicts itself about packets of 600 to 1,000 bytes without AES instructions.
fn contradiction(sweep: &Sweep) -> Option<Finding> {
    let of = |quantity| times(sweep, Aes::Software, [Mode::Ctr, Mode::Cbc], CONTRADICTED, quantity);
    let (elapsed, cpu) = (of(Quantity::Elapsed)?, of(Quantity::Cpu)?);
    let ours =
        format!("CTR takes {} times CBC's time and {} times its CPU time", elapsed.text(2), cpu.text(2));
    Some(CONTRADICTION.judge(ours, &[elapsed]))
}

const CONTRADICTION: Claim<'static> = Claim {
    what: "AES in software: CTR over CBC with an MTU of 600",
    paper: "contradicts itself: table 2 recommends CTR from 200 to 1,000 bytes, the text CBC from 600 bytes on",
    holds: Bound::Below(1.0),
    agrees: "Here table 2 holds and the text does not: CTR is faster than CBC.",
    differs: "Here the text holds and table 2 does not: CBC is faster than CTR.",
};

const SOFTWARE_AGREES: &str = "CCM needs AES twice for each block, once of it sequentially. The \
     multiplication of GCM is cheaper than HMAC-SHA1 only with an instruction for it.";
const SOFTWARE_DIFFERS: &str = "Without AES instructions, AWS-LC computes AES with vector instructions, \
     several blocks at once if the mode permits it. CTR and GCM do; encryption in CBC mode does not, which \
     makes CBC slower than the paper's.";

fn small_packets(sweep: &Sweep) -> Option<Finding> {
    let mtu = sweep.mtus.first().copied()?;
    let of = |mode| times(sweep, Aes::Instructions, [mode, Mode::Cbc], mtu, Quantity::Elapsed);
    let ratios = [of(Mode::Ctr)?, of(Mode::Ccm)?, of(Mode::Gcm)?];
    let [ctr, ccm, gcm] = ratios.map(|ratio| ratio.text(2));
    let claim = Claim {
        what: &format!("AES instructions: CBC ahead for packets of {mtu} bytes"),
        paper: "by a factor of 2 to 3 over the other modes",
        holds: Bound::Above(1.5),
        agrees: SMALL_AGREES,
        differs: SMALL_DIFFERS,
    };
    Some(claim.judge(format!("CTR takes {ctr} times as long as CBC, CCM {ccm}, GCM {gcm}"), &ratios))
}

const SMALL_AGREES: &str = "The paper's explanation is that ESP waits for blocks of other packets, which \
     it does not: each packet is padded separately. So another cost of these modes dominates here.";
const SMALL_DIFFERS: &str = "With 180 bytes, nearly all costs are per packet and not per byte. CBC needs the \
     most bytes for IV and padding, so it needs more packets for the same file.";

fn gcm_against_ccm(sweep: &Sweep) -> Option<Finding> {
    let mtu = longest(sweep);
    let of = |quantity| times(sweep, Aes::Instructions, [Mode::Gcm, Mode::Ccm], mtu, quantity);
    let (elapsed, cpu) = (of(Quantity::Elapsed)?, of(Quantity::Cpu)?);
    let claim = Claim {
        what: "AES instructions: GCM against CCM",
        paper: "CCM clearly better; GCM has the worst performance of all",
        holds: Bound::Above(1.0 + SAME),
        agrees: GCM_SLOW,
        differs: GCM_FAST,
    };
    let ours = format!(
        "GCM takes {} times CCM's time and {} times its CPU time, with an MTU of {mtu}",
        elapsed.text(2),
        cpu.text(2)
    );
    Some(claim.judge(ours, &[elapsed]))
}

fn gcm_against_cbc(sweep: &Sweep, quantity: Quantity) -> Option<Finding> {
    let mtu = longest(sweep);
    let gcm = times(sweep, Aes::Instructions, [Mode::Gcm, Mode::Cbc], mtu, quantity)?;
    let claim = Claim {
        what: &format!("AES instructions: CBC with HMAC-SHA1 over GCM, {}", quantity.name()),
        paper: "CBC and CTR with HMAC-SHA1-96 are recommended over CCM and GCM, with or without hardware",
        holds: Bound::Above(1.0 - SAME),
        agrees: GCM_SLOW,
        differs: GCM_FAST,
    };
    Some(claim.judge(format!("GCM takes {} times what CBC takes, with an MTU of {mtu}", gcm.text(2)), &[gcm]))
}

const GCM_SLOW: &str = "The paper attributes the result to the memory needed by GMAC in its kernel. Intel's \
     library processes several packets at once, which helps modes that are sequential within a packet.";
const GCM_FAST: &str = "GHASH uses carry-less multiplication, many blocks at once, in the same pass as the \
     encryption. HMAC-SHA1 and CBC-MAC are sequential.";

/// Whether the paper's best mode of a column is here the best of its four, or within [`TIE`] of it.
fn table_2_column(sweep: &Sweep, aes: Aes, mtu: u32, quantity: Quantity) -> Agreement {
    let paper = paper_best(aes, mtu, quantity);
    let others = PAPERS_MODES.iter().filter(|mode| **mode != paper);
    let ratios: Option<Vec<Spread>> =
        others.map(|mode| times(sweep, aes, [paper, *mode], mtu, quantity)).collect();
    ratios.map_or(Agreement::NotMeasured, |ratios| Bound::Below(1.0 + TIE).judge(&ratios))
}

fn table_2(sweep: &Sweep, aes: Aes, quantity: Quantity) -> Finding {
    let columns: Vec<Agreement> =
        sweep.mtus.iter().map(|mtu| table_2_column(sweep, aes, *mtu, quantity)).collect();
    let count = |verdict| columns.iter().filter(|column| **column == verdict).count();
    let (held, failed) = (count(Agreement::Agrees), count(Agreement::Differs));
    let (agreement, why) = if held * 2 > columns.len() {
        (Agreement::Agrees, TABLE_2_AGREES.into())
    } else if failed * 2 >= columns.len() {
        (Agreement::Differs, TABLE_2_DIFFERS.into())
    } else {
        let open = columns.len() - held - failed;
        (Agreement::Unknown, format!("Too noisy for a verdict about {open} of {} columns.", columns.len()))
    };
    let cells = sweep
        .mtus
        .iter()
        .map(|mtu| format!("{mtu}: {}", names(&best(sweep, aes, *mtu, quantity, &PAPERS_MODES))));
    let paper = sweep.mtus.iter().map(|mtu| format!("{mtu}: {}", paper_best(aes, *mtu, quantity)));
    let join = |texts: Vec<String>| texts.join("; ");
    Finding {
        what: format!("table 2, {aes}, by {}", quantity.name()),
        paper: join(paper.collect()),
        ours: format!(
            "{} ({held} of {} as in the paper, {failed} not)",
            join(cells.collect()),
            columns.len()
        ),
        agreement,
        why,
    }
}

const TABLE_2_AGREES: &str = "The paper's mode is the best of its four, or within 3 % of it, in more than half \
     of the columns.";
const TABLE_2_DIFFERS: &str = "Another mode is better by more than 3 % in half of the columns. The costs per \
     packet hide the mode if packets are small.";

/// Findings about figure 5.
pub(super) fn of_instructions(sweep: &Sweep) -> Vec<Finding> {
    let gain = |mode, mtu, quantity| {
        sweep.ratio(Scenario::of(mode, Aes::Software), Scenario::of(mode, Aes::Instructions), mtu, quantity)
    };
    let (short, long) = (sweep.mtus.first().copied().unwrap_or_default(), longest(sweep));
    let elapsed = |mode, mtu| gain(mode, mtu, Quantity::Elapsed);
    let gains =
        |mode| Ratio { own: Scenario::of(mode, Aes::Software), base: Scenario::of(mode, Aes::Instructions) };
    let more = sweep.ratio_of_ratios(gains(Mode::Ccm), gains(Mode::Cbc), long, Quantity::Elapsed);
    let large = elapsed(Mode::Ccm, long).zip(elapsed(Mode::Cbc, long)).zip(more);
    let large = large.map(|((ccm, cbc), more)| {
        let ours =
            format!("CCM {} times faster, CBC {} times, with an MTU of {long}", ccm.text(2), cbc.text(2));
        LARGE.judge(ours, &[more, cbc])
    });
    let small = elapsed(Mode::Cbc, short)
        .map(|cbc| SMALL.judge(format!("CBC {} times faster, with an MTU of {short}", cbc.text(2)), &[cbc]));
    let both = elapsed(Mode::Gcm, long).zip(gain(Mode::Gcm, long, Quantity::Cpu)).map(|(time, cpu)| {
        let ours = format!(
            "GCM {} times faster, {} times the CPU time without them, with an MTU of {long}",
            time.text(2),
            cpu.text(2)
        );
        BOTH.judge(ours, &[time, cpu])
    });
    [large, small, both].into_iter().flatten().collect()
}

const LARGE: Claim<'static> = Claim {
    what: "gain of AES instructions for large packets",
    paper: "CCM gains most, 1.3 times faster; CBC least, 1.1 times",
    holds: Bound::Above(1.0 + SAME),
    agrees: "CCM needs AES twice for each block. The other costs take the same time in both cases.",
    differs: "System calls, copies and TCP take the same time in both cases, and AWS-LC computes AES in \
              software with vector instructions, which leaves less to gain.",
};
const SMALL: Claim<'static> = Claim {
    what: "gain of AES instructions for small packets",
    paper: "CBC 3.3 times faster below 250 bytes",
    holds: Bound::Above(2.0),
    agrees: "The paper does not explain why CBC alone gained so much, and neither do these numbers.",
    differs: "A small packet has few blocks, so AES instructions shorten only a small part of its \
              processing.",
};
const BOTH: Claim<'static> = Claim {
    what: "what AES instructions give altogether",
    paper: "1.5 times faster, half the CPU time",
    holds: Bound::Above(1.25),
    agrees: "Without the instructions, GCM loses its multiplication, too.",
    differs: "The other costs take the same time in both cases, and AWS-LC computes AES in software with \
              vector instructions, which leaves less to gain.",
};
