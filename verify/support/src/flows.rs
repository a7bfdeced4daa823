//! Flows of packets whose fields change as those of real hosts and applications do.

use crate::TestRng;
use alloc::vec;
use alloc::vec::Vec;

/// A flow of packets.
#[derive(Debug, Clone)]
pub struct Flow {
    /// What the flow consists of.
    pub kind: Kind,
    /// Distinguishes flows of one kind: ports, SPI, SSRC.
    number: u16,
    rng: TestRng,
    ident: u16,
    sequence: u32,
    timestamp: u32,
    /// Packets until the application pauses.
    until_pause: u64,
    tos: u8,
    ttl: u8,
    has_checksum: bool,
    csrc: Vec<u32>,
}

/// What a flow consists of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Voice: talk spurts with a marker, 50 packets a second with this timestamp step.
    Voice {
        /// IPv6 instead of IPv4.
        ipv6: bool,
        /// Timestamp units of a packet.
        step: u32,
    },
    /// Voice of a host with random Identifications.
    VoiceRandomIdent,
    /// Voice of a host that sends nothing else.
    VoiceAlone,
    /// Video: several packets with one timestamp.
    Video,
    /// UDP of a host that counts Identifications for all its flows.
    Udp {
        /// IPv6 instead of IPv4.
        ipv6: bool,
    },
    /// UDP with random Identifications.
    RandomIdent,
    /// UDP with byte-swapped Identifications.
    SwappedIdent,
    /// UDP with DF and without Identifications.
    ZeroIdent,
    /// ESP of another tunnel.
    Esp {
        /// IPv6 instead of IPv4.
        ipv6: bool,
    },
    /// TCP, of which only the IP header is compressed.
    Tcp {
        /// IPv6 instead of IPv4.
        ipv6: bool,
    },
    /// UDP in IPv4 in IPv4.
    Tunnel,
    /// Fragments: never compressed.
    Fragments,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 16] = [
        Self::Voice { ipv6: false, step: 160 },
        Self::Voice { ipv6: false, step: 240 },
        Self::Voice { ipv6: true, step: 960 },
        Self::VoiceRandomIdent,
        Self::VoiceAlone,
        Self::Video,
        Self::Udp { ipv6: false },
        Self::Udp { ipv6: true },
        Self::RandomIdent,
        Self::SwappedIdent,
        Self::ZeroIdent,
        Self::Esp { ipv6: false },
        Self::Esp { ipv6: true },
        Self::Tcp { ipv6: false },
        Self::Tunnel,
        Self::Fragments,
    ];
}

impl Flow {
    /// Starts a flow. `number` distinguishes the flows of one kind.
    pub fn new(kind: Kind, number: u16) -> Self {
        let mut rng = TestRng::new(u64::from(number) + 1);
        let (ident, sequence, timestamp) =
            (rng.next_u64() as u16, rng.next_u64() as u32, rng.next_u64() as u32);
        let has_checksum = !matches!(kind, Kind::Voice { ipv6: false, .. });
        let (tos, ttl, until_pause, csrc) = (0xb8, 64, 100, Vec::new());
        Self { kind, number, rng, ident, sequence, timestamp, until_pause, tos, ttl, has_checksum, csrc }
    }

    fn chance(&mut self, one_in: u64) -> bool {
        self.rng.next_u64().is_multiple_of(one_in)
    }

    /// The next packet.
    pub fn next_packet(&mut self) -> Vec<u8> {
        self.change_rarely();
        let len = (self.rng.next_u64() % 60) as usize + 8;
        let payload = vec![self.number as u8; len];
        match self.kind {
            Kind::VoiceRandomIdent | Kind::VoiceAlone => {
                let marker = self.until_pause == 100;
                self.count_down(160);
                let rtp = self.rtp(marker, &payload);
                let udp = self.udp(&rtp);
                self.ip(false, 17, &udp)
            }
            Kind::Voice { ipv6, step } => {
                let marker = self.until_pause == 100;
                self.count_down(step);
                let rtp = self.rtp(marker, &payload);
                let udp = self.udp(&rtp);
                self.ip(ipv6, 17, &udp)
            }
            Kind::Video => {
                self.sequence = self.sequence.wrapping_add(1);
                let marker = self.chance(4);
                let rtp = self.rtp(marker, &payload);
                if marker {
                    self.timestamp = self.timestamp.wrapping_add(3_000);
                }
                let udp = self.udp(&rtp);
                self.ip(false, 17, &udp)
            }
            Kind::Udp { ipv6 } => {
                let udp = self.udp(&payload);
                self.ip(ipv6, 17, &udp)
            }
            Kind::RandomIdent | Kind::SwappedIdent | Kind::ZeroIdent => {
                let udp = self.udp(&payload);
                self.ip(false, 17, &udp)
            }
            Kind::Esp { ipv6 } => {
                let step = if self.chance(50) { 1_000 } else { 1 };
                self.sequence = self.sequence.wrapping_add(step);
                let spi = 0x0100_0000 | u32::from(self.number);
                let esp = [&spi.to_be_bytes()[..], &self.sequence.to_be_bytes(), &payload].concat();
                self.ip(ipv6, 50, &esp)
            }
            Kind::Tcp { ipv6 } => self.ip(ipv6, 6, &payload),
            Kind::Tunnel => {
                let udp = self.udp(&payload);
                let inner = self.ip(false, 17, &udp);
                let outer_ident = if self.number.is_multiple_of(2) { 0 } else { self.rng.next_u64() as u16 };
                ipv4(self.tos, outer_ident, 0, 255, 4, [192, 0, 2, 1], [192, 0, 2, 2], &inner)
            }
            Kind::Fragments => {
                let ident = self.next_ident();
                ipv4(0, ident, 0x2000, 64, 17, [10, 0, 0, 1], [10, 0, 0, 2], &payload)
            }
        }
    }

