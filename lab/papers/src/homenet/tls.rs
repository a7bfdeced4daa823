//! TLS against IPsec: section 7 of the paper (figure 11).

use super::scenario::{Aes, Encapsulation, Mode, Scenario};
use super::small_file;
use super::sweep::{Labels, Line, Quantity, Ratio, Sweep, costs, few_mtus, figures};
use super::testbed::{Download, Testbed, cannot_hide_aes};
use crate::Context;
use casemate_measure::report::{Bound, Claim, Figure, Finding, Part, Skipped};
use casemate_testbed::Result;

/// Ratios closer to 1 than this count as equal.
const SAME: f64 = 0.05;

/// No protection.
pub(super) const CLEAR: Scenario =
    Scenario { encapsulation: Encapsulation::Clear, ..Scenario::of(Mode::Gcm, Aes::Instructions) };

/// Algorithm that both TLS 1.3 and ESP support.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cipher {
    mode: Mode,
    aes: Aes,
}

impl Cipher {
    pub(super) const fn ipsec(self) -> Scenario {
        Scenario::of(self.mode, self.aes)
    }

    pub(super) const fn tls(self) -> Scenario {
        Scenario { encapsulation: Encapsulation::Tls, ..self.ipsec() }
    }

    /// Name in a legend.
    pub(super) fn name(self) -> String {
        match self.aes {
            Aes::Instructions => self.mode.to_string(),
            Aes::Software => format!("{} in software", self.mode),
        }
    }
}

const GCM_128: Cipher = Cipher { mode: Mode::Gcm128, aes: Aes::Instructions };
const GCM_256: Cipher = Cipher { mode: Mode::Gcm, aes: Aes::Instructions };
const GCM_256_SOFTWARE: Cipher = Cipher { aes: Aes::Software, ..GCM_256 };
/// ChaCha20 does not use AES instructions and is measured once.
const CHACHA: Cipher = Cipher { mode: Mode::ChaCha, aes: Aes::Instructions };

pub(super) const ALL: &[Cipher] =
    &[GCM_128, GCM_256, CHACHA, Cipher { aes: Aes::Software, ..GCM_128 }, GCM_256_SOFTWARE];
const FEW: &[Cipher] = &[GCM_256, GCM_256_SOFTWARE];

pub(super) fn run(context: &Context) -> Result<Vec<Part>> {
    let testbed = Testbed::new(context)?;
    let hidden = cannot_hide_aes();
    let ciphers = if context.quick { FEW } else { ALL }.iter().copied();
    let ciphers: Vec<Cipher> =
        ciphers.filter(|cipher| hidden.is_none() || cipher.aes == Aes::Instructions).collect();
    let endless = few_mtus(context.quick).into_iter().map(Download::Endless);
    let downloads: Vec<Download> = endless.chain([Download::SmallFiles]).collect();
    let mut sweep = Sweep::run_downloads(context, &testbed, &scenarios(&ciphers), &downloads);
    sweep.skipped.extend(hidden.map(|why| Skipped {
        what: "TLS with AES in software".into(),
        why,
        failed: false,
    }));
    Ok(vec![part(&sweep, &ciphers), small_file::part(&sweep, &ciphers)])
}

pub(super) fn scenarios(ciphers: &[Cipher]) -> Vec<Scenario> {
    std::iter::once(CLEAR).chain(ciphers.iter().flat_map(|cipher| [cipher.ipsec(), cipher.tls()])).collect()
}

fn part(sweep: &Sweep, ciphers: &[Cipher]) -> Part {
    Part {
        title: "TLS against IPsec".into(),
        text: format!("{TEXT} {}", sweep.effort()),
        figures: [against_ipsec(sweep, ciphers), against_clear(sweep, ciphers)].concat(),
        tables: vec![costs(sweep, "TLS and IPsec", &scenarios(ciphers))],
        findings: findings(sweep),
        samples: sweep.samples(),
        skipped: sweep.skipped.clone(),
    }
}

fn against_ipsec(sweep: &Sweep, ciphers: &[Cipher]) -> Vec<Figure> {
    let line = |cipher: &Cipher| Line::new(cipher.name(), cipher.tls(), cipher.ipsec());
    let lines: Vec<Line> = ciphers.iter().map(line).collect();
    let words =
        Labels { title: "Figure 11, TLS over IPsec", ratio: "ratio to IPsec", caption: AGAINST_IPSEC };
    figures(sweep, &words, &lines, |_| Vec::new())
}

/// Cost of both, relative to no protection. Three algorithms are enough for a figure.
fn against_clear(sweep: &Sweep, ciphers: &[Cipher]) -> Vec<Figure> {
    let lines = ciphers.iter().filter(|cipher| cipher.mode != Mode::Gcm128).flat_map(|cipher| {
        [
            Line::new(format!("TLS, {}", cipher.name()), cipher.tls(), CLEAR),
            Line::new(format!("IPsec, {}", cipher.name()), cipher.ipsec(), CLEAR),
        ]
    });
    let lines: Vec<Line> = lines.collect();
    let words = Labels {
        title: "TLS and IPsec over no protection",
        ratio: "ratio to clear text",
        caption: AGAINST_CLEAR,
    };
    figures(sweep, &words, &lines, |_| Vec::new())
}

