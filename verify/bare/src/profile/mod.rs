//! Programs for size measurements, one per feature set. Each program uses its features, so that the
//! linker keeps them, and reports the memory of tables and SAs.

mod ipsec;
mod smoltcp;

use crate::Board;
#[cfg(feature = "multiple-kex")]
pub use ipsec::ike_ml_kem;
pub use ipsec::{esp_ah_cbc, esp_fragments, esp_gcm, esp_rohc, ike_certificates, ike_psk};
pub use smoltcp::{smoltcp_alone, smoltcp_esp, smoltcp_ike};

/// An empty program: the cost of the board.
pub fn nothing(board: &Board) -> bool {
    end(board)
}

/// Prints the last report of each program.
fn end(board: &Board) -> bool {
    board.report("stack", (board.stack)());
    true
}
