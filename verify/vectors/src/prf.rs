//! PRFs and `prf+`: RFC 2202, RFC 4231 (repeated in RFC 4868 section 2.7.1), RFC 4434, RFC 4615, and NIST's
//! vectors of IKEv2 key derivation.

use crate::cavp::{Record, records};
use crate::check::{expect_eq, key};
use crate::report::{Family, Report};
use alloc::format;
use alloc::string::String;
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;
use casemate_crypto::{PrfAlg, PrfError, PrfKey, Provider, Providers, prf_plus};

const FILES: [(&str, &str, PrfAlg, &str); 6] = [
    ("prf/rfc-2202-sha1", include_str!("../data/cavp/rfc-2202-sha1.txt"), PrfAlg::HmacSha1, "MD"),
    ("prf/rfc-4231-sha256", include_str!("../data/cavp/rfc-4231-sha256.txt"), PrfAlg::HmacSha256, "MD"),
    ("prf/rfc-4231-sha384", include_str!("../data/cavp/rfc-4231-sha384.txt"), PrfAlg::HmacSha384, "MD"),
    ("prf/rfc-4231-sha512", include_str!("../data/cavp/rfc-4231-sha512.txt"), PrfAlg::HmacSha512, "MD"),
    ("prf/rfc-4434", include_str!("../data/rfc/rfc4434.rsp"), PrfAlg::AesXcbc, "PRF"),
    ("prf/rfc-4615", include_str!("../data/rfc/rfc4615-prf.rsp"), PrfAlg::AesCmac, "PRF"),
];

/// Runs all files and the contract checks.
pub(crate) fn run(provider: &dyn Provider, report: &mut Report) {
    report.families.extend(FILES.map(|(name, text, alg, output)| file(provider, name, text, alg, output)));
    report.families.extend([ikev2(provider), contract(provider)]);
}

fn file(provider: &dyn Provider, name: &str, text: &str, alg: PrfAlg, output: &str) -> Family {
    let mut family = Family::new(name);
    for record in records(text, "Msg") {
        case(&mut family, provider, alg, &record.bytes("Key"), &id(&record), |prf| {
            split(prf, &record.bytes("Msg"), &record.bytes(output))
        });
    }
    family
}

fn id(record: &Record) -> String {
    format!("line {}", record.line)
}

fn case(
    family: &mut Family,
    provider: &dyn Provider,
    alg: PrfAlg,
    key_bytes: &[u8],
    id: &str,
    check: impl FnOnce(&dyn PrfKey) -> Result<(), String>,
) {
    if let Some(result) = key(family, &format!("no {alg}"), Providers(&[provider]).prf(alg, key_bytes)) {
        family.ran(id, result.and_then(|prf| check(&*prf)));
    }
}

/// Computes the output for a message in one part and in several parts.
fn split(prf: &dyn PrfKey, message: &[u8], expected: &[u8]) -> Result<(), String> {
    for at in [0, message.len() / 3, message.len()] {
        let (front, back) = message.split_at(at);
        expect_eq("output", once(prf, &[front, &[], back])?.as_slice(), expected)?;
    }
    expect_eq("output of one part", once(prf, &[message])?.as_slice(), expected)
}

fn once(prf: &dyn PrfKey, parts: &[&[u8]]) -> Result<Vec<u8>, String> {
    prf.prf(parts).map(|output| output.expose().to_vec()).map_err(|why| why.to_string())
}

fn plus(prf: &dyn PrfKey, seed: &[&[u8]], len: usize) -> Result<Vec<u8>, String> {
    prf_plus(prf, seed, len).map(|keys| keys.expose().to_vec()).map_err(|why| why.to_string())
}

/// Runs the five derivations of RFC 7296 sections 2.14, 2.17 and 2.18. One case is one derivation.
fn ikev2(provider: &dyn Provider) -> Family {
    let mut family = Family::new("cavp/ikev2.rsp");
    for record in records(include_str!("../data/cavp/ikev2.rsp"), "PRF") {
        let alg = PrfAlg::from_id(record.number("PRF") as u16).unwrap();
        let get = |name: &str| record.bytes(name);
        let (ni, nr, new) = (get("Ni"), get("Nr"), get("GirNew"));
        let nonces = [alg.skeyseed_nonce(&ni), alg.skeyseed_nonce(&nr)].concat();
        let mut run = |key: &[u8], name: &str, seed: &[&[u8]], derive: Derive| {
            case(&mut family, provider, alg, key, &format!("{alg}, {name}"), |prf| {
                let expected = get(name);
                expect_eq(name, &derive(prf, seed, expected.len())?, &expected)
            });
        };
        let one: Derive = |prf, parts, _| once(prf, parts);
        run(&nonces, "SKEYSEED", &[&get("Gir")], one);
        run(&get("SKEYSEED"), "DKM", &[&ni, &nr, &get("SPIi"), &get("SPIr")], plus);
        let sk_d = &get("DKM")[..alg.key_len()];
        run(sk_d, "DKM-Child-SA", &[&ni, &nr], plus);
        run(sk_d, "DKM-Child-SA-DH", &[&new, &ni, &nr], plus);
        run(sk_d, "SKEYSEED-Rekey", &[&new, &ni, &nr], one);
    }
    family
}

type Derive = fn(&dyn PrfKey, &[&[u8]], usize) -> Result<Vec<u8>, String>;

/// Checks that keys of all lengths are accepted and affect the output, and that `prf+` follows its definition
/// up to its maximum length.
fn contract(provider: &dyn Provider) -> Family {
    let mut family = Family::new("contract/prf");
    for alg in PrfAlg::ALL {
        let bytes: Vec<u8> = (1..=200).collect();
        case(&mut family, provider, alg, &bytes[..alg.key_len()], &alg.to_string(), |prf| {
            let mut seen = vec![once(prf, &[b"data"])?];
            for len in (0..=33).chain([63, 64, 65, 127, 128, 129, 200]).filter(|len| *len != alg.key_len()) {
                let other = Providers(&[provider]).prf(alg, &bytes[..len]).map_err(|why| why.to_string())?;
                let output = once(&*other, &[b"data"])?;
                expect_eq("output length", &output.len(), &alg.output_len())?;
                expect_eq(
                    &format!("{len} bytes of key, output seen before"),
                    &seen.contains(&output),
                    &false,
                )?;
                seen.push(output);
            }
            defined(prf, alg)
        });
    }
    family
}

/// Compares `prf+` with a literal implementation of RFC 7296 section 2.13.
fn defined(prf: &dyn PrfKey, alg: PrfAlg) -> Result<(), String> {
    let (seed, longest) = (b"S of any length", 255 * alg.output_len());
    let (mut all, mut last) = (Vec::new(), Vec::new());
    for counter in 1..=255 {
        last = once(prf, &[&[&last[..], seed, &[counter]].concat()])?;
        all.extend_from_slice(&last);
    }
    for len in [1, alg.output_len(), alg.output_len() + 1, longest] {
        expect_eq(
            &format!("prf+ of {len} bytes"),
            &plus(prf, &[&seed[..5], &seed[5..]], len)?[..],
            &all[..len],
        )?;
    }
    let asked = longest + 1;
    expect_eq("end of prf+", &prf_plus(prf, &[seed], asked).err(), &Some(PrfError::TooLong { asked }))
}