fn findings(sweep: &Sweep) -> Vec<Finding> {
    let Some(mtu) = sweep.mtus.last().copied() else { return Vec::new() };
    let ratio = |cipher: Cipher, quantity| sweep.ratio(cipher.tls(), cipher.ipsec(), mtu, quantity);
    let both = |cipher| ratio(cipher, Quantity::Elapsed).zip(ratio(cipher, Quantity::Cpu));
    let mut findings = Vec::new();
    findings.extend(both(GCM_256_SOFTWARE).map(|(elapsed, cpu)| {
        let ours = format!(
            "TLS takes {} times IPsec's time and {} times its CPU time, {GCM} with an MTU of {mtu}",
            elapsed.text(2),
            cpu.text(2)
        );
        SOFTWARE.judge(ours, &[elapsed, cpu])
    }));
    findings.extend(ratio(GCM_256, Quantity::Elapsed).map(|elapsed| {
        FASTER.judge(
            format!("TLS takes {} times IPsec's time, {GCM} with an MTU of {mtu}", elapsed.text(2)),
            &[elapsed],
        )
    }));
    findings.extend(ratio(GCM_256, Quantity::Cpu).map(|cpu| {
        COSTLIER.judge(
            format!("TLS takes {} times IPsec's CPU time, {GCM} with an MTU of {mtu}", cpu.text(2)),
            &[cpu],
        )
    }));
    findings.extend(small_packets(sweep));
    findings.extend(gain(sweep, mtu));
    findings
}

/// The paper shows this in its figure but does not mention it.
fn small_packets(sweep: &Sweep) -> Option<Finding> {
    let [short, long] = [*sweep.mtus.first()?, *sweep.mtus.last()?];
    let over_clear = |scenario, mtu| sweep.ratio(scenario, CLEAR, mtu, Quantity::Cpu);
    let [tls, ipsec] = [GCM_256.tls(), GCM_256.ipsec()]
        .map(|scenario| over_clear(scenario, short).zip(over_clear(scenario, long)));
    let ((tls_short, tls_long), (ipsec_short, ipsec_long)) = (tls?, ipsec?);
    let ours = format!(
        "TLS {} times with an MTU of {short}, {} with {long}; IPsec {} and {}",
        tls_short.text(2),
        tls_long.text(2),
        ipsec_short.text(2),
        ipsec_long.text(2)
    );
    // The clear text is the same, so it can be left out.
    let direct = |mtu| sweep.ratio(GCM_256.tls(), GCM_256.ipsec(), mtu, Quantity::Cpu);
    Some(RECORDS.judge(ours, &[direct(short)?, direct(long)?]))
}

fn gain(sweep: &Sweep, mtu: u32) -> Option<Finding> {
    let tls = Ratio { own: GCM_256_SOFTWARE.tls(), base: GCM_256.tls() };
    let ipsec = Ratio { own: GCM_256_SOFTWARE.ipsec(), base: GCM_256.ipsec() };
    let text = |ratio: Ratio| Some(sweep.ratio(ratio.own, ratio.base, mtu, Quantity::Cpu)?.text(2));
    let ours = format!(
        "without them TLS takes {} times the CPU time, IPsec {} times, {GCM} with an MTU of {mtu}",
        text(tls)?,
        text(ipsec)?
    );
    Some(GAIN.judge(ours, &[sweep.ratio_of_ratios(tls, ipsec, mtu, Quantity::Cpu)?]))
}

const GCM: &str = "AES-256-GCM";

const TEXT: &str = "The paper downloaded with TLS and HMAC-SHA1-96 from OpenSSL, and with ESP in \
     transport mode from the kernel. Here TLS 1.3 between two processes of the program openssl (s_server \
     and s_client, version above) is compared with ESP in transport mode by Casemate gateways, and with \
     clear text, over the same link. Both use AES-GCM, here with 128-bit keys, too, and \
     ChaCha20-Poly1305. AES instructions are hidden from OpenSSL in the same way as from the gateway. The \
     measurement starts after the handshake, and IPsec has manual keys. For TLS, CPU time is that of both \
     processes, which also send and receive; for IPsec it is that of sender, receiver and both gateways. \
     The file is endless in both cases.";

const AGAINST_IPSEC: &str =
    "Below 1, TLS is faster or cheaper. The paper does not print the numbers of its curves.";

const AGAINST_CLEAR: &str = "1 is the same download without protection. Its sender writes 64 KiB at \
     once, whereas s_server writes 16 KiB.";

