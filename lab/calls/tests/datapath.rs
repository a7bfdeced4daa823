//! Tests that the planned packet lengths equal those of the data path.

use casemate_calls::packet::{Esp, PacketFormat, Protection, RTP_HEADER_LEN};
use casemate_crypto::EspSuite;
use casemate_sa::{Limits, Mode};
use casemate_test_support::hosts::{Ends, LinkSpec, packets, suites};
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
