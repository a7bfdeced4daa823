//! Messages between the wire and the exchanges.
//!
//! `content` sorts the payloads of a message, `secured` protects messages and opens them, `reassembly` puts fragments
//! together, `window` numbers messages, repeats requests and remembers answers.

mod content;
mod reassembly;
mod secured;
mod window;

pub(crate) use content::{Content, critical, need};
pub(crate) use reassembly::{Piece, Reassembled, Reassembly};
pub(crate) use secured::{Build, Kind, NotBuilt, Secured, header, plain};
pub(crate) use window::{Incoming, NoAnswer, Window};
