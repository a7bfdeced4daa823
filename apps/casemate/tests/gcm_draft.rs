//! The complete ESP packets of draft-mcgrew-gcm-test-01, through `casemate inspect`.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

mod common;

use casemate_wire::ip::{Ipv4Header, proto};
use common::{TempDir, inspect, stdout, unhex, write_capture};
use serde_json::Value;

const CASES: &str = include_str!("../../../verify/vectors/data/rfc/draft-mcgrew-gcm-test-01.json");

fn cases() -> Vec<Value> {
    let file: Value = serde_json::from_str(CASES).unwrap();
    file["cases"].as_array().unwrap().clone()
}

fn text<'c>(case: &'c Value, name: &str) -> &'c str {
    case[name].as_str().unwrap()
}

fn number(hex: &str) -> u64 {
    if hex.is_empty() { 0 } else { u64::from_str_radix(hex, 16).unwrap() }
}

fn seq(case: &Value) -> u64 {
    number(text(case, "seq_hi")) << 32 | number(text(case, "seq_lo"))
}

/// Payload and next header of the plaintext.
fn payload(case: &Value) -> (Vec<u8>, u8) {
    let mut plain = unhex(text(case, "plaintext"));
    let next_header = plain.pop().unwrap();
    let pad = usize::from(plain.pop().unwrap());
    plain.truncate(plain.len() - pad);
    (plain, next_header)
}

/// Few packets differ in SPI or sequence number, so each gets its own destination.
fn ipv4(n: usize, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let header = Ipv4Header {
        tos: 0,
        payload_len: payload.len() as u16,
        ident: 1,
        df: false,
        ttl: 64,
        protocol,
        src: [192, 0, 2, 1].into(),
        dst: [198, 51, 100, n as u8].into(),
    };
    let mut out = [0; 20];
    header.emit(&mut out).unwrap();
    [out.as_slice(), payload].concat()
}

fn line(n: usize, case: &Value) -> String {
    let mode = if payload(case).1 == proto::IPIP { "tunnel" } else { "transport" };
    let flag = if case["esn"] == true { "flag esn" } else { "" };
    let last = seq(case) - 1;
    format!(
        "xfrm state add src 192.0.2.1 dst 198.51.100.{n} proto esp spi 0x{} mode {mode} replay-window 32 \
         replay-seq {} replay-seq-hi {} {flag} aead 'rfc4106(gcm(aes))' 0x{}{} 128",
        text(case, "spi"),
        last & 0xFFFF_FFFF,
        last >> 32,
        text(case, "key"),
        text(case, "salt")
    )
}

#[test]
fn every_packet_decrypts_to_its_plaintext() {
    // SPI 0 never appears on the wire (RFC 4303 section 2.1), but one test case has it.
    let (refused, cases): (Vec<_>, Vec<_>) =
        cases().into_iter().partition(|case| text(case, "spi") == "00000000");
    assert_eq!((cases.len(), refused.len()), (10, 1));
    assert!(casemate_app::xfrm::XfrmFile::parse(line(0, &refused[0]).as_bytes()).is_err());
    let scratch = TempDir::new("gcm-draft").unwrap();
    let lines: Vec<String> = (0..).zip(&cases).map(|(n, case)| line(n, case)).collect();
    std::fs::write(scratch.file("states.xfrm"), lines.join("\n")).unwrap();
    let wires: Vec<_> =
        (0..).zip(&cases).map(|(n, case)| ipv4(n, proto::ESP, &unhex(text(case, "esp_packet")))).collect();
    write_capture(&scratch.file("wire.pcapng"), &wires);
    let json = stdout(&inspect(&scratch, &["--json"]));
    assert_eq!(json.len(), cases.len());
    for (n, (case, json)) in cases.iter().zip(json).enumerate() {
        let json: Value = serde_json::from_str(&json).unwrap();
        let inner = match payload(case) {
            (packet, proto::IPIP) => packet,
            (payload, next_header) => ipv4(n, next_header, &payload),
        };
        assert_eq!(json["verdict"], "ok", "{json} of {}", lines[n]);
        assert_eq!(unhex(json["inner"].as_str().unwrap()), inner, "{}", lines[n]);
        assert_eq!(json["seq"], seq(case) & 0xFFFF_FFFF);
    }
}
