//! strongSwan's ESP in user space (kernel-libipsec), which is always in UDP, with AES-GCM of 128 bits.

use super::{Found, Subject};
use casemate_interop::{Background, Charon, Error, Result};
use casemate_stage::arena::{Arena, BEHIND, WIRE};
use std::fs;
use std::path::Path;

const NAME: &str = "strongswan";

struct StrongSwan(Charon);

pub(super) fn find(directory: &Path) -> Found {
    match Charon::copy_to(directory.join("programs")) {
        Ok(charon) => Ok(Box::new(StrongSwan(charon))),
        Err(error) => Err((NAME.into(), error)),
    }
}

impl Subject for StrongSwan {
    fn name(&self) -> String {
        NAME.into()
    }

    fn start(&self, arena: &Arena, directory: &Path) -> Result<Vec<Background>> {
        let files = [0, 1].map(|end| directory.join(format!("{end}")));
        let start = |end: usize| {
            arena.route_over_link(end)?;
            fs::create_dir_all(&files[end]).map_err(Error::in_front(files[end].display()))?;
            let conf = files[end].join("swanctl.conf");
            fs::write(&conf, configuration(end)).map_err(Error::in_front(conf.display()))?;
            self.0.start(&arena.ends[end], &[], &files[end])
        };
        let processes = [0, 1].into_iter().map(start).collect::<Result<_>>()?;
        self.0.swanctl(&arena.ends[0], &files[0], &["--initiate", "--child", "child"])?;
        Ok(processes)
    }
}

fn configuration(end: usize) -> String {
    let (local, remote) = (WIRE[end], WIRE[1 - end]);
    let (local_ts, remote_ts) = (BEHIND[end], BEHIND[1 - end]);
    format!(
        "connections {{\n tunnel {{\n version = 2\n local_addrs = {local}\n remote_addrs = {remote}\n \
         proposals = aes128gcm16-prfsha256-x25519\n encap = yes\n \
         local {{\n auth = psk\n id = {local}\n }}\n remote {{\n auth = psk\n id = {remote}\n }}\n \
         children {{\n child {{\n local_ts = {local_ts}/32\n remote_ts = {remote_ts}/32\n \
         esp_proposals = aes128gcm16\n }}\n }}\n }}\n}}\n\
         secrets {{\n ike-1 {{\n secret = \"protects nothing\"\n }}\n}}\n"
    )
}
