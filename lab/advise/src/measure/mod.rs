//! What suites cost on this machine: nanoseconds for a packet, through the data path that `casemate run` uses.

mod costs;
mod kex;
mod load;
mod session;

pub use costs::{Costs, Samples};
pub use kex::{KexCost, key_exchanges};
pub use session::{Effort, Found, Session};
