//! The framing of RFC 5795 and the header types of RFC 5225.

use std::collections::BTreeMap;

use super::base::{CO_REPAIR, defaults, formats};
use super::chains::{IP_STATIC, dynamic_item, irregular_item, static_item, upper_headers};
use super::rebuild::{Ipv6InControlCrc, check_control_crc, crc, headers};
use super::table::{ESP, Header, IP, IP_ID_BEHAVIOR_SEQUENTIAL_SWAPPED, RTP, UDP};
use super::walk::{Fields, Walk};

/// The most IP headers that the decoder takes.
const MAX_IP_HEADERS: usize = 3;

/// What the decoder knows of one CID.
#[derive(Clone, Debug)]
struct Context {
    /// 0 or one of 0x0101 to 0x0104.
    profile: u16,
    chain: Vec<Header>,
    fields: Fields,
}

/// The decoder of one ROHC channel.
pub struct Decoder {
    max_cid: u16,
    contexts: BTreeMap<u16, Context>,
    control_crc_readings: BTreeMap<Ipv6InControlCrc, usize>,
}

/// A packet cut into its parts: the octets before the profile or the base header are gone.
struct Parts {
    cid: u16,
    /// The type octet.
    first: u8,
    /// What follows the type octet and, with large CIDs, the CID.
    rest: Vec<u8>,
    /// The octets from the Add-CID or type octet up to `rest`.
    lead: Vec<u8>,
}

impl Decoder {
    /// Large CIDs are in use if `max_cid` is more than 15.
    pub fn new(max_cid: u16) -> Self {
        Self { max_cid, contexts: BTreeMap::new(), control_crc_readings: BTreeMap::new() }
    }

    /// The value of a field in the context of a CID, such as "msn", "ts_stride" or "ip0.tos_tc".
    pub fn field(&self, cid: u16, name: &str) -> Option<u128> {
        self.contexts.get(&cid)?.fields.get(name).copied()
    }

    /// How often the control CRC fitted each reading of the RFC with IPv6 headers.
    pub fn control_crc_readings(&self) -> String {
        format!("{:?}", self.control_crc_readings)
    }

    /// Decodes one packet: the whole uncompressed packet and the name of the format, or what was wrong.
    /// A packet that fails changes no context.
    pub fn decode(&mut self, packet: &[u8]) -> Result<(Vec<u8>, &'static str), String> {
        let parts = self.cut(packet)?;
        match parts.first {
            0xfc | 0xfd => self.decode_ir(&parts),
            0xfe | 0xff => Err("a segment".to_owned()),
            _ => {
                let context = self.contexts.get(&parts.cid).cloned();
                let context = context.ok_or_else(|| format!("CID {} has no context", parts.cid))?;
                match (context.profile, parts.first) {
                    (0, first) if matches!(first >> 4, 4 | 6) => {
                        Ok(([&[first][..], &parts.rest].concat(), "Normal"))
                    }
                    (0, first) => Err(format!("type octet {first:02x} with profile 0x0000")),
                    (_, 0xfb) => self.decode_co_repair(&parts, &context),
                    _ => self.decode_co(&parts, &context),
                }
            }
        }
    }

    /// Skips padding and feedback, and finds the CID (RFC 5795 section 5.2.1).
    fn cut(&self, packet: &[u8]) -> Result<Parts, String> {
        let short = || "the packet is too short".to_owned();
        let mut rest = packet;
        while rest.first() == Some(&0xe0) {
            rest = rest.get(1..).ok_or_else(short)?;
        }
        while let Some(type_octet @ 0xf0..=0xf7) = rest.first() {
            let skip = match type_octet & 7 {
                0 => 2 + usize::from(*rest.get(1).ok_or_else(short)?),
                size => 1 + usize::from(size),
            };
            rest = rest.get(skip..).ok_or_else(short)?;
        }
        let start = rest;
        let mut cid = 0;
        let mut take = || -> Result<u8, String> {
            let (first, others) = rest.split_first().ok_or_else(short)?;
            rest = others;
            Ok(*first)
        };
        let mut first = take()?;
        if self.max_cid > 15 {
            cid = u16::from(take()?);
            if cid >> 6 == 0b10 {
                cid = (cid & 0x3f) << 8 | u16::from(take()?);
            } else if cid >> 7 != 0 {
                return Err("no such CID encoding".to_owned());
            }
        } else if first >> 4 == 0xe {
            cid = u16::from(first & 0xf);
            first = take()?;
        }
        if cid > self.max_cid {
            return Err(format!("CID {cid} is over MAX_CID"));
        }
        let lead = start.get(..start.len() - rest.len()).ok_or_else(short)?;
        Ok(Parts { cid, first, rest: rest.to_vec(), lead: lead.to_vec() })
    }

