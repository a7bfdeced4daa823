//! Selectors of states (`sel ...`) and of policies: addresses, protocol, and ports or ICMP type and code.

use super::LineProblem;
use super::cursor::Cursor;
use casemate_sa::{AddrRange, PortRange, Selector};

/// Protocol names of /etc/protocols, which iproute2 uses.
const PROTOCOLS: [(&str, u8); 21] = [
    ("icmp", 1),
    ("igmp", 2),
    ("ipencap", 4),
    ("ipip", 4),
    ("tcp", 6),
    ("udp", 17),
    ("dccp", 33),
    ("ipv6", 41),
    ("rsvp", 46),
    ("gre", 47),
    ("esp", 50),
    ("ah", 51),
    ("ipv6-icmp", 58),
    ("eigrp", 88),
    ("ospf", 89),
    ("pim", 103),
    ("vrrp", 112),
    ("l2tp", 115),
    ("sctp", 132),
    ("mobility-header", 135),
    ("udplite", 136),
];

const TCP: u8 = 6;
const UDP: u8 = 17;
const DCCP: u8 = 33;
const SCTP: u8 = 132;
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;
const MOBILITY: u8 = 135;

/// The words of a selector before the IP version of its open fields is known.
#[derive(Debug, Default)]
pub(super) struct SelectorWords {
    src: Option<AddrRange>,
    dst: Option<AddrRange>,
    proto: Option<u8>,
    src_port: Option<PortRange>,
    dst_port: Option<PortRange>,
}

impl SelectorWords {
    /// Whether `word` begins a part of a selector.
    pub(super) fn starts_with(word: &str) -> bool {
        is_upper(word) || matches!(word, "src" | "dst" | "dev" | "key")
    }

    /// Takes all consecutive words of a selector.
    pub(super) fn take(cursor: &mut Cursor<'_>) -> Result<Self, LineProblem> {
        let mut words = Self::default();
        let mut has_upper = false;
        while let Some(key) = cursor.peek().filter(|word| Self::starts_with(word)) {
            match key {
                "src" => {
                    cursor.take();
                    words.src = Some(cursor.prefix()?);
                }
                "dst" => {
                    cursor.take();
                    words.dst = Some(cursor.prefix()?);
                }
                "dev" | "key" => {
                    return Err(cursor.problem_at_next(format!(
                        "`{key}` is not supported in a selector: src, dst, proto, sport, dport, type or \
                         code was expected"
                    )));
                }
                // iproute2 reads these words in one group.
                _ if has_upper => {
                    return Err(cursor.problem_at_next(format!(
                        "`{key}`: proto, sport, dport, type and code were expected to stand together"
                    )));
                }
                _ => {
                    words.take_upper(cursor)?;
                    has_upper = true;
                }
            }
        }
        match (words.src, words.dst) {
            (Some(src), Some(dst)) if src.is_ipv4() != dst.is_ipv4() => Err(cursor
                .problem(format!("`src {src}` and `dst {dst}`: addresses of one IP version were expected"))),
            _ => Ok(words),
        }
    }

    /// Takes the words about the upper-layer protocol.
    fn take_upper(&mut self, cursor: &mut Cursor<'_>) -> Result<(), LineProblem> {
        let mut upper = UpperWords::default();
        while let Some(key) = cursor.take_if(is_upper) {
            match key {
                "proto" => self.proto = take_protocol(cursor)?,
                "sport" => self.src_port = upper.port(cursor)?,
                "dport" => self.dst_port = upper.port(cursor)?,
                "type" => self.src_port = Some(upper.icmp(cursor)?),
                _ => self.dst_port = Some(upper.icmp(cursor)?),
            }
        }
        upper.check(self.proto, cursor)
    }

    /// Whether the words determine the IP version.
    pub(super) fn names_version(&self) -> bool {
        self.src.is_some() || self.dst.is_some()
    }

    /// Completes the selector. An open address becomes any address of the other address's IP version, or
    /// else of IPv4 if `ipv4` is set.
    pub(super) fn finish(self, ipv4: bool) -> Selector {
        let ipv4 = self.src.or(self.dst).map_or(ipv4, |range| range.is_ipv4());
        let any = if ipv4 { AddrRange::ANY_V4 } else { AddrRange::ANY_V6 };
        Selector {
            src: self.src.unwrap_or(any),
            dst: self.dst.unwrap_or(any),
            proto: self.proto,
            src_port: self.src_port.unwrap_or(PortRange::ANY),
            dst_port: self.dst_port.unwrap_or(PortRange::ANY),
        }
    }
}

fn is_upper(word: &str) -> bool {
    matches!(word, "proto" | "sport" | "dport" | "type" | "code")
}

/// The words about the upper-layer protocol that were given; some fit only certain protocols.
#[derive(Default)]
struct UpperWords {
    ports: bool,
    icmp: bool,
}

impl UpperWords {
    /// Takes a port; 0 means every port, as in iproute2.
    fn port(&mut self, cursor: &mut Cursor<'_>) -> Result<Option<PortRange>, LineProblem> {
        self.ports = true;
        let port: u16 = cursor.number()?;
        Ok((port != 0).then_some(PortRange::single(port)))
    }

    fn icmp(&mut self, cursor: &mut Cursor<'_>) -> Result<PortRange, LineProblem> {
        self.icmp = true;
        Ok(PortRange::single(u16::from(cursor.number::<u8>()?)))
    }

    fn check(&self, proto: Option<u8>, cursor: &Cursor<'_>) -> Result<(), LineProblem> {
        let ports_fit = matches!(proto, None | Some(TCP | UDP | DCCP | SCTP));
        let icmp_fits = matches!(proto, Some(ICMP | ICMPV6 | MOBILITY));
        if self.ports && !ports_fit {
            return Err(
                cursor.problem("`sport` and `dport` were expected with proto tcp, udp, sctp or dccp only")
            );
        }
        if self.icmp && !icmp_fits {
            return Err(cursor.problem(
                "`type` and `code` were expected with proto icmp, ipv6-icmp or mobility-header only",
            ));
        }
        Ok(())
    }
}

/// The number of a protocol that is given by its name or number, from 1 to 255.
pub(crate) fn protocol_number(word: &str) -> Option<u8> {
    let named = PROTOCOLS.iter().find(|(name, _)| name.eq_ignore_ascii_case(word));
    named.map(|(_, number)| *number).or_else(|| word.parse().ok().filter(|number| *number != 0))
}

/// The name of a protocol, or its number if it has none.
pub(crate) fn protocol_name(number: u8) -> String {
    let named = PROTOCOLS.iter().find(|(_, known)| *known == number);
    named.map_or_else(|| format!("protocol {number}"), |(name, _)| (*name).to_owned())
}

/// Takes a protocol by name or number; `any` and 0 mean every protocol.
fn take_protocol(cursor: &mut Cursor<'_>) -> Result<Option<u8>, LineProblem> {
    let word = cursor.value("a protocol")?;
    if word == "any" {
        return Ok(None);
    }
    match PROTOCOLS.iter().find(|(name, _)| name.eq_ignore_ascii_case(word)) {
        Some((_, number)) => Ok(Some(*number)),
        None => cursor.number_in(word).map(|number: u8| (number != 0).then_some(number)).ok_or_else(|| {
            cursor
                .unexpected("a protocol's name such as tcp, udp, icmp or ipv6-icmp, or its number up to 255")
        }),
    }
}
