//! `casemate inspect` restores compressed headers (RFC 5856) and shows their contexts.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

mod common;

use casemate_app::xfrm::state_line_with_keys;
use casemate_datapath::{HEAD_ROOM, Outbound, TAIL_ROOM};
use casemate_rohc::{ChannelParams, ProfileSet};
use casemate_sa::{Mode, RohcParams};
use casemate_test_support::TestRng;
use casemate_test_support::hosts::{Ends, Host, Link, LinkSpec, packets, suites};
use casemate_wire::ip::proto;
use casemate_wire::packet::Packet;
use common::{TempDir, inspect, stdout, write_capture};
use serde_json::{Value, json};
use std::process::Output;

/// A tunnel with header compression between IPv4 hosts, for inner packets of this IP version.
fn spec(inner: u8, max_cid: u16) -> LinkSpec {
    let spec = LinkSpec::single(Ends::tunnel(4, inner), Mode::Tunnel, suites::esp(suites::implicit_iv(), 1));
    let channel = ChannelParams { max_cid, profiles: ProfileSet::ALL };
    LinkSpec { rohc: Some(RohcParams { channel, max_cid: channel.max_cid, integrity: None }), ..spec }
}

/// Packet `number` of a call, of a length that needs no padding: nothing but the outer header leaves room for
/// the restored one.
fn voice(link: &Link, number: u16) -> Vec<u8> {
    let (a, b) = link.ends.inner;
    packets::voice(a, b, number, 39, 0xbeef)
}

/// Sends a packet. Returns it as on the wire, after the other host has received it.
fn pass(link: &mut Link, packet: &[u8]) -> Vec<u8> {
    let wire = link.a.send(packet).wire();
    link.b.receive(&wire);
    wire
}

/// The packet with nothing but feedback that a host waits to send.
fn feedback(host: &mut Host) -> Vec<u8> {
    let mut buffer = [0; HEAD_ROOM + 64 + TAIL_ROOM];
    let mut packet = Packet::new(&mut buffer, HEAD_ROOM, 0).unwrap();
    let verdict = host.dp.next_rohc_feedback(host.now, &mut TestRng::new(3), &mut packet).unwrap();
    assert!(matches!(verdict, Outbound::Send(_)), "{verdict:?}");
    packet.data().to_vec()
}

/// Inspects a capture with these packets. The file of states has nothing about header compression.
fn inspect_wire(spec: &LinkSpec, wire: &[Vec<u8>], args: &[&str]) -> Output {
    let scratch = TempDir::new("inspect-rohc").unwrap();
    let states =
        [true, false].map(|forward| format!("{}\n", *state_line_with_keys(&spec.params(0, forward))));
    std::fs::write(scratch.file("states.xfrm"), states.concat()).unwrap();
    write_capture(&scratch.file("wire.pcapng"), wire);
    inspect(&scratch, args)
}

fn objects(output: &Output) -> Vec<Value> {
    stdout(output).iter().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn compressed_packets_are_restored() {
    for inner in [4, 6] {
        let spec = spec(inner, 15);
        let mut link = spec.build();
        let sent: Vec<Vec<u8>> = (0..40).map(|number| voice(&link, number)).collect();
        let wire: Vec<Vec<u8>> = sent.iter().map(|packet| pass(&mut link, packet)).collect();
        let shown = objects(&inspect_wire(&spec, &wire, &["--json"]));
        for (object, packet) in shown.iter().zip(&sent) {
            assert_eq!((&object["verdict"], &object["inner"]), (&json!("ok"), &json!(hex(packet))));
            assert_eq!(object["rohc"]["cid"], 0, "{object}");
        }
        // The first packets of a flow may not be RTP.
        assert_eq!(shown[0]["rohc"]["profile"], "UDP");
        assert!(shown[0]["rohc"]["header"].as_u64() > Some(20), "{}", shown[0]);
        assert_eq!(shown[39]["rohc"], json!({ "cid": 0, "profile": "RTP", "header": 3 }));
        let lines = stdout(&inspect_wire(&spec, &wire, &[]));
        let (a, b) = link.ends.inner;
        let expected = format!(
            "    40  ok        192.0.2.1 > 192.0.2.2 esp spi 0x00001001 seq 40: {} bytes, {a} > {b} udp \
             20000 > 30000, rohc cid 0 profile RTP (header 3 bytes)",
            sent[39].len()
        );
        assert_eq!(lines[39], expected);
    }
}

#[test]
fn packets_of_other_flows_and_without_a_compressed_header() {
    let spec = spec(4, 15);
    let mut link = spec.build();
    let (a, b) = link.ends.inner;
    let mut wire: Vec<Vec<u8>> = (0..40)
        .map(|number| {
            let packet = voice(&link, number);
            pass(&mut link, &packet)
        })
        .collect();
    let other = packets::ip(a, b, 99, &[7; 30], false);
    wire.push(pass(&mut link, &other));
    let options = packets::with_v4_options(&other, &[1; 4]);
    wire.push(pass(&mut link, &options));
    wire.push(feedback(&mut link.b));
    let shown = objects(&inspect_wire(&spec, &wire, &["--json"]));
    assert_eq!((&shown[40]["rohc"]["cid"], &shown[40]["rohc"]["profile"]), (&json!(1), &json!("IP")));
    assert_eq!((&shown[40]["inner"], &shown[41]["inner"]), (&json!(hex(&other)), &json!(hex(&options))));
    assert_eq!(shown[41]["rohc"], Value::Null, "{}", shown[41]);
    assert_eq!(shown[42]["verdict"], "rohc-feedback", "{}", shown[42]);
}

#[test]
fn a_capture_may_begin_without_the_context() {
    let spec = spec(4, 15);
    let mut link = spec.build();
    let mut wire: Vec<Vec<u8>> = (0..40)
        .map(|number| {
            let packet = voice(&link, number);
            pass(&mut link, &packet)
        })
        .collect();
    // The addresses of another flow come with its first packet.
    let (a, b) = link.ends.inner;
    wire.push(pass(&mut link, &packets::ip(a, b, proto::ICMP, &[8; 30], false)));
    let output = inspect_wire(&spec, &wire[30..], &["--json"]);
    let shown = objects(&output);
    for object in &shown[..10] {
        assert_eq!((&object["verdict"], &object["reason"]), (&json!("drop"), &json!("rohc-failed")));
        assert_eq!(object["rohc"], json!({ "fault": "there is no valid context" }));
    }
    assert_eq!(shown[10]["verdict"], "ok");
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(errors.ends_with("casemate: 11 packets: 10 drop (10 rohc-failed), 1 ok\n"), "{errors}");
    let text = stdout(&inspect_wire(&spec, &wire[30..], &[]));
    let end = "seq 31: rohc-failed (RFC 5795 section 5.3.2): there is no valid context";
    assert!(text[0].ends_with(end), "{}", text[0]);
}

#[test]
fn large_contexts_have_to_be_announced() {
    let spec = spec(4, 16);
    let mut link = spec.build();
    let wire = [voice(&link, 0), voice(&link, 1)].map(|packet| pass(&mut link, &packet));
    for (args, expected) in
        [(&[][..], "drop"), (&["--rohc-max-cid", "3"], "drop"), (&["--rohc-max-cid", "16383"], "ok")]
    {
        let shown = objects(&inspect_wire(&spec, &wire, &[args, &["--json"]].concat()));
        assert_eq!(shown[1]["verdict"], expected, "{args:?}: {}", shown[1]);
    }
    let refused = inspect_wire(&spec, &wire, &["--rohc-max-cid", "16384"]);
    assert_eq!(refused.status.code(), Some(2));
}
