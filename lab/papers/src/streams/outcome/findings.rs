//! What agrees with the paper, what does not, and why.

use super::Measured;
use crate::streams::rows::{HOPE, REMEDIED, ROWS, Row, era, remedies, today};
use casemate_measure::spread::Spread;
use casemate_report::{Agreement, Finding};

/// The paper's own numbers are not so exact that rows closer than this are different.
const SAME: f64 = 0.15;

/// Rates of ours closer than this are taken as one.
const TIE: f64 = 0.05;

/// Of the table.
pub(super) fn of_rows(measured: &Measured) -> Vec<Finding> {
    let [first, functions, queues, bypass, ah, esp, tunnel, inside, outside, both] = &ROWS;
    vec![
        order(measured),
        loss(measured, "cost of modules called as functions", functions, first, FUNCTIONS),
        loss(measured, "cost of queues and context switches", queues, functions, QUEUES),
        loss(measured, "cost of policy without AH and ESP", bypass, queues, BYPASS),
        alike(measured, "AH and ESP, transport and tunnel mode", [ah, esp, tunnel], ALIKE),
        loss(measured, "cost of one protection (tunnel-mode ESP)", tunnel, bypass, ONE),
        loss(measured, "cost of AH around tunnel-mode ESP", both, tunnel, TWO),
        loss_today(measured, tunnel, bypass),
        alike(measured, "the three combinations", [inside, outside, both], COMBINED),
        switches(measured, functions, queues),
    ]
    .into_iter()
    .flatten()
    .collect()
}

const FUNCTIONS: &str = "The paper's put routines ran in the kernel; here the functions are in a program, which costs two system calls and two \
    crossings between kernel and program for each packet at each end, beside a kernel that needs none.";
const QUEUES: &str = "A queue with a thread costs a wake-up and a context switch, unless packets wait already. One processor of then paid for \
    every one; with several processors modules work side by side, and a busy queue is emptied without a switch.";
const BYPASS: &str = "A policy is looked up in a cache of flows, which costs a fraction of a microsecond. A module that takes longer lets packets \
    gather in front of it, which saves switches (see their column), so that this row can be the faster one.";
const ALIKE: &str = "In the paper the queues hide what the algorithms cost. What is faster here is what has less to compute: MD5 alone for AH, MD5 and \
    DES, in software without special instructions, for ESP.";
const ONE: &str = "The transform itself: DES was made for hardware and has no instructions of its own in processors of today.";
const ONE_TODAY: &str =
    "With instructions for AES the transform costs little beside the queues, more so than in the paper.";
const TWO: &str = "A second SA is a second pass over the packet. MD5 is cheap beside DES, so that the second pass costs less than the first.";
const COMBINED: &str = "They compute nearly the same: DES once and MD5 twice.";
const SWITCHES: &str =
    "The paper's explanation: modules with queues need context switches, functions do not.";

/// Names of neighbours in the paper's order that have changed places.
fn order(measured: &Measured) -> Option<Finding> {
    let mut rows: Vec<&Row> = ROWS.iter().collect();
    rows.sort_by(|one, other| other.paper.total_cmp(&one.paper));
    let rate = |row: &Row| measured.spread(era(row), |outcome| outcome.rate).map(|spread| spread.median);
    let rates = rows.iter().map(|row| rate(row)).collect::<Option<Vec<f64>>>()?;
    let pairs = rows.windows(2).zip(rates.windows(2));
    let swapped = pairs.filter_map(|pair| match pair {
        ([faster, slower], [first, second])
            if faster.paper > slower.paper && first * (1.0 + TIE) < *second =>
        {
            Some(format!(
                "{} is faster than {} ({second:.0} and {first:.0} Mb/s)",
                slower.short, faster.short
            ))
        }
        _ => None,
    });
    let swapped: Vec<String> = swapped.collect();
    let holds = swapped.is_empty();
    Some(Finding {
        what: "order of the rows from fastest to slowest".into(),
        paper: rows.iter().map(|row| row.short).collect::<Vec<_>>().join(" > "),
        ours: if holds { "the same order".into() } else { swapped.join("; ") },
        agreement: Agreement::of(holds),
        why: if holds { ORDER_HOLDS } else { ORDER_DIFFERS }.into(),
    })
}

const ORDER_HOLDS: &str = "Every module, every switch and every transform costs something still. Rows with one number in the paper have no order.";
const ORDER_DIFFERS: &str = "Where rows changed places, what separated them in the paper is no longer what costs: the combinations lay within 10 % of \
    each other there, and threads on several processors work side by side, which Solaris 2.5 on one could not.";

/// What `row` loses against `base`.
fn loss(measured: &Measured, what: &str, row: &Row, base: &Row, why: &str) -> Option<Finding> {
    Some(compare(measured.ratio(era(row), era(base))?, what, row, base, why))
}

/// The same with today's algorithms.
fn loss_today(measured: &Measured, row: &Row, base: &Row) -> Option<Finding> {
    let what = "cost of one protection (tunnel-mode ESP, AES-GCM)";
    Some(compare(measured.ratio(today(row)?, era(base))?, what, row, base, ONE_TODAY))
}

