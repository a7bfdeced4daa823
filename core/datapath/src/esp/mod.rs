//! ESP packets (RFC 4303): framing, sealing, opening.
//!
//! ```text
//!  0                8          8+iv                                  len-icv      len
//!  | SPI | sequence |    IV    | payload | padding | pad len | next |     ICV     |
//!                              |<------------- text ------------------>|
//! ```
//! `frame` builds everything but the ciphertext and the ICV, and undoes it; `work` seals and opens runs of packets of one
//! SA and hands each run to the provider in one call (`combined`, `separate`). Nothing here knows about IP headers,
//! policies or tables.

mod combined;
mod frame;
mod key;
mod separate;
mod work;

pub(crate) use frame::{EspSizes, frame, unframe};
pub(crate) use key::EspKey;
pub use work::RUN;
pub(crate) use work::{SPARE, open, seal};