    fn decode_ir(&mut self, parts: &Parts) -> Result<(Vec<u8>, &'static str), String> {
        let [profile, received, body @ ..] = parts.rest.as_slice() else {
            return Err("IR: the packet is too short".to_owned());
        };
        let check = |octets: &[u8]| match crc(8, octets) {
            computed if computed == u128::from(*received) => Ok(()),
            computed => Err(format!("IR: CRC-8 is {received:02x}, computed {computed:02x}")),
        };
        if *profile == 0 {
            if parts.first != 0xfc {
                return Err("IR of profile 0x0000: res is not 0".to_owned());
            }
            check(&[&parts.lead[..], &[0]].concat())?;
            let context = Context { profile: 0, chain: Vec::new(), fields: Fields::new() };
            self.contexts.insert(parts.cid, context);
            return Ok((body.to_vec(), "IR"));
        }
        let profile = 0x0100 | u16::from(*profile);
        if parts.first != 0xfd || !matches!(profile, RTP | UDP | ESP | IP) {
            return Err(format!("IR: type octet {:02x} with profile {profile:04x}", parts.first));
        }
        // Of an earlier context only the item table of the CSRC list stays.
        let mut old = Fields::new();
        if let Some(context) = self.contexts.get(&parts.cid).filter(|context| context.profile == profile) {
            old = context.fields.clone();
            old.retain(|name, _| name.starts_with("csrc_item"));
        }
        let mut walk = Walk::new(body, profile, &old, MAX_IP_HEADERS);
        let chain = static_chain(&mut walk).map_err(|reason| format!("IR: {reason}"))?;
        dynamic_chain(&chain, &mut walk).map_err(|reason| format!("IR: {reason}"))?;
        let used = walk.bits.octets_read()?;
        let covered = body.get(..used).ok_or("IR: the packet is too short")?;
        check(&[&parts.lead[..], &[parts.rest[0], 0], covered].concat())?;
        let payload = body.get(used..).ok_or("IR: the packet is too short")?;
        let packet = finish(&chain, &mut walk, payload, false).map_err(|reason| format!("IR: {reason}"))?;
        self.contexts.insert(parts.cid, Context { profile, chain, fields: walk.new });
        Ok((packet, "IR"))
    }

    fn decode_co_repair(
        &mut self,
        parts: &Parts,
        context: &Context,
    ) -> Result<(Vec<u8>, &'static str), String> {
        self.decode_with(parts, context, |walk| {
            walk.walk(CO_REPAIR)?;
            dynamic_chain(&context.chain, walk)?;
            Ok("co_repair")
        })
    }

    fn decode_co(&mut self, parts: &Parts, context: &Context) -> Result<(Vec<u8>, &'static str), String> {
        self.decode_with(parts, context, |walk| {
            let format = walk.choose(formats(context.profile))?;
            walk.walk(defaults(context.profile))?;
            walk.walk(format.fields).map_err(|reason| format!("{}: {reason}", format.name))?;
            for_each_header(&context.chain, walk, |header, walk| {
                walk.walk_one_of(irregular_item(header)).map(drop)
            })
            .map_err(|reason| format!("{}: {reason}", format.name))?;
            Ok(format.name)
        })
    }

