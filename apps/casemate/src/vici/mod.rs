//! vici, the interface through which programs manage strongSwan, for the clients that exist for it.
//!
//! `message` and `packet` are the formats. `session` and `service` run in the control thread: they read
//! packets and write packets. `server` runs in the event loop: it knows the clients and their events, and
//! passes commands on to `commands`; `changes` determines when a change takes effect. `loaded` is the part of
//! the configuration that clients have loaded; `convert` turns their messages into the sections that a file
//! would have. `sas`, `queries`, `counters` and `algorithms` write what clients show.

mod algorithms;
mod changes;
mod commands;
pub mod convert;
mod counters;
mod events;
mod loaded;
pub mod message;
pub mod packet;
mod queries;
mod sas;
mod server;
mod service;
mod session;

pub(crate) use loaded::{Contents, Loaded, LoadedEnvironment};
pub(crate) use server::ViciServer;
pub(crate) use service::{ViciChannel, ViciService};
pub(crate) use session::SessionId;

use crate::keyring::Keyring;
use crate::log::Log;
use casemate_linux::{EndpointHandle, Error, unix_socket};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

/// The result of building and applying a change.
type ChangeResult = Result<(), String>;

/// What commands and events need of the instance.
pub(crate) struct ViciContext<'a, 'h> {
    /// The endpoint.
    pub(crate) handle: &'a EndpointHandle<'h>,
    /// Keys of the current configuration.
    pub(crate) keyring: &'a Keyring,
    /// The log.
    pub(crate) log: &'a mut Log,
}

/// What the controller has to do.
#[derive(Debug)]
pub(crate) enum ViciRequest {
    /// Read the file again, and respond to this client.
    ReloadFile(SessionId),
    /// Build and apply what clients have loaded.
    Apply,
}

/// The path at which clients look for charon.
pub const DEFAULT_SOCKET: &str = "/run/charon.vici";

/// Opens the socket for root and this user. Fails if another program serves clients there; a socket that no
/// program serves is replaced.
pub(crate) fn listen(path: &Path) -> Result<UnixListener, Error> {
    let name = || path.display().to_string();
    if let Ok(stream) = UnixStream::connect(path) {
        let who =
            unix_socket::peer_program(&stream).map_or_else(|_| String::new(), |who| format!(" ({who})"));
        return Err(Error::other(
            name(),
            format!("another program serves this socket{who}: stop it, or use another path with --vici"),
        ));
    }
    match std::fs::symlink_metadata(path) {
        Ok(metadata) if !std::os::unix::fs::FileTypeExt::is_socket(&metadata.file_type()) => {
            Err(Error::other(name(), "this is not a socket: another path was expected"))
        }
        _ => unix_socket::listen(path).map_err(|error| Error::new(name(), error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use casemate_test_support::TempDir;

    #[test]
    fn a_socket_is_replaced_if_no_program_serves_it() {
        let scratch = TempDir::new("vici").unwrap();
        let path = scratch.file("socket");
        let listener = listen(&path).unwrap();
        let error = listen(&path).unwrap_err().to_string();
        assert!(error.contains(&format!("pid {}", std::process::id())), "{error}");
        drop(listener);
        assert!(path.exists() && listen(&path).is_ok());
        let file = scratch.file("file");
        std::fs::write(&file, "").unwrap();
        assert!(listen(&file).is_err() && file.exists());
    }
}
