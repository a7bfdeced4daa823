//! The files that the two hosts' Casemates are given: fresh keys, one tunnel for each IP version.

use super::host::Side;
use crate::failure::Failure;
use casemate_crypto::Rng;
use casemate_linux::rng::SystemRng;
use std::fmt::Write as _;

/// AES-256 and the salt of RFC 4106 section 4.
const KEY_LEN: usize = 36;

/// An SA as a state of ip-xfrm(8), and whose packets it protects.
struct Sa {
    from: Side,
    v4: bool,
    line: String,
}

/// The SAs of both directions and IP versions.
pub(super) struct Keys(Vec<Sa>);

impl Keys {
    /// Draws the keys.
    pub(super) fn fresh() -> Result<Self, Failure> {
        let mut rng = SystemRng::new().map_err(Failure::failed)?;
        let mut sas = Vec::new();
        let cases = [(Side::Left, true), (Side::Right, true), (Side::Left, false), (Side::Right, false)];
        for (spi, (from, v4)) in (0x1001..).zip(cases) {
            let mut key = [0; KEY_LEN];
            rng.secret(&mut key);
            let (src, dst) = (from.outer(v4), from.other().outer(v4));
            let mut line = format!(
                "ip xfrm state add src {src} dst {dst} proto esp spi {spi:#06x} mode tunnel \\\n    \
                 replay-window 128 flag esn aead 'rfc4106(gcm(aes))' 0x"
            );
            key.iter().try_for_each(|byte| write!(line, "{byte:02x}")).map_err(Failure::failed)?;
            line.push_str(" 128\n");
            sas.push(Sa { from, v4, line });
        }
        Ok(Self(sas))
    }

    /// The file for one host.
    pub(super) fn file_for(&self, host: Side) -> String {
        let mut text = format!("# the host on the {host}; keys of one run of `casemate demo`\n");
        self.0.iter().for_each(|sa| text.push_str(&sa.line));
        for Sa { from, v4, .. } in &self.0 {
            let (to, dir) = (from.other(), if *from == host { "out" } else { "in" });
            text.push_str(&format!(
                "ip xfrm policy add src {} dst {} dir {dir} \\\n    \
                 tmpl src {} dst {} proto esp mode tunnel\n",
                from.network(*v4),
                to.network(*v4),
                from.outer(*v4),
                to.outer(*v4),
            ));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xfrm::XfrmFile;

    #[test]
    fn both_files_are_right_and_no_key_comes_twice() {
        let keys = Keys::fresh().unwrap();
        for side in [Side::Left, Side::Right] {
            let file = XfrmFile::parse(keys.file_for(side).as_bytes()).unwrap();
            assert_eq!((file.states.len(), file.policies.len()), (4, 4));
            assert_eq!(file.warnings_at(std::path::Path::new("a")).count(), 0);
        }
        let other = Keys::fresh().unwrap();
        let key = |sa: &Sa| sa.line.rsplit("0x").next().unwrap().to_owned();
        let mut all: Vec<String> = keys.0.iter().chain(&other.0).map(key).collect();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 8);
    }
}
