//! tshark reads what it can of our headers: it knows the profiles of RFC 3095, whose IR packets have the same
//! framing, CID, low byte of the profile, and static chain as those of RFC 5225.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs, reason = "a test may fail")]

use casemate_rohc::{ChannelParams, Compressor, ProfileSet};
use casemate_test_support::{TempDir, skip};
use core::time::Duration;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Link type USER0, which tshark is told to read as ROHC.
const LINK_TYPE: u32 = 147;
const AS_ROHC: &str = "uat:user_dlts:\"User 0 (DLT=147)\",\"rohc\",\"0\",\"\",\"0\",\"\"";
const FIELDS: [&str; 6] = [
    "rohc.small_cid",
    "rohc.profile",
    "rohc.ipv4_src",
    "rohc.ipv4_dst",
    "rohc.udp_src_port",
    "rohc.udp_dst_port",
];

/// A UDP packet over IPv4 of a flow with this number.
fn packet(flow: u8) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 48, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 1, 0, flow, 10, 2, 0, flow];
    packet.extend(
        [20_000 + u16::from(flow), 30_000 + u16::from(flow), 28, 0].map(u16::to_be_bytes).as_flattened(),
    );
    packet.extend([7; 20]);
    let sum: u32 = packet[..20].chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    packet[10..12].copy_from_slice(&(!(sum as u16)).to_be_bytes());
    packet
}

/// A capture file (pcap) of these packets.
fn pcap(packets: &[Vec<u8>]) -> Vec<u8> {
    let mut file = [0xa1b2_c3d4u32.to_le_bytes(), [2, 0, 4, 0]].concat();
    file.extend([0, 0, 65_535, LINK_TYPE].map(u32::to_le_bytes).as_flattened());
    for packet in packets {
        let len = packet.len() as u32;
        file.extend([0, 0, len, len].map(u32::to_le_bytes).as_flattened());
        file.extend(packet);
    }
    file
}

/// The fields of each packet; `None` without tshark.
fn read(file: &Path) -> Option<Vec<String>> {
    let mut command = Command::new("tshark");
    command.arg("-r").arg(file).args(["-o", AS_ROHC, "-T", "fields", "-E", "separator=,"]);
    let output = command.args(FIELDS.iter().flat_map(|field| ["-e", field])).output().ok()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect())
}

#[test]
fn tshark_reads_the_static_chains() {
    let mut compressor =
        Compressor::new(ChannelParams { max_cid: 15, profiles: ProfileSet::ALL }, u16::MAX, 1);
    let headers: Vec<Vec<u8>> = (1..=8)
        .map(|flow| {
            let packet = packet(flow);
            let compressed = compressor.compress(&packet, usize::MAX, Duration::ZERO).unwrap();
            [compressed.header, compressed.payload].concat()
        })
        .collect();
    let directory = TempDir::new("rohc-tshark").unwrap();
    let file = directory.path().join("rohc.pcap");
    fs::write(&file, pcap(&headers)).unwrap();
    let Some(lines) = read(&file) else { return skip("no program tshark") };
    let expected: Vec<String> = (1..=8)
        .map(|flow| format!("{},2,10.1.0.{flow},10.2.0.{flow},{},{}", flow - 1, 20_000 + flow, 30_000 + flow))
        .collect();
    assert_eq!(lines, expected);
}
