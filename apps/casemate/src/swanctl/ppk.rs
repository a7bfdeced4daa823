//! Post-quantum pre-shared keys (RFC 8784): `ppk_id` and `ppk_required` of connections, and the sections
//! `ppk` of `secrets`.

use super::problem::Problems;
use super::resolved::Resolved;
use super::schema::Keys;
use super::secret::{self, KeyPurpose, SHARED, SharedKey, Usim};
use super::value::truth;
use casemate_ike::config::{IdPattern, Identity, PpkId, PpkPolicy};
use casemate_strongswan::{Parsed, parse_ppk_id};

/// Minimum length, in bytes, of a post-quantum pre-shared key: 256 bits, which a quantum computer searches as
/// slowly as others search 128 bits (RFC 8784 section 6).
const MIN_LEN: usize = 32;

/// Reads the policy of a connection. `secrets` are those of the whole configuration; `None` if others may be
/// loaded later.
pub(super) fn policy(keys: &Keys<'_>, secrets: Option<&[SharedKey]>) -> PpkPolicy {
    let id = keys.get("ppk_id", accepted);
    let policy = PpkPolicy { id, required: keys.get("ppk_required", truth).unwrap_or(false) };
    if let Some(secrets) = secrets {
        warn_of_missing_key(&policy, secrets, keys);
    }
    policy
}

/// Reads a PPK_ID, or a `*` and the end of several.
fn accepted(text: &str) -> Parsed<PpkId> {
    match (text, text.strip_prefix('*')) {
        ("", _) => Err("the `id` of a section `ppk` in `secrets` was expected".into()),
        (_, Some(end)) if !end.contains('*') => Ok(PpkId::new(text.as_bytes())),
        _ => parse_ppk_id(text).map(|octets| PpkId::new(&octets)),
    }
}

/// Warns of a connection that uses a key which is not there.
fn warn_of_missing_key(policy: &PpkPolicy, secrets: &[SharedKey], keys: &Keys<'_>) {
    let ppks = || secrets.iter().filter(|key| key.purpose == KeyPurpose::Ppk);
    let effect = if policy.required { "no IKE SA is established" } else { "no such key is used" };
    let warn =
        |key: &str, what: &str| keys.warn(key, &format!("no section `ppk` of `secrets` {what}: {effect}"));
    match &policy.id {
        None if policy.required && ppks().count() == 0 => warn("ppk_required", "is there"),
        Some(id) if !ppks().flat_map(ppk_ids).any(|octets| id.allows(octets)) => {
            warn("ppk_id", if id.exact().is_some() { "has this `id`" } else { "has such an `id`" });
        }
        None | Some(_) => {}
    }
}

/// Reads a section `ppk`. Its identities are key IDs with the octets of the PPK_IDs.
pub(super) fn secret(section: &Resolved<'_, '_>, problems: &Problems) -> Option<SharedKey> {
    let keys = Keys::new(section, &SHARED, problems);
    let names = keys.all("id", parse_ppk_id);
    let secret = secret::take_secret(&keys)?;
    if names.is_empty() {
        keys.section_error("`id` was expected, the `ppk_id` of connections, without `*`");
        return None;
    }
    if secret.expose().len() < MIN_LEN {
        keys.warn("secret", &format!("it has less than {MIN_LEN} bytes: a quantum computer could find it"));
    }
    let ids = names.into_iter().map(|octets| IdPattern::Exact(Identity::KeyId(octets))).collect();
    Some(SharedKey { purpose: KeyPurpose::Ppk, ids, secret, usim: Usim::default() })
}

/// PPK_IDs of a post-quantum pre-shared key.
pub(crate) fn ppk_ids(key: &SharedKey) -> impl Iterator<Item = &[u8]> {
    key.ids.iter().filter_map(|id| match id {
        IdPattern::Exact(Identity::KeyId(octets)) => Some(&**octets),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use crate::swanctl::{Config, SystemEnvironment};
    use std::path::Path;

    /// Parses a connection with these keys and one section `ppk` with these.
    fn parse(connection: &str, secret: &str) -> Result<Vec<String>, String> {
        let text = format!("connections {{ gw {{\n{connection}\n}} }}\nsecrets {{ ppk {{\n{secret}\n}} }}\n");
        let parsed = Config::parse(Path::new("/nowhere/x.conf"), text.as_bytes(), &SystemEnvironment);
        let lines = |problems: Vec<_>| problems.iter().map(ToString::to_string).collect::<Vec<_>>();
        match parsed {
            Ok(config) => Ok(lines(config.warnings)),
            Err(problems) => Err(lines(problems).join("\n")),
        }
    }

    const KEY: &str = "id = carol@example.org\n secret = 0123456789abcdef0123456789abcdef";

    #[test]
    fn a_key_that_is_not_there_causes_a_warning() {
        let about = |connection: &str| {
            let warnings = parse(connection, KEY).unwrap();
            warnings.into_iter().filter(|warning| warning.contains("ppk")).collect::<Vec<_>>()
        };
        for known in ["carol@example.org", "Carol@Example.ORG", "*@example.org", "*"] {
            assert_eq!(about(&format!("ppk_id = {known}")), Vec::<String>::new(), "{known}");
        }
        let what = "/nowhere/x.conf:2: connections.gw.ppk_id: no section `ppk` of `secrets` has";
        assert_eq!(about("ppk_id = dave"), [format!("{what} this `id`: no such key is used")]);
        let required = about("ppk_id = *.net\n ppk_required = yes");
        assert_eq!(required, [format!("{what} such an `id`: no IKE SA is established")]);
    }

    #[test]
    fn names_are_octets() {
        for name in ["YWxpY2U=", "@#0a0b", "10.0.0.1", "C=CH, CN=carol", "carol"] {
            let key = KEY.replace("carol@example.org", &format!("\"{name}\""));
            let warnings = parse(&format!("ppk_id = \"{name}\""), &key).unwrap();
            assert!(warnings.iter().all(|warning| !warning.contains("ppk")), "{name}: {warnings:?}");
        }
        for (connection, secret, expected) in [
            ("ppk_id = car*", KEY, "a `*` was expected only in front"),
            ("ppk_id = **", KEY, "a `*` was expected only in front"),
            ("", "secret = 0123456789abcdef0123456789abcdef", "`id` was expected"),
            ("", "id = *@example.org\n secret = 0123456789abcdef0123456789abcdef", "`*`"),
        ] {
            let errors = parse(connection, secret).unwrap_err();
            assert!(errors.contains(expected), "{errors}");
        }
    }
}
