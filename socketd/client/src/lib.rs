//! Client of `casemate stack` on Linux: shared memory, notifications and the handshake, which the server
//! uses too, and sockets with the interface of `std::net`.
//!
//! ```no_run
//! use casemate_socketd_client::{Session, TcpListener, TcpStream};
//! use std::io::{Read, Write};
//!
//! let session = Session::connect("/run/casemate/stack.sock")?;
//! let mut stream = TcpStream::connect(&session, "192.0.2.2:80".parse().unwrap())?;
//! stream.write_all(b"GET / HTTP/1.0\r\n\r\n")?;
//! let mut page = String::new();
//! stream.read_to_string(&mut page)?;
//!
//! let listener = TcpListener::bind(&session, "0.0.0.0:8080".parse().unwrap())?;
//! let (mut stream, peer) = listener.accept()?;
//! writeln!(stream, "hello {peer}")?;
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! **Server side.** [`SessionListener`] accepts applications on a Unix socket. Each application gets
//! [`SharedMemory`] of its own, a `memfd` with a sealed size, over this socket. Each end of the session
//! is a [`ShmTransport`], the transport of `casemate_socketd_protocol`.
//!
//! **Notifications use the same Unix socket.** One byte wakes the other process. The byte is sent with
//! MSG_DONTWAIT, which applies to a single call. The end of the stream reports that the other process has
//! ended, for whatever reason. An eventfd would not be safe: blocking mode is a flag of the open file,
//! which both processes share. The other process could clear the flag, fill the counter, and so block the
//! server.
//!
//! The only unsafe code is in `memory.rs`, which maps the memory.

mod listener;
mod memory;
pub mod privileges;
mod session;
mod sockets;
mod transport;

pub use listener::{PendingSession, SessionListener};
pub use memory::SharedMemory;
pub use session::Session;
pub use sockets::{TcpListener, TcpStream, UdpSocket};
pub use transport::{PeerState, ShmTransport, poll_readable};
