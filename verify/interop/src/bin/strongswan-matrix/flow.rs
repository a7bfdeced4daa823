//! Echo requests at a steady pace, while SAs are replaced.

use crate::place;
use crate::xfrm::Xfrm;
use casemate_interop::{Error, Result};

/// The counter of a kernel that deletes an SA after it chose it for a packet and before the packet is through: it drops the
/// packet (`xfrm_output_one`). Whoever asked for the deletion, nobody but that kernel can keep the packet.
pub(crate) const CAUGHT: &str = "XfrmOutStateInvalid";

/// Echo requests on their way.
pub(crate) struct Flow(Box<dyn place::Flow>);

/// What became of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Tally {
    sent: u64,
    lost: u64,
}

impl Flow {
    pub(crate) fn new(flow: Box<dyn place::Flow>) -> Self {
        Self(flow)
    }

    /// Ends them and demands that each was answered, and that there were some.
    pub(crate) fn stop(self) -> Result<String> {
        demand_answered(&[self.tally()?], 0)
    }

    fn tally(self) -> Result<Tally> {
        let said = self.0.stop()?;
        Tally::parse(said.trim_end())
            .ok_or_else(|| Error::new(format!("echo requests at a steady pace: the probe said `{said}`")))
    }
}

/// Ends flows during which SAs were replaced so many times, and demands that each echo request was answered but those that a
/// kernel says it caught, at most one for each time.
pub(crate) fn stop_all(
    flows: Vec<Flow>,
    replaced: u64,
    kernels: impl FnOnce() -> Result<Vec<Xfrm>>,
) -> Result<String> {
    let tallies = flows.into_iter().map(Flow::tally).collect::<Result<Vec<_>>>()?;
    let caught = kernels()?.iter().map(|kernel| kernel.counted(CAUGHT)).sum::<u64>();
    demand_answered(&tallies, caught.min(replaced))
}

fn demand_answered(tallies: &[Tally], caught: u64) -> Result<String> {
    let said: Vec<_> =
        tallies.iter().map(|tally| format!("{} sent, {} lost", tally.sent, tally.lost)).collect();
    let said = said.join("; ");
    let lost: u64 = tallies.iter().map(|tally| tally.lost).sum();
    if lost > caught || tallies.iter().any(|tally| tally.sent == 0) {
        return Err(Error::new(format!("echo requests at a steady pace: {said}")));
    }
    Ok(if lost == 0 {
        said
    } else {
        format!("{said}, by a kernel that deleted their SA ({CAUGHT} {caught})")
    })
}

impl Tally {
    /// From `N sent, N lost`.
    fn parse(said: &str) -> Option<Self> {
        let (sent, lost) = said.strip_suffix(" lost")?.split_once(" sent, ")?;
        Some(Self { sent: sent.parse().ok()?, lost: lost.parse().ok()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_passes_where_a_kernel_owns_up_to_it_and_nowhere_else() {
        let [whole, holed] = ["240 sent, 0 lost", "190 sent, 1 lost"].map(|said| Tally::parse(said).unwrap());
        assert_eq!(holed, Tally { sent: 190, lost: 1 });
        assert_eq!(demand_answered(&[whole, whole], 0).unwrap(), "240 sent, 0 lost; 240 sent, 0 lost");
        assert!(demand_answered(&[whole, holed], 0).is_err());
        let said = demand_answered(&[whole, holed], 1).unwrap();
        assert!(said.ends_with("(XfrmOutStateInvalid 1)"), "{said}");
        assert!(demand_answered(&[holed, holed], 1).is_err());
        assert!(demand_answered(&[Tally { sent: 0, lost: 0 }], 0).is_err());
        assert_eq!(Tally::parse("probe: no such address"), None);
    }
}
