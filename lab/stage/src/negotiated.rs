//! Gateways with one tunnel between them that IKEv2 negotiates, with a shared key.

#![expect(clippy::indexing_slicing, reason = "an end is 0 or 1")]

use crate::arena::{Arena, BEHIND, WIRE};
use crate::gateway::Gateway;
use crate::{Background, Error, Result};
use std::fs;
use std::path::Path;

/// The tunnel of both gateways.
#[derive(Debug)]
pub struct Tunnel<'a> {
    /// As in `esp_proposals`.
    pub suite: &'a str,
    /// More lines for its section below `children`.
    pub child: &'a str,
    /// The whole section `scheduler`, or nothing.
    pub scheduler: &'a str,
}

impl Tunnel<'_> {
    /// `swanctl.conf` of one end. The first packet sets the tunnel up, and none goes in clear.
    pub fn configuration(&self, end: usize) -> String {
        let Self { suite, child, scheduler } = self;
        let (local, remote) = (WIRE[end], WIRE[1 - end]);
        let (local_ts, remote_ts) = (BEHIND[end], BEHIND[1 - end]);
        format!(
            "connections {{\n tunnel {{\n version = 2\n local_addrs = {local}\n remote_addrs = {remote}\n \
             proposals = aes128-sha256-x25519\n \
             local {{\n auth = psk\n id = {local}\n }}\n remote {{\n auth = psk\n id = {remote}\n }}\n \
             children {{\n child {{\n local_ts = {local_ts}/32\n remote_ts = {remote_ts}/32\n \
             esp_proposals = {suite}\n start_action = trap\n {child}\n }}\n }}\n }}\n}}\n\
             secrets {{\n ike-1 {{\n secret = \"protects nothing\"\n }}\n}}\n{scheduler}\n"
        )
    }

    /// Starts the gateway of one end, with its files in `directory`.
    pub fn start(
        &self,
        gateway: &Gateway,
        arena: &Arena,
        end: usize,
        directory: &Path,
    ) -> Result<Background> {
        arena.route_over_link(end)?;
        let file = directory.join(format!("{end}.conf"));
        fs::write(&file, self.configuration(end)).map_err(Error::in_front(file.display()))?;
        gateway.run(arena, end, ["--config".into(), file], directory)
    }
}
