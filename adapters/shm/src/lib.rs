//! What the processes of one Linux machine need to share a network stack: memory, a doorbell, a place to meet; and sockets for
//! the application, with which it talks as with those of `std::net`.
//!
//! ```no_run
//! use casemate_shm::{Stack, TcpListener, TcpStream};
//! use std::io::{Read, Write};
//!
//! let stack = Stack::connect("/run/casemate/stack.sock")?;
//! let mut stream = TcpStream::connect(&stack, "192.0.2.2:80".parse().unwrap())?;
//! stream.write_all(b"GET / HTTP/1.0\r\n\r\n")?;
//! let mut page = String::new();
//! stream.read_to_string(&mut page)?;
//!
//! let listener = TcpListener::bind(&stack, "0.0.0.0:8080".parse().unwrap())?;
//! let (mut stream, peer) = listener.accept()?;
//! writeln!(stream, "hello {peer}")?;
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! **The server's side**: [`Door`] is a Unix socket. Whoever connects gets [`Memory`] of its own, a `memfd` that nobody can make
//! smaller, through it. The two ends are [`Link`]s, over which `casemate_rings` speaks.
//!
//! **The doorbell is the Unix socket itself.** The end of file tells that the other process has ended, however it ended. A byte
//! wakes it; it is sent with MSG_DONTWAIT, which holds for one call. An eventfd would not do: whether it blocks is a flag of
//! the open file, and the other process, which has it open too, can clear that flag, fill the counter, and stop the server.
//!
//! Unsafe code is in the file `memory.rs`, where memory is mapped.

pub mod confine;
mod door;
mod link;
mod memory;
mod session;
mod tcp;
mod trust;
mod udp;
mod wait;

pub use door::{Door, Visitor};
pub use link::{Link, Rung};
pub use memory::Memory;
pub use session::Stack;
pub use tcp::{TcpListener, TcpStream};
pub use udp::UdpSocket;
pub use wait::wait;
