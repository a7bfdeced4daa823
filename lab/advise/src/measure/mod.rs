//! Costs of suites on this machine: nanoseconds per packet through the data path of `casemate run`.

mod costs;
mod session;

pub use costs::{Costs, Samples};
pub use costs::{KexCost, measure_key_exchanges};
pub use session::{Budget, Measurements, Session};
