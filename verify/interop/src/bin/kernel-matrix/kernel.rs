//! A guest's kernel as a peer, and what its counters say afterwards.

use crate::case::Case;
use crate::peer::Peer;
use crate::verdict;
use crate::xfrm::{self, Side};
use casemate_interop::{Guest, Images, Netns, NetworkSpec, Output, Result};
use std::path::Path;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(30);
/// Between two parts of what a script prints.
const MARK: &str = "----";

/// A guest on one side of the link.
pub(crate) struct Kernel {
    guest: Guest,
    side: Side,
    /// `/proc/net/xfrm_stat` when the case began: it cannot be set back.
    before: String,
}

impl Kernel {
    /// Boots the guest and gives it its addresses.
    pub(crate) fn boot(
        images: &Images,
        netns: &Netns,
        tap: &str,
        side: Side,
        console: &Path,
    ) -> Result<Self> {
        let mut guest = Guest::boot(images, NetworkSpec { netns, tap, mac: side.mac() }, console)?;
        let script = format!("ip -batch - <<'END'\n{}END\n", crate::link::addresses("eth0", side));
        guest.check(&script, LIMIT)?;
        guest.check(&crate::link::routes(side), LIMIT)?;
        guest.check("probe encap", LIMIT)?;
        Ok(Self { guest, side, before: String::new() })
    }
}

impl Peer for Kernel {
    fn start(&mut self, case: &Case) -> Result<()> {
        let lines = xfrm::lines(case, self.side) + &xfrm::lines_for_kernel(case, self.side);
        let script = format!(
            "ip -batch - <<'END' || exit 1\nxfrm state flush\nxfrm policy flush\n{lines}END\ncat /proc/net/xfrm_stat\n"
        );
        self.before = self.guest.check(&script, LIMIT)?;
        Ok(())
    }

    fn probe(&mut self, arguments: &str) -> Result<Output> {
        self.guest.run(&format!("probe {arguments}"), LIMIT)
    }

    fn stop(&mut self, case: &Case) -> Result<()> {
        let script = format!(
            "cat /proc/net/xfrm_stat; echo {MARK}\n\
             ip -s -batch - <<'END'\nxfrm state list\nxfrm policy flush\nxfrm state flush\nEND\n"
        );
        let said = self.guest.check(&script, LIMIT)?;
        let (errors, states) = said.split_once(MARK).unwrap_or_default();
        verdict::states(case, states)?;
        verdict::errors(&self.before, errors)
    }
}
