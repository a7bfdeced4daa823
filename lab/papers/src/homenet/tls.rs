//! Section 7 of the paper: TLS against IPsec (figure 11).

use super::ground::{Ground, cannot_hide_aes};
use super::plot::{Line, Words, costs, figures};
use super::setting::{Aes, Form, Mode, Setting};
use super::sweep::{Quantity, Sweep, few_mtus};
use crate::Context;
use crate::verdict::verdict;
use casemate_measure::spread::Spread;
use casemate_report::{Agreement, Finding, LeftOut, Part};
use casemate_stage::Result;

/// Ratios closer to 1 than this are no difference.
const SAME: f64 = 0.05;

const CLEAR: Setting = Setting { form: Form::Clear, ..Setting::of(Mode::Gcm, Aes::Instructions) };

/// What TLS 1.3 and ESP both have. ChaCha20 does without instructions for AES, and is measured once.
const ALL: &[(Mode, Aes)] = &[
    (Mode::Gcm128, Aes::Instructions),
    (Mode::Gcm, Aes::Instructions),
    (Mode::ChaCha, Aes::Instructions),
    (Mode::Gcm128, Aes::Software),
    (Mode::Gcm, Aes::Software),
];
const FEW: &[(Mode, Aes)] = &[(Mode::Gcm, Aes::Instructions), (Mode::Gcm, Aes::Software)];

pub(super) fn run(context: &Context) -> Result<Vec<Part>> {
    let ground = Ground::new(context)?;
    let hidden = cannot_hide_aes();
    let kinds = if context.quick { FEW } else { ALL }.iter().copied();
    let kinds: Vec<(Mode, Aes)> =
        kinds.filter(|(_, aes)| hidden.is_none() || *aes == Aes::Instructions).collect();
    let mut sweep = Sweep::run(context, &ground, &settings(&kinds), few_mtus(context.quick));
    sweep.left_out.extend(hidden.map(|why| LeftOut {
        what: "TLS with AES in software".into(),
        why,
        failed: false,
    }));
    Ok(vec![part(&sweep, &kinds)])
}

fn ipsec((mode, aes): (Mode, Aes)) -> Setting {
    Setting::of(mode, aes)
}

fn tls(kind: (Mode, Aes)) -> Setting {
    Setting { form: Form::Tls, ..ipsec(kind) }
}

fn settings(kinds: &[(Mode, Aes)]) -> Vec<Setting> {
    std::iter::once(CLEAR).chain(kinds.iter().flat_map(|kind| [ipsec(*kind), tls(*kind)])).collect()
}

fn part(sweep: &Sweep, kinds: &[(Mode, Aes)]) -> Part {
    Part {
        title: "TLS against IPsec".into(),
        text: format!("{TEXT} {}", sweep.effort()),
        figures: [against_ipsec(sweep, kinds), against_clear(sweep, kinds)].concat(),
        tables: vec![costs(sweep, "TLS and IPsec", &settings(kinds))],
        findings: findings(sweep),
        samples: sweep.samples(),
        left_out: sweep.left_out.clone(),
    }
}

fn against_ipsec(sweep: &Sweep, kinds: &[(Mode, Aes)]) -> Vec<casemate_report::Figure> {
    let line = |kind: &(Mode, Aes)| -> Line { (name(*kind), tls(*kind), ipsec(*kind)) };
    let lines: Vec<Line> = kinds.iter().map(line).collect();
    let words = Words { title: "Figure 11, TLS over IPsec", ratio: "ratio to IPsec", caption: AGAINST_IPSEC };
    figures(sweep, &words, &lines, |_| Vec::new())
}

/// What both cost at all. Three kinds are enough to look at.
fn against_clear(sweep: &Sweep, kinds: &[(Mode, Aes)]) -> Vec<casemate_report::Figure> {
    let lines = kinds.iter().filter(|(mode, _)| *mode != Mode::Gcm128).flat_map(|kind| -> [Line; 2] {
        [
            (format!("TLS, {}", name(*kind)), tls(*kind), CLEAR),
            (format!("IPsec, {}", name(*kind)), ipsec(*kind), CLEAR),
        ]
    });
    let lines: Vec<Line> = lines.collect();
    let words = Words {
        title: "TLS and IPsec over no protection",
        ratio: "ratio to clear text",
        caption: AGAINST_CLEAR,
    };
    figures(sweep, &words, &lines, |_| Vec::new())
}

/// For a legend.
fn name((mode, aes): (Mode, Aes)) -> String {
    match aes {
        Aes::Instructions => mode.to_string(),
        Aes::Software => format!("{mode} in software"),
    }
}

