//! Tests that the planned packet lengths, and those of the manual page, equal those of the data path.
// Helpers outside #[test] functions: a broken expectation is meant to stop the test.
#![allow(clippy::indexing_slicing, clippy::unwrap_used)]

use casemate_calls::codec::Stream;
use casemate_calls::packet::{Esp, PacketFormat, Protection, RTP_HEADER_LEN, header_len};
use casemate_calls::paper::{INTERVAL, LINE};
use casemate_calls::plan::Plan;
use casemate_calls::scheme::{ROHC_CID, parse_suite, rohc_len};
use casemate_crypto::EspSuite;
use casemate_rohc::{ChannelParams, ProfileSet};
use casemate_sa::{Limits, Mode, RohcParams};
use casemate_test_support::hosts::{Ends, LinkSpec, Received, packets, suites};
use casemate_wire::ip::IpVersion;

/// Asserts that every packet of this SA has the planned length.
fn compare(suite: EspSuite, version: IpVersion, mode: Mode, encap: bool) {
    let number = if version == IpVersion::V4 { 4 } else { 6 };
    let ends = match mode {
        Mode::Tunnel => Ends::tunnel(number, number),
        Mode::Transport => Ends::transport(number),
    };
    let single = LinkSpec::single(ends, mode, suites::esp(suite, 1));
    let mut link = LinkSpec { encap, limits: Limits::DEVICE, ..single }.build();
    let wire = PacketFormat {
        version,
        protection: Protection::Esp(Esp { sizes: suite.into(), mode, encap }),
        link: 0,
    };
    for payload in 20..=60 {
        let speech = vec![0x5a; RTP_HEADER_LEN + payload];
        let packet = packets::udp(ends.inner.0, ends.inner.1, (4000, 4002), &speech, false);
        let sealed = link.a.send(&packet).wire();
        assert_eq!(
            wire.packet_len(payload),
            sealed.len(),
            "{suite} {mode} {version:?} encap {encap} {payload}"
        );
    }
}

#[test]
fn planned_lengths_match_the_data_path() {
    for suite in suites::all_esp() {
        for version in [IpVersion::V4, IpVersion::V6] {
            for (mode, encap) in [
                (Mode::Tunnel, false),
                (Mode::Tunnel, true),
                (Mode::Transport, false),
                (Mode::Transport, true),
            ] {
                compare(suite, version, mode, encap);
            }
        }
    }
}

/// Calls of one SA in tunnel mode.
#[derive(Debug, Clone, Copy)]
struct Calls {
    suite: EspSuite,
    version: IpVersion,
    encap: bool,
    is_compressed: bool,
    has_udp_checksum: bool,
    payload: usize,
}

impl Calls {
    /// Sends so many calls through the data path. Returns the length of the last packet of each.
    fn measure(self, calls: u16) -> Vec<usize> {
        let number = if self.version == IpVersion::V4 { 4 } else { 6 };
        let ends = Ends::tunnel(number, number);
        let channel = ChannelParams { max_cid: 15, profiles: ProfileSet::ALL };
        let rohc =
            self.is_compressed.then_some(RohcParams { channel, max_cid: channel.max_cid, integrity: None });
        let single = LinkSpec::single(ends, Mode::Tunnel, suites::esp(self.suite, 1));
        let spec = LinkSpec { encap: self.encap, limits: Limits::DEVICE, rohc, ..single };
        let mut link = spec.build();
        let checksum = if self.has_udp_checksum { 0xbeef } else { 0 };
        let mut lens = vec![0; usize::from(calls)];
        for packet_number in 0..40 {
            for (len, port) in lens.iter_mut().zip(0u16..) {
                let (a, b) = ends.inner;
                let mut packet = packets::voice(a, b, packet_number, self.payload, checksum);
                packet[header_len(self.version)..][..2].copy_from_slice(&(20_000 + 2 * port).to_be_bytes());
                let sealed = link.a.send(&packet).wire();
                assert_eq!(link.b.receive(&sealed), Received::Packet(packet));
                *len = sealed.len();
            }
        }
        lens
    }

    /// Length by arithmetic, with a CID of so many bytes.
    fn plan(self, cid: usize) -> usize {
        let esp = Esp { sizes: self.suite.into(), mode: Mode::Tunnel, encap: self.encap };
        let protection = if self.is_compressed {
            Protection::CompressedEsp(esp, cid + rohc_len(self.has_udp_checksum))
        } else {
            Protection::Esp(esp)
        };
        PacketFormat { version: self.version, protection, link: 0 }.packet_len(self.payload)
    }
}

#[test]
fn planned_lengths_with_header_compression_match_the_data_path() {
    for words in ["aes128gcm16", "aes128gcm16iiv", "aes128ccm8iiv", "aes128-sha256"] {
        let suite = parse_suite(words).unwrap();
        for (version, encap, has_udp_checksum) in
            [(IpVersion::V4, false, false), (IpVersion::V4, true, true), (IpVersion::V6, false, true)]
        {
            for payload in 24..40 {
                let calls = Calls { suite, version, encap, is_compressed: true, has_udp_checksum, payload };
                let (first, other) = (calls.plan(0), calls.plan(ROHC_CID));
                assert_eq!(calls.measure(3), [first, other, other], "{calls:?}");
            }
        }
    }
}

/// Each row of the table has the length that the arithmetic and the data path give for all calls that fit the
/// line.
#[test]
fn manual_shows_measured_lengths() {
    let page = include_str!("../../../docs/manual/calls.md");
    let (_, table) = page.split_once("| packet | speech | UDP checksum | bytes | calls |\n").unwrap();
    let rows: Vec<Vec<&str>> = table
        .lines()
        .skip(1)
        .take_while(|line| line.starts_with('|'))
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .collect();
    assert_eq!(rows.len(), 10);
    for row in &rows {
        let [packet, payload, checksum, bytes, calls] = row[..] else { panic!("{row:?}") };
        let (payload, bytes): (usize, usize) = (payload.parse().unwrap(), bytes.parse().unwrap());
        let packet_len = match packet.strip_prefix("ESP, `") {
            None => {
                assert_eq!(packet, "plain");
                let clear = PacketFormat { version: IpVersion::V4, protection: Protection::Clear, link: 0 };
                clear.packet_len(payload)
            }
            Some(words) => {
                let (words, rohc) = words.split_once('`').unwrap();
                let calls = Calls {
                    suite: parse_suite(words).unwrap(),
                    version: IpVersion::V4,
                    encap: false,
                    is_compressed: rohc == ", ROHC",
                    has_udp_checksum: checksum == "yes",
                    payload,
                };
                let (first, other) = (calls.plan(0), calls.plan(ROHC_CID));
                assert_eq!(calls.measure(5), [first, other, other, other, other], "{row:?}");
                assert_eq!(first, other, "{row:?}: the padding has room for the CID");
                first
            }
        };
        assert_eq!(packet_len, bytes, "{row:?}");
        let stream = Stream::new(payload, INTERVAL).unwrap();
        let count = Plan { line_rate: LINE, stream, packet_len }.calls();
        assert_eq!(count.to_string(), calls, "{row:?}");
    }
    let compressed: Vec<&str> =
        rows.iter().filter(|row| row[0].ends_with("ROHC")).map(|row| row[3]).collect();
    // The sizes on the wire of core/datapath/tests/rohc.rs and apps/casemate/tests/rohc.rs.
    assert_eq!(compressed, ["80", "60", "88", "84", "92"]);
}
