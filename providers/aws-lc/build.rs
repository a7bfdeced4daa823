//! Passes on the prefix of the C library's symbols, which contains its version. The universal bindings of
//! `aws-lc-sys` lack the functions of ML-KEM that take the caller's random bytes, so that `ffi::kem` declares
//! them.

#![allow(clippy::expect_used, reason = "a build that lacks the name of the library must stop")]

use std::env;

fn main() {
    // Cargo passes what the build script of `aws-lc-sys` says, in a variable that names the version:
    // `aws_lc_0_47_0_crypto`, or `crypto` in a build without prefixes.
    let library = env::vars()
        .find(|(name, _)| name.starts_with("DEP_AWS_LC_") && name.ends_with("_LIBCRYPTO"))
        .map(|(_, value)| value);
    let prefix = library.as_deref().and_then(|name| name.strip_suffix("crypto"));
    let prefix = prefix.expect("aws-lc-sys must tell the name of its library: DEP_AWS_LC_..._LIBCRYPTO");
    println!("cargo::rustc-env=CASEMATE_AWS_LC_PREFIX={prefix}");
    println!("cargo::rerun-if-changed=build.rs");
}
