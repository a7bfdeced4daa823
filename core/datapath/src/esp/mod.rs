//! ESP packets (RFC 4303): framing, sealing, opening.
//!
//! ```text
//!  0                8          8+iv                                  len-icv      len
//!  | SPI | sequence |    IV    | payload | padding | pad len | next |     ICV     |
//!                              |<------------- text ------------------>|
//! ```
//!
//! `frame` writes everything but the ciphertext and the ICV, and removes it again. `work` seals and opens
//! runs of packets of one SA, with one call to the provider for each run (`combined`, `separate`). This
//! module does not depend on IP headers, policies or tables.

mod combined;
mod frame;
mod key;
mod separate;
mod work;

pub(crate) use frame::{EspSizes, frame, unframe};
pub(crate) use key::EspKey;
pub use work::MAX_BATCH;
pub(crate) use work::{RUN_IN_BATCH, SPARE, open, seal};