    fn count_down(&mut self, step: u32) {
        self.sequence = self.sequence.wrapping_add(1);
        let mut steps = 1;
        self.until_pause = match self.until_pause.checked_sub(1) {
            Some(left) => left,
            None => {
                steps = (self.rng.next_u64() % 200) as u32 + 2;
                100
            }
        };
        self.timestamp = self.timestamp.wrapping_add(step * steps);
    }

    /// Fields that applications and routers change now and then.
    fn change_rarely(&mut self) {
        if self.chance(300) {
            self.ttl = 60 + (self.rng.next_u64() % 4) as u8;
        }
        if self.chance(400) {
            self.tos ^= 0x40;
        }
        if self.chance(900) && !matches!(self.kind, Kind::Udp { ipv6: true } | Kind::Voice { ipv6: true, .. })
        {
            self.has_checksum = !self.has_checksum;
        }
        if self.chance(500) {
            let count = self.rng.next_u64() % 4;
            self.csrc = (0..count).map(|n| 0x7000_0000 + (n + self.rng.next_u64() % 3) as u32).collect();
        }
        // Packets that the compressor never sees.
        if self.chance(60) {
            self.sequence = self.sequence.wrapping_add((self.rng.next_u64() % 30) as u32);
        }
    }

    fn next_ident(&mut self) -> u16 {
        match self.kind {
            Kind::RandomIdent | Kind::VoiceRandomIdent => self.rng.next_u64() as u16,
            Kind::ZeroIdent => 0,
            Kind::VoiceAlone => self.sequence as u16,
            Kind::SwappedIdent => {
                self.ident = self.ident.wrapping_add(1);
                self.ident.swap_bytes()
            }
            _ => {
                let step = if self.chance(8) { (self.rng.next_u64() % 40) as u16 } else { 1 };
                self.ident = self.ident.wrapping_add(step);
                self.ident
            }
        }
    }

    fn rtp(&self, marker: bool, payload: &[u8]) -> Vec<u8> {
        let count = self.csrc.len() as u8;
        let mut rtp = vec![0x80 | count, u8::from(marker) << 7 | (self.number % 8) as u8];
        rtp.extend((self.sequence as u16).to_be_bytes());
        rtp.extend(self.timestamp.to_be_bytes());
        rtp.extend((0x5351_0000 | u32::from(self.number)).to_be_bytes());
        rtp.extend(self.csrc.iter().flat_map(|csrc| csrc.to_be_bytes()));
        rtp.extend(payload);
        rtp
    }

    fn udp(&mut self, payload: &[u8]) -> Vec<u8> {
        let checksum = if self.has_checksum { (self.rng.next_u64() as u16).max(1) } else { 0 };
        let (src, dst) = (30_000 + self.number, 40_000 + self.number);
        let len = 8 + payload.len() as u16;
        [src, dst, len, checksum]
            .iter()
            .flat_map(|field| field.to_be_bytes())
            .chain(payload.iter().copied())
            .collect()
    }

    fn ip(&mut self, ipv6: bool, protocol: u8, payload: &[u8]) -> Vec<u8> {
        if ipv6 {
            let flow_label = u32::from(self.number % 2) * 0x1_2345;
            let first = 6 << 28 | u32::from(self.tos) << 20 | flow_label;
            let mut packet = first.to_be_bytes().to_vec();
            packet.extend((payload.len() as u16).to_be_bytes());
            packet.extend([protocol, self.ttl]);
            packet.extend([0x20; 16]);
            packet.extend([0x21; 16]);
            packet.extend(payload);
            return packet;
        }
        let flags = if self.kind == Kind::ZeroIdent { 0x4000 } else { 0 };
        let ident = self.next_ident();
        ipv4(self.tos, ident, flags, self.ttl, protocol, [10, 1, 0, 1], [10, 2, 0, 1], payload)
    }
}

#[expect(clippy::too_many_arguments, reason = "the fields of the header")]
fn ipv4(
    tos: u8,
    ident: u16,
    flags: u16,
    ttl: u8,
    protocol: u8,
    src: [u8; 4],
    dst: [u8; 4],
    payload: &[u8],
) -> Vec<u8> {
    let mut packet = vec![0x45, tos];
    packet.extend((20 + payload.len() as u16).to_be_bytes());
    packet.extend(ident.to_be_bytes());
    packet.extend(flags.to_be_bytes());
    packet.extend([ttl, protocol, 0, 0]);
    packet.extend(src);
    packet.extend(dst);
    let words = packet.as_chunks().0.iter().map(|word| u32::from(u16::from_be_bytes(*word)));
    let sum: u32 = words.sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let checksum = !((folded & 0xffff) + (folded >> 16)) as u16;
    packet.splice(10..12, checksum.to_be_bytes());
    packet.extend(payload);
    packet
}
