//! The device: an application that does what the host orders, with a TCP/IP stack of its own ([`Library`]) or over a stack server
//! ([`application()`]).

mod application;
mod service;

pub use application::application;
pub use service::Library;
