//! Flows of different rates in one channel: quiet ones survive the losses of others, priority and outages,
//! and feedback about a former flow of a context does no harm.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs,
    unreachable_pub,
    reason = "a test may fail"
)]

use casemate_rohc::{ChannelParams, Compressor, Decompressor, Fault, ProfileSet, Restored};
use casemate_test_support::TestRng;
use casemate_test_support::flows::{Flow, Kind};
use core::time::Duration;

const PARAMS: ChannelParams = ChannelParams { max_cid: 15, profiles: ProfileSet::ALL };

/// A packet as it was, and as it was sent.
struct Sent {
    original: Vec<u8>,
    /// `None` if it was not compressed.
    bytes: Option<Vec<u8>>,
    sequence: u64,
    header_len: usize,
}

/// Both ends of a channel.
struct Channel {
    compressor: Compressor,
    decompressor: Decompressor,
    sequence: u64,
    now: Duration,
}

impl Channel {
    fn new(params: ChannelParams) -> Self {
        let compressor = Compressor::new(params, params.max_cid, 4_711);
        Self { compressor, decompressor: Decompressor::new(params), sequence: 0, now: Duration::ZERO }
    }

    fn send(&mut self, original: Vec<u8>) -> Sent {
        self.sequence += 1;
        let compressed = self.compressor.compress(&original, usize::MAX, self.now);
        let header_len = compressed.map_or(0, |compressed| compressed.header.len());
        let bytes = compressed.map(|compressed| [compressed.header, compressed.payload].concat());
        Sent { original, bytes, sequence: self.sequence, header_len }
    }

    /// Returns whether the packet was restored. A wrong one is a failure of the test.
    fn receive(&mut self, sent: &Sent) -> Result<(), Fault> {
        let Some(bytes) = &sent.bytes else {
            self.decompressor.note_uncompressed(sent.sequence);
            return Ok(());
        };
        let Restored { headers, payload, .. } =
            self.decompressor.decompress(bytes, sent.sequence, &mut |_| {})?.expect("a packet");
        assert_eq!([headers, payload].concat(), sent.original, "packet {}", sent.sequence);
        Ok(())
    }

    fn feedback(&mut self) -> Vec<Vec<u8>> {
        std::iter::from_fn(|| self.decompressor.take_feedback()).map(|element| element.to_vec()).collect()
    }

    /// Passes feedback on at once.
    fn exchange_feedback(&mut self) {
        self.feedback().iter().for_each(|element| self.compressor.on_feedback(&element[1..]).unwrap());
    }
}

/// Packets of a quiet flow beside a busy one.
#[derive(Debug, Default)]
struct QuietFlow {
    sent: u64,
    lost: u64,
    not_restored: u64,
    header_bytes: usize,
}

fn run_beside_a_busy_flow(kind: Kind, ratio: u64, lost_of_100: u64) -> QuietFlow {
    let (mut channel, mut rng, mut result) =
        (Channel::new(PARAMS), TestRng::new(ratio), QuietFlow::default());
    let (mut busy, mut quiet) = (Flow::new(Kind::ZeroIdent, 9), Flow::new(kind, 1));
    while result.sent < 200 {
        let is_quiet = channel.sequence % ratio == 0;
        let sent = channel.send(if is_quiet { quiet.next_packet() } else { busy.next_packet() });
        let is_lost = rng.next_u64() % 100 < lost_of_100;
        let outcome = if is_lost { Ok(()) } else { channel.receive(&sent) };
        channel.exchange_feedback();
        if is_quiet {
            result.sent += 1;
            result.lost += u64::from(is_lost);
            result.not_restored += u64::from(outcome.is_err());
            result.header_bytes += sent.header_len;
        }
    }
    result
}

#[test]
fn quiet_flows_survive_the_losses_of_busy_ones() {
    for kind in [Kind::VoiceAlone, Kind::Udp { ipv6: true }, Kind::RandomIdent, Kind::Esp { ipv6: false }] {
        let all = [(20, 10), (40, 3), (100, 1), (1_000, 1), (1_500, 2), (1_500, 5), (10_000, 1)];
        // The last one takes long, unless the test is optimised.
        for (ratio, lost) in all.into_iter().take(if cfg!(debug_assertions) { 6 } else { 7 }) {
            let result = run_beside_a_busy_flow(kind, ratio, lost);
            println!("{kind:?}, one packet in {ratio}, {lost} % loss: {result:?}");
            assert!(result.not_restored <= 6, "{kind:?}, one packet in {ratio}, {lost} % loss: {result:?}");
        }
    }
}

#[test]
fn headers_of_a_quiet_flow_stay_small_where_few_packets_are_between() {
    // As voice beside bulk of 2,000 packets a second.
    let result = run_beside_a_busy_flow(Kind::VoiceRandomIdent, 40, 3);
    assert!(result.header_bytes < 12 * 200, "{result:?}");
}

