//! Every verdict of `casemate inspect` in both formats, and errors about broken captures.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

mod common;

use casemate_crypto::{JobStatus, MacAlg, MacJob, MacKind, Provider, Tag};
use casemate_test_support::Program;
use casemate_wire::ip::{Ipv4Header, proto};
use common::{TempDir, inspect, stdout, write_capture};
use std::process::Output;

const KEY: &[u8; 20] = b"0123456789abcdefghij";

/// UDP from port 5 to port 6, with two bytes of payload and no checksum.
const UDP: [u8; 10] = [0, 5, 0, 6, 0, 10, 0, 0, 0xAB, 0xCD];

fn states() -> String {
    let algorithms = "enc cipher_null '' auth sha1 0123456789abcdefghij";
    format!(
        "ip xfrm state add src 192.0.2.1 dst 192.0.2.2 proto esp spi 0x1000 {algorithms}\n\
         ip xfrm state add src 192.0.2.1 dst 192.0.2.2 proto esp spi 0x1001 mode tunnel {algorithms} encap espinudp 4500 4500 any\n"
    )
}

fn ipv4(protocol: u8, payload: &[u8]) -> Vec<u8> {
    let header = Ipv4Header {
        tos: 0,
        ident: 7,
        df: false,
        ttl: 64,
        protocol,
        src: [192, 0, 2, 1].into(),
        dst: [192, 0, 2, 2].into(),
        payload_len: payload.len() as u16,
    };
    let mut out = [0; 20];
    header.emit(&mut out).unwrap();
    [&out, payload].concat()
}

/// Builds ESP with NULL encryption from scratch (RFC 4303 section 2).
fn esp(spi: u32, seq: u32, payload: &[u8], next_header: u8) -> Vec<u8> {
    let mut packet = [&spi.to_be_bytes(), &seq.to_be_bytes(), payload].concat();
    for pad in (1..=3).take((2 - payload.len() % 4) % 4) {
        packet.push(pad);
    }
    let pad_len = (packet.len() - 8 - payload.len()) as u8;
    packet.extend([pad_len, next_header]);
    let mac = casemate_rustcrypto::RUSTCRYPTO.mac(MacAlg::standard(MacKind::HmacSha1), KEY).unwrap();
    let mut jobs =
        [MacJob { nonce: [0; 12], data: &packet, tag: Tag::zeroed(12), status: JobStatus::Pending }];
    mac.sign(&mut jobs);
    let icv = jobs[0].tag.as_slice().to_vec();
    [packet, icv].concat()
}

fn udp(port: u16, payload: &[u8]) -> Vec<u8> {
    udp_between(port, port, payload)
}

fn udp_between(from: u16, to: u16, payload: &[u8]) -> Vec<u8> {
    let len = (8 + payload.len()) as u16;
    let header = [from.to_be_bytes(), to.to_be_bytes(), len.to_be_bytes(), [0, 0]].concat();
    ipv4(proto::UDP, &[header.as_slice(), payload].concat())
}

