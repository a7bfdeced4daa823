//! Compiles the C part of Casemate with lwIP options that the other tests do not use.

use casemate_lwip_tests::program;

/// Compiles the C part with each version of lwIP and checks the outcome: success, or the compiler's messages.
fn check(options: &[&str], is_right: impl Fn(Result<(), String>) -> bool) {
    for version in program::VERSIONS {
        match program::check_glue(version, options) {
            Ok(outcome) => assert!(is_right(outcome.clone()), "lwIP {version} {options:?}: {outcome:?}"),
            Err(error) => casemate_test_support::skip(format!("lwIP {version}: {error}")),
        }
    }
}

#[test]
fn builds_with_threads_and_with_a_single_ip_version_compile() {
    for options in [&["NO_SYS=0"][..], &["LWIP_IPV6=0"], &["LWIP_IPV4=0"], &["NO_SYS=0", "LWIP_IPV6=0"]] {
        check(options, |outcome| outcome.is_ok());
    }
}

#[test]
fn options_that_bypass_ipsec_do_not_compile() {
    for option in ["LWIP_RAW=0", "IP_FORWARD=1", "LWIP_ND6_ALLOW_RA_UPDATES=1"] {
        check(&[option], |outcome| outcome.is_err_and(|message| message.contains("#error \"casemate: ")));
    }
}
