//! Echo requests at a constant rate during the replacement of SAs.

use crate::platform;
use crate::xfrm::Xfrm;
use casemate_interop::{Error, Result};

/// Error counter of the kernel. If the kernel deletes an SA after it chose the SA for a packet, but before
/// the packet is processed, it drops the packet (`xfrm_output_one`) and increments this counter. No peer
/// can avoid this loss, independent of which side asked for the deletion.
pub(crate) const OUT_STATE_INVALID: &str = "XfrmOutStateInvalid";

/// Running flow of echo requests.
pub(crate) struct Flow(Box<dyn platform::FlowProbe>);

/// Result of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FlowResult {
    sent: u64,
    lost: u64,
}

impl Flow {
    pub(crate) fn new(flow: Box<dyn platform::FlowProbe>) -> Self {
        Self(flow)
    }

    /// Ends the flow. Returns an error if the flow sent no requests or if a request was not answered.
    pub(crate) fn stop(self) -> Result<String> {
        expect_answered(&[self.result()?], 0)
    }

    fn result(self) -> Result<FlowResult> {
        let summary = self.0.stop()?;
        FlowResult::parse(summary.trim_end()).ok_or_else(|| {
            Error::new(format!("echo requests at a steady pace: the probe summary `{summary}`"))
        })
    }
}

/// Ends flows during which SAs were replaced `replaced` times. Each echo request must be answered, except
/// for the packets that a kernel counted in [`OUT_STATE_INVALID`]: at most one for each replacement.
pub(crate) fn stop_all(
    flows: Vec<Flow>,
    replaced: u64,
    kernel_states: impl FnOnce() -> Result<Vec<Xfrm>>,
) -> Result<String> {
    let results = flows.into_iter().map(Flow::result).collect::<Result<Vec<_>>>()?;
    let dropped = kernel_states()?.iter().map(|kernel| kernel.error_count(OUT_STATE_INVALID)).sum::<u64>();
    expect_answered(&results, dropped.min(replaced))
}

fn expect_answered(results: &[FlowResult], dropped: u64) -> Result<String> {
    let summary: Vec<_> =
        results.iter().map(|result| format!("{} sent, {} lost", result.sent, result.lost)).collect();
    let summary = summary.join("; ");
    let lost: u64 = results.iter().map(|result| result.lost).sum();
    if lost > dropped || results.iter().any(|result| result.sent == 0) {
        return Err(Error::new(format!("echo requests at a steady pace: {summary}")));
    }
    Ok(if lost == 0 {
        summary
    } else {
        format!("{summary}, dropped by a kernel that deleted the SA ({OUT_STATE_INVALID} {dropped})")
    })
}

impl FlowResult {
    /// Parses `N sent, N lost`.
    fn parse(summary: &str) -> Option<Self> {
        let (sent, lost) = summary.strip_suffix(" lost")?.split_once(" sent, ")?;
        Some(Self { sent: sent.parse().ok()?, lost: lost.parse().ok()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_only_losses_that_the_kernel_counted() {
        let [complete, lossy] =
            ["240 sent, 0 lost", "190 sent, 1 lost"].map(|summary| FlowResult::parse(summary).unwrap());
        assert_eq!(lossy, FlowResult { sent: 190, lost: 1 });
        assert_eq!(expect_answered(&[complete, complete], 0).unwrap(), "240 sent, 0 lost; 240 sent, 0 lost");
        assert!(expect_answered(&[complete, lossy], 0).is_err());
        let summary = expect_answered(&[complete, lossy], 1).unwrap();
        assert!(summary.ends_with("(XfrmOutStateInvalid 1)"), "{summary}");
        assert!(expect_answered(&[lossy, lossy], 1).is_err());
        assert!(expect_answered(&[FlowResult { sent: 0, lost: 0 }], 0).is_err());
        assert_eq!(FlowResult::parse("probe: no such address"), None);
    }
}
