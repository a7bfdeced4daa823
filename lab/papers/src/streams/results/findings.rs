//! Comparison with the paper.

use super::Measured;
use crate::streams::protection::{EXPECTED_RATES, REMEDY_CASES, ROWS, Row, era, remedies, today};
use casemate_measure::report::{Bound, Claim, Finding};
use casemate_measure::stats::Spread;

/// Relative difference below which rows count as equal, given the precision of the paper's numbers.
const SAME: f64 = 0.15;

/// Relative difference below which measured rates count as equal.
const TIE: f64 = 0.05;

/// Factor within which what is left of a rate agrees with the paper.
const LEFT_FACTOR: f64 = 1.25;

/// Findings about the table.
pub(super) fn of_rows(measured: &Measured) -> Vec<Finding> {
    let [first, functions, queues, bypass, ah, esp, tunnel, inside, outside, both] = &ROWS;
    vec![
        order(measured),
        loss(measured, "cost of modules called as functions", functions, first, &FUNCTIONS),
        loss(measured, "cost of queues and context switches", queues, functions, &QUEUES),
        loss(measured, "cost of policy without AH and ESP", bypass, queues, &BYPASS),
        alike(measured, "AH and ESP, transport and tunnel mode", [ah, esp, tunnel], &ALIKE),
        loss(measured, "cost of one protection (tunnel-mode ESP)", tunnel, bypass, &ONE),
        loss(measured, "cost of AH around tunnel-mode ESP", both, tunnel, &TWO),
        loss_today(measured, tunnel, bypass),
        alike(measured, "the three combinations", [inside, outside, both], &COMBINED),
        switches(measured, functions, queues),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Explanations of both verdicts.
struct Reasons {
    agrees: &'static str,
    differs: &'static str,
}

const FUNCTIONS: Reasons = Reasons {
    agrees: "The paper's put routines ran in the kernel. Here the functions run in a program, which costs two \
             system calls and two crossings between kernel and program for each packet at each end. The base \
             is the kernel alone.",
    differs: "The base is the kernel alone, which sends segments of 64 KiB. The functions run in a program, which \
              costs two system calls and two crossings between kernel and program for each packet at each end; \
              the paper's put routines ran in the kernel.",
};
const QUEUES: Reasons = Reasons {
    agrees: "A queue with a thread costs a wake-up and a context switch, unless packets are already waiting.",
    differs: "A queue with a thread costs a wake-up and a context switch, unless packets are already waiting. \
              The single processor of the paper paid for every switch. With several processors, modules run in \
              parallel, and a busy queue is emptied without a switch.",
};
const BYPASS: Reasons = Reasons {
    agrees: "The look-up of a policy is a small part of the cost of a packet.",
    differs: "Policies are looked up in a flow cache, which costs a fraction of a microsecond, and a slower module \
              lets packets accumulate in its queue, which saves context switches (see their column).",
};
const ALIKE: Reasons = Reasons {
    agrees: "The queues hide the cost of the algorithms, as in the paper.",
    differs: "In the paper, the queues hide the cost of the algorithms. Here AH has MD5 only, ESP has MD5 and DES, \
              in software without special instructions.",
};
const ONE: Reasons = Reasons {
    agrees: "This is the cost of the transform, relative to the queues.",
    differs: "This is the cost of the transform. DES was designed for hardware, and processors have no \
              instructions for it.",
};
const ONE_TODAY: Reasons = Reasons {
    agrees: "Compared with the queues, AES-GCM here costs what DES and MD5 cost in the paper.",
    differs: "With AES instructions, the transform costs little compared with the queues.",
};
const TWO: Reasons = Reasons {
    agrees: "A second SA is a second pass over the packet.",
    differs: "A second SA is a second pass over the packet, and its cost relative to the first one is another \
              one: MD5 is cheap compared with DES in software.",
};
const COMBINED: Reasons = Reasons {
    agrees: "Their computations are nearly the same: DES once and MD5 twice.",
    differs: "Their computations are nearly the same, but not the lengths of the packets that are hashed and \
              encrypted.",
};
const SWITCHES: Claim<'static> = Claim {
    what: "context switches are why queues are slow",
    paper: "said, not counted",
    holds: Bound::Above(2.0),
    agrees: "The paper's explanation: modules with queues need context switches, functions do not.",
    differs: "Modules with queues have less than twice the context switches of functions: packets accumulate in \
              a queue, and one switch serves many.",
};

/// Compares neighbouring rows of the paper's order.
fn order(measured: &Measured) -> Option<Finding> {
    let mut rows: Vec<&Row> = ROWS.iter().collect();
    rows.sort_by(|one, other| other.paper.total_cmp(&one.paper));
    // Rows with equal numbers in the paper have no order.
    let pairs: Vec<[&Row; 2]> = rows
        .windows(2)
        .filter_map(|pair| match pair {
            [faster, slower] if faster.paper > slower.paper => Some([*faster, *slower]),
            _ => None,
        })
        .collect();
    let ratio = |[faster, slower]: &[&Row; 2]| measured.ratio(era(slower), era(faster));
    let ratios = pairs.iter().map(ratio).collect::<Option<Vec<Spread>>>()?;
    let swapped = pairs.iter().zip(&ratios).filter(|(_, ratio)| ratio.median > 1.0 + TIE);
    let swapped: Vec<String> = swapped
        .map(|([faster, slower], ratio)| {
            format!("{} is {} times as fast as {}", slower.short, ratio.text(2), faster.short)
        })
        .collect();
    let claim = Claim {
        what: "order of the rows from fastest to slowest",
        paper: &rows.iter().map(|row| row.short).collect::<Vec<_>>().join(" > "),
        holds: Bound::Below(1.0 + TIE),
        agrees: "Every module, context switch and transform still has a cost. Rows with equal numbers in the \
                 paper have no order.",
        differs: "Where rows have changed places, the cost that separated them in the paper no longer \
                  dominates. The combinations were within 10 % of each other there, and threads run in \
                  parallel on several processors here, unlike Solaris 2.5 on one.",
    };
    let ours = if swapped.is_empty() { "the same order".into() } else { swapped.join("; ") };
    Some(claim.judge(ours, &ratios))
}

/// What `row` leaves of the rate of `base`.
fn loss(measured: &Measured, what: &str, row: &Row, base: &Row, why: &Reasons) -> Option<Finding> {
    Some(compare(measured.ratio(era(row), era(base))?, what, row, base, why))
}

/// The same with modern algorithms.
fn loss_today(measured: &Measured, row: &Row, base: &Row) -> Option<Finding> {
    let what = "cost of one protection (tunnel-mode ESP, AES-GCM)";
    Some(compare(measured.ratio(today(row)?, era(base))?, what, row, base, &ONE_TODAY))
}

/// Compares what is left of the rate: losses of 70 and 98 % are close, what they leave is not.
fn compare(ratio: Spread, what: &str, row: &Row, base: &Row, why: &Reasons) -> Finding {
    let paper = row.paper / base.paper;
    let left = |share: f64| format!("{:.0} % is left", share * 100.0);
    let claim = Claim {
        what,
        paper: &format!("{} ({} instead of {} kb/s)", left(paper), row.paper, base.paper),
        holds: Bound::Within(paper / LEFT_FACTOR, paper * LEFT_FACTOR),
        agrees: why.agrees,
        differs: why.differs,
    };
    claim.judge(format!("{}: {} of the rate", left(ratio.median), ratio.text(2)), &[ratio])
}

/// Whether rows are equally fast.
fn alike(measured: &Measured, what: &str, rows: [&Row; 3], why: &Reasons) -> Option<Finding> {
    let rate = |row: &&Row| measured.spread(era(row), |sample| sample.rate).map(|spread| spread.median);
    let rates = rows.iter().map(rate).collect::<Option<Vec<f64>>>()?;
    let texts =
        |numbers: &[f64]| numbers.iter().map(|rate| format!("{rate:.0}")).collect::<Vec<_>>().join(", ");
    let [first, second, third] = rows;
    let pairs = [[second, first], [third, first], [third, second]];
    let ratio = |[own, base]: [&Row; 2]| measured.ratio(era(own), era(base));
    let ratios = pairs.into_iter().map(ratio).collect::<Option<Vec<Spread>>>()?;
    let claim = Claim {
        what: &format!("{what}: equally fast"),
        paper: &format!("{} kb/s", texts(&rows.map(|row| row.paper))),
        holds: Bound::Within(1.0 / (1.0 + SAME), 1.0 + SAME),
        agrees: why.agrees,
        differs: why.differs,
    };
    Some(claim.judge(format!("{} Mb/s", texts(&rates)), &ratios))
}

fn switches(measured: &Measured, functions: &Row, queues: &Row) -> Option<Finding> {
    let count = |row| measured.spread(era(row), |sample| sample.switches).map(|spread| spread.median);
    let (without, with) = (count(functions)?, count(queues)?);
    let ours = format!("{with:.1} switches per segment with queues, {without:.1} with functions");
    let ratio = measured.ratio_of(era(queues), era(functions), |sample| sample.switches)?;
    Some(SWITCHES.judge(ours, &[ratio]))
}

/// Findings about the remedies.
pub(super) fn of_remedies(measured: &Measured) -> Vec<Finding> {
    let first = ROWS.first().map_or(1.0, |row| row.paper);
    let mut findings = Vec::new();
    if let Some((_, protection, suite)) = REMEDY_CASES.first() {
        let [queues, context, ..] = remedies(*protection, *suite);
        let gain = measured.ratio(context, queues).zip(measured.share(context));
        let [least, most] = EXPECTED_RATES;
        findings.extend(gain.map(|(gain, share)| {
            let claim = Claim {
                what: "everything in one context, no AH and ESP",
                paper: &format!(
                    "{least} to {most} kb/s expected: {:.1} to {:.1} times the 47 with queues, {:.2} to {:.2} \
                     of the first row",
                    least / 47.0,
                    most / 47.0,
                    least / first,
                    most / first
                ),
                holds: Bound::Above(1.0 + SAME),
                agrees: "One context is faster than queues. How close it gets to the first row depends on the \
                         cost of crossing between kernel and program, which the paper did not have.",
                differs: "One context is not faster than queues: packets that wait in a queue are served \
                          together, on another processor.",
            };
            claim.judge(
                format!("{} times the rate with queues, {} of the first row", gain.text(1), share.text(2)),
                &[gain],
            )
        }));
    }
    for (name, protection, suite) in REMEDY_CASES.iter().skip(1) {
        let [queues, _, gateway, kernel] = remedies(*protection, *suite);
        let remedy = |case, what: &str, claim: &Claim<'_>| {
            let gain = measured.ratio(case, queues)?;
            let ours = format!("{} times the rate with queues", gain.text(1));
            Some(Claim { what: &format!("{what}: {name}"), ..*claim }.judge(ours, &[gain]))
        };
        findings.extend(remedy(gateway, "one context until it is congested", &GATEWAY));
        findings.extend(remedy(kernel, "inside IP", &KERNEL));
    }
    findings
}

const GATEWAY: Claim<'static> = Claim {
    what: "one context until it is congested",
    paper: "proposed, not measured",
    holds: Bound::Above(1.0 + SAME),
    agrees: "The gateway reads and writes many segments per system call, and other threads assist it while \
             packets wait.",
    differs: "Most of the cost is the transform, as with DES in software, so little can be gained.",
};
const KERNEL: Claim<'static> = Claim {
    what: "inside IP",
    paper: "proposed, not measured; not portable",
    holds: Bound::Above(1.0 + SAME),
    agrees: "Packets do not cross between kernel and program, and there is no queue between IP and IPsec. The \
             kernel has its own algorithms, so these differ, too. As the paper says, the disadvantage is that \
             it is not portable.",
    differs: "The kernel has its own algorithms, which cost more than the crossings between kernel and program \
              that are saved.",
};