fn compare(ratio: Spread, what: &str, row: &Row, base: &Row, why: &str) -> Finding {
    let (paper, ours) = (1.0 - row.paper / base.paper, 1.0 - ratio.median);
    // The same sign, and no more than half as much again, or half as much.
    let agrees = (0.5..=1.5).contains(&(ours / paper));
    Finding {
        what: what.into(),
        paper: format!("{:.0} % slower ({} instead of {} kb/s)", paper * 100.0, row.paper, base.paper),
        ours: if ours < 0.0 {
            format!("{:.0} % faster", -ours * 100.0)
        } else {
            format!("{:.0} % slower", ours * 100.0)
        },
        agreement: Agreement::of(agrees),
        why: why.into(),
    }
}

/// Whether rows are as fast as each other.
fn alike(measured: &Measured, what: &str, rows: [&Row; 3], why: &str) -> Option<Finding> {
    let rate = |row: &&Row| measured.spread(era(row), |outcome| outcome.rate).map(|spread| spread.median);
    let rates = rows.iter().map(rate).collect::<Option<Vec<f64>>>()?;
    let texts =
        |numbers: &[f64]| numbers.iter().map(|rate| format!("{rate:.0}")).collect::<Vec<_>>().join(", ");
    let apart = |numbers: &[f64]| {
        let (least, most) =
            numbers.iter().fold((f64::MAX, 0.0_f64), |(least, most), n| (least.min(*n), most.max(*n)));
        most / least - 1.0
    };
    let paper = rows.map(|row| row.paper);
    Some(Finding {
        what: format!("{what}: as fast as each other"),
        paper: format!("{} kb/s", texts(&paper)),
        ours: format!("{} Mb/s: {:.0} % apart", texts(&rates), apart(&rates) * 100.0),
        agreement: Agreement::of(apart(&rates) <= SAME),
        why: why.into(),
    })
}

fn switches(measured: &Measured, functions: &Row, queues: &Row) -> Option<Finding> {
    let count = |row| measured.spread(era(row), |outcome| outcome.switches).map(|spread| spread.median);
    let (without, with) = (count(functions)?, count(queues)?);
    Some(Finding {
        what: "context switches are why queues are slow".into(),
        paper: "said, not counted".into(),
        ours: format!("{with:.1} switches a segment with queues, {without:.1} with functions"),
        agreement: Agreement::of(with > 2.0 * without),
        why: SWITCHES.into(),
    })
}

/// Of the remedies.
pub(super) fn of_remedies(measured: &Measured) -> Vec<Finding> {
    let first = ROWS.first().map_or(1.0, |row| row.paper);
    let mut findings = Vec::new();
    if let Some((_, protection, suite)) = REMEDIED.first() {
        let [queues, context, ..] = remedies(*protection, *suite);
        let gain = measured.ratio(context, queues).zip(measured.share(context));
        let [least, most] = HOPE;
        findings.extend(gain.map(|(gain, share)| Finding {
            what: "everything in one context, no AH and ESP".into(),
            paper: format!(
                "{least} to {most} kb/s hoped for: {:.1} to {:.1} times the 47 with queues, {:.2} to {:.2} of the first row",
                least / 47.0,
                most / 47.0,
                least / first,
                most / first
            ),
            ours: format!("{:.1} times what it is with queues, {:.2} of the first row", gain.median, share.median),
            agreement: Agreement::of(gain.median > 1.0 + SAME),
            why: CONTEXT.into(),
        }));
    }
    for (name, protection, suite) in REMEDIED.iter().skip(1) {
        let [queues, _, gateway, kernel] = remedies(*protection, *suite);
        findings.extend(measured.ratio(gateway, queues).map(|gain| Finding {
            what: format!("one context until it is congested: {name}"),
            paper: "proposed, not measured".into(),
            ours: format!("{:.1} times what it is with queues", gain.median),
            agreement: Agreement::of(gain.median > 1.0 + SAME),
            why: GATEWAY.into(),
        }));
        findings.extend(measured.ratio(kernel, queues).map(|gain| Finding {
            what: format!("inside IP: {name}"),
            paper: "proposed, not measured; not portable".into(),
            ours: format!("{:.1} times what it is with queues", gain.median),
            agreement: Agreement::of(gain.median > 1.0 + SAME),
            why: KERNEL.into(),
        }));
    }
    findings
}

const CONTEXT: &str = "Agrees if one context is faster than queues at all. How much of the first row is reached depends on how dear the \
    way between kernel and program is, which the paper did not have.";
const GATEWAY: &str = "The gateway takes and gives many segments in one system call, and other threads help it while packets wait. With DES the \
    transform is most of the work, so that little is left to gain.";
const KERNEL: &str = "Nothing crosses from the kernel to a program and back, and no queue lies between IP and IPsec. The kernel's algorithms are its own, so that \
    they differ too. What is lost is what the paper says: it is one kernel's.";