fn findings(sweep: &Sweep) -> Vec<Finding> {
    let Some(mtu) = sweep.mtus.last().copied() else { return Vec::new() };
    let ratio = |aes, quantity| sweep.ratio(tls((Mode::Gcm, aes)), ipsec((Mode::Gcm, aes)), mtu, quantity);
    let both = |aes| ratio(aes, Quantity::Elapsed).zip(ratio(aes, Quantity::Cpu));
    let mut findings = Vec::new();
    findings.extend(
        both(Aes::Software).map(|(elapsed, cpu)| Finding {
            what: "AES in software: TLS against IPsec".into(),
            paper:
                "a huge advantage of TLS on the fastest device; on the two others IPsec is to be preferred"
                    .into(),
            ours: format!(
                "TLS takes {} times IPsec's time and {} times its CPU time, {GCM} with an MTU of {mtu}",
                elapsed.text(2),
                cpu.text(2)
            ),
            agreement: verdict(&[elapsed, cpu], |ratio| ratio < 1.0 - SAME),
            why: SOFTWARE.into(),
        }),
    );
    findings.extend(ratio(Aes::Instructions, Quantity::Elapsed).map(|elapsed| Finding {
        what: "AES instructions: TLS is faster than IPsec".into(),
        paper: "TLS is likely to be more optimized for faster communications".into(),
        ours: format!("TLS takes {} times IPsec's time, {GCM} with an MTU of {mtu}", elapsed.text(2)),
        agreement: verdict(&[elapsed], |ratio| ratio < 1.0 - SAME),
        why: FASTER.into(),
    }));
    findings.extend(ratio(Aes::Instructions, Quantity::Cpu).map(|cpu| {
        Finding {
            what: "AES instructions: TLS takes more CPU time than IPsec".into(),
            paper:
                "speed at the expense of more CPU cycles; IPsec for constrained devices with limited energy"
                    .into(),
            ours: format!("TLS takes {} times IPsec's CPU time, {GCM} with an MTU of {mtu}", cpu.text(2)),
            agreement: verdict(&[cpu], |ratio| ratio > 1.0 + SAME),
            why: DEARER.into(),
        }
    }));
    findings.extend(small_packets(sweep));
    findings.extend(gain(sweep, mtu));
    findings
}

/// The paper has no words for them, but its figure does.
fn small_packets(sweep: &Sweep) -> Option<Finding> {
    let [short, long] = [*sweep.mtus.first()?, *sweep.mtus.last()?];
    let kind = (Mode::Gcm, Aes::Instructions);
    let over_clear = |setting, mtu| sweep.ratio(setting, CLEAR, mtu, Quantity::Cpu);
    let [tls, ipsec] =
        [tls(kind), ipsec(kind)].map(|setting| over_clear(setting, short).zip(over_clear(setting, long)));
    let ((tls_short, tls_long), (ipsec_short, ipsec_long)) = (tls?, ipsec?);
    Some(Finding {
        what: "CPU time over clear text, small packets and large ones".into(),
        paper: "TLS authenticates the download, IPsec each packet: its overhead is the greater one".into(),
        ours: format!(
            "TLS {} times with an MTU of {short}, {} with {long}; IPsec {} and {}",
            tls_short.text(2),
            tls_long.text(2),
            ipsec_short.text(2),
            ipsec_long.text(2)
        ),
        agreement: Agreement::of(
            [(tls_short, ipsec_short), (tls_long, ipsec_long)]
                .iter()
                .all(|(tls, ipsec)| tls.median < ipsec.median),
        ),
        why: RECORDS.into(),
    })
}

fn gain(sweep: &Sweep, mtu: u32) -> Option<Finding> {
    let gain = |of: fn((Mode, Aes)) -> Setting| -> Option<Spread> {
        let [software, instructions] = [Aes::Software, Aes::Instructions].map(|aes| of((Mode::Gcm, aes)));
        sweep.ratio(software, instructions, mtu, Quantity::Cpu)
    };
    let (tls, ipsec) = (gain(tls)?, gain(ipsec)?);
    Some(Finding {
        what: "what AES instructions give to TLS and to IPsec, CPU time".into(),
        paper: "TLS takes more advantage of them, at least than transport mode".into(),
        ours: format!(
            "without them TLS takes {} times the CPU time, IPsec {} times, {GCM} with an MTU of {mtu}",
            tls.text(2),
            ipsec.text(2)
        ),
        agreement: Agreement::of(tls.median > ipsec.median + SAME),
        why: GAIN.into(),
    })
}

