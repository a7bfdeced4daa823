//! What stands on our side of the link: Casemate, or a second kernel that checks the matrix itself.

use crate::case::Case;
use casemate_interop::{Output, Result};

/// One of the two ends.
pub(crate) trait Peer {
    /// Protects traffic as the case says, from now on.
    fn start(&mut self, case: &Case) -> Result<()>;

    /// Runs `probe ARGUMENTS` where this peer's traffic starts.
    fn probe(&mut self, arguments: &str) -> Result<Output>;

    /// Stops protecting. What went wrong meanwhile is an error.
    fn stop(&mut self, case: &Case) -> Result<()>;
}
