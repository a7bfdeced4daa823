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
mod session;
mod sockets;
mod transport;

pub use listener::{PendingSession, SessionListener};
pub use memory::SharedMemory;
pub use session::Session;
pub use sockets::{TcpListener, TcpStream, UdpSocket};
pub use transport::{PeerState, ShmTransport, poll_readable};

pub mod privileges {
    //! Dropping privileges of a process.

    use rustix::process::{DumpableBehavior, set_dumpable_behavior};
    use rustix::thread::{
        CapabilitySet, CapabilitySets, clear_ambient_capability_set, set_capabilities, set_no_new_privs,
        set_thread_gid, set_thread_groups, set_thread_uid,
    };
    use std::io;

    /// Marks this process as not dumpable. Only root can then read its memory through `/proc`, ptrace or a
    /// core dump; other processes of the same user cannot. Call this before the process reads a key.
    pub fn deny_memory_access() -> io::Result<()> {
        Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
    }

    /// Switches to the user `uid` and to the group of the same number, without supplementary groups. Requires
    /// root.
    ///
    /// Call this before the process starts threads: the kernel stores the user per thread.
    pub fn switch_user(uid: u32) -> io::Result<()> {
        set_thread_groups(&[])?;
        set_thread_gid(rustix::fs::Gid::from_raw(uid))?;
        set_thread_uid(rustix::fs::Uid::from_raw(uid))?;
        // The kernel has reset the flag to the value of fs.suid_dumpable.
        deny_memory_access()
    }

    /// Drops all capabilities, and sets no_new_privs so that the process cannot gain any by executing another
    /// program.
    ///
    /// Call this before the process starts threads: the kernel stores capabilities per thread.
    pub fn drop_privileges() -> io::Result<()> {
        set_no_new_privs(true)?;
        clear_ambient_capability_set()?;
        let none = CapabilitySet::empty();
        Ok(set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?)
    }
}
