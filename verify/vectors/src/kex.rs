//! Key exchange vectors: RFC 5903 section 8, RFC 8031 appendix A, and MODP computed in Python.
//! `wycheproof/kex.rs` contains those of Wycheproof.
//!
//! The private value of a vector is the output of a scripted random source.

use crate::cavp::{Record, records};
use crate::check::{expect_eq, key};
use crate::report::{Family, Report};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use casemate_crypto::{KexError, KexMethod, KexSecret, Provider, Rng, SecretBytes};

/// A random source that returns these secrets in order, and then repeats the last one.
pub(crate) struct ScriptedRng<'a>(pub(crate) &'a [&'a [u8]]);

impl Rng for ScriptedRng<'_> {
    fn public(&mut self, _: &mut [u8]) {
        panic!("a private value must not be drawn from public randomness");
    }

    fn secret(&mut self, out: &mut [u8]) {
        out.copy_from_slice(self.0[0]);
        if self.0.len() > 1 {
            self.0 = &self.0[1..];
        }
    }
}

/// Runs all files.
pub(crate) fn run(provider: &dyn Provider, report: &mut Report) {
    report.families.extend([
        both(provider, "rfc/5903", include_str!("../data/rfc/rfc5903.rsp")),
        both(provider, "rfc/8031", include_str!("../data/rfc/rfc8031.rsp")),
        both(provider, "python/modp", include_str!("../data/kex-modp.rsp")),
    ]);
}

/// Vectors with both sides: public values from private values, and the shared secret from either side.
fn both(provider: &dyn Provider, name: &str, text: &str) -> Family {
    let mut family = Family::new(name);
    for record in records(text, "ID") {
        let method = KexMethod::from_id(record.number("ID") as u16).unwrap();
        for (private, own, peer) in [("i", "gi", "gr"), ("r", "gr", "gi")] {
            let bytes = |name: &str| record.bytes(name);
            case(&mut family, provider, method, &bytes(private), &id(&record, private), |secret| {
                expect_eq("public value", secret.public(), &bytes(own)[..])?;
                agreed(secret, &bytes(peer), &bytes("girx"))
            });
        }
    }
    family
}

fn id(record: &Record, side: &str) -> String {
    format!("line {}, {side}", record.line)
}

/// Runs a case if the provider supports the method.
pub(crate) fn case(
    family: &mut Family,
    provider: &dyn Provider,
    method: KexMethod,
    private: &[u8],
    id: &str,
    check: impl FnOnce(Box<dyn KexSecret>) -> Result<(), String>,
) {
    let made = provider.kex(method, &mut ScriptedRng(&[private]));
    if let Some(result) = key(family, &format!("no {method}"), made) {
        family.ran(id, result.and_then(check));
    }
}

/// Checks that the shared secret is `expected`.
pub(crate) fn agreed(secret: Box<dyn KexSecret>, peer: &[u8], expected: &[u8]) -> Result<(), String> {
    expect_eq("shared secret", &exposed(secret.agree(peer)), &Ok(expected.to_vec()))
}

/// Checks that the peer's value is rejected for the reason `why`.
pub(crate) fn rejected(secret: Box<dyn KexSecret>, peer: &[u8], why: KexError) -> Result<(), String> {
    expect_eq("shared secret", &exposed(secret.agree(peer)), &Err(why))
}

/// Returns the bytes of the secret, for comparisons and messages.
pub(crate) fn exposed(agreed: Result<SecretBytes, KexError>) -> Result<Vec<u8>, KexError> {
    agreed.map(|shared| shared.expose().to_vec())
}
