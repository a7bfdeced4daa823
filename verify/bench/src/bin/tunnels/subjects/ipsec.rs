//! IPsec subjects: `casemate run` with manual keys, for each suite, with and without UDP encapsulation; and
//! strongSwan's user-space ESP (kernel-libipsec), which always uses UDP encapsulation, with AES-GCM-128.

use super::{Candidate, Subject};
use casemate_interop::{Background, Charon, ENCAP_PORT, Error, Result};
use casemate_testbed::gateway::Gateway;
use casemate_testbed::veth_pair::{INNER_ADDRS, LINK_ADDRS, VethPair};
use std::fs;
use std::path::Path;

/// Names of the suites, and their arguments in an xfrm file. The keys protect nothing.
const SUITES: [(&str, &str); 3] = [
    ("aes-gcm", "aead 'rfc4106(gcm(aes))' 0x{16}{4} 128"),
    ("chacha20", "aead 'rfc7539esp(chacha20,poly1305)' 0x{16}{16}{4} 128"),
    ("aes-cbc-sha1", "enc 'cbc(aes)' 0x{16} auth-trunc 'hmac(sha1)' 0x{16}{4} 96"),
];

struct Casemate {
    gateway: Gateway,
    suite: &'static str,
    words: &'static str,
    in_udp: bool,
}

pub(super) fn casemate_subjects(programs: &Path) -> Vec<Candidate> {
    let gateway = Gateway::in_directory(programs);
    let subject = |((suite, words), in_udp): ((&'static str, &'static str), bool)| {
        let name = casemate_name(suite, in_udp);
        match &gateway {
            Ok(gateway) => Ok(Box::new(Casemate { gateway: gateway.clone(), suite, words, in_udp }) as _),
            Err(error) => Err((name, Error::new(error.to_string()))),
        }
    };
    SUITES.into_iter().flat_map(|suite| [(suite, true), (suite, false)]).map(subject).collect()
}

fn casemate_name(suite: &str, in_udp: bool) -> String {
    format!("casemate-{suite}{}", if in_udp { "-udp" } else { "" })
}

impl Casemate {
    /// SAs of both directions, equal at both ends, and the policies of one end.
    fn xfrm(&self, end: usize) -> String {
        let mut lines = String::new();
        let encap = match self.in_udp {
            true => format!("encap espinudp {ENCAP_PORT} {ENCAP_PORT} 0.0.0.0"),
            false => String::new(),
        };
        for from in [0, 1] {
            let (src, dst) = (LINK_ADDRS[from], LINK_ADDRS[1 - from]);
            let (behind, other) = (INNER_ADDRS[from], INNER_ADDRS[1 - from]);
            let suite = with_keys(self.words, from);
            let direction = if from == end { "out" } else { "in" };
            lines.push_str(&format!(
                "xfrm state add src {src} dst {dst} proto esp spi 0x{}001 mode tunnel replay-window 1024 {suite} {encap}\n\
                 xfrm policy add src {behind}/32 dst {other}/32 dir {direction} tmpl src {src} dst {dst} proto esp mode tunnel\n",
                from + 1
            ));
        }
        lines
    }
}

/// Arguments of a suite with a key for a direction.
fn with_keys(words: &str, direction: usize) -> String {
    let bytes = |count| format!("{direction:x}a").repeat(count);
    words.replace("{16}", &bytes(16)).replace("{4}", &bytes(4))
}

impl Subject for Casemate {
    fn name(&self) -> String {
        casemate_name(self.suite, self.in_udp)
    }

    fn start(&self, arena: &VethPair, directory: &Path) -> Result<Vec<Background>> {
        let start = |end: usize| {
            let file = directory.join(format!("{end}.xfrm"));
            fs::write(&file, self.xfrm(end)).map_err(Error::context(file.display()))?;
            arena.route_via_link(end)?;
            let counters = directory.join(format!("{end}.counters"));
            let arguments = ["--xfrm".into(), file, "--counters".into(), counters];
            self.gateway.start(arena, end, arguments, directory)
        };
        [0, 1].into_iter().map(start).collect()
    }
}

const STRONGSWAN: &str = "strongswan";

struct StrongSwan(Charon);

pub(super) fn find_strongswan(directory: &Path) -> Candidate {
    match Charon::copy_to(directory.join("programs")) {
        Ok(charon) => Ok(Box::new(StrongSwan(charon))),
        Err(error) => Err((STRONGSWAN.into(), error)),
    }
}

impl Subject for StrongSwan {
    fn name(&self) -> String {
        STRONGSWAN.into()
    }

    fn start(&self, arena: &VethPair, directory: &Path) -> Result<Vec<Background>> {
        let files = [0, 1].map(|end| directory.join(format!("{end}")));
        let start = |end: usize| {
            arena.route_via_link(end)?;
            fs::create_dir_all(&files[end]).map_err(Error::context(files[end].display()))?;
            let conf = files[end].join("swanctl.conf");
            fs::write(&conf, swanctl_conf(end)).map_err(Error::context(conf.display()))?;
            self.0.start(&arena.ends[end], &[], &files[end])
        };
        let processes = [0, 1].into_iter().map(start).collect::<Result<_>>()?;
        self.0.swanctl(&arena.ends[0], &files[0], &["--initiate", "--child", "child"])?;
        Ok(processes)
    }
}

fn swanctl_conf(end: usize) -> String {
    let (local, remote) = (LINK_ADDRS[end], LINK_ADDRS[1 - end]);
    let (local_ts, remote_ts) = (INNER_ADDRS[end], INNER_ADDRS[1 - end]);
    format!(
        "connections {{\n tunnel {{\n version = 2\n local_addrs = {local}\n remote_addrs = {remote}\n \
         proposals = aes128gcm16-prfsha256-x25519\n encap = yes\n \
         local {{\n auth = psk\n id = {local}\n }}\n remote {{\n auth = psk\n id = {remote}\n }}\n \
         children {{\n child {{\n local_ts = {local_ts}/32\n remote_ts = {remote_ts}/32\n \
         esp_proposals = aes128gcm16\n }}\n }}\n }}\n}}\n\
         secrets {{\n ike-1 {{\n secret = \"protects nothing\"\n }}\n}}\n"
    )
}
