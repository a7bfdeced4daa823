//! 1,179 ESP and AH packets made by scapy, from key file to JSON: each state is an `ip xfrm` line, all
//! packets are in one capture, and `casemate inspect` must decrypt every packet.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

mod common;

use casemate_sa::AddrPair;
use common::{TempDir, inspect, stdout, unhex, write_capture};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::path::Path;

const PACKETS: &str = include_str!("../../../verify/vectors/data/esp-ah-kat/scapy.tsv");

/// A line of the file.
struct Case {
    fields: BTreeMap<&'static str, &'static str>,
}

impl Case {
    fn all() -> Vec<Self> {
        let mut lines = PACKETS.lines().filter(|line| !line.starts_with('#'));
        let names: Vec<&str> = lines.next().unwrap().split('\t').collect();
        lines.map(|line| Self { fields: names.iter().copied().zip(line.split('\t')).collect() }).collect()
    }

    fn get(&self, name: &str) -> &'static str {
        self.fields[name]
    }

    fn wire(&self) -> Vec<u8> {
        unhex(self.get("wire"))
    }

    fn seq(&self) -> u64 {
        self.get("seq").parse().unwrap()
    }

    /// Whether the case has encryption without integrity, which Casemate refuses (RFC 8221 section 4).
    fn is_refused(&self) -> bool {
        let alone = matches!(self.get("enc"), "AES-CBC" | "AES-CTR" | "3DES");
        self.get("proto") == "ESP" && alone && self.get("auth") == "NULL"
    }

    /// The state for the packet, which expects its sequence number next.
    fn line(&self) -> String {
        let wire = self.wire();
        let AddrPair { src, dst } = addresses(&wire);
        let spi = self.get("spi");
        let proto = self.get("proto").to_lowercase();
        let mode = self.get("mode");
        let mut line = format!("ip xfrm state add src {src} dst {dst} proto {proto} spi {spi} mode {mode}");
        self.write_sequence(&mut line);
        if self.get("natt") == "udp" {
            let udp = if wire[0] >> 4 == 4 { 20 } else { 40 };
            let port = |at: usize| u16::from_be_bytes([wire[at], wire[at + 1]]);
            write!(line, " encap espinudp {} {} 0.0.0.0", port(udp), port(udp + 2)).unwrap();
        }
        line + &self.algorithms()
    }

    fn write_sequence(&self, line: &mut String) {
        let last = self.seq() - 1;
        let (high, low) = (last >> 32, last & 0xFFFF_FFFF);
        write!(line, " replay-window 64 replay-seq {low}").unwrap();
        if self.get("esn") == "esn" {
            write!(line, " replay-seq-hi {high} flag esn").unwrap();
        }
    }

    fn algorithms(&self) -> String {
        let key = |name: &str| match self.get(name) {
            "-" => "''".to_owned(),
            hex => format!("0x{hex}"),
        };
        let aead = |name: &str, icv: usize| format!(" aead '{name}' {} {icv}", key("enc_key"));
        let enc = match self.get("enc") {
            "AES-GCM" => return aead("rfc4106(gcm(aes))", 128),
            "AES-CCM" => return aead("rfc4309(ccm(aes))", 128),
            "AES-NULL-GMAC" => return aead("rfc4543(gcm(aes))", 128),
            "CHACHA20-POLY1305" => return aead("rfc7539esp(chacha20,poly1305)", 128),
            "AES-CBC" => "cbc(aes)",
            "AES-CTR" => "rfc3686(ctr(aes))",
            "3DES" => "cbc(des3_ede)",
            "NULL" => "ecb(cipher_null)",
            "-" => "",
            other => panic!("cipher {other}"),
        };
        let mut words = String::new();
        if !enc.is_empty() {
            write!(words, " enc '{enc}' {}", key("enc_key")).unwrap();
        }
        let (auth, bits) = match self.get("auth") {
            "HMAC-SHA1-96" => ("hmac(sha1)", 96),
            "SHA2-256-128" => ("hmac(sha256)", 128),
            "SHA2-384-192" => ("hmac(sha384)", 192),
            "SHA2-512-256" => ("hmac(sha512)", 256),
            "AES-CMAC-96" => ("cmac(aes)", 96),
            "HMAC-MD5-96" => ("hmac(md5)", 96),
            "NULL" => return words,
            other => panic!("MAC {other}"),
        };
        write!(words, " auth-trunc '{auth}' {} {bits}", key("auth_key")).unwrap();
        words
    }

    /// The expected output of `inspect`.
    fn json(&self, number: usize) -> String {
        format!(
            "{{\"n\":{number},\"proto\":\"{}\",\"spi\":\"{:#010x}\",\"seq\":{},\"verdict\":\"ok\",\"inner\":\"{}\"}}",
            self.get("proto").to_lowercase(),
            self.get("spi").parse::<u32>().unwrap(),
            self.seq() & 0xFFFF_FFFF,
            self.get("plain")
        )
    }
}