/// Splits the packet into two fragments, `at` bytes after its header.
fn fragments(packet: &[u8], at: usize) -> [Vec<u8>; 2] {
    let make = |payload: &[u8], offset: usize, more: bool| {
        let mut fragment = ipv4(proto::ESP, payload);
        let mut ip = casemate_wire::ip::Ipv4::parse(&mut fragment).unwrap();
        ip.set_fragment(offset as u16, more);
        ip.fill_checksum();
        fragment
    };
    let (first, second) = packet[20..].split_at(at);
    [make(first, 0, true), make(second, at, false)]
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A packet and what `inspect` prints about it.
#[derive(Clone)]
struct Sample {
    packet: Vec<u8>,
    /// Members of the JSON object after the number.
    json: String,
    /// The line after the number.
    text: String,
}

fn sample(packet: Vec<u8>, json: impl Into<String>, text: impl Into<String>) -> Sample {
    Sample { packet, json: json.into(), text: text.into() }
}

/// Packets with every verdict.
fn samples() -> Vec<Sample> {
    let clear = ipv4(proto::UDP, &UDP);
    let opened = hex(&clear);
    let ok = ipv4(proto::ESP, &esp(0x1000, 1, &UDP, proto::UDP));
    let mut wrong_icv = ipv4(proto::ESP, &esp(0x1000, 2, &UDP, proto::UDP));
    *wrong_icv.last_mut().unwrap() ^= 1;
    let [first, second] = fragments(&ipv4(proto::ESP, &esp(0x1000, 3, &UDP, proto::UDP)), 16);
    let tunnel = udp(4500, &esp(0x1001, 9, &clear, proto::IPIP));
    let shown = |spi: u32, seq: u32| format!("192.0.2.1 > 192.0.2.2 esp spi {spi:#010x} seq {seq}");
    let inner = ": 30 bytes, 192.0.2.1 > 192.0.2.2 udp 5 > 6";
    let json = |rest: &str| format!("\"proto\":\"esp\",\"spi\":{rest}");
    vec![
        sample(clear, r#""proto":"udp","verdict":"clear""#, "clear     192.0.2.1 > 192.0.2.2 udp"),
        sample(
            ok.clone(),
            json(&format!(r#""0x00001000","seq":1,"verdict":"ok","inner":"{opened}""#)),
            format!("ok        {}{inner}", shown(0x1000, 1)),
        ),
        sample(
            ok,
            json(r#""0x00001000","seq":1,"verdict":"drop","reason":"replay""#),
            format!(
                "drop      {}: replay (RFC 4303 section 3.4.3, RFC 4302 section 3.4.3)",
                shown(0x1000, 1)
            ),
        ),
        sample(
            wrong_icv,
            json(r#""0x00001000","seq":2,"verdict":"drop","reason":"icv-mismatch""#),
            format!(
                "drop      {}: icv-mismatch (RFC 4303 section 3.4.4, RFC 4302 section 3.4.4)",
                shown(0x1000, 2)
            ),
        ),
        sample(
            ipv4(proto::ESP, &esp(0x2000, 1, &UDP, proto::UDP)),
            json(r#""0x00002000","seq":1,"verdict":"drop","reason":"no-sa""#),
            format!("drop      {}: no-sa (RFC 4303 section 3.4.2, RFC 4302 section 3.4.2)", shown(0x2000, 1)),
        ),
        sample(
            first,
            json(r#""0x00001000","seq":3,"verdict":"held""#),
            format!("held      {}", shown(0x1000, 3)),
        ),
        sample(
            second,
            json(&format!(r#""0x00001000","seq":3,"verdict":"ok","inner":"{opened}""#)),
            format!("ok        {}{inner}", shown(0x1000, 3)),
        ),
        sample(
            ipv4(proto::ESP, &esp(0x1000, 4, &[0; 6], proto::NO_NEXT)),
            json(r#""0x00001000","seq":4,"verdict":"dummy""#),
            format!("dummy     {}", shown(0x1000, 4)),
        ),
        sample(
            tunnel,
            json(&format!(r#""0x00001001","seq":9,"verdict":"ok","inner":"{opened}""#)),
            format!("ok        {}{inner}", shown(0x1001, 9)),
        ),
        sample(
            udp(4500, &[0xFF]),
            r#""proto":"udp","verdict":"keepalive""#,
            "keepalive 192.0.2.1 > 192.0.2.2 udp",
        ),
        sample(
            udp(4500, &[0; 12]),
            r#""proto":"udp","verdict":"ike","ike":{"fault":{"name":"header-truncated","text":"8 bytes are too few for an IKE header"}}"#,
            "ike       192.0.2.1 > 192.0.2.2 udp: not an IKEv2 message: 8 bytes are too few for an IKE header",
        ),
        sample(
            b"\x45\0\0\x40abc".to_vec(),
            r#""verdict":"cut","captured":7,"length":64"#,
            "cut       7 of 64 bytes were captured",
        ),
        sample(b"\0arp".to_vec(), r#""verdict":"other""#, "other"),
    ]
}

fn capture_of_samples(name: &str) -> TempDir {
    let scratch = TempDir::new(name).unwrap();
    std::fs::write(scratch.file("states.xfrm"), states()).unwrap();
    write_capture(&scratch.file("wire.pcapng"), samples().iter().map(|sample| &sample.packet));
    scratch
}

#[test]
fn every_verdict_in_json() {
    let output = inspect(&capture_of_samples("json"), &["--json"]);
    for (n, (line, Sample { json: expected, .. })) in stdout(&output).iter().zip(samples()).enumerate() {
        assert_eq!(*line, format!("{{\"n\":{},{expected}}}", n + 1));
        serde_json::from_str::<serde_json::Value>(line).unwrap();
    }
    assert_eq!(stdout(&output).len(), samples().len());
}

#[test]
fn every_verdict_in_text_and_a_summary() {
    let output = inspect(&capture_of_samples("words"), &[]);
    for (n, (line, Sample { text: expected, .. })) in stdout(&output).iter().zip(samples()).enumerate() {
        assert_eq!(line.trim_end(), format!("{:>6}  {expected}", n + 1));
    }
    let summary = "casemate: 13 packets: 1 clear, 1 cut, 3 drop (1 no-sa, 1 replay, 1 icv-mismatch), 1 dummy, 1 held, 1 ike, \
                   1 keepalive, 3 ok, 1 other\n";
    assert_eq!(stderr(&output), summary);
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Exit status and standard error for a capture with these bytes.
fn status_and_stderr(name: &str, capture: &[u8]) -> (i32, String) {
    let scratch = TempDir::new(name).unwrap();
    std::fs::write(scratch.file("states.xfrm"), states()).unwrap();
    std::fs::write(scratch.file("wire.pcapng"), capture).unwrap();
    let output = inspect(&scratch, &["--json"]);
    let path = scratch.file("wire.pcapng").display().to_string();
    (output.status.code().unwrap(), stderr(&output).replace(&path, "CAPTURE"))
}

#[test]
fn files_that_are_not_captures() {
    let (status, text) = status_and_stderr("alien", b"GIF89a, not packets");
    assert_eq!(status, 2);
    assert!(
        text.contains(
            "casemate: CAPTURE: the file begins with 47 49 46 38: a pcap or pcapng capture was expected"
        ),
        "{text}"
    );
    let (status, text) = status_and_stderr("empty", b"");
    assert_eq!(status, 2);
    assert!(text.contains("casemate: CAPTURE: the file is empty"), "{text}");
}

#[test]
fn truncated_capture_is_inspected_up_to_its_end() {
    let scratch = capture_of_samples("truncated");
    let whole = std::fs::read(scratch.file("wire.pcapng")).unwrap();
    let (status, text) = status_and_stderr("truncated-2", &whole[..whole.len() - 10]);
    assert_eq!(status, 2);
    assert!(text.starts_with("casemate: 12 packets: "), "{text}");
    assert!(
        text.contains(
            "casemate: CAPTURE: the capture is truncated: it ends inside the block that begins at byte"
        ),
        "{text}"
    );
}

#[test]
fn output_file_never_overwrites_the_capture() {
    let scratch = capture_of_samples("overwrite");
    let wire = scratch.file("wire.pcapng");
    let before = std::fs::read(&wire).unwrap();
    let output = inspect(&scratch, &["--write", wire.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("another file than the capture was expected"), "{}", stderr(&output));
    assert_eq!(std::fs::read(&wire).unwrap(), before);
    std::fs::write(&wire, "no capture").unwrap();
    let opened = scratch.file("opened.pcapng");
    std::fs::write(&opened, "precious").unwrap();
    assert_eq!(inspect(&scratch, &["--write", opened.to_str().unwrap()]).status.code(), Some(2));
    assert_eq!(std::fs::read(&opened).unwrap(), b"precious");
}

#[test]
fn unknown_link_type() {
    let header = [0xA1B2_C3D4u32, 0x0002_0004, 0, 0, 65_535, 127].map(u32::to_be_bytes).concat();
    let packet = [0u32, 0, 4, 4, 0].map(u32::to_be_bytes).concat();
    let (status, text) = status_and_stderr("link", &[header, packet].concat());
    assert_eq!(status, 2);
    assert!(
        text.contains("CAPTURE: packet 1: frames of link type 127 are not supported: Ethernet (1)"),
        "{text}"
    );
}

#[test]
fn standard_input_is_read_as_a_stream() {
    let scratch = capture_of_samples("stdin");
    let output = Program::new(env!("CARGO_BIN_EXE_casemate"))
        .args(["inspect", "-", "--xfrm"])
        .arg(scratch.file("states.xfrm"))
        .stdin(std::fs::File::open(scratch.file("wire.pcapng")).unwrap())
        .output();
    assert_eq!(stdout(&output).len(), samples().len());
}

#[test]
fn esp_in_udp_is_recognised_on_port_4500_without_encap_states() {
    let scratch = TempDir::new("natt").unwrap();
    // No state has UDP encapsulation.
    std::fs::write(scratch.file("states.xfrm"), states().lines().next().unwrap()).unwrap();
    let packet = esp(0x2000, 7, &UDP, proto::UDP);
    // Behind a NAT, the peer has another port.
    let ports = [(4500, 4500), (1024, 4500), (4500, 1024), (1024, 1025)];
    let packets = ports.map(|(from, to)| udp_between(from, to, &packet));
    write_capture(&scratch.file("wire.pcapng"), &packets);
    let output = inspect(&scratch, &["--json"]);
    let lines = stdout(&output);
    for line in &lines[..3] {
        assert!(
            line.contains(r#""proto":"esp","spi":"0x00002000","seq":7,"verdict":"drop","reason":"no-sa""#)
        );
    }
    assert!(lines[3].contains(r#""proto":"udp","verdict":"clear""#), "{lines:?}");
}

/// As with `| head -1`: no panic and no error.
#[test]
fn closed_standard_output_is_not_an_error() {
    let scratch = capture_of_samples("pipe");
    let packets: Vec<Vec<u8>> =
        samples().into_iter().map(|sample| sample.packet).cycle().take(5_000).collect();
    write_capture(&scratch.file("wire.pcapng"), &packets);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let program =
        Program::new(env!("CARGO_BIN_EXE_casemate")).arg("inspect").arg(scratch.file("wire.pcapng"));
    let output = program.arg("--xfrm").arg(scratch.file("states.xfrm")).stdout(writer).output();
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""));
}
