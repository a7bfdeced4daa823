//! `casemate run` between two hosts with implicit IVs (RFC 8750): negotiated, and with manual keys.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

#[allow(dead_code, reason = "other tests use the rest")]
mod testnet;

use casemate_linux::netlink::Netlink;
use casemate_linux::netns::FrameCapture;
use casemate_wire::ip::proto;
use std::time::Duration;
use testnet::{Host, Side, TestNet, WIRE};

const PROTOCOL: usize = 14 + 9;
/// Bytes of an echo request, and of ESP around it: IP headers, ICMP, ESP header, padding, trailer, ICV.
const ECHO: usize = 100;
const PROTECTED: usize = 20 + 8 + (20 + 8 + ECHO + 2usize).next_multiple_of(4) + 16;

/// The suite of all SAs of this host.
fn suite_of(host: &Host) -> String {
    let status = host.status();
    let sas = status["sas"].as_array().unwrap();
    assert!(sas.len() == 2 && sas[0]["suite"] == sas[1]["suite"], "{status:#}");
    sas[0]["suite"].as_str().unwrap().into()
}

/// Length of the IP packet with a protected echo request on the cable.
fn protected_echo_len(net: &TestNet) -> usize {
    let open = || FrameCapture::open(Netlink::open()?.link(WIRE)?.index);
    let capture = net.right.run(open).unwrap();
    assert!(net.left.pings(Side::Right.inner(true), ECHO));
    let mut frame = [0; 2_000];
    loop {
        let len = capture.next(&mut frame, Duration::from_secs(5)).unwrap().unwrap();
        if frame[PROTOCOL] == proto::ESP {
            return len - 14;
        }
    }
}

/// What both sides agreed on.
#[derive(Debug, PartialEq, Eq)]
struct Negotiated {
    suite: String,
    /// Length of a protected echo request.
    echo_len: usize,
}

impl Negotiated {
    fn new(suite: &str, echo_len: usize) -> Self {
        Self { suite: suite.into(), echo_len }
    }
}

/// Starts both sides with their proposals.
fn negotiated(net: &TestNet, left: &str, right: &str) -> Negotiated {
    let start = |host: &Host, proposal| {
        host.run_config(&host.side.connection(&format!("esp_proposals = {proposal}")), None)
    };
    let (right, left) = (start(&net.right, right), start(&net.left, left));
    net.left.wait_until(|_| net.left.pings_at_once(Side::Right.inner(true), ECHO));
    let (suite, echo_len) = (suite_of(&net.left), protected_echo_len(net));
    assert_eq!(suite, suite_of(&net.right));
    assert!(left.stop().success() && right.stop().success());
    Negotiated { suite, echo_len }
}

#[test]
fn implicit_iv_is_used_if_both_propose_it() {
    let Some(net) = TestNet::build("implicit_iv_is_used_if_both_propose_it") else { return };
    let both = "aes128gcm16iiv-aes128gcm16";
    assert_eq!(negotiated(&net, both, both), Negotiated::new("aes128gcm16iiv", PROTECTED));
    let explicit = Negotiated::new("aes128gcm16", PROTECTED + 8);
    assert_eq!(negotiated(&net, both, "aes128gcm16"), explicit);
    assert_eq!(negotiated(&net, "aes128gcm16", both), explicit);
    let ccm = negotiated(&net, "aes256ccm8iiv", "aes256ccm8iiv-esn, aes256ccm8iiv");
    assert_eq!(ccm, Negotiated::new("aes256ccm8iiv", PROTECTED - 8));
    let chacha = negotiated(&net, "chacha20poly1305iiv-esn", "chacha20poly1305iiv-esn");
    assert_eq!(chacha, Negotiated::new("chacha20poly1305iiv-esn", PROTECTED));
}

/// States and policies with manual keys.
fn states(side: Side) -> String {
    let mut text = String::new();
    for (from, spi) in [(Side::Left, 0x1001), (Side::Right, 0x1002)] {
        let (src, dst, key) = (from.outer(true), from.other().outer(true), spi - 0x0FFF);
        text += &format!(
            "xfrm state add src {src} dst {dst} proto esp spi {spi:#x} mode tunnel replay-window 128 \
             aead 'iiv(rfc4106(gcm(aes)))' 0x{} 128\n\
             xfrm policy add src {} dst {} dir {} tmpl src {src} dst {dst} proto esp mode tunnel\n",
            format!("{key:02x}").repeat(20),
            from.inner(true),
            from.other().inner(true),
            if from == side { "out" } else { "in" }
        );
    }
    text
}

#[test]
fn implicit_iv_with_manual_keys() {
    let Some(net) = TestNet::build("implicit_iv_with_manual_keys") else { return };
    let start = |host: &Host| host.run_xfrm(&states(host.side));
    let (left, right) = (start(&net.left), start(&net.right));
    assert!(net.left.pings(Side::Right.inner(true), ECHO));
    assert_eq!(suite_of(&net.left), "ENCR_AES_GCM_16_IIV-128");
    assert_eq!(protected_echo_len(&net), PROTECTED);
    assert!(left.stop().success() && right.stop().success());
}
