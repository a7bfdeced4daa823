//! Calls beside more bulk traffic than the engine can protect, with the scheduler and without.
//!
//! The engine is one core that works on two microseconds for a packet of 1,500 bytes, on 32 packets at a time, and gives them
//! back together. That is a little faster than Casemate's with AES-GCM, sockets included; what is compared are ratios.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail")]

mod engine;

use casemate_sched::{Class, Config};
use engine::{Front, Group, Nanos, Report, SECOND, Source, run};

/// Two microseconds for each packet.
fn cost(_: usize) -> Nanos {
    2_000
}

/// The same engine, which works on bytes: for packets of other lengths.
fn cost_of_bytes(len: usize) -> Nanos {
    400 + len as Nanos * 16 / 15
}

const MILLISECOND: Nanos = 1_000_000;

/// A queue as a kernel has it in front of a TUN interface or behind a socket.
const FIFO: usize = 1_000;

/// 50 calls: 50 packets a second each way, G.711 with RTP, UDP and IP headers, both ways through one engine.
fn calls() -> Vec<Source> {
    let one = Source {
        class: Class::LowLatency,
        len: 200,
        gap: SECOND as f64 / 50.0,
        is_random: false,
        group: Group::Calls,
    };
    vec![one; 100]
}

/// Eight flows that together want `load` times what the engine can do.
fn bulk(class: Class, load: f64) -> Vec<Source> {
    let gap = 2_000.0 * 8.0 / load;
    vec![Source { class, len: 1_500, gap, is_random: true, group: Group::Bulk }; 8]
}

fn scheduled(sources: &[Source]) -> Report {
    run(Front::scheduled(Config::SERVER), cost, sources, SECOND, 1)
}

fn in_order(sources: &[Source]) -> Report {
    run(Front::fifo(FIFO), cost, sources, SECOND, 1)
}

/// The goal: nothing lost, at most a millisecond above an idle engine, and ten times better than without.
#[test]
fn calls_do_not_notice_bulk_traffic() {
    let idle = scheduled(&calls()).p99();
    for load in [0.9, 1.0, 2.0, 3.0] {
        let sources = [calls(), bulk(Class::Standard, load)].concat();
        let report = scheduled(&sources);
        println!("load {load}: p99 {} ns scheduled, {idle} ns idle", report.p99());
        assert_eq!(report.calls_lost, 0, "at load {load}");
        assert!(report.call_delays.len() > 4_400, "they were there");
        // The batch before, its own, and reading what came meanwhile.
        assert!(report.p99() < idle + 140_000, "at load {load}: {} ns, idle {idle} ns", report.p99());
        assert!(*report.call_delays.last().unwrap() < idle + MILLISECOND);
        if load > 1.0 {
            let without = in_order(&sources);
            println!("load {load}: p99 {} ns in order, {} calls lost", without.p99(), without.calls_lost);
            assert!(without.calls_lost > 0, "the comparison is with a queue that is full");
            assert!(without.p99() > 10 * report.p99(), "{} ns in order", without.p99());
        }
    }
}

/// Figure 5 of the paper shows throughput that falls behind the maximum. Here it does not.
#[test]
fn throughput_does_not_fall_past_saturation() {
    let bytes = |load| scheduled(&[calls(), bulk(Class::Standard, load)].concat()).bytes;
    let most = [0.8, 1.0, 1.2, 1.5, 2.0].map(bytes).into_iter().max().unwrap();
    let at_three = bytes(3.0);
    println!("{} of the maximum at load 3", at_three as f64 / most as f64);
    assert!(at_three as f64 >= 0.95 * most as f64, "{at_three} of {most} bytes");
    // And the maximum is the engine's: 1,350 MB in the 0.9 seconds that count, at two microseconds a packet.
    assert!(most as f64 > 0.95 * 0.9 * 500_000.0 * 1_500.0, "{most}");
}

/// Somebody marks bulk traffic as voice. The cap keeps it from starving others, and flows in turn keep it from the calls.
#[test]
fn bulk_that_calls_itself_voice_gains_little() {
    let idle = scheduled(&calls()).p99();
    let honest = bulk(Class::Standard, 2.0);
    let report = scheduled(&[calls(), bulk(Class::LowLatency, 2.0), honest.clone()].concat());
    println!("p99 {} ns", report.p99());
    assert_eq!(report.calls_lost, 0);
    assert!(report.p99() < idle + MILLISECOND, "{} ns, idle {idle} ns", report.p99());
    // Now the honest ones alone are counted: two thirds of the engine are theirs by weight, less the cap of 100 Mbit/s.
    let mut sources = [calls(), bulk(Class::LowLatency, 2.0)].concat();
    sources.iter_mut().for_each(|source| source.group = Group::Calls);
    let honest = scheduled(&[sources, honest].concat()).bulk_bytes;
    assert!(honest as f64 > 0.6 * 0.9 * 750_000_000.0, "{honest} bytes");
}

/// Super-packets of 64 KiB hold the engine for longer; a batch is then bounded by its bytes.
#[test]
fn calls_do_not_notice_super_packets() {
    let run = |sources: &[Source]| run(Front::scheduled(Config::SERVER), cost_of_bytes, sources, SECOND, 1);
    let idle = run(&calls()).p99();
    let super_packets = bulk(Class::Standard, 2.0).into_iter().map(|source| Source {
        len: 65_000,
        gap: source.gap * 65_000.0 / 1_500.0,
        ..source
    });
    let report = run(&[calls(), super_packets.collect()].concat());
    println!("p99 {} ns, idle {idle} ns", report.p99());
    assert_eq!(report.calls_lost, 0);
    assert!(report.p99() < idle + MILLISECOND, "{} ns, idle {idle} ns", report.p99());
    assert!(report.bulk_bytes as f64 > 0.9 * 0.9 * 900_000_000.0, "{} bytes", report.bulk_bytes);
}

/// Calls without a mark are in the class of the bulk traffic, and their flows still have their turns.
#[test]
fn calls_without_a_mark_wait_for_turns_and_not_for_queues() {
    let mut calls = calls();
    calls.iter_mut().for_each(|call| call.class = Class::Standard);
    let sources = [calls, bulk(Class::Standard, 3.0)].concat();
    let (report, without) = (scheduled(&sources), in_order(&sources));
    println!("p99 {} ns scheduled, {} ns in order", report.p99(), without.p99());
    assert_eq!(report.calls_lost, 0);
    assert!(without.p99() > 10 * report.p99());
}