/// Voice overtakes bulk, as in a router with priorities: all bulk of a while arrives behind it.
#[test]
fn flows_with_priority_are_restored() {
    for bulk in [40, 120, 400] {
        let mut channel = Channel::new(PARAMS);
        let (mut busy, mut voice) = (Flow::new(Kind::ZeroIdent, 9), Flow::new(Kind::VoiceAlone, 1));
        let mut not_restored = 0;
        for _ in 0..300 {
            let (mut first, mut second) = (Vec::new(), Vec::new());
            for _ in 0..3 {
                second.extend((0..bulk).map(|_| channel.send(busy.next_packet())));
                first.push(channel.send(voice.next_packet()));
            }
            for sent in first {
                not_restored += u64::from(channel.receive(&sent).is_err());
                channel.exchange_feedback();
            }
            for sent in second {
                let _ = channel.receive(&sent);
                channel.exchange_feedback();
            }
        }
        // Of 900 packets, while the limits adapt.
        assert!(not_restored <= 20, "{bulk} packets between two: {not_restored} not restored");
    }
}

/// A flow whose feedback stops arriving comes back after an outage.
#[test]
fn outages_end_without_feedback() {
    for acknowledged in [false, true] {
        let mut channel = Channel::new(PARAMS);
        let mut flow = Flow::new(Kind::VoiceAlone, 1);
        let (mut outage, mut longest) = (0u32, 0);
        for number in 0..10_000 {
            channel.now += Duration::from_millis(20);
            let sent = channel.send(flow.next_packet());
            // 20 packets are lost in each 1,000.
            let is_restored = number % 1_000 >= 20 && channel.receive(&sent).is_ok();
            outage = if is_restored { 0 } else { outage + 1 };
            longest = longest.max(outage);
            if acknowledged && number < 500 {
                channel.exchange_feedback();
            }
        }
        assert!(longest <= 275, "acknowledged before: {acknowledged}; {longest} packets in a row");
    }
}

/// Flow B gets the context of flow A, whose acknowledgement is still on its way.
#[test]
fn acknowledgements_of_a_former_flow_do_not_count() {
    let params = ChannelParams { max_cid: 0, ..PARAMS };
    for number in 2..120 {
        let mut channel = Channel::new(params);
        let (mut former, mut other) = (esp_flow(1), Flow::new(Kind::ZeroIdent, 9));
        let sent = channel.send(former(1));
        channel.receive(&sent).unwrap();
        let acknowledgement = channel.feedback().pop().unwrap();
        // They need no context yet.
        for _ in 0..255 {
            let sent = channel.send(other.next_packet());
            channel.receive(&sent).unwrap();
        }
        // The first packet of the new flow is lost. Its sequence number is that of the former flow.
        let mut flow = esp_flow(number);
        channel.send(flow(1));
        channel.compressor.on_feedback(&acknowledgement[1..]).unwrap();
        let sent = channel.send(flow(2));
        assert!(sent.header_len > 20, "{} bytes", sent.header_len);
        channel.receive(&sent).unwrap();
    }
}

/// Packets of ESP with this SPI, by sequence number.
fn esp_flow(spi: u8) -> impl FnMut(u32) -> Vec<u8> {
    move |sequence| {
        let payload = [&[0, 0, 0, spi], &sequence.to_be_bytes()[..], &[7; 40]].concat();
        let mut packet = vec![0; 20];
        let (src, dst) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        let ident = sequence as u16;
        let header = casemate_wire::ip::v4::Ipv4Header {
            tos: 0,
            ident,
            df: false,
            ttl: 64,
            protocol: 50,
            src,
            dst,
            payload_len: payload.len() as u16,
        };
        header.emit(packet.first_chunk_mut().unwrap()).unwrap();
        packet.extend(payload);
        packet
    }
}

#[test]
fn packets_may_be_ten_packets_of_their_flow_late() {
    for late in [1, 7, 8, 10] {
        let mut channel = Channel::new(PARAMS);
        let mut flow = Flow::new(Kind::VoiceAlone, 1);
        let mut held = Vec::new();
        for number in 0..400 {
            let sent = channel.send(flow.next_packet());
            if number % 40 == 39 {
                held.push((number + late, sent));
            } else {
                channel.receive(&sent).unwrap();
            }
            channel.exchange_feedback();
            if let Some(at) = held.iter().position(|(due, _)| *due == number) {
                assert_eq!(channel.receive(&held.remove(at).1), Ok(()), "late by {late}");
            }
        }
    }
}

