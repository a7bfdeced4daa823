//! Vectors from RFCs, from FIPS 81 and from draft-mcgrew-gcm-test.

use crate::cavp::{MacFields, cipher_case, hex, mac_case, records};
use crate::check::{self, AeadCase};
use crate::report::{Family, Report};
use alloc::format;
use casemate_crypto::{AeadAlg, AesBits, CipherAlg, MacKind, Provider};
use serde_json::Value;

/// Runs all files.
pub(crate) fn run(provider: &dyn Provider, report: &mut Report) {
    let aes_cbc = CipherAlg::AesCbc(AesBits::B128);
    report.families.extend([
        cipher(provider, "rfc/3602", include_str!("../data/rfc/rfc3602.rsp"), aes_cbc),
        cipher(provider, "fips/81", include_str!("../data/rfc/fips81.rsp"), CipherAlg::DesCbc),
        xcbc(provider),
        cmac(provider, "rfc/4494", include_str!("../data/rfc/rfc4494.rsp")),
        cmac(provider, "rfc/4615", include_str!("../data/rfc/rfc4615.rsp")),
        hmac(provider),
        chacha(provider, "rfc/7634", include_str!("../data/rfc/rfc7634.rsp")),
        chacha(provider, "rfc/8439", include_str!("../data/rfc/rfc8439.rsp")),
        gcm(provider),
    ]);
}

fn cipher(provider: &dyn Provider, name: &str, text: &str, alg: CipherAlg) -> Family {
    let mut family = Family::new(name);
    for record in records(text, "Key") {
        cipher_case(&mut family, provider, alg, &record.bytes("Key"), &record);
    }
    family
}

fn xcbc(provider: &dyn Provider) -> Family {
    let mut family = Family::new("rfc/3566");
    for record in records(include_str!("../data/rfc/rfc3566.rsp"), "Key") {
        mac_case(&mut family, provider, MacKind::AesXcbc, MacFields { message: "Msg", tag: "MAC" }, &record);
        mac_case(
            &mut family,
            provider,
            MacKind::AesXcbc,
            MacFields { message: "Msg", tag: "MAC-96" },
            &record,
        );
    }
    family
}

fn cmac(provider: &dyn Provider, name: &str, text: &str) -> Family {
    let mut family = Family::new(name);
    for record in records(text, "Msg") {
        mac_case(&mut family, provider, MacKind::AesCmac, MacFields { message: "Msg", tag: "MAC" }, &record);
    }
    family
}

fn hmac(provider: &dyn Provider) -> Family {
    let mut family = Family::new("rfc/4868");
    for record in records(include_str!("../data/rfc/rfc4868.rsp"), "Key") {
        let kind = match record.number("Hash") {
            256 => MacKind::HmacSha256,
            384 => MacKind::HmacSha384,
            512 => MacKind::HmacSha512,
            other => panic!("the RFC has no SHA-{other}"),
        };
        mac_case(&mut family, provider, kind, MacFields { message: "Msg", tag: "Full" }, &record);
        mac_case(&mut family, provider, kind, MacFields { message: "Msg", tag: "MAC" }, &record);
    }
    family
}

fn chacha(provider: &dyn Provider, name: &str, text: &str) -> Family {
    let mut family = Family::new(name);
    for record in records(text, "Key") {
        let case = AeadCase {
            id: format!("line {}", record.line),
            key: &record.bytes("Key"),
            nonce: &record.bytes("Nonce"),
            aad: &record.bytes("AAD"),
            plain: &record.bytes("Plaintext"),
            cipher: &record.bytes("Ciphertext"),
            tag: &record.bytes("Tag"),
            valid: true,
        };
        check::aead(&mut family, provider, Ok(AeadAlg::ChaCha20Poly1305), &case);
    }
    family
}

fn gcm(provider: &dyn Provider) -> Family {
    let mut family = Family::new("draft/mcgrew-gcm-test");
    let file: Value =
        serde_json::from_str(include_str!("../data/rfc/draft-mcgrew-gcm-test-01.json")).unwrap();
    for (number, packet) in file["cases"].as_array().unwrap().iter().enumerate() {
        let bytes = |name: &str| hex(packet[name].as_str().unwrap());
        let key = bytes("key");
        let (plain, sealed) = (bytes("plaintext"), bytes("ciphertext_and_icv"));
        let (cipher, tag) = sealed.split_at(plain.len());
        let case = AeadCase {
            id: format!("case {number}"),
            key: &key,
            nonce: &[bytes("salt"), bytes("iv")].concat(),
            aad: &bytes("aad"),
            plain: &plain,
            cipher,
            tag,
            valid: true,
        };
        let bits = AesBits::from_bytes(key.len()).unwrap();
        check::aead(&mut family, provider, AeadAlg::aes_gcm(bits, tag.len()), &case);
    }
    family
}
