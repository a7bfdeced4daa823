//! Header compression: time to compress and to decompress the headers of a packet.

use crate::report::{Figure, Report};
use casemate_measure::harness::{Series, Workload, measure, time};
use casemate_rohc::{ChannelParams, Compressor, Decompressor, ProfileSet};
use casemate_wire::ip::proto;
use casemate_wire::ip::v4::{HEADER_LEN, Ipv4Header};
use casemate_wire::udp;
use std::hint::black_box;
use std::net::Ipv4Addr;
use std::time::Duration;

/// Packets of a run.
const PACKETS: usize = 256;

/// Bytes behind the headers that are compressed: two frames of G.729.
const PAYLOAD_LEN: usize = 20;

/// Length of an RTP header without CSRC identifiers.
const RTP_LEN: usize = 12;

/// What a flow consists of.
#[derive(Debug, Clone, Copy)]
enum Kind {
    /// IPv4, UDP with checksum, RTP: 40 bytes.
    Voice,
    Udp,
    Esp,
}

/// Rows, with the number of flows that send in turn.
const ROWS: [(&str, Kind, u8); 4] = [
    ("rohc/voice/1", Kind::Voice, 1),
    ("rohc/voice/16", Kind::Voice, 16),
    ("rohc/udp/1", Kind::Udp, 1),
    ("rohc/esp/1", Kind::Esp, 1),
];

/// Measures all selected rows: the median of the rounds, and the least of them.
pub(crate) fn run(report: &mut Report<'_>) {
    for (name, kind, flows) in ROWS {
        if !report.wants(name) {
            continue;
        }
        let mut loads: Vec<Box<dyn Workload>> = vec![
            Box::new(Compress(Channel::new(kind, flows))),
            Box::new(Decompress(Channel::new(kind, flows))),
        ];
        let series = measure(&mut loads, report.schedule());
        let figures = [
            figure("compress", series[0].median()),
            figure("compress-min", least(&series[0])),
            figure("decompress", series[1].median()),
            figure("decompress-min", least(&series[1])),
        ];
        report.show(name, "ns", &figures);
    }
}

fn figure(label: &'static str, value: f64) -> Figure {
    Figure { label, value, compared: None }
}

fn least(series: &Series) -> f64 {
    series.samples().iter().copied().fold(f64::INFINITY, f64::min)
}

/// Both sides of a channel, and the packets that pass it.
struct Channel {
    compressor: Compressor,
    decompressor: Decompressor,
    kind: Kind,
    flows: u8,
    /// Packets of each flow so far.
    rounds: u32,
    sequence: u64,
}

impl Channel {
    fn new(kind: Kind, flows: u8) -> Self {
        let params = ChannelParams { max_cid: 15, profiles: ProfileSet::ALL };
        Self {
            compressor: Compressor::new(params, u16::MAX, 1),
            decompressor: Decompressor::new(params),
            kind,
            flows,
            rounds: 0,
            sequence: 0,
        }
    }

    /// The packets of a run, one of each flow in turn.
    fn packets(&mut self) -> Vec<Vec<u8>> {
        let mut packets = Vec::with_capacity(PACKETS);
        while packets.len() < PACKETS {
            self.rounds += 1;
            packets.extend((0..self.flows).map(|flow| packet(self.kind, flow, self.rounds)));
        }
        packets
    }

    /// Compresses the packets. Returns how long it takes, and the compressed packets.
    fn compress(&mut self, packets: &[Vec<u8>]) -> (Duration, Vec<Vec<u8>>) {
        let mut sent: Vec<Vec<u8>> =
            packets.iter().map(|packet| Vec::with_capacity(2 * packet.len())).collect();
        let now = Duration::from_millis(20 * u64::from(self.rounds));
        let elapsed = time(|| {
            for (packet, sent) in packets.iter().zip(&mut sent) {
                let compressed = self.compressor.compress(packet, usize::MAX, now).unwrap();
                sent.extend_from_slice(compressed.header);
            }
        });
        for (packet, sent) in packets.iter().zip(&mut sent) {
            sent.extend_from_slice(&packet[packet.len() - PAYLOAD_LEN..]);
        }
        (elapsed, sent)
    }

    /// Decompresses the packets, and passes on the feedback. Returns how long decompression takes.
    fn decompress(&mut self, sent: &[Vec<u8>]) -> Duration {
        let Self { compressor, decompressor, sequence, .. } = self;
        let mut feedback = Vec::with_capacity(sent.len());
        let elapsed = time(|| {
            for packet in sent {
                *sequence += 1;
                let restored = decompressor.decompress(packet, *sequence, &mut |_| {}).unwrap().unwrap();
                black_box(restored);
                feedback.extend(decompressor.take_feedback());
            }
        });
        feedback.iter().for_each(|element| compressor.on_feedback(&element[1..]).unwrap());
        elapsed
    }
}

/// Times compression.
struct Compress(Channel);

/// Times decompression.
struct Decompress(Channel);

impl Workload for Compress {
    fn run(&mut self) -> (Duration, u32) {
        let packets = self.0.packets();
        let (elapsed, sent) = self.0.compress(&packets);
        self.0.decompress(&sent);
        (elapsed, PACKETS as u32)
    }
}

impl Workload for Decompress {
    fn run(&mut self) -> (Duration, u32) {
        let packets = self.0.packets();
        let (_, sent) = self.0.compress(&packets);
        (self.0.decompress(&sent), PACKETS as u32)
    }
}

/// Packet `number` of a flow. Flows differ in addresses and ports.
fn packet(kind: Kind, flow: u8, number: u32) -> Vec<u8> {
    let (mut transport, protocol) = match kind {
        Kind::Voice => ([udp(flow, number, RTP_LEN), rtp(number)].concat(), proto::UDP),
        Kind::Udp => (udp(flow, number, 0), proto::UDP),
        Kind::Esp => ([0x1000_0000 + u32::from(flow), number].map(u32::to_be_bytes).concat(), proto::ESP),
    };
    transport.extend([0x1a; PAYLOAD_LEN]);
    let header = Ipv4Header {
        tos: 0xb8,
        ident: number as u16,
        df: false,
        ttl: 64,
        protocol,
        src: Ipv4Addr::new(10, 1, 0, flow),
        dst: Ipv4Addr::new(10, 2, 0, 1),
        payload_len: transport.len() as u16,
    };
    let mut packet = vec![0; HEADER_LEN];
    header.emit(packet.first_chunk_mut().unwrap()).unwrap();
    packet.extend(transport);
    packet
}

/// UDP header with any checksum but 0, in front of `header_len` bytes and the payload.
fn udp(flow: u8, number: u32, header_len: usize) -> Vec<u8> {
    let len = (udp::HEADER_LEN + header_len + PAYLOAD_LEN) as u16;
    let checksum = number as u16 | 1;
    [20_000 + u16::from(flow), 30_000, len, checksum].map(u16::to_be_bytes).concat()
}

/// RTP header of 20 ms at 8 kHz.
fn rtp(number: u32) -> Vec<u8> {
    let first = 0x8012_0000 | number & 0xffff;
    [first, number.wrapping_mul(160), 0x1234_5678].map(u32::to_be_bytes).concat()
}
