//! What a paper printed about calls over IPsec, and the same from the formats.
//!
//! R. Barbieri, D. Bruschi, E. Rosti, "Voice over IPsec: Analysis and Solutions", 18th Annual Computer Security Applications Conference
//! (ACSAC), 2002: Table 3, Figures 2 and 3.

use crate::codec::Stream;
use crate::packet::{Esp, EspSizes, Protection, Wire};
use crate::plan::{Plan, increase, reduction};
use casemate_crypto::{CipherAlg, EspSuite, MacAlg, MacKind};
use casemate_sa::Mode;
use casemate_wire::ip::IpVersion;
use std::time::Duration;

/// The line of Table 3, in bits a second.
pub const LINE: u64 = 128_000;
/// The speech in each packet of Table 3, in bytes.
pub const PAYLOAD: usize = 40;
/// 50 packets a second.
pub const INTERVAL: Duration = Duration::from_millis(20);
/// Lengths of the packets whose growth Figure 3 shows, in bytes.
pub const FIGURE_3: [usize; 9] = [60, 210, 360, 510, 660, 810, 960, 1110, 1260];

/// A row of Table 3. Percentages are whole numbers, as printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// Header, with padding and ICV, in bytes.
    pub header: usize,
    /// The packet, in bytes.
    pub packet: usize,
    /// Speech to packet.
    pub ratio: u32,
    /// Size increase against cRTP.
    pub increase: u32,
    /// Performance reduction against cRTP.
    pub reduction: u32,
    /// Calls on the line.
    pub calls: u64,
}

/// The packets of Table 3.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PacketType {
    /// Compressed headers.
    Crtp,
    /// IP alone.
    Ip,
    /// An ESP tunnel with DES, which authenticates nothing.
    Des,
    /// An ESP tunnel with 3DES and HMAC-SHA-1.
    TripleDesSha,
}

impl PacketType {
    /// In the table's order.
    pub const ALL: [Self; 4] = [Self::Crtp, Self::Ip, Self::Des, Self::TripleDesSha];

    /// As the table calls it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Crtp => "cRTP",
            Self::Ip => "IP",
            Self::Des => "IPsec DES",
            Self::TripleDesSha => "IPsec 3DES+SHA",
        }
    }

    /// The row as printed.
    pub const fn printed(self) -> Row {
        let (header, packet, ratio, increase, reduction, calls) = match self {
            Self::Crtp => (5, 45, 89, 0, 0, 7),
            Self::Ip => (40, 80, 50, 78, 44, 4),
            Self::Des => (82, 122, 33, 171, 63, 2),
            Self::TripleDesSha => (94, 134, 30, 198, 66, 2),
        };
        Row { header, packet, ratio, increase, reduction, calls }
    }

    /// What is done to the packets.
    pub fn protection(self) -> Protection {
        match self {
            // The paper counts 5 bytes where RFC 2508 has 2 to 4; the rest may be the line's.
            Self::Crtp => Protection::Compressed(5),
            Self::Ip => Protection::Clear,
            Self::Des => Protection::Esp(tunnel(des())),
            Self::TripleDesSha => Protection::Esp(tunnel(with_sha(CipherAlg::TripleDesCbc))),
        }
    }

    /// The row as the formats make it.
    pub fn exact(self) -> Row {
        let wire = Wire { version: IpVersion::V4, protection: self.protection(), link: 0 };
        row(wire.packet_len(PAYLOAD))
    }

    /// Why the printed length is not that of the format, if it is not.
    ///
    /// Both misprints are two bytes too few, and 2 bytes are Pad Length and Next Header (RFC 4303 sections 2.5 and 2.6). With them 82 bytes
    /// are padded to 88, not 80 to 86, which is no multiple of the cipher's block.
    pub fn misprint(self) -> Option<&'static str> {
        (self.printed().packet != self.exact().packet)
            .then_some("Pad Length and Next Header, 2 bytes of ESP's trailer, are not counted")
    }
}

/// The row that follows from a packet's length alone.
pub fn row(packet: usize) -> Row {
    let reference = PacketType::Crtp.printed().packet;
    let percent = |part: f64| (part * 100.0).round() as u32;
    Row {
        header: packet.saturating_sub(PAYLOAD),
        packet,
        ratio: percent(PAYLOAD as f64 / packet as f64),
        increase: percent(increase(packet, reference)),
        reduction: percent(reduction(packet, reference)),
        calls: Stream::new(PAYLOAD, INTERVAL).map_or(0, |stream| Plan { line: LINE, stream, packet }.calls()),
    }
}

/// The four suites of Figure 3, by the figure's names.
pub fn figure_3_suites() -> [(&'static str, Esp); 4] {
    [
        ("DES", tunnel(des())),
        ("3DES", tunnel(EspSizes { icv: 0, ..with_sha(CipherAlg::TripleDesCbc) })),
        ("NULL+SHA", tunnel(with_sha(CipherAlg::Null))),
        ("3DES+SHA", tunnel(with_sha(CipherAlg::TripleDesCbc))),
    ]
}

fn tunnel(sizes: EspSizes) -> Esp {
    Esp { sizes, mode: Mode::Tunnel, encap: false }
}

/// Encryption without integrity, which no product should have (RFC 8221 section 4), so that no suite of this project can say it.
fn des() -> EspSizes {
    EspSizes { icv: 0, ..with_sha(CipherAlg::DesCbc) }
}

fn with_sha(cipher: CipherAlg) -> EspSizes {
    EspSuite::Separate(cipher, MacAlg::standard(MacKind::HmacSha1)).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From the printed lengths alone every other printed number of the table follows.
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

    /// 82 bytes in whole blocks of 8 and of 4, by hand.
    #[test]
    fn growth_of_an_80_byte_packet() {
        let lengths = figure_3_suites().map(|(_, esp)| esp.protected_len(80, 20));
        assert_eq!(lengths, [124, 124, 124, 136]);
    }
}
