//! The glue in builds of lwIP that the other tests do not run.

use casemate_lwip_tests::program;

/// Checks the glue with each version of lwIP; the outcome is the compiler's complaint, if it has one.
fn check(options: &[&str], is_right: impl Fn(Result<(), String>) -> bool) {
    for version in program::VERSIONS {
        match program::check_glue(version, options) {
            Ok(outcome) => assert!(is_right(outcome.clone()), "lwIP {version} {options:?}: {outcome:?}"),
            Err(why) => casemate_left_out::note(format!("lwIP {version}: {why}")),
        }
    }
}

#[test]
fn threads_and_single_versions_of_ip_compile() {
    for options in [&["NO_SYS=0"][..], &["LWIP_IPV6=0"], &["LWIP_IPV4=0"], &["NO_SYS=0", "LWIP_IPV6=0"]] {
        check(options, |outcome| outcome.is_ok());
    }
}

#[test]
fn what_would_evade_the_guard_does_not_compile() {
    for option in ["LWIP_RAW=0", "IP_FORWARD=1", "LWIP_ND6_ALLOW_RA_UPDATES=1"] {
        check(&[option], |outcome| outcome.is_err_and(|says| says.contains("#error \"casemate: ")));
    }
}
