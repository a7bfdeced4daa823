//! Comparison with the paper.

use super::Measured;
use crate::streams::protection::{EXPECTED_RATES, REMEDY_CASES, ROWS, Row, era, remedies, today};
use casemate_measure::report::{Agreement, Finding};
use casemate_measure::stats::Spread;

/// Relative difference below which rows count as equal, given the precision of the paper's numbers.
const SAME: f64 = 0.15;

/// Relative difference below which measured rates count as equal.
const TIE: f64 = 0.05;

/// Findings about the table.
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

const FUNCTIONS: &str = "The paper's put routines ran in the kernel. Here the functions run in a \
     program, which costs two system calls and two crossings between kernel and program for each packet \
     at each end. The base is the kernel alone.";
const QUEUES: &str = "A queue with a thread costs a wake-up and a context switch, unless packets are \
     already waiting. The single processor of the paper paid for every switch. With several processors, \
     modules run in parallel, and a busy queue is emptied without a switch.";
const BYPASS: &str = "Policies are looked up in a flow cache, which costs a fraction of a microsecond. A \
     slower module lets packets accumulate in its queue, which saves context switches (see their column). \
     This row may therefore be faster.";
const ALIKE: &str = "In the paper, the queues hide the cost of the algorithms. Here the row with the \
     cheaper algorithms is faster: AH has MD5 only, ESP has MD5 and DES, in software without special \
     instructions.";
const ONE: &str = "This is the cost of the transform. DES was designed for hardware, and processors have \
     no instructions for it.";
const ONE_TODAY: &str = "With AES instructions, the transform costs little compared with the queues, \
    even less than in the paper.";
const TWO: &str = "A second SA is a second pass over the packet. MD5 is cheap compared with DES, so the \
     second pass costs less than the first.";
const COMBINED: &str = "Their computations are nearly the same: DES once and MD5 twice.";
const SWITCHES: &str =
    "The paper's explanation: modules with queues need context switches, functions do not.";

/// Names neighbouring rows of the paper's order that have changed places.
fn order(measured: &Measured) -> Option<Finding> {
    let mut rows: Vec<&Row> = ROWS.iter().collect();
    rows.sort_by(|one, other| other.paper.total_cmp(&one.paper));
    let rate = |row: &Row| measured.spread(era(row), |sample| sample.rate).map(|spread| spread.median);
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

const ORDER_HOLDS: &str = "Every module, context switch and transform still has a cost. Rows with equal \
     numbers in the paper have no order.";
const ORDER_DIFFERS: &str = "Where rows have changed places, the cost that separated them in the paper \
     no longer dominates. The combinations were within 10 % of each other there, and threads run in \
     parallel on several processors here, unlike Solaris 2.5 on one.";

/// Loss of `row` relative to `base`.
fn loss(measured: &Measured, what: &str, row: &Row, base: &Row, why: &str) -> Option<Finding> {
    Some(compare(measured.ratio(era(row), era(base))?, what, row, base, why))
}

/// Loss with modern algorithms.
fn loss_today(measured: &Measured, row: &Row, base: &Row) -> Option<Finding> {
    let what = "cost of one protection (tunnel-mode ESP, AES-GCM)";
    Some(compare(measured.ratio(today(row)?, era(base))?, what, row, base, ONE_TODAY))
}

fn compare(ratio: Spread, what: &str, row: &Row, base: &Row, why: &str) -> Finding {
    let (paper, ours) = (1.0 - row.paper / base.paper, 1.0 - ratio.median);
    // Agrees if the sign is equal and the loss is between half and one and a half times that of the paper.
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

/// Whether rows are equally fast.
fn alike(measured: &Measured, what: &str, rows: [&Row; 3], why: &str) -> Option<Finding> {
    let rate = |row: &&Row| measured.spread(era(row), |sample| sample.rate).map(|spread| spread.median);
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
        what: format!("{what}: equally fast"),
        paper: format!("{} kb/s", texts(&paper)),
        ours: format!("{} Mb/s: {:.0} % apart", texts(&rates), apart(&rates) * 100.0),
        agreement: Agreement::of(apart(&rates) <= SAME),
        why: why.into(),
    })
}

fn switches(measured: &Measured, functions: &Row, queues: &Row) -> Option<Finding> {
    let count = |row| measured.spread(era(row), |sample| sample.switches).map(|spread| spread.median);
    let (without, with) = (count(functions)?, count(queues)?);
    Some(Finding {
        what: "context switches are why queues are slow".into(),
        paper: "said, not counted".into(),
        ours: format!("{with:.1} switches per segment with queues, {without:.1} with functions"),
        agreement: Agreement::of(with > 2.0 * without),
        why: SWITCHES.into(),
    })
}

/// Findings about the remedies.
pub(super) fn of_remedies(measured: &Measured) -> Vec<Finding> {
    let first = ROWS.first().map_or(1.0, |row| row.paper);
    let mut findings = Vec::new();
    if let Some((_, protection, suite)) = REMEDY_CASES.first() {
        let [queues, context, ..] = remedies(*protection, *suite);
        let gain = measured.ratio(context, queues).zip(measured.share(context));
        let [least, most] = EXPECTED_RATES;
        findings.extend(gain.map(|(gain, share)| Finding {
            what: "everything in one context, no AH and ESP".into(),
            paper: format!(
                "{least} to {most} kb/s expected: {:.1} to {:.1} times the 47 with queues, {:.2} to \
                     {:.2} of the first row",
                least / 47.0,
                most / 47.0,
                least / first,
                most / first
            ),
            ours: format!(
                "{:.1} times the rate with queues, {:.2} of the first row",
                gain.median, share.median
            ),
            agreement: Agreement::of(gain.median > 1.0 + SAME),
            why: CONTEXT.into(),
        }));
    }
    for (name, protection, suite) in REMEDY_CASES.iter().skip(1) {
        let [queues, _, gateway, kernel] = remedies(*protection, *suite);
        findings.extend(measured.ratio(gateway, queues).map(|gain| Finding {
            what: format!("one context until it is congested: {name}"),
            paper: "proposed, not measured".into(),
            ours: format!("{:.1} times the rate with queues", gain.median),
            agreement: Agreement::of(gain.median > 1.0 + SAME),
            why: GATEWAY.into(),
        }));
        findings.extend(measured.ratio(kernel, queues).map(|gain| Finding {
            what: format!("inside IP: {name}"),
            paper: "proposed, not measured; not portable".into(),
            ours: format!("{:.1} times the rate with queues", gain.median),
            agreement: Agreement::of(gain.median > 1.0 + SAME),
            why: KERNEL.into(),
        }));
    }
    findings
}

const CONTEXT: &str = "Agrees if one context is faster than queues. How close it gets to the first row \
     depends on the cost of crossing between kernel and program, which the paper did not have.";
const GATEWAY: &str = "The gateway reads and writes many segments per system call, and other threads \
     assist it while packets wait. With DES, most of the cost is the transform, so little can be gained.";
const KERNEL: &str = "Packets do not cross between kernel and program, and there is no queue between IP \
     and IPsec. The kernel has its own algorithms, so these differ, too. As the paper says, the \
     disadvantage is that it is not portable.";
