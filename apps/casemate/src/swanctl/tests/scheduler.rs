//! The section `scheduler`: its meaning, and its errors.

use super::{ok, only, wrong};
use casemate_linux::Scheduling;
use casemate_sched::{Class, Config, PerClass};
use casemate_wire::dscp::Dscp;
use casemate_wire::flow::HeaderSummary;

fn read(inside: &str) -> Scheduling {
    ok(&format!("scheduler {{\n{inside}\n}}")).scheduling.unwrap()
}

/// The class of a UDP packet between these hosts of 10.0.0.0/8 to this port.
fn class(scheduling: &Scheduling, dscp: &str, (src, dst): ([u8; 2], [u8; 2]), port: u16) -> Class {
    let tos = dscp.parse::<Dscp>().unwrap().value() << 2;
    let mut packet = [0; 28];
    packet[..16].copy_from_slice(&[0x45, tos, 0, 28, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, src[0], src[1]]);
    packet[16..20].copy_from_slice(&[10, 0, dst[0], dst[1]]);
    packet[22..24].copy_from_slice(&port.to_be_bytes());
    scheduling.classifier.classify(&HeaderSummary::parse(&packet).unwrap())
}

const ANYWHERE: ([u8; 2], [u8; 2]) = ([1, 1], [2, 2]);

#[test]
fn empty_scheduler_has_defaults() {
    for text in ["scheduler { }", "scheduler { low-latency { } }"] {
        let config = ok(text);
        assert!(config.warnings.is_empty());
        let scheduling = config.scheduling.unwrap();
        assert_eq!(scheduling.config, Config::SERVER);
        assert_eq!(class(&scheduling, "ef", ANYWHERE, 0), Class::LowLatency);
    }
    for text in ["", "scheduler { \n enabled = no\n }"] {
        assert!(ok(text).scheduling.is_none());
    }
}

#[test]
fn shares_and_rate_cap() {
    let config = read(
        "low-latency {\n rate = 20 mbit\n burst = 64k\n weight = 2\n limit = 128k\n }\n least {\n weight = 3\n }",
    )
    .config;
    assert_eq!((config.cap.rate, config.cap.burst), (2_500_000, 65_536));
    let expected = {
        let mut shares: PerClass<_> = Config::SERVER.shares;
        (shares.low_latency.weight, shares.low_latency.limit) = (2, 131_072);
        shares.least.weight = 3;
        shares
    };
    assert_eq!(config.shares, expected);
}

#[test]
fn class_with_dscp_has_no_other_values() {
    let scheduling = read("low-latency {\n dscp = 46, af41\n }\n least {\n dscp = af11\n }");
    let class = |dscp| class(&scheduling, dscp, ANYWHERE, 0);
    assert_eq!(class("ef"), Class::LowLatency);
    assert_eq!(class("af41"), Class::LowLatency);
    assert_eq!(class("cs5"), Class::Standard);
    assert_eq!(class("af42"), Class::RealTime);
    assert_eq!(class("af11"), Class::Least);
    assert_eq!(class("le"), Class::Standard);
}

#[test]
fn selectors_precede_dscp_in_file_order() {
    let scheduling = read(
        "standard {\n remote_ts = 10.0.2.9\n }\n low-latency {\n local_ts = 10.0.1.0/24[udp], fd00::/8\n remote_ts = 10.0.2.0/24[udp/5060]\n }",
    );
    assert_eq!(class(&scheduling, "default", ([1, 1], [2, 1]), 5060), Class::LowLatency);
    assert_eq!(class(&scheduling, "ef", ([1, 1], [2, 9]), 5060), Class::Standard);
    assert_eq!(class(&scheduling, "default", ([1, 1], [2, 1]), 5061), Class::Standard);
    assert_eq!(class(&scheduling, "af41", ([3, 1], [2, 1]), 5060), Class::RealTime);
}

#[test]
fn invalid_values_are_errors() {
    for (inside, part) in [
        ("low-latency {\n rate = 100\n }", "scheduler.low-latency.rate: `100`: a rate above 0 was expected"),
        ("low-latency {\n rate = 7bit\n }", "a rate above 0"),
        ("low-latency {\n rate = 0mbit\n }", "a rate above 0"),
        ("low-latency {\n rate = 99999999999999999999gbit\n }", "a rate above 0"),
        ("least {\n rate = 1mbit\n }", "scheduler.least.rate: not a key"),
        ("least {\n dscp = af44\n }", "scheduler.least.dscp: `af44`: unknown DSCP, expected ef, "),
        ("least {\n weight = 0\n }", "scheduler.least.weight: `0`: a number above 0"),
        ("least {\n limit = 5g\n }", "scheduler.least.limit: `5g`: a number of bytes from 1"),
        (
            "least {\n limit = 1k\n }",
            "scheduler: class least: the limit of 1024 bytes is too low, at least 65575",
        ),
        ("least {\n local_ts = dynamic\n }", "scheduler.least.local_ts: `dynamic`: an address, a subnet"),
        (
            "least {\n local_ts = fd00::/8\n remote_ts = 10.0.0.0/8\n }",
            "scheduler.least.remote_ts: no packet",
        ),
        (
            "least {\n dscp = ef\n }\n low-latency {\n dscp = ef\n }",
            "scheduler: code point 46 is assigned to the classes least and low-latency",
        ),
        ("voice { }", "scheduler.voice: not a section"),
        ("enabled = perhaps", "scheduler.enabled: `perhaps`: yes or no was expected"),
    ] {
        let problem = only(&format!("scheduler {{\n{inside}\n}}"));
        assert!(problem.contains(part), "{inside}: {problem}");
    }
    assert_eq!(
        wrong("scheduler { least {\n weight = x\n limit = y\n } }").len(),
        2,
        "all errors are reported"
    );
}