fn addresses(packet: &[u8]) -> AddrPair {
    let v4 = |at: usize| IpAddr::from(*packet[at..].first_chunk::<4>().unwrap());
    let v6 = |at: usize| IpAddr::from(*packet[at..].first_chunk::<16>().unwrap());
    match packet[0] >> 4 {
        4 => AddrPair { src: v4(12), dst: v4(16) },
        _ => AddrPair { src: v6(8), dst: v6(24) },
    }
}

#[test]
fn every_packet_decrypts_to_its_plaintext() {
    let (refused, cases): (Vec<_>, Vec<_>) = Case::all().into_iter().partition(Case::is_refused);
    assert_eq!((cases.len(), refused.len()), (1_116, 63));
    let scratch = TempDir::new("scapy").unwrap();
    let lines: Vec<String> = cases.iter().map(Case::line).collect();
    std::fs::write(scratch.file("states.xfrm"), lines.join("\n")).unwrap();
    let wires: Vec<_> = cases.iter().map(Case::wire).collect();
    write_capture(&scratch.file("wire.pcapng"), wires.iter().chain(&wires));
    let opened = scratch.file("opened.pcapng");
    let output = inspect(&scratch, &["--json", "--write", opened.to_str().unwrap()]);
    let json = stdout(&output);
    assert_eq!(json.len(), 2 * cases.len());
    for (n, case) in cases.iter().enumerate() {
        assert_eq!(json[n], case.json(n + 1), "case {}: {}", case.get("id"), lines[n]);
    }
    // The second copy of each packet is a replay.
    for (n, line) in json.iter().enumerate().skip(cases.len()) {
        assert!(line.starts_with(&format!("{{\"n\":{},", n + 1)), "{line}");
        assert!(line.ends_with("\"verdict\":\"drop\",\"reason\":\"replay\"}"), "{line}");
    }
    // With --no-replay it is not.
    let again = stdout(&inspect(&scratch, &["--json", "--no-replay"]));
    for (n, case) in cases.iter().enumerate() {
        assert_eq!(again[n + cases.len()], case.json(n + 1 + cases.len()), "case {}", case.get("id"));
    }
    written_packets_are_the_plaintext(&opened, &cases);
}

fn written_packets_are_the_plaintext(path: &Path, cases: &[Case]) {
    let file = std::fs::File::open(path).unwrap();
    let mut reader = casemate_app::capture::CaptureReader::new(std::io::BufReader::new(file)).unwrap();
    for case in cases {
        let frame = reader.next_frame().unwrap().unwrap();
        assert_eq!(frame.data, unhex(case.get("plain")));
    }
    assert!(reader.next_frame().unwrap().is_none());
}

/// One changed bit after the SPI invalidates a packet, be it in the authenticated data or in the sequence
/// number.
#[test]
fn changed_bit_is_detected() {
    let cases: Vec<_> = Case::all().into_iter().filter(|case| !case.is_refused()).collect();
    let scratch = TempDir::new("scapy-spoilt").unwrap();
    std::fs::write(scratch.file("states.xfrm"), cases.iter().map(Case::line).collect::<Vec<_>>().join("\n"))
        .unwrap();
    let wires: Vec<Vec<u8>> = cases.iter().map(Case::wire).collect();
    let spoilt = (0usize..).zip(wires).map(|(n, mut wire)| {
        let back = 1 + n * 7 % 24;
        let at = wire.len() - back;
        wire[at] ^= 1 << (n % 8);
        wire
    });
    write_capture(&scratch.file("wire.pcapng"), &spoilt.collect::<Vec<_>>());
    for (line, case) in stdout(&inspect(&scratch, &["--json"])).iter().zip(&cases) {
        // AH packets end with the payload, ESP packets with the ICV; both give the same reason.
        assert!(line.ends_with("\"reason\":\"icv-mismatch\"}"), "case {}: {line}", case.get("id"));
    }
}

#[test]
fn encryption_without_integrity_is_refused() {
    for case in Case::all().iter().filter(|case| case.is_refused()) {
        let problems = casemate_app::xfrm::XfrmFile::parse(case.line().as_bytes()).unwrap_err();
        assert!(problems[0].text.contains("encryption without integrity is refused"), "{problems:?}");
    }
}
