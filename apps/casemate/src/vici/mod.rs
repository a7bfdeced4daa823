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
pub(crate) use sas::{local_id, shown_reqid};
pub(crate) use server::ViciServer;
pub(crate) use service::{ViciChannel, ViciService};
pub(crate) use session::SessionId;

use crate::keyring::Keyring;
use crate::log::Log;
use casemate_linux::EndpointHandle;

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
