//! What of the paper's section 4 holds here, and what does not.

use super::recommend::{best, names, papers};
use crate::homenet::setting::{Aes, Mode, PAPERS_MODES, Setting};
use crate::homenet::sweep::{QUANTITIES, Quantity, Sweep};
use crate::verdict::verdict;
use casemate_measure::spread::Spread;
use casemate_report::{Agreement, Finding};

/// Ratios closer to 1 than this are no difference.
const SAME: f64 = 0.05;

/// Of figures 1 and 2, and of table 2.
pub(super) fn of_modes(sweep: &Sweep, kinds: &[Aes]) -> Vec<Finding> {
    let mut findings: Vec<Finding> = Vec::new();
    if kinds.contains(&Aes::Software) {
        findings.extend(QUANTITIES.iter().filter_map(|quantity| slower_without(sweep, *quantity)));
    }
    findings.extend(small_packets(sweep));
    findings.extend(gcm_against_ccm(sweep));
    findings.extend(QUANTITIES.iter().filter_map(|quantity| gcm_against_cbc(sweep, *quantity)));
    findings.extend(kinds.iter().flat_map(|aes| QUANTITIES.map(|quantity| table_2(sweep, *aes, quantity))));
    findings
}

fn longest(sweep: &Sweep) -> u32 {
    sweep.mtus.last().copied().unwrap_or_default()
}

/// Times of two modes in one kind of AES.
fn times(sweep: &Sweep, aes: Aes, [own, base]: [Mode; 2], mtu: u32, quantity: Quantity) -> Option<Spread> {
    sweep.ratio(Setting::of(own, aes), Setting::of(base, aes), mtu, quantity)
}

fn slower_without(sweep: &Sweep, quantity: Quantity) -> Option<Finding> {
    let mtu = longest(sweep);
    let of = |mode| times(sweep, Aes::Software, [mode, Mode::Cbc], mtu, quantity);
    let (ccm, gcm) = (of(Mode::Ccm)?, of(Mode::Gcm)?);
    let [first, second] = [ccm, gcm].map(|ratio| ratio.text(2));
    Some(Finding {
        what: format!("AES in software: CCM and GCM against CBC, {}", quantity.name()),
        paper: "1.2 to 1.4 times CBC".into(),
        ours: format!("CCM {first} times, GCM {second} times, with an MTU of {mtu}"),
        agreement: verdict(&[ccm, gcm], |ratio| ratio > 1.0 + SAME),
        why: SOFTWARE.into(),
    })
}

const SOFTWARE: &str = "AWS-LC without AES instructions computes AES with vector instructions, several blocks at once where the mode lets it: CTR and GCM do, CBC \
    when it encrypts does not, nor does CCM's CBC-MAC. CCM so needs AES twice for each block, and once of these one block at a time. GCM's multiplication is \
    cheaper than HMAC-SHA1 only if there is an instruction for it.";

fn small_packets(sweep: &Sweep) -> Option<Finding> {
    let mtu = sweep.mtus.first().copied()?;
    let of = |mode| times(sweep, Aes::Instructions, [mode, Mode::Cbc], mtu, Quantity::Elapsed);
    let ratios = [of(Mode::Ctr)?, of(Mode::Ccm)?, of(Mode::Gcm)?];
    let [ctr, ccm, gcm] = ratios.map(|ratio| ratio.text(2));
    Some(Finding {
        what: format!("AES instructions: CBC ahead for packets of {mtu} bytes"),
        paper: "by a factor of 2 to 3 over the other modes".into(),
        ours: format!("CTR takes {ctr} times as long as CBC, CCM {ccm}, GCM {gcm}"),
        agreement: verdict(&ratios, |ratio| ratio > 1.5),
        why: SMALL.into(),
    })
}

const SMALL: &str = "With 180 bytes nearly all time goes into packets and not into bytes. CBC needs the most bytes, for its IV and its padding, so that there are more \
    packets for the same file. Nothing in ESP waits for blocks of other packets, as the paper supposes: each packet is padded by itself.";

fn gcm_against_ccm(sweep: &Sweep) -> Option<Finding> {
    let mtu = longest(sweep);
    let of = |quantity| times(sweep, Aes::Instructions, [Mode::Gcm, Mode::Ccm], mtu, quantity);
    let (elapsed, cpu) = (of(Quantity::Elapsed)?, of(Quantity::Cpu)?);
    Some(Finding {
        what: "AES instructions: GCM against CCM".into(),
        paper: "CCM clearly better; GCM has the worst performance of all".into(),
        ours: format!(
            "GCM takes {} times CCM's time and {} times its CPU time, with an MTU of {mtu}",
            elapsed.text(2),
            cpu.text(2)
        ),
        agreement: verdict(&[elapsed], |ratio| ratio > 1.0 + SAME),
        why: GCM.into(),
    })
}

