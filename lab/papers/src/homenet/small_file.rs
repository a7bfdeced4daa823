//! TLS against IPsec for small files: the second measurement of section 7 of the paper.

use super::scenario::Scenario;
use super::sweep::{QUANTITIES, Quantity, Ratio, Sweep};
use super::testbed::{Download, LINK_MTU, SMALL_FILE};
use super::tls::{CLEAR, Cipher};
use casemate_measure::report::{Axis, Bound, Claim, Figure, Finding, Part, Point, Series, Shape, Table};
use casemate_measure::stats::Spread;

/// Ratios that count as similar: within a quarter, in either direction.
const SIMILAR: Bound = Bound::Within(0.8, 1.25);
/// The download of the other figures with the same MTU.
const ENDLESS: Download = Download::Endless(LINK_MTU);

/// Part of the report about small files.
pub(super) fn part(sweep: &Sweep, ciphers: &[Cipher]) -> Part {
    let findings =
        QUANTITIES.map(|quantity| [similar(sweep, ciphers, quantity), as_huge(sweep, ciphers, quantity)]);
    Part {
        title: "TLS against IPsec, small file".into(),
        text: format!("{TEXT} {}", sweep.effort()),
        figures: QUANTITIES.map(|quantity| figure(sweep, ciphers, quantity)).into(),
        tables: vec![table(sweep, ciphers)],
        findings: findings.into_iter().flatten().flatten().collect(),
        ..Part::default()
    }
}

const TEXT: &str = "The paper also downloaded files of 50 kB. Here such files follow each other for the time \
     of a measurement, each over HTTP and a new TCP connection, with an MTU of 1,500. TLS makes a complete \
     handshake for each file, with X25519 or another group that both programs prefer and a certificate on \
     P-256 (openssl s_time). IPsec has manual keys, as in all steps of this experiment: IKE would negotiate \
     them once for all files. A download ends when the server has closed the connection. The paper writes \
     that such a file fits into one TCP frame. 50,000 bytes take 35 segments of 1,460 bytes, and 50,000 bits \
     take 5.";

fn ratio(cipher: Cipher) -> Ratio {
    Ratio { own: cipher.tls(), base: cipher.ipsec() }
}

/// TLS relative to IPsec, for endless files and for small ones.
fn figure(sweep: &Sweep, ciphers: &[Cipher], quantity: Quantity) -> Figure {
    let series = ciphers.iter().map(|cipher| {
        let Ratio { own, base } = ratio(*cipher);
        let points =
            [ENDLESS, Download::SmallFiles].into_iter().zip([0.0, 1.0]).filter_map(|(download, x)| {
                let Spread { median, min, max, .. } = sweep.ratio(own, base, download, quantity)?;
                Some(Point::with_range(x, median, min, max))
            });
        Series::ours(cipher.name(), Shape::Bars, points)
    });
    Figure {
        title: format!("Small file, TLS over IPsec: {}", quantity.name()),
        caption: "Below 1, TLS is faster or cheaper. The paper calls the results of small files similar and \
             prints no number."
            .into(),
        x: Axis::names("download, MTU of 1,500", ["endless file", "50 kB"]),
        y: Axis::linear(format!("{}, ratio to IPsec", quantity.name())),
        series: series.collect(),
    }
}

fn table(sweep: &Sweep, ciphers: &[Cipher]) -> Table {
    let columns = QUANTITIES.map(|quantity| format!("{}, ms", quantity.name()));
    let row = |scenario: Scenario| {
        let cell = |quantity| {
            let cost = sweep.cost(scenario, Download::SmallFiles, quantity);
            cost.map_or_else(|| "-".into(), |cost| cost.text(2))
        };
        std::iter::once(scenario.to_string()).chain(QUANTITIES.map(cell)).collect()
    };
    let scenarios = ciphers.iter().flat_map(|cipher| [cipher.ipsec(), cipher.tls()]);
    Table {
        title: format!("Small file: cost of one download of {SMALL_FILE} bytes"),
        columns: std::iter::once("Setting".to_owned()).chain(columns).collect(),
        rows: std::iter::once(CLEAR).chain(scenarios).map(row).collect(),
    }
}

/// Judges one claim by the ratios of all ciphers; `None` without any.
fn judge(
    claim: &Claim<'_>,
    quantity: Quantity,
    ciphers: &[Cipher],
    ratio: impl Fn(Cipher) -> Option<Spread>,
) -> Option<Finding> {
    let (mut texts, mut ratios) = (Vec::new(), Vec::new());
    for cipher in ciphers {
        let Some(ratio) = ratio(*cipher) else { continue };
        texts.push(format!("{} {} times", cipher.name(), ratio.text(2)));
        ratios.push(ratio);
    }
    let what = format!("{}, {}", claim.what, quantity.name());
    let finding = Claim { what: &what, ..*claim }.judge(texts.join(", "), &ratios);
    (!ratios.is_empty()).then_some(finding)
}

