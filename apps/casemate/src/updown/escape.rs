//! Escapes identities for scripts. A peer chooses its identity, and a script may pass it on to a shell.
//!
//! Letters, digits, the characters in [`SAFE`] and spaces stay as they are. Every other byte becomes a backslash
//! with three octal digits, which `printf "$PLUTO_PEER_ID"` turns back; scripts made for strongSwan often have
//! that line. A hyphen at the beginning of a word is escaped, too, so that no word looks like an option. Different
//! identities stay different.

use casemate_ike::config::Identity;
use std::fmt::Write as _;

const SAFE: &[u8] = b"@._-+=,:/";

/// The variable of an identity. A name is written without its type, as by strongSwan.
pub(super) fn identity(identity: &Identity) -> String {
    match identity {
        Identity::Fqdn(name) | Identity::Email(name) => escape(name.as_bytes()),
        Identity::KeyId(id) if id.iter().all(|byte| byte.is_ascii_graphic()) => escape(id),
        other => escape(other.to_string().as_bytes()),
    }
}

/// Escapes text of a peer.
pub(super) fn escape(text: &[u8]) -> String {
    let mut escaped = String::with_capacity(text.len());
    let mut is_start = true;
    for byte in text.iter().copied() {
        let is_option = is_start && byte == b'-';
        is_start = byte == b' ';
        if (byte.is_ascii_alphanumeric() || is_start || SAFE.contains(&byte)) && !is_option {
            escaped.push(char::from(byte));
        } else {
            let _ = write!(escaped, "\\{byte:03o}");
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    const HOSTILE: &str = "-x `id` $(id)${IFS} \"';|&<>*?[]{}~#!%s\\044\n\r\t\u{1b}[2J é -j ACCEPT";

    #[test]
    fn nothing_remains_that_a_shell_interprets() {
        let escaped = escape(HOSTILE.as_bytes());
        assert!(escaped.bytes().all(|byte| byte.is_ascii_alphanumeric() || b" @._-+=,:/\\".contains(&byte)));
        assert!(!escaped.split(' ').any(|word| word.starts_with('-')), "{escaped}");
        for plain in ["C=CH, O=strong Swan-Project, CN=moon", "carol@example.org", "2001:db8::1", "a_b/c+d"] {
            assert_eq!(escape(plain.as_bytes()), plain);
        }
        assert_ne!(escape(b"a$"), escape(b"a?"));
        assert_eq!(identity(&Identity::KeyId(b"key$".into())), "key\\044");
        assert_eq!(identity(&Identity::KeyId(vec![0, 1])), "keyid:\\0430001");
    }

    #[test]
    fn printf_restores_the_identity() {
        let shell = |id: &[u8]| {
            let script = "printf \"$PLUTO_PEER_ID\"; eval \"x=$PLUTO_PEER_ID\" >/dev/null 2>&1 || true";
            let output =
                Command::new("/bin/sh").args(["-c", script]).env("PLUTO_PEER_ID", escape(id)).output();
            output.unwrap().stdout
        };
        assert_eq!(String::from_utf8(shell(HOSTILE.as_bytes())).unwrap(), HOSTILE);
        assert_eq!(shell(&[1, 0xff, b'%', b'a']), [1, 0xff, b'%', b'a']);
    }
}