const GCM: &str = "AES-256-GCM";

const TEXT: &str = "The paper downloaded with TLS and HMAC-SHA1-96 from OpenSSL, and with ESP in transport mode from the kernel. Here it is TLS 1.3 between two processes of the \
    program openssl, s_server and s_client, of the version above, against ESP in transport mode by this program's gateways, and clear text, over the same link. Both protect \
    with AES-GCM, here with keys of 128 bits too, and ChaCha20-Poly1305. OpenSSL's instructions for AES are hidden in the same way as the gateway's. The handshake is over when \
    measurement begins, and IPsec has manual keys. For TLS, CPU time is that of both processes, which also send and receive; for IPsec it is that of sender, receiver and both gateways. The file has \
    no end in either: the paper's second one, of 50 kB, with which it found no difference, is not measured.";

const AGAINST_IPSEC: &str =
    "Below 1, TLS is faster, or cheaper. The paper's curves are not printed as numbers.";

const AGAINST_CLEAR: &str = "1 is the same download without protection, from a sender that writes 64 KiB at once, where s_server writes 16 KiB.";

const SOFTWARE: &str = "Agrees if TLS takes less of both. The paper credits instructions of that processor which OpenSSL used and its kernel did not. Here both have the same ones: the \
    gateway's AWS-LC descends from OpenSSL. What TLS saves is around the cipher: it protects records and not packets.";

const FASTER: &str = "With TLS one thread of the sender does all: it encrypts and gives TCP what is encrypted. A gateway works beside TCP, on another processor if one is free, but \
    every byte goes once more from the kernel to a program and back at both ends. The paper's IPsec was in the kernel, where it does not.";

const DEARER: &str = "The paper's TLS was paid for with CPU time because its IPsec was not in a program. Here both are, and IPsec is in one more at each end: system calls for the \
    interface and for ESP come on top of those of sender and receiver, which TLS has alone.";

const RECORDS: &str = "Agrees if TLS adds less for the smallest and for the largest packets. TLS protects records of 16,384 bytes, whatever the MTU, and not the download at once, as the paper has it: 22 bytes and one call of the cipher \
    each, before TCP cuts them into segments. ESP protects packets: at least 34 bytes, an IV, a sequence number and a call of the cipher each, and the more of them the smaller they are. TCP's own work for \
    small segments is in the ratio's both sides.";

const GAIN: &str = "The more of the time goes into the cipher, the more instructions for it help. Beside it TLS has records to copy, and the gateway has packets to move. \
    Where Intel's library is installed, it is part of what instructions give the gateway: it protects several packets at once.";

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine where TLS is cheaper everywhere, and gains less from instructions.
    fn cheap_tls() -> Part {
        let sweep = Sweep::with(&settings(ALL), &[180, 1_500], |setting, mtu| {
            let packets = f64::from(1_800 / mtu);
            match (setting.form, setting.aes) {
                (Form::Clear, _) => 1.0 + packets,
                (Form::Tls, Aes::Instructions) => 2.0 + packets,
                (Form::Tls, Aes::Software) => 4.0 + packets,
                (_, Aes::Instructions) => 2.0 + 3.0 * packets,
                (_, Aes::Software) => 20.0 + 3.0 * packets,
            }
        });
        part(&sweep, ALL)
    }

    #[test]
    fn claims_are_judged_by_what_is_measured() {
        use Agreement::{Agrees, Differs};
        let verdicts: Vec<_> = cheap_tls().findings.iter().map(|finding| finding.agreement).collect();
        // Cheaper in software; faster; not dearer; less of an overhead; and no greater gain.
        assert_eq!(verdicts, [Agrees, Agrees, Differs, Agrees, Differs]);
    }

    #[test]
    fn every_figure_has_its_lines() {
        let part = cheap_tls();
        let lines: Vec<usize> = part.figures.iter().map(|figure| figure.series.len()).collect();
        // Five kinds; TLS and IPsec of three of them. Each for elapsed time and for CPU time.
        assert_eq!(lines, [5, 5, 6, 6]);
        let points = part.figures.iter().flat_map(|figure| &figure.series).map(|series| series.points.len());
        assert!(points.into_iter().all(|count| count == 2));
        assert_eq!(part.tables[0].rows.len(), 11);
    }

    #[test]
    fn only_what_tls_has_is_compared() {
        assert!(ALL.iter().all(|(mode, _)| mode.tls_suite().is_some()));
        assert!(FEW.iter().all(|kind| ALL.contains(kind)));
    }
}
