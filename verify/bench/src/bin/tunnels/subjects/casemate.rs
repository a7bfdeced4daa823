//! `casemate run` with manual keys, for each suite with and without UDP encapsulation.

use super::{Found, Subject};
use casemate_interop::{Background, ENCAP_PORT, Error, Result};
use casemate_stage::arena::{Arena, BEHIND, WIRE};
use casemate_stage::gateway::Gateway;
use std::fs;
use std::path::Path;

/// Names of the suites, and their words in an xfrm file. The keys protect nothing.
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

pub(super) fn all(programs: &Path) -> Vec<Found> {
    let gateway = Gateway::in_directory(programs);
    let subject = |((suite, words), in_udp): ((&'static str, &'static str), bool)| {
        let name = name(suite, in_udp);
        match &gateway {
            Ok(gateway) => Ok(Box::new(Casemate { gateway: gateway.clone(), suite, words, in_udp }) as _),
            Err(error) => Err((name, Error::new(error.to_string()))),
        }
    };
    SUITES.into_iter().flat_map(|suite| [(suite, true), (suite, false)]).map(subject).collect()
}

fn name(suite: &str, in_udp: bool) -> String {
    format!("casemate-{suite}{}", if in_udp { "-udp" } else { "" })
}

impl Casemate {
    /// SAs both ways, the same at both ends, and the policies of one end.
    fn xfrm(&self, end: usize) -> String {
        let mut lines = String::new();
        let encap = match self.in_udp {
            true => format!("encap espinudp {ENCAP_PORT} {ENCAP_PORT} 0.0.0.0"),
            false => String::new(),
        };
        for from in [0, 1] {
            let (src, dst) = (WIRE[from], WIRE[1 - from]);
            let (behind, other) = (BEHIND[from], BEHIND[1 - from]);
            let suite = keys(self.words, from);
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

/// Words of a suite with a key for a direction.
fn keys(words: &str, direction: usize) -> String {
    let bytes = |count| format!("{direction:x}a").repeat(count);
    words.replace("{16}", &bytes(16)).replace("{4}", &bytes(4))
}

impl Subject for Casemate {
    fn name(&self) -> String {
        name(self.suite, self.in_udp)
    }

    fn start(&self, arena: &Arena, directory: &Path) -> Result<Vec<Background>> {
        let start = |end: usize| {
            let file = directory.join(format!("{end}.xfrm"));
            fs::write(&file, self.xfrm(end)).map_err(Error::in_front(file.display()))?;
            arena.route_over_link(end)?;
            let counters = directory.join(format!("{end}.counters"));
            let arguments = ["--xfrm".into(), file, "--counters".into(), counters];
            self.gateway.run(arena, end, arguments, directory)
        };
        [0, 1].into_iter().map(start).collect()
    }
}
