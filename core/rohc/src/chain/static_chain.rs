//! Static chain: fields that never change in a flow. Only IR headers have it.

use crate::cursor::{Bits, HeaderBytes, Packed, Reader, Write};
use crate::headers::{Esp, Headers, Ip, Ipv4, Ipv6, Rtp, Transport, Udp, has_unsupported_item};
use crate::{Fault, Profile};
use arrayvec::ArrayVec;
use casemate_wire::ip::proto;

/// Reads the chain of a profile. The other fields of the headers are zero.
pub(crate) fn read_static(profile: Profile, reader: &mut Reader<'_>) -> Result<Headers, Fault> {
    let mut ips = ArrayVec::new();
    loop {
        let (ip, is_innermost) = read_ip(reader)?;
        ips.try_push(ip).map_err(|_| Fault::TooLong)?;
        let is_ip = matches!(ip.next(), proto::IPIP | proto::IPV6);
        match (is_innermost, profile, ip.next()) {
            (true, Profile::Udp | Profile::Rtp, proto::UDP) | (true, Profile::Esp, proto::ESP) => break,
            (true, Profile::Ip, next) if !has_unsupported_item(next) => break,
            (false, ..) if is_ip => {}
            _ => return Err(Fault::Chain),
        }
    }
    let transport = match profile {
        Profile::Udp => Transport::Udp(read_udp(reader)?),
        Profile::Rtp => Transport::Rtp(read_udp(reader)?, read_rtp(reader)?),
        Profile::Esp => Transport::Esp(Esp { spi: reader.u32()?, sequence: 0 }),
        Profile::Ip => Transport::None,
        Profile::Uncompressed => return Err(Fault::Chain),
    };
    Ok(Headers { ips, transport })
}

/// Reads an IP header, and whether it is the innermost one.
fn read_ip(reader: &mut Reader<'_>) -> Result<(Ip, bool), Fault> {
    let mut bits = Bits::of_u8(reader.u8()?);
    let (is_v6, is_innermost) = (bits.flag(), bits.flag());
    if !is_v6 {
        bits.reserved(6)?;
        let ip = Ipv4 {
            tos: 0,
            ident: 0,
            dont_fragment: false,
            ttl: 0,
            protocol: reader.u8()?,
            src: reader.array()?,
            dst: reader.array()?,
        };
        return Ok((Ip::V4(ip), is_innermost));
    }
    bits.reserved(1)?;
    let has_flow_label = bits.flag();
    let high = bits.take(4);
    let flow_label = match has_flow_label {
        true => high << 16 | u32::from(reader.u16()?),
        false if high == 0 => 0,
        false => return Err(Fault::Reserved),
    };
    let next_header = reader.u8()?;
    let (src, dst) = (reader.array()?, reader.array()?);
    Ok((Ip::V6(Ipv6 { traffic_class: 0, flow_label, next_header, hop_limit: 0, src, dst }), is_innermost))
}

fn read_udp(reader: &mut Reader<'_>) -> Result<Udp, Fault> {
    Ok(Udp { src_port: reader.u16()?, dst_port: reader.u16()?, checksum: 0 })
}

fn read_rtp(reader: &mut Reader<'_>) -> Result<Rtp, Fault> {
    Ok(Rtp {
        padding: false,
        extension: false,
        marker: false,
        payload_type: 0,
        sequence: 0,
        timestamp: 0,
        ssrc: reader.u32()?,
        csrc: ArrayVec::new(),
    })
}

/// Writes the chain.
pub(crate) fn write_static(headers: &Headers, out: &mut HeaderBytes) -> Result<(), Fault> {
    let innermost = headers.ips.len().saturating_sub(1);
    for (n, ip) in headers.ips.iter().enumerate() {
        write_ip(ip, n == innermost, out)?;
    }
    match &headers.transport {
        Transport::None => Ok(()),
        Transport::Udp(udp) => write_udp(udp, out),
        Transport::Rtp(udp, rtp) => {
            write_udp(udp, out)?;
            out.put(&rtp.ssrc.to_be_bytes())
        }
        Transport::Esp(esp) => out.put(&esp.spi.to_be_bytes()),
    }
}

fn write_ip(ip: &Ip, is_innermost: bool, out: &mut HeaderBytes) -> Result<(), Fault> {
    let flags = Packed::default().with_flag(matches!(ip, Ip::V6(_))).with_flag(is_innermost);
    match ip {
        Ip::V4(ip) => {
            flags.with(0, 6).write(out)?;
            out.put(&[ip.protocol])?;
            out.put(&ip.src)?;
            out.put(&ip.dst)
        }
        Ip::V6(ip) => {
            match ip.flow_label {
                0 => flags.with(0, 6).write(out)?,
                label => flags.with(0b01, 2).with(label, 20).write(out)?,
            }
            out.put(&[ip.next_header])?;
            out.put(&ip.src)?;
            out.put(&ip.dst)
        }
    }
}

fn write_udp(udp: &Udp, out: &mut HeaderBytes) -> Result<(), Fault> {
    out.put(&udp.src_port.to_be_bytes())?;
    out.put(&udp.dst_port.to_be_bytes())
}
