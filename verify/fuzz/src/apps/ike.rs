//! `inspect` on IKE messages, on their encrypted content, and on key files.

use crate::Target;
use casemate_app::inspect::ike::decode::{self, Decoder};
use casemate_app::inspect::ike::key_table::KeyTable;
use casemate_crypto::{AeadAlg, AesBits, Provider, Providers, SecretBytes};
use casemate_ike::{SkKey, SkSuite};
use casemate_test_support::TestRng;
use casemate_wire::ike::{ExchangeType, Flags, Fragment, Header, IkeSpi, PayloadType, Version, Writer};
use std::str;

pub(crate) const TARGET: Target = Target {
    name: "ike-inspect",
    about: "IKE inspector: every message has a description, sealed messages are opened, errors of key files show no key",
    max_len: 2_048,
    run,
    seeds,
    dictionary: &["\"AES-CBC-128 [RFC3602]\"", "\"HMAC_SHA1_96 [RFC2404]\"", "\"NONE [RFC4306]\"", ","],
};

const ROW: &str = "0000000000000001,0000000000000002,\
    00112233445566778899aabbccddeeff00112233,ffeeddccbbaa99887766554433221100ffeeddcc,\
    \"AES-GCM-128 with 16 octet ICV [RFC5282]\",,,\"NONE [RFC4306]\"";

fn run(bytes: &[u8]) {
    match bytes.split_first() {
        Some((0, message)) => check_description(&mut decoder(), message),
        Some((1, rest)) => check_sealed(rest),
        _ => check_key_file(bytes),
    }
}

fn decoder() -> Decoder {
    Decoder::new(table())
}

/// Every message has a description, on one line.
fn check_description(decoder: &mut Decoder, message: &[u8]) {
    let value = decoder.read(message);
    assert!(value.get("payloads").is_some() != value.get("fault").is_some());
    assert!(!decode::summary_line(&value).contains('\n'));
}

/// A peer with the key can seal any plaintext.
fn check_sealed(bytes: &[u8]) {
    let Some((&first, plaintext)) = bytes.split_first() else { return };
    let key = key();
    let header = Header {
        spi_i: IkeSpi(1),
        spi_r: IkeSpi(2),
        next_payload: PayloadType::NONE,
        version: Version::V2,
        exchange: ExchangeType::INFORMATIONAL,
        flags: Flags { initiator: true, higher_version: false, response: false },
        message_id: 7,
        length: 0,
    };
    let mut buffer = vec![0; plaintext.len() + 100];
    let writer = Writer::new(&mut buffer, &header).expect("room for the header");
    let whole = Fragment::new(1, 1).expect("one of one");
    let sealable =
        writer.fragment(*key.layout(), whole, PayloadType(first), plaintext).expect("there is room");
    let message = key.seal(sealable, 1, &mut TestRng::new(1)).expect("the parts fit");
    let value = decoder().read(message);
    assert_eq!(value["payloads"][0]["state"], "opened", "{value}");
    assert!(!decode::summary_line(&value).contains('\n'));
    // The same bytes without a key.
    check_description(&mut Decoder::new(KeyTable::default()), message);
}

/// Initiator's key in [`ROW`].
fn key() -> SkKey {
    let suite = SkSuite::Combined(AeadAlg::aes_gcm(AesBits::B128, 16).expect("an ICV of GCM"));
    let mut encr: Vec<u8> = (0..16).map(|digit| digit * 0x11).collect();
    encr.extend([0x00, 0x11, 0x22, 0x33]);
    let providers: [&dyn Provider; 1] = [&casemate_rustcrypto::RUSTCRYPTO];
    SkKey::new(suite, &SecretBytes::new(&encr), &SecretBytes::new(&[]), &Providers(&providers))
        .expect("a key")
}

fn table() -> KeyTable {
    let table = KeyTable::parse(ROW.as_bytes());
    assert!(table.problems().is_empty(), "the row is valid");
    table
}

fn check_key_file(bytes: &[u8]) {
    let table = KeyTable::parse(bytes);
    let problems = table.problems();
    let lines = bytes.split(|byte| *byte == b'\n').count();
    assert!(problems.is_sorted_by_key(|problem| problem.line));
    assert!(problems.iter().all(|problem| (1..=lines).contains(&problem.line)));
    // Errors repeat no key: no hexadecimal word of the length of a key.
    let Ok(file) = str::from_utf8(bytes) else { return };
    let is_key = |word: &&str| word.len() >= 32 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    let words: Vec<&str> = file.split([',', '\n']).map(str::trim).filter(is_key).collect();
    for problem in problems {
        assert!(words.iter().all(|word| !problem.text.contains(word)), "a message shows a key");
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let notify = [0, 0, 0, 12, 0, 0, 0x40, 1, 0, 0, 0, 10];
    let inner = |first: u8, payloads: &[u8]| [&[1, first], payloads].concat();
    let mut request = vec![0];
    request.extend(
        [&[0; 7][..], &[1], &[0; 7], &[2], &[41, 0x20, 37, 8], &[0, 0, 0, 1], &[0, 0, 0, 40]].concat(),
    );
    request.extend(notify);
    vec![
        request,
        inner(41, &notify),
        inner(42, &[0, 0, 0, 8, 1, 0, 0, 0]),
        inner(0, &[]),
        inner(200, &[0, 0x80, 0, 4]),
        format!("{ROW}\n# a comment\n").into_bytes(),
        ROW.replace("GCM-128 with 16 octet ICV", "CBC-128").into_bytes(),
        b"0102,\"x".to_vec(),
    ]
}