fn gcm_against_cbc(sweep: &Sweep, quantity: Quantity) -> Option<Finding> {
    let mtu = longest(sweep);
    let gcm = times(sweep, Aes::Instructions, [Mode::Gcm, Mode::Cbc], mtu, quantity)?;
    Some(Finding {
        what: format!("AES instructions: CBC with HMAC-SHA1 over GCM, {}", quantity.name()),
        paper: "CBC and CTR with HMAC-SHA1-96 are recommended over CCM and GCM, with or without hardware"
            .into(),
        ours: format!("GCM takes {} times what CBC takes, with an MTU of {mtu}", gcm.text(2)),
        agreement: verdict(&[gcm], |ratio| ratio >= 1.0 - SAME),
        why: GCM.into(),
    })
}

const GCM: &str = "The paper suspects the memory that GMAC wanted in its kernel. Here GHASH is computed with carry-less multiplication, many blocks at a time, in \
    the same pass as the encryption; HMAC-SHA1 and CBC-MAC are chains, where each block waits for the one before. Intel's library lessens that: it takes several \
    packets at once.";

/// How many cells of the paper's table 2 still name a mode that is best, or as good.
fn table_2(sweep: &Sweep, aes: Aes, quantity: Quantity) -> Finding {
    let holds =
        |mtu: &u32| best(sweep, aes, *mtu, quantity, &PAPERS_MODES).contains(&papers(aes, *mtu, quantity));
    let held = sweep.mtus.iter().filter(|mtu| holds(mtu)).count();
    let cells = sweep
        .mtus
        .iter()
        .map(|mtu| format!("{mtu}: {}", names(&best(sweep, aes, *mtu, quantity, &PAPERS_MODES))));
    let paper = sweep.mtus.iter().map(|mtu| format!("{mtu}: {}", papers(aes, *mtu, quantity)));
    let join = |texts: Vec<String>| texts.join("; ");
    Finding {
        what: format!("table 2, {aes}, by {}", quantity.name()),
        paper: join(paper.collect()),
        ours: format!("{} ({held} of {} as in the paper)", join(cells.collect()), sweep.mtus.len()),
        agreement: Agreement::of(held * 2 > sweep.mtus.len()),
        why: TABLE_2.into(),
    }
}

const TABLE_2: &str = "Agrees if the paper's mode is best, or within 3 % of the best of its four, in more than half of the columns. Where packets are small, what is \
    done for each of them hides the mode. The paper's text contradicts its table: there CBC is better from 600 bytes on.";

/// Of figure 5.
pub(super) fn of_instructions(sweep: &Sweep) -> Vec<Finding> {
    let gain = |mode, mtu, quantity| {
        sweep.ratio(Setting::of(mode, Aes::Software), Setting::of(mode, Aes::Instructions), mtu, quantity)
    };
    let (short, long) = (sweep.mtus.first().copied().unwrap_or_default(), longest(sweep));
    let elapsed = |mode, mtu| gain(mode, mtu, Quantity::Elapsed);
    let large = elapsed(Mode::Ccm, long).zip(elapsed(Mode::Cbc, long)).map(|(ccm, cbc)| Finding {
        what: "gain of AES instructions for large packets".into(),
        paper: "CCM gains most, 1.3 times faster; CBC least, 1.1 times".into(),
        ours: format!("CCM {} times faster, CBC {} times, with an MTU of {long}", ccm.text(2), cbc.text(2)),
        agreement: Agreement::of(ccm.median > cbc.median + SAME && cbc.median > 1.0 + SAME),
        why: GAIN.into(),
    });
    let small = elapsed(Mode::Cbc, short).map(|cbc| Finding {
        what: "gain of AES instructions for small packets".into(),
        paper: "CBC 3.3 times faster below 250 bytes".into(),
        ours: format!("CBC {} times faster, with an MTU of {short}", cbc.text(2)),
        agreement: verdict(&[cbc], |ratio| ratio > 2.0),
        why: "A small packet has few blocks: instructions shorten what is a small part of its way. Why CBC alone gained so much in the paper is not explained there.".into(),
    });
    let both =
        elapsed(Mode::Gcm, long).zip(gain(Mode::Gcm, long, Quantity::Cpu)).map(|(time, cpu)| Finding {
            what: "what AES instructions give altogether".into(),
            paper: "1.5 times faster, half the CPU time".into(),
            ours: format!(
                "GCM {} times faster, {} times the CPU time without them, with an MTU of {long}",
                time.text(2),
                cpu.text(2)
            ),
            agreement: verdict(&[time, cpu], |ratio| ratio > 1.25),
            why: GAIN.into(),
        });
    [large, small, both].into_iter().flatten().collect()
}

const GAIN: &str = "How much is gained depends on what stays: system calls, copies and TCP take the same time with and without. AWS-LC's AES in \
    software uses vector instructions, so that less is left to gain; GCM loses its multiplication too.";