#[test]
fn each_new_flow_of_a_batch_is_acknowledged() {
    let mut channel = Channel::new(PARAMS);
    let mut flows: Vec<Flow> = (0..8).map(|number| Flow::new(Kind::ZeroIdent, number)).collect();
    for flow in &mut flows {
        let sent = channel.send(flow.next_packet());
        channel.receive(&sent).unwrap();
    }
    assert_eq!(channel.feedback().len(), 8);
    // Of one context, only the newest feedback is sent.
    for flow in flows.iter_mut().chain(&mut [Flow::new(Kind::ZeroIdent, 77)]) {
        let sent = channel.send(flow.next_packet());
        channel.receive(&sent).unwrap();
    }
    channel.exchange_feedback();
    let sent = channel.send(flows[0].next_packet());
    assert!(sent.header_len < 6, "{} bytes", sent.header_len);
}

#[test]
fn flows_whose_headers_are_no_longer_than_the_trailer_are_not_compressed() {
    let mut compressor = Compressor::new(PARAMS, 15, 1).with_trailer(32);
    let packet = Flow::new(Kind::ZeroIdent, 1).next_packet();
    assert!(compressor.compress(&packet, usize::MAX, Duration::ZERO).is_none(), "28 bytes of headers");
    let packet = Flow::new(Kind::Udp { ipv6: true }, 1).next_packet();
    assert!(compressor.compress(&packet, usize::MAX, Duration::ZERO).is_some(), "48 bytes of headers");
    assert_eq!(compressor.contexts(), 1);
}

/// How a path treats packets for a while.
#[derive(Debug, Clone, Copy)]
struct Weather {
    lost_of_100: u64,
    /// Packets by which one may be late.
    late: u64,
    /// Packets by which feedback is late; `None`: it is lost.
    feedback: Option<u64>,
}

/// Flows of all kinds and rates that take contexts from each other, on a path whose properties change.
#[test]
fn no_wrong_packet_is_restored_whatever_the_rates() {
    let packets = if cfg!(debug_assertions) { 40_000 } else { 1_000_000 };
    for seed in 0..6 {
        let (mut rng, params) =
            (TestRng::new(seed), ChannelParams { max_cid: (seed % 3) as u16 * 3, ..PARAMS });
        let mut channel = Channel::new(params);
        let mut flows: Vec<Flow> = (0..12).map(|n| Flow::new(Kind::ALL[n % 16], n as u16)).collect();
        let mut weather = Weather { lost_of_100: 0, late: 0, feedback: Some(1) };
        let (mut transit, mut feedback) = (Vec::<(u64, Sent)>::new(), Vec::<(u64, Vec<u8>)>::new());
        let (mut restored, mut compressed, mut phase) = (0u64, 0u64, 0);
        for _ in 0..packets {
            if rng.next_u64().is_multiple_of(200) {
                weather = Weather {
                    lost_of_100: [0, 0, 3, 50, 95, 100][(rng.next_u64() % 6) as usize],
                    late: [0, 0, 5, 40][(rng.next_u64() % 4) as usize],
                    feedback: [None, Some(1), Some(60), Some(2_000)][(rng.next_u64() % 4) as usize],
                };
                phase = (rng.next_u64() % 12) as usize;
                channel.now += Duration::from_millis(rng.next_u64() % 2_000);
            }
            if rng.next_u64().is_multiple_of(3_000) {
                let number = (rng.next_u64() % 12) as usize;
                flows[number] = Flow::new(Kind::ALL[(rng.next_u64() % 16) as usize], number as u16);
            }
            // A few flows are busy at a time.
            let number = match rng.next_u64() % 100 {
                0..60 => phase,
                60..97 => (phase + 1) % 12,
                _ => (rng.next_u64() % 12) as usize,
            };
            let sent = channel.send(flows[number].next_packet());
            let now = channel.sequence;
            compressed += u64::from(sent.bytes.is_some());
            if rng.next_u64() % 100 >= weather.lost_of_100 {
                let late = if rng.next_u64().is_multiple_of(4) { weather.late } else { 0 };
                transit.push((now + rng.next_u64() % (late + 1), sent));
            }
            transit.sort_by_key(|(due, _)| *due);
            while transit.first().is_some_and(|(due, _)| *due <= now) {
                restored += u64::from(channel.receive(&transit.remove(0).1).is_ok());
            }
            let new = channel.feedback().into_iter();
            feedback.extend(weather.feedback.into_iter().flat_map(|delay| {
                new.clone().map(move |element| (now + delay, element)).collect::<Vec<_>>()
            }));
            feedback.retain(|(due, element)| {
                let is_due = *due <= now;
                if is_due {
                    channel.compressor.on_feedback(&element[1..]).unwrap();
                }
                !is_due
            });
        }
        println!("seed {seed}: {compressed} of {packets} compressed, {restored} restored");
        assert!(restored > packets / 4, "{restored}");
    }
}
