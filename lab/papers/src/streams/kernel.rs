//! The kernel's own IPsec, for the paper's remedy "inside IP": what it knows, and its lines.

use super::protection::{Protection, SUITES, Suite};
use casemate_report::LeftOut;
use casemate_stage::arena::WIRE;
use casemate_stage::{Netns, Result};

/// Takes away what [`batch`] set up.
pub(super) const FLUSH: &str = "xfrm policy flush\nxfrm state flush\n";

/// Which algorithms the kernel has SAs for.
pub(super) struct Knows {
    pub(super) suites: Vec<Suite>,
    /// What it answered to the others.
    refused: Vec<(Suite, String)>,
}

impl Knows {
    /// Tries, in a namespace of its own: a kernel may have no ESP, or ESP and not these algorithms.
    pub(super) fn probe() -> Result<Self> {
        let netns = Netns::new()?;
        let mut knows = Self { suites: Vec::new(), refused: Vec::new() };
        for suite in SUITES {
            match netns.ip(&(FLUSH.to_owned() + &batch(&Protection::EspTunnelAh.file(suite, 0, WIRE)))) {
                Ok(()) => knows.suites.push(suite),
                Err(error) => knows.refused.push((suite, answer(&error.to_string()))),
            }
        }
        Ok(knows)
    }

    /// What cannot be measured, if there is such.
    pub(super) fn left_out(&self) -> Option<LeftOut> {
        let refused = self.refused.iter().map(|(suite, answer)| format!("none with {suite} ({answer})"));
        let refused: Vec<String> = refused.collect();
        (!refused.is_empty()).then(|| LeftOut {
            what: "inside IP".into(),
            why: format!("this kernel's own IPsec has no such SAs: {}", refused.join(", ")),
            failed: false,
        })
    }
}

/// The lines of a file for `ip xfrm`, for `ip -batch`.
pub(super) fn batch(file: &str) -> String {
    file.lines().filter_map(|line| Some(format!("{}\n", line.strip_prefix("ip ")?))).collect()
}

/// The kernel's part of what `ip` says.
fn answer(said: &str) -> String {
    let marks = ["RTNETLINK answers: ", "Error: "];
    let answer = said.lines().find_map(|line| marks.iter().find_map(|mark| Some(line.split_once(mark)?.1)));
    answer.or_else(|| said.lines().next()).unwrap_or_default().trim_end_matches('.').into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_has_every_line_without_the_program() {
        let file = Protection::EspTunnelAh.file(Suite::Today, 1, WIRE);
        let batch = batch(&file);
        assert_eq!(batch.lines().count(), file.lines().count());
        assert!(
            batch
                .lines()
                .all(|line| line.starts_with("xfrm state add ") || line.starts_with("xfrm policy add "))
        );
        // From here, the tunnel's SA is applied first, and AH around it (RFC 4301 section 4.5).
        assert!(batch.contains(
            "xfrm policy add src 10.2.0.1/32 dst 10.1.0.1/32 dir out \
             tmpl src 192.0.2.2 dst 192.0.2.1 proto esp mode tunnel tmpl src 192.0.2.2 dst 192.0.2.1 proto ah mode transport\n"
        ));
        assert!(batch.contains("proto ah spi 4097 mode transport auth-trunc 'hmac(sha256)' 0x2222"));
    }

    #[test]
    fn what_the_kernel_lacks_is_said_in_its_words() {
        let refused = vec![
            (
                Suite::Era,
                answer(
                    "ip -batch failed: RTNETLINK answers: Protocol not supported\nCommand failed -:1\nin:\nxfrm",
                ),
            ),
            (
                Suite::Today,
                answer(
                    "ip -batch failed: Error: Requested AEAD algorithm not found.\nCommand failed -:1\nin:",
                ),
            ),
        ];
        let out = Knows { suites: Vec::new(), refused }.left_out().unwrap();
        assert_eq!(
            format!("{}: {}", out.what, out.why),
            "inside IP: this kernel's own IPsec has no such SAs: none with DES, MD5 (Protocol not supported), \
             none with AES-GCM, SHA-2 (Requested AEAD algorithm not found)"
        );
        assert!(!out.failed);
    }

    /// What is known is tried, and what is refused is said: nothing is lost in between.
    #[test]
    fn the_probe_asks_this_kernel() {
        let Ok(knows) = Knows::probe() else {
            casemate_left_out::note("no network namespace can be made here");
            return;
        };
        assert_eq!(knows.suites.len() + knows.refused.len(), SUITES.len());
        assert_eq!(knows.left_out().is_none(), knows.suites == SUITES);
        for (_, answer) in &knows.refused {
            assert!(!answer.is_empty() && !answer.contains("ip -batch"), "{answer}");
        }
    }
}