/// The paper's sentence, read as a comparison of TLS with IPsec.
fn similar(sweep: &Sweep, ciphers: &[Cipher], quantity: Quantity) -> Option<Finding> {
    judge(&TLS_AND_IPSEC, quantity, ciphers, |cipher| {
        let Ratio { own, base } = ratio(cipher);
        sweep.ratio(own, base, Download::SmallFiles, quantity)
    })
}

/// The paper's sentence, read as a comparison of small files with huge ones.
fn as_huge(sweep: &Sweep, ciphers: &[Cipher], quantity: Quantity) -> Option<Finding> {
    judge(&SMALL_AND_HUGE, quantity, ciphers, |cipher| {
        sweep.ratio_of_downloads(ratio(cipher), [Download::SmallFiles, ENDLESS], quantity)
    })
}

const TLS_AND_IPSEC: Claim<'static> = Claim {
    what: "a file of 50 kB: TLS takes as much as IPsec",
    paper: "small files showed similar performance (if the sentence compares TLS with IPsec)",
    holds: SIMILAR,
    agrees: "TLS makes a handshake for each file. IPsec passes every packet of the connection through two \
             gateways. For a file of this length, both cost about the same.",
    differs: "TLS makes a handshake for each file: a round trip, a signature and a key exchange, which do \
              not depend on the length of the file. IPsec makes no handshake, but two gateways delay every \
              packet of a connection that is too short to fill their batches. The two costs differ by more \
              than a quarter.",
};

const SMALL_AND_HUGE: Claim<'static> = Claim {
    what: "a file of 50 kB: the ratio of TLS to IPsec is that of a huge file",
    paper: "small files showed similar performance (if the sentence compares small files with huge ones)",
    holds: SIMILAR,
    agrees: "The cost of a connection and of a handshake changes the ratio by less than a quarter.",
    differs: "For a huge file, the handshake of TLS and the round trips of a connection are negligible. \
              For a file of 50 kB they are a large part of the cost.",
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::homenet::tls::{ALL, scenarios};
    use casemate_measure::report::Agreement::{self, Agrees, Differs};

    /// TLS takes `huge` times IPsec's cost for endless files and `small` times for small ones.
    fn measured(huge: f64, small: f64) -> Part {
        let downloads = [Download::Endless(180), ENDLESS, Download::SmallFiles];
        let sweep = Sweep::with_downloads(&scenarios(ALL), &downloads, |scenario, download| {
            let is_tls = ALL.iter().any(|cipher| cipher.tls() == scenario);
            match download {
                Download::Endless(_) => 10.0 * if is_tls { huge } else { 1.0 },
                Download::SmallFiles => 2.0 * if is_tls { small } else { 1.0 },
            }
        });
        part(&sweep, ALL)
    }

    fn verdicts(huge: f64, small: f64) -> Vec<Agreement> {
        measured(huge, small).findings.iter().map(|finding| finding.agreement).collect()
    }

    #[test]
    fn both_readings_of_the_sentence_are_judged() {
        // For elapsed time and CPU time: small TLS against IPsec, and small files against huge ones.
        assert_eq!(verdicts(1.0, 1.1), [Agrees; 4]);
        assert_eq!(verdicts(0.5, 1.1), [Agrees, Differs, Agrees, Differs]);
        assert_eq!(verdicts(2.0, 2.0), [Differs, Agrees, Differs, Agrees]);
        let [tls_and_ipsec, small_and_huge, ..] = &measured(0.5, 1.5).findings[..] else {
            panic!("findings")
        };
        assert!(tls_and_ipsec.ours.contains(" 1.50 (1.50-1.50) times"), "{}", tls_and_ipsec.ours);
        assert!(small_and_huge.ours.contains(" 3.00 (3.00-3.00) times"), "{}", small_and_huge.ours);
    }

    #[test]
    fn four_rounds_decide_nothing() {
        let ratio = |_| Spread::of([1.0; 4]);
        let finding = judge(&TLS_AND_IPSEC, Quantity::Cpu, ALL, ratio).unwrap();
        assert_eq!(finding.agreement, Agreement::Unknown);
        assert_eq!(judge(&TLS_AND_IPSEC, Quantity::Cpu, ALL, |_| None), None);
    }

    #[test]
    fn figures_and_table_have_every_cipher() {
        let part = measured(0.5, 1.5);
        for figure in &part.figures {
            assert_eq!(figure.series.len(), ALL.len());
            let ratios: Vec<f64> = figure.series[0].points.iter().map(|point| point.y).collect();
            assert_eq!(ratios, [0.5, 1.5]);
        }
        assert_eq!(part.tables[0].rows.len(), 1 + 2 * ALL.len());
        assert_eq!(part.tables[0].rows[1][1], "2.00 (2.00-2.00)");
    }
}
