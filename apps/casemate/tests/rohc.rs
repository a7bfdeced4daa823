//! `casemate run` between two hosts with header compression (RFC 5856 to 5858): voice on the wire, and hosts
//! that do not agree.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

#[allow(dead_code, reason = "other tests use the rest")]
mod testnet;

use casemate_linux::netlink::Netlink;
use casemate_linux::netns::FrameCapture;
use casemate_wire::ip::proto;
use serde_json::Value;
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::thread;
use std::time::Duration;
use testnet::{Host, Running, Side, TestNet, WIRE};

const ETHERNET: usize = 14;
const PROTOCOL: usize = ETHERNET + 9;
const VOICE_PORT: u16 = 30_000;
/// Voice packets of a call; the last ones have the shortest header.
const PACKETS: u16 = 120;

/// Least length of an IP packet with voice.
const LEAST_VOICE: usize = 60;

/// Both hosts with their keys, and an SA between them.
fn start(net: &TestNet, proposal: &str, keys: [&str; 2]) -> [Running; 2] {
    let start = |host: &Host, keys| {
        host.run_config(&host.side.connection(&format!("esp_proposals = {proposal}\n{keys}")), None)
    };
    let (right, left) = (start(&net.right, keys[1]), start(&net.left, keys[0]));
    net.left.wait_until(|_| net.left.pings_at_once(Side::Right.inner(true), 10));
    [left, right]
}

/// Sends the voice of a call from the left host, without UDP checksums. Returns the lengths of the IP packets
/// on the wire. Each packet has to arrive.
fn call(net: &TestNet, payload: usize) -> Vec<usize> {
    let dst = SocketAddr::new(Side::Right.inner(true), VOICE_PORT);
    let listener = net.right.run(|| UdpSocket::bind(dst)).unwrap();
    listener.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let open = || FrameCapture::open(Netlink::open()?.link(WIRE)?.index);
    let capture = net.right.run(open).unwrap();
    let open = || -> io::Result<Socket> {
        let socket = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::UDP))?;
        socket.bind(&SocketAddr::new(Side::Left.inner(true), 0).into())?;
        socket.connect(&dst.into())?;
        Ok(socket)
    };
    let socket = net.left.run(open).unwrap();
    let mut buffer = [0; 2_000];
    for number in 0..PACKETS {
        let rtp = voice(number, payload);
        socket.send(&udp(&rtp)).unwrap();
        let len = listener.recv(&mut buffer).unwrap();
        assert!(buffer[..len] == rtp, "packet {number}");
        thread::sleep(Duration::from_millis(4));
    }
    let mut lens = Vec::new();
    while let Some(len) = capture.next(&mut buffer, Duration::from_millis(200)).unwrap() {
        // Feedback about voice goes the other way; that about late echoes is shorter than any voice.
        let is_from_left = buffer[ETHERNET + 12..][..4] == [192, 0, 2, 1];
        if buffer[PROTOCOL] == proto::ESP && is_from_left && len - ETHERNET >= LEAST_VOICE {
            lens.push(len - ETHERNET);
        }
    }
    assert_eq!(lens.len(), usize::from(PACKETS));
    lens
}

/// RTP of a telephone.
fn voice(number: u16, payload: usize) -> Vec<u8> {
    let mut rtp = vec![0x80, 18];
    rtp.extend((7_000 + number).to_be_bytes());
    rtp.extend((u32::from(number) * 160 + 90_000).to_be_bytes());
    rtp.extend(0x1234_5678u32.to_be_bytes());
    rtp.extend(vec![number as u8; payload]);
    rtp
}

fn udp(payload: &[u8]) -> Vec<u8> {
    let header = [20_000, VOICE_PORT, 8 + payload.len() as u16, 0];
    header.iter().flat_map(|field| field.to_be_bytes()).chain(payload.iter().copied()).collect()
}

/// Header compression of the SAs of a host, by direction.
fn rohc(host: &Host, direction: &str) -> Value {
    let status = host.status();
    let mut sas = status["sas"].as_array().unwrap().iter();
    sas.find(|sa| sa["direction"] == direction).unwrap()["rohc"].clone()
}

#[test]
fn voice_takes_no_more_bytes_than_in_clear() {
    let Some(net) = TestNet::build("voice_takes_no_more_bytes_than_in_clear") else { return };
    for (proposal, payload, expected) in
        [("aes128ccm8iiv", 40, 80), ("aes128ccm8iiv", 20, 60), ("aes128gcm16iiv", 40, 88)]
    {
        let running = start(&net, proposal, ["rohc = yes"; 2]);
        let lens = call(&net, payload);
        assert!(lens[20..].iter().all(|len| *len == expected), "{proposal}, {payload} bytes: {lens:?}");
        let (sent, received) = (rohc(&net.left, "out"), rohc(&net.right, "in"));
        assert!(sent["packets"].as_u64().unwrap() >= u64::from(PACKETS), "{sent}");
        assert_eq!(sent["packets"], received["packets"]);
        assert_eq!(
            (&received["failures"], &received["contexts"]),
            (&0.into(), &2.into()),
            "voice and echoes"
        );
        let tables = String::from_utf8(net.left.casemate(&["status"]).stdout).unwrap();
        assert!(tables.contains("\nHeader compression\n"), "{tables}");
        assert!(running.into_iter().all(|host| host.stop().success()));
    }
}

#[test]
fn an_icv_of_restored_packets_is_negotiated() {
    let Some(net) = TestNet::build("an_icv_of_restored_packets_is_negotiated") else { return };
    let left = "rohc = yes\nrohc_integrity = sha512, sha256\nrohc_icv_len = 4\nrohc_max_cid = 3";
    let right = "rohc = yes\nrohc_integrity = sha256\nrohc_icv_len = 8\nrohc_max_cid = 100";
    let running = start(&net, "aes128gcm16iiv", [left, right]);
    // The right host wants 8 bytes of ICV, and has large CIDs: the header is a byte longer.
    let lens = call(&net, 40);
    let expected = 20 + 8 + (2 + 40 + 8 + 2usize).next_multiple_of(4) + 16;
    assert!(lens[20..].iter().all(|len| *len == expected), "{lens:?}");
    assert!(running.into_iter().all(|host| host.stop().success()));
}

#[test]
fn hosts_that_do_not_agree_send_whole_headers() {
    let Some(net) = TestNet::build("hosts_that_do_not_agree_send_whole_headers") else { return };
    let with_icv = "rohc = yes\nrohc_integrity = sha256";
    for keys in [["rohc = yes", ""], ["", "rohc = yes"], ["rohc = yes", with_icv]] {
        let running = start(&net, "aes128gcm16iiv", keys);
        let lens = call(&net, 40);
        assert!(lens.iter().all(|len| *len == 20 + 8 + 84 + 16), "{keys:?}: {lens:?}");
        assert_eq!(rohc(&net.left, "out"), Value::Null);
        for (host, keys) in running.iter().zip(keys) {
            let is_logged = host.log().contains("without header compression: the peer did not agree");
            assert_eq!(is_logged, !keys.is_empty(), "{}", host.log());
        }
        assert!(running.into_iter().all(|host| host.stop().success()));
    }
}
