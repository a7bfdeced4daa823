//! Key exchange: RFC 5903 section 8, RFC 8031 appendix A, and MODP computed by Python. Wycheproof's are in `wycheproof/kex.rs`.
//!
//! A vector's private value goes in through the random source, which hands out what it was given.

use crate::check::{key, same};
use crate::report::{Family, Report};
use crate::rsp::{Record, records};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use casemate_crypto::{KexError, KexMethod, KexSecret, Provider, Rng, SecretBytes};

/// A random source that hands out these secrets, the last of them for ever.
pub(crate) struct Script<'a>(pub(crate) &'a [&'a [u8]]);

impl Rng for Script<'_> {
    fn public(&mut self, _: &mut [u8]) {
        panic!("a private value is no public randomness");
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

/// Vectors with both sides: public values from private ones, and one secret from either side.
fn both(provider: &dyn Provider, name: &str, text: &str) -> Family {
    let mut family = Family::new(name);
    for record in records(text, "ID") {
        let method = KexMethod::from_id(record.number("ID") as u16).unwrap();
        for (private, own, peer) in [("i", "gi", "gr"), ("r", "gr", "gi")] {
            let bytes = |name: &str| record.bytes(name);
            case(&mut family, provider, method, &bytes(private), &id(&record, private), |secret| {
                same("public value", secret.public(), &bytes(own)[..])?;
                agreed(secret, &bytes(peer), &bytes("girx"))
            });
        }
    }
    family
}

fn id(record: &Record, side: &str) -> String {
    format!("line {}, {side}", record.line)
}

/// Runs a case, if the provider has the method.
pub(crate) fn case(
    family: &mut Family,
    provider: &dyn Provider,
    method: KexMethod,
    private: &[u8],
    id: &str,
    check: impl FnOnce(Box<dyn KexSecret>) -> Result<(), String>,
) {
    let made = provider.kex(method, &mut Script(&[private]));
    if let Some(result) = key(family, &format!("no {method}"), made) {
        family.ran(id, result.and_then(check));
    }
}

/// That the shared secret is the right one.
pub(crate) fn agreed(secret: Box<dyn KexSecret>, peer: &[u8], expected: &[u8]) -> Result<(), String> {
    same("shared secret", &shown(secret.agree(peer)), &Ok(expected.to_vec()))
}

/// That a peer's value is refused, and for the right reason.
pub(crate) fn refused(secret: Box<dyn KexSecret>, peer: &[u8], why: KexError) -> Result<(), String> {
    same("shared secret", &shown(secret.agree(peer)), &Err(why))
}

/// The secret's bytes, to be compared and shown.
pub(crate) fn shown(agreed: Result<SecretBytes, KexError>) -> Result<Vec<u8>, KexError> {
    agreed.map(|shared| shared.expose().to_vec())
}
