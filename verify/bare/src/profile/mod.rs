//! What a device may be built for, one program each. A program does what it is for, so that the linker keeps it, and reports
//! what the tables and SAs cost in memory.

mod esp;
mod ike;
mod smoltcp;

use crate::Board;
pub use esp::{esp_ah_cbc, esp_fragments, esp_gcm};
pub use ike::{ike_certificates, ike_psk};
pub use smoltcp::{smoltcp_alone, smoltcp_esp, smoltcp_ike};

/// Nothing: what the board itself takes.
pub fn nothing(board: &Board) -> bool {
    end(board)
}

/// Every program's last report.
fn end(board: &Board) -> bool {
    board.report("stack", (board.stack)());
    true
}
