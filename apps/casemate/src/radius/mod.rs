//! RADIUS: peers are authenticated and sessions recorded by AAA servers.
//!
//! [`service`] runs the client of casemate-radius on a thread of its own, because packets of servers are
//! parsed there; [`link`] leads to it. [`relay`] is the authenticator of an IKE SA that passes EAP packets
//! on, [`sessions`] has the sessions that servers have accepted.

mod link;
mod relay;
mod service;
mod sessions;

pub(crate) use link::{RadiusLink, Report};
pub(crate) use relay::RelayAuthenticator;
pub(crate) use service::RadiusService;
pub(crate) use sessions::Sessions;

use std::net::SocketAddr;

/// Name of a host for Called-Station-Id and Calling-Station-Id, in the notation of strongSwan.
pub(crate) fn host_id(addr: SocketAddr, with_port: bool) -> String {
    if with_port { format!("{}[{}]", addr.ip(), addr.port()) } else { addr.ip().to_string() }
}