const SOFTWARE: Claim<'static> = Claim {
    what: "AES in software: TLS against IPsec",
    paper: "a huge advantage of TLS on the fastest device; on the two others IPsec is to be preferred",
    holds: Bound::Below(1.0 - SAME),
    agrees: "TLS takes less time and less CPU time. The paper attributes its result to processor instructions \
             that OpenSSL used and its kernel did not. Here both use the same instructions: the gateway's \
             AWS-LC is derived from OpenSSL. The advantage of TLS is outside the cipher: it protects records \
             instead of packets.",
    differs: "TLS does not take less of both. The paper attributes its result to processor instructions that \
              OpenSSL used and its kernel did not; here both use the same instructions.",
};

const FASTER: Claim<'static> = Claim {
    what: "AES instructions: TLS is faster than IPsec",
    paper: "TLS is likely to be more optimized for faster communications",
    holds: Bound::Below(1.0 - SAME),
    agrees: "Every byte crosses once more between kernel and program at both ends with a gateway. The paper's \
             IPsec was in the kernel.",
    differs: "With TLS, one thread of the sender encrypts and writes to TCP. A gateway runs in parallel with \
              TCP if a processor is free.",
};

const COSTLIER: Claim<'static> = Claim {
    what: "AES instructions: TLS takes more CPU time than IPsec",
    paper: "speed at the expense of more CPU cycles; IPsec for constrained devices with limited energy",
    holds: Bound::Above(1.0 + SAME),
    agrees: "TLS copies each record and encrypts it in calls of 16 KiB; the gateway's packets are merged into \
             larger ones by the kernel.",
    differs: "The paper's TLS needed more CPU time because its IPsec was in the kernel. Here both are in \
              programs, and IPsec is an additional program at each end: its system calls for the TUN \
              interface and for ESP add to those of sender and receiver.",
};

const RECORDS: Claim<'static> = Claim {
    what: "CPU time over clear text, small packets and large ones",
    paper: "TLS authenticates the download, IPsec each packet: its overhead is the greater one",
    holds: Bound::Below(1.0),
    agrees: "TLS protects records of 16,384 bytes at any MTU, not the download as a whole as the paper says: 22 \
             bytes and one cipher call per record, before TCP segments it. ESP protects packets: at least 34 \
             bytes, an IV, a sequence number and a cipher call per packet.",
    differs: "TLS costs as much as IPsec or more for small packets or for large ones. TCP's own cost of small \
              segments is in both.",
};

const GAIN: Claim<'static> = Claim {
    what: "what AES instructions give to TLS and to IPsec, CPU time",
    paper: "TLS takes more advantage of them, at least than transport mode",
    holds: Bound::Above(1.0 + SAME),
    agrees: "Instructions help more if a larger share of the time goes into the cipher, and the gateway also \
             moves packets.",
    differs: "Instructions help more if a larger share of the time goes into the cipher. TLS also copies \
              records, and if Intel's library is installed, it contributes to the gain of the gateway, because \
              it protects several packets at once.",
};

#[cfg(test)]
mod tests {
    use super::*;
    use casemate_measure::report::Agreement;

    /// A machine on which TLS is cheaper everywhere and gains less from AES instructions.
    fn cheap_tls() -> Part {
        let sweep = Sweep::with(&scenarios(ALL), &[180, 1_500], |scenario, mtu| {
            let packets = f64::from(1_800 / mtu);
            match (scenario.encapsulation, scenario.aes) {
                (Encapsulation::Clear, _) => 1.0 + packets,
                (Encapsulation::Tls, Aes::Instructions) => 2.0 + packets,
                (Encapsulation::Tls, Aes::Software) => 4.0 + packets,
                (_, Aes::Instructions) => 2.0 + 3.0 * packets,
                (_, Aes::Software) => 20.0 + 3.0 * packets,
            }
        });
        part(&sweep, ALL)
    }

    #[test]
    fn claims_are_judged_by_the_measurement() {
        use Agreement::{Agrees, Differs};
        let verdicts: Vec<_> = cheap_tls().findings.iter().map(|finding| finding.agreement).collect();
        // Cheaper in software; faster; not more expensive; less overhead; no greater gain.
        assert_eq!(verdicts, [Agrees, Agrees, Differs, Agrees, Differs]);
    }

    #[test]
    fn every_figure_has_all_lines() {
        let part = cheap_tls();
        let lines: Vec<usize> = part.figures.iter().map(|figure| figure.series.len()).collect();
        // Five kinds; TLS and IPsec for three of them. Each for elapsed time and CPU time.
        assert_eq!(lines, [5, 5, 6, 6]);
        let points = part.figures.iter().flat_map(|figure| &figure.series).map(|series| series.points.len());
        assert!(points.into_iter().all(|count| count == 2));
        assert_eq!(part.tables[0].rows.len(), 11);
    }

    #[test]
    fn every_compared_mode_has_a_tls_suite() {
        assert!(ALL.iter().all(|cipher| cipher.mode.tls_suite().is_some()));
        assert!(FEW.iter().all(|cipher| ALL.contains(cipher)));
    }
}