    /// Walks a compressed header with `read`, checks it, and updates the context.
    fn decode_with(
        &mut self,
        parts: &Parts,
        context: &Context,
        read: impl FnOnce(&mut Walk) -> Result<&'static str, String>,
    ) -> Result<(Vec<u8>, &'static str), String> {
        let octets = [&[parts.first][..], &parts.rest].concat();
        let innermost = ip_headers(&context.chain) - 1;
        let mut walk = Walk::new(&octets, context.profile, &context.fields, innermost);
        let name = read(&mut walk)?;
        let explain = |reason| format!("{name}: {reason}");
        let payload = octets.get(walk.bits.octets_read().map_err(explain)?..).unwrap_or_default();
        let packet = finish(&context.chain, &mut walk, payload, true).map_err(explain)?;
        if matches!(name, "co_common" | "co_repair") {
            let reading = check_control_crc(&context.chain, &mut walk).map_err(explain)?;
            *self.control_crc_readings.entry(reading).or_default() += 1;
        }
        let context = Context { fields: walk.new, ..context.clone() };
        self.contexts.insert(parts.cid, context);
        Ok((packet, name))
    }
}

fn ip_headers(chain: &[Header]) -> usize {
    chain.iter().filter(|header| matches!(header, Header::Ipv4 | Header::Ipv6)).count()
}

/// Calls `read` for each header of the chain, with `walk.level` at its IP header.
fn for_each_header(
    chain: &[Header],
    walk: &mut Walk,
    mut read: impl FnMut(Header, &mut Walk) -> Result<(), String>,
) -> Result<(), String> {
    let innermost = walk.innermost;
    for (position, header) in chain.iter().enumerate() {
        walk.level = position.min(innermost);
        read(*header, walk)?;
    }
    Ok(())
}

/// The static chain: IP headers up to the innermost one, then those that the profile says.
fn static_chain(walk: &mut Walk) -> Result<Vec<Header>, String> {
    let mut chain = Vec::new();
    loop {
        walk.level = chain.len();
        if walk.level == MAX_IP_HEADERS {
            return Err("more IP headers than the decoder takes".to_owned());
        }
        walk.walk_one_of(IP_STATIC)?;
        chain.push(if walk.get("ip_version")? == 4 { Header::Ipv4 } else { Header::Ipv6 });
        if walk.get("innermost_ip")? == 1 {
            break;
        }
    }
    walk.innermost = chain.len() - 1;
    check_protocols(&chain, walk)?;
    for header in upper_headers(walk.profile) {
        walk.walk_one_of(static_item(*header))?;
        chain.push(*header);
    }
    Ok(chain)
}

/// Each IP header must name the header that follows it, as far as the chain says which that is.
fn check_protocols(ip_chain: &[Header], walk: &mut Walk) -> Result<(), String> {
    let upper = match walk.profile {
        RTP | UDP => Some(17),
        ESP => Some(50),
        _ => None,
    };
    for (level, header) in ip_chain.iter().enumerate() {
        walk.level = level;
        let named = walk.get(if *header == Header::Ipv4 { "protocol" } else { "next_header" })?;
        let expected = match ip_chain.get(level + 1) {
            Some(Header::Ipv4) => Some(4),
            Some(_) => Some(41),
            None => upper,
        };
        if expected.is_some_and(|expected| expected != named) {
            return Err(format!("IP header {level} names protocol {named}, not {expected:?}"));
        }
    }
    walk.level = walk.innermost;
    Ok(())
}

fn dynamic_chain(chain: &[Header], walk: &mut Walk) -> Result<(), String> {
    for_each_header(chain, walk, |header, walk| {
        walk.walk_one_of(dynamic_item(header))?;
        let outer_ipv4 = header == Header::Ipv4 && walk.level != walk.innermost;
        if outer_ipv4 && walk.get("ip_id_behavior_outer")? <= IP_ID_BEHAVIOR_SEQUENTIAL_SWAPPED {
            return Err("ip_id_behavior_outer is sequential (section 6.3.3)".to_owned());
        }
        Ok(())
    })
}

/// Completes the fields, writes the packet, and checks the header CRC if there is one.
fn finish(chain: &[Header], walk: &mut Walk, payload: &[u8], has_crc: bool) -> Result<Vec<u8>, String> {
    walk.solve()?;
    let mut packet = headers(chain, walk, payload.len())?;
    if has_crc {
        let width = walk.header_crc_width;
        let (received, computed) = (walk.get("header_crc")?, crc(width, &packet));
        if received != computed {
            return Err(format!("header CRC-{width} is {received}, computed {computed} over {packet:02x?}"));
        }
    }
    packet.extend_from_slice(payload);
    Ok(packet)
}
