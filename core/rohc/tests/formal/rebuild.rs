//! Writes the uncompressed headers and computes the CRCs.

use super::chains::{control_crc_fields, uncompressed};
use super::table::{Header, IP_ID_BEHAVIOR_RANDOM, Source};
use super::walk::Walk;

/// Collects bits, most significant first.
#[derive(Default)]
struct BitWriter {
    bits: Vec<bool>,
}

impl BitWriter {
    fn put(&mut self, value: u128, width: u32) -> Result<(), String> {
        if width < 128 && value >> width != 0 {
            return Err(format!("{value} does not fit in {width} bits"));
        }
        self.bits.extend((0..width).rev().map(|shift| value >> shift & 1 == 1));
        Ok(())
    }

    fn octets(&self) -> Vec<u8> {
        let octet = |bits: &[bool]| bits.iter().fold(0u8, |octet, bit| octet << 1 | u8::from(*bit));
        self.bits.chunks(8).map(octet).collect()
    }
}

/// The CRC of RFC 5795 section 5.3.1 with 3, 7 or 8 bits, one bit of the data at a time: the register
/// starts as all ones, the least significant bit of each octet goes first, and the register shifts right.
pub fn crc(width: u32, data: &[u8]) -> u128 {
    // The exponents of the polynomial C(x) less its highest one.
    let exponents: &[u32] = match width {
        3 => &[0, 1],
        7 => &[0, 1, 2, 3, 6],
        _ => &[0, 1, 2],
    };
    let polynomial: u128 = exponents.iter().map(|exponent| 1 << (width - 1 - exponent)).sum();
    let mut register: u128 = (1 << width) - 1;
    for octet in data {
        for position in 0..8 {
            let feedback = register & 1 ^ u128::from(octet >> position & 1);
            register >>= 1;
            if feedback == 1 {
                register ^= polynomial;
            }
        }
    }
    register
}

/// The 16-bit one's complement of the one's complement sum of the 16-bit words.
fn internet_checksum(header: &[u8]) -> u128 {
    let mut sum: u128 = 0;
    for (position, octet) in header.iter().enumerate() {
        sum += u128::from(*octet) << if position % 2 == 0 { 8 } else { 0 };
    }
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !sum & 0xffff
}

/// The length of a header in octets.
fn length(header: Header, walk: &Walk) -> Result<usize, String> {
    let bits: u32 = uncompressed(header).iter().map(|(_, _, width)| width).sum();
    let list = if header == Header::Rtp { walk.get("cc")? as usize * 4 } else { 0 };
    Ok(bits as usize / 8 + list)
}

/// The uncompressed header chain of a packet.
pub fn headers(chain: &[Header], walk: &mut Walk, payload: usize) -> Result<Vec<u8>, String> {
    let mut rest = payload;
    for header in chain {
        rest += length(*header, walk)?;
    }
    let mut out = Vec::new();
    let mut level = 0;
    for header in chain {
        let is_ip = matches!(header, Header::Ipv4 | Header::Ipv6);
        if is_ip {
            walk.level = level;
            level += 1;
        }
        let first = write(*header, walk, rest, 0)?;
        let checksum = if *header == Header::Ipv4 { internet_checksum(&first) } else { 0 };
        out.extend(write(*header, walk, rest, checksum)?);
        rest -= length(*header, walk)?;
    }
    Ok(out)
}

/// One header. `rest` is its length and that of all that follows.
fn write(header: Header, walk: &Walk, rest: usize, checksum: u128) -> Result<Vec<u8>, String> {
    let mut writer = BitWriter::default();
    for (name, source, width) in uncompressed(header) {
        let value = match source {
            Source::Bound => walk.get(name)?,
            Source::Fixed(value) => *value,
            Source::InferredIpv4Length | Source::InferredUdpLength => rest as u128,
            Source::InferredIpv6Length => rest as u128 - 40,
            Source::InferredIpv4Checksum => checksum,
        };
        writer.put(value, *width).map_err(|reason| format!("{header:?} {name}: {reason}"))?;
    }
    if header == Header::Rtp {
        for position in 0..walk.get("cc")? {
            writer.put(walk.get(&format!("csrc{position}"))?, 32)?;
        }
    }
    Ok(writer.octets())
}

/// How an IPv6 header counts in the control CRC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ipv6InControlCrc {
    /// There is no IPv6 header, so both readings are one.
    NoIpv6,
    /// "One octet for each IP header": an IPv6 header has the behavior RANDOM, which UNCOMPRESSED v6 says.
    Random,
    /// An IPv6 header has no IP-ID, so it has no octet.
    NoOctet,
}

/// Checks the control CRC-3 (section 6.6.11), and says which reading of the RFC it fits.
pub fn check_control_crc(chain: &[Header], walk: &mut Walk) -> Result<Ipv6InControlCrc, String> {
    let received = walk.get("control_crc3")?;
    let mut fields = BitWriter::default();
    for (name, width) in control_crc_fields(walk.profile) {
        fields.put(walk.get(name)?, *width)?;
    }
    let mut with_octet = fields.octets();
    let mut without_octet = fields.octets();
    for (level, header) in chain.iter().enumerate() {
        walk.level = level;
        let name = if level == walk.innermost { "ip_id_behavior_innermost" } else { "ip_id_behavior_outer" };
        match header {
            Header::Ipv4 => {
                with_octet.push(walk.get(name)? as u8);
                without_octet.push(walk.get(name)? as u8);
            }
            Header::Ipv6 => with_octet.push(IP_ID_BEHAVIOR_RANDOM as u8),
            _ => {}
        }
    }
    let computed = (crc(3, &with_octet), crc(3, &without_octet));
    if with_octet == without_octet && computed.0 == received {
        Ok(Ipv6InControlCrc::NoIpv6)
    } else if computed.0 == received {
        Ok(Ipv6InControlCrc::Random)
    } else if computed.1 == received {
        Ok(Ipv6InControlCrc::NoOctet)
    } else {
        Err(format!("control_crc3 is {received}, computed {} over {with_octet:02x?}", computed.0))
    }
}
