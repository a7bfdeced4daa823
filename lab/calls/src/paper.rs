//! Printed numbers of a paper about calls over IPsec, and the exact numbers from the packet formats.
//!
//! R. Barbieri, D. Bruschi, E. Rosti, "Voice over IPsec: Analysis and Solutions", 18th Annual Computer
//! Security Applications Conference (ACSAC), 2002: Table 3, Figures 2 and 3.

use crate::codec::Stream;
use crate::packet::{Esp, EspOverhead, PacketFormat, Protection};
use crate::plan::{Plan, increase, reduction};
use casemate_crypto::{CipherAlg, EspSuite, MacAlg, MacKind};
use casemate_sa::Mode;
use casemate_wire::ip::IpVersion;
use std::time::Duration;

/// Rate of the line in Table 3, in bit/s.
pub const LINE: u64 = 128_000;
/// Speech per packet in Table 3, in bytes.
pub const PAYLOAD: usize = 40;
/// Time between packets: 50 packets per second.
pub const INTERVAL: Duration = Duration::from_millis(20);
/// Packet lengths in Figure 3, in bytes.
pub const FIGURE_3: [usize; 9] = [60, 210, 360, 510, 660, 810, 960, 1110, 1260];

/// A row of Table 3. Percentages are whole numbers, as printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// Length of the headers with padding and ICV, in bytes.
    pub header: usize,
    /// Length of the packet, in bytes.
    pub packet: usize,
    /// Share of speech in the packet, in percent.
    pub ratio: u32,
    /// Size increase over cRTP, in percent.
    pub increase: u32,
    /// Bandwidth lost against cRTP, in percent.
    pub reduction: u32,
    /// Number of calls on the line.
    pub calls: u64,
}

/// Packet types of Table 3.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PacketType {
    /// Compressed headers.
    Crtp,
    /// Plain IP.
    Ip,
    /// ESP tunnel with DES and without authentication.
    Des,
    /// ESP tunnel with 3DES and HMAC-SHA-1.
    TripleDesSha,
}

impl PacketType {
    /// All types, in the order of the table.
    pub const ALL: [Self; 4] = [Self::Crtp, Self::Ip, Self::Des, Self::TripleDesSha];

    /// Name in the table.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Crtp => "cRTP",
            Self::Ip => "IP",
            Self::Des => "IPsec DES",
            Self::TripleDesSha => "IPsec 3DES+SHA",
        }
    }

    /// Row as printed in the paper.
    pub const fn printed(self) -> Row {
        let (header, packet, ratio, increase, reduction, calls) = match self {
            Self::Crtp => (5, 45, 89, 0, 0, 7),
            Self::Ip => (40, 80, 50, 78, 44, 4),
            Self::Des => (82, 122, 33, 171, 63, 2),
            Self::TripleDesSha => (94, 134, 30, 198, 66, 2),
        };
        Row { header, packet, ratio, increase, reduction, calls }
    }

    /// Protection of the packets.
    pub fn protection(self) -> Protection {
        match self {
            // The paper counts 5 bytes, RFC 2508 has 2 to 4. The difference may be the framing of the line.
            Self::Crtp => Protection::Compressed(5),
            Self::Ip => Protection::Clear,
            Self::Des => Protection::Esp(tunnel(des())),
            Self::TripleDesSha => Protection::Esp(tunnel(with_sha(CipherAlg::TripleDesCbc))),
        }
    }

    /// Row computed from the packet formats.
    pub fn exact(self) -> Row {
        let wire = PacketFormat { version: IpVersion::V4, protection: self.protection(), link: 0 };
        row(wire.packet_len(PAYLOAD))
    }

    /// Returns why the printed length differs from the packet format, if it does.
    ///
    /// Both misprints are too short by the 2 bytes of Pad Length and Next Header (RFC 4303 sections 2.5 and
    /// 2.6). With these bytes, 82 bytes are padded to 88. The printed lengths correspond to 80 bytes padded
    /// to 86, which is no multiple of the cipher's block size.
    pub fn misprint(self) -> Option<&'static str> {
        (self.printed().packet != self.exact().packet)
            .then_some("the 2 bytes of Pad Length and Next Header in the ESP trailer are not counted")
    }
}

/// Computes the row from the length of the packet.
pub fn row(packet: usize) -> Row {
    let reference = PacketType::Crtp.printed().packet;
    let percent = |part: f64| (part * 100.0).round() as u32;
    Row {
        header: packet.saturating_sub(PAYLOAD),
        packet,
        ratio: percent(PAYLOAD as f64 / packet as f64),
        increase: percent(increase(packet, reference)),
        reduction: percent(reduction(packet, reference)),
        calls: Stream::new(PAYLOAD, INTERVAL)
            .map_or(0, |stream| Plan { line_rate: LINE, stream, packet_len: packet }.calls()),
    }
}

/// The four suites of Figure 3 with the names of the figure.
pub fn figure_3_suites() -> [(&'static str, Esp); 4] {
    [
        ("DES", tunnel(des())),
        ("3DES", tunnel(EspOverhead { icv: 0, ..with_sha(CipherAlg::TripleDesCbc) })),
        ("NULL+SHA", tunnel(with_sha(CipherAlg::Null))),
        ("3DES+SHA", tunnel(with_sha(CipherAlg::TripleDesCbc))),
    ]
}

fn tunnel(sizes: EspOverhead) -> Esp {
    Esp { sizes, mode: Mode::Tunnel, encap: false }
}

/// Encryption without integrity (RFC 8221 section 4 advises against it). No suite type of Casemate can
/// express it.
fn des() -> EspOverhead {
    EspOverhead { icv: 0, ..with_sha(CipherAlg::DesCbc) }
}

fn with_sha(cipher: CipherAlg) -> EspOverhead {
    EspSuite::Separate(cipher, MacAlg::standard(MacKind::HmacSha1)).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The other printed numbers of the table follow from the printed lengths.
    #[test]
    fn the_table_follows_from_its_lengths() {
        for kind in PacketType::ALL {
            assert_eq!(row(kind.printed().packet), kind.printed(), "{}", kind.name());
        }
        assert_eq!(PacketType::ALL.map(|kind| kind.printed().calls), [7, 4, 2, 2]);
    }

    #[test]
    fn the_formats_differ_in_two_lengths_and_no_call() {
        let lengths = PacketType::ALL.map(|kind| (kind.printed().packet, kind.exact().packet));
        assert_eq!(lengths, [(45, 45), (80, 80), (122, 124), (134, 136)]);
        for kind in PacketType::ALL {
            assert_eq!(kind.exact().calls, kind.printed().calls, "{}", kind.name());
            assert_eq!(kind.misprint().is_some(), kind.exact() != kind.printed(), "{}", kind.name());
        }
    }

    /// 82 bytes padded to blocks of 8 and 4 bytes, computed by hand.
    #[test]
    fn growth_of_an_80_byte_packet() {
        let lengths = figure_3_suites().map(|(_, esp)| esp.protected_len(80, 20));
        assert_eq!(lengths, [124, 124, 124, 136]);
    }
}
