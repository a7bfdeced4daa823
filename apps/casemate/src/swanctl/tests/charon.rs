//! The section `charon`: its meaning, and its errors.

use super::{ok, only};
use crate::swanctl::{Charon, Fetching};
use casemate_ike::{IkeSettings, Retransmission};
use std::time::Duration;

fn read(inside: &str) -> Charon {
    ok(&format!("charon {{\n{inside}\n}}")).charon
}

#[test]
fn without_the_section_the_defaults_apply() {
    for text in ["", "charon { }"] {
        let charon = ok(text).charon;
        assert_eq!(charon.retransmission, IkeSettings::SERVER.retransmission);
        assert!(charon.quick_crash_detection && charon.fetching.ocsp && charon.fetching.crls);
    }
}

#[test]
fn the_defaults_of_strongswan_can_be_written_as_there() {
    let charon = read(
        "retransmit_tries = 5\n retransmit_timeout = 4.0\n retransmit_base = 1.8\n retransmit_jitter = 0\n \
         retransmit_limit = 0\n quick_crash_detection = no\n follow_redirects = no\n \
         plugins { revocation { enable_crl = no } }",
    );
    let retransmission = Retransmission {
        tries: 5,
        initial_timeout: Duration::from_secs(4),
        growth_permille: 1_800,
        jitter_percent: 0,
        max_timeout: Duration::from_secs(86_400),
    };
    assert_eq!(
        charon,
        Charon {
            retransmission,
            quick_crash_detection: false,
            follow_redirects: false,
            fetching: Fetching { ocsp: true, crls: false }
        }
    );
    assert_eq!(charon.retransmission.total().as_secs(), 165);
}

#[test]
fn fractions_have_up_to_three_digits() {
    for (text, millis) in [("1", 1_000), ("0.1", 100), ("2.5", 2_500), ("2.05", 2_050), ("2.005", 2_005)] {
        let charon = read(&format!("retransmit_timeout = {text}"));
        assert_eq!(charon.retransmission.initial_timeout, Duration::from_millis(millis), "{text}");
    }
}

#[test]
fn wrong_values_are_errors() {
    for (key, value, expected) in [
        ("retransmit_timeout", "0", "a time in seconds from 0.1 to 86400"),
        ("retransmit_timeout", "4s", "a time in seconds"),
        ("retransmit_timeout", "4.", "a time in seconds"),
        ("retransmit_timeout", ".5", "a time in seconds"),
        ("retransmit_timeout", "1.0001", "a time in seconds"),
        ("retransmit_timeout", "99999999999", "a time in seconds"),
        ("retransmit_base", "0.9", "a factor from 1 to 100"),
        ("retransmit_base", "-2", "a factor from 1 to 100"),
        ("retransmit_jitter", "101", "from 0 to 100"),
        ("retransmit_tries", "101", "from 0 to 100"),
        ("retransmit_limit", "no", "a time in seconds"),
        ("quick_crash_detection", "perhaps", "expected"),
        ("retransmit_try", "5", "retransmit_tries"),
    ] {
        let text = only(&format!("charon {{\n{key} = {value}\n}}"));
        assert!(text.contains(expected) && text.contains(&format!("charon.{key}")), "{text}");
    }
}
