//! Identities as charon writes them.

use casemate_ike::config::Identity;

/// Length of a SHA-1 digest, as which a key identifier is usually formed (RFC 5280 section 4.2.1.2).
const DIGEST_LEN: usize = 20;

/// The identity in the form that charon has for it. A key identifier is text if it consists of printable
/// characters and cannot be a SHA-1 digest; otherwise it is bytes in hexadecimal digits with colons.
pub(super) fn identity_text(identity: &Identity) -> String {
    match identity {
        Identity::KeyId(id)
            if id.len() != DIGEST_LEN && id.iter().all(|byte| (b' '..=b'~').contains(byte)) =>
        {
            id.iter().copied().map(char::from).collect()
        }
        Identity::KeyId(id) => id.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":"),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_identifiers_have_the_form_of_charon() {
        let text = |id: &[u8]| identity_text(&Identity::KeyId(id.to_vec()));
        assert_eq!(text(b"office key"), "office key");
        assert_eq!(text(&[0xeb, 0x38, 0x0b]), "eb:38:0b");
        assert_eq!(text(&[b'a'; DIGEST_LEN]), ["61"; DIGEST_LEN].join(":"));
        assert_eq!(identity_text(&Identity::Fqdn("moon.test".into())), "moon.test");
    }
}
