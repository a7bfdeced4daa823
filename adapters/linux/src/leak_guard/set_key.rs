//! Policies as elements of sets: a [`SetShape`] is what all elements of a set have in common, a [`SetKey`] is
//! one element.
//!
//! One look-up finds a packet in a set, whatever the number of elements: the addresses are cut to the prefix
//! lengths of the shape and compared as a whole, so that no two elements overlap. The SPD finds policies in
//! the same way.

use casemate_sa::{AddrRange, PortRange, Selector};
use std::fmt::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const ICMP: u8 = 1;
const ICMPV6: u8 = 58;
/// Protocols whose header begins with two ports.
const WITH_PORTS: [u8; 5] = [6, 17, 33, 132, 136];

/// The fields that the elements of a set match.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SetShape {
    v4: bool,
    src_len: u8,
    dst_len: u8,
    proto: Option<u8>,
    src_port: bool,
    dst_port: bool,
}

/// One element: first addresses of its prefixes, and ports. A field that the shape does not match is `None`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SetKey {
    src: Option<IpAddr>,
    dst: Option<IpAddr>,
    src_port: Option<u16>,
    dst_port: Option<u16>,
}

/// A selector as an element of a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ShapedKey {
    pub(crate) shape: SetShape,
    pub(crate) key: SetKey,
}

impl ShapedKey {
    /// Shape and key of a selector. Returns `None` if the selector has ranges that are neither prefixes nor
    /// single ports, or matches no field that a set could contain.
    pub(crate) fn of(selector: &Selector) -> Option<Self> {
        let (src_len, dst_len) = (selector.src.prefix_len()?, selector.dst.prefix_len()?);
        let fields = TransportFields::of(selector);
        let (src_port, dst_port) = match fields {
            Some(fields) => (fields.single(selector.src_port)?, fields.single(selector.dst_port)?),
            None => (None, None),
        };
        let start = |range: &AddrRange, len: u8| Some(range.first()).filter(|_| len > 0);
        let (src, dst) = (start(&selector.src, src_len), start(&selector.dst, dst_len));
        let key = SetKey { src, dst, src_port, dst_port };
        let shape = SetShape {
            v4: selector.src.is_ipv4(),
            src_len,
            dst_len,
            proto: selector.proto,
            src_port: src_port.is_some(),
            dst_port: dst_port.is_some(),
        };
        (shape.fields().next().is_some()).then_some(Self { shape, key })
    }
}

impl SetShape {
    /// Whether every fragment shows all fields of the shape: addresses, and with IPv4 the protocol. Later
    /// fragments show no port. In later fragments of IPv6, the receiver ignores the protocol in the fragment
    /// header (RFC 8200 section 4.5).
    pub(crate) const fn is_visible_in_fragments(&self) -> bool {
        !self.src_port && !self.dst_port && (self.v4 || self.proto.is_none())
    }

    /// Type of a set with elements of this shape: the names of the field types.
    pub(crate) fn set_type(&self) -> String {
        let names: Vec<&str> = self.fields().map(|field| field.type_name).collect();
        names.join(" . ")
    }

    /// Matching expressions that look a packet up in `set`.
    pub(crate) fn lookup(&self, set: &str) -> String {
        let mut text = String::new();
        if self.src_len == 0 && self.dst_len == 0 {
            let _ = write!(text, "meta nfproto {} ", if self.v4 { "ipv4" } else { "ipv6" });
        }
        if let Some(protocol) = self.proto {
            let _ = write!(text, "meta l4proto {protocol} ");
        }
        let fields: Vec<String> = self.fields().map(|field| field.expression).collect();
        let _ = write!(text, "{} @{set}", fields.join(" . "));
        text
    }

    /// Name for the set, unique among shapes.
    pub(crate) fn name(&self) -> String {
        let Self { v4, src_len, dst_len, proto, src_port, dst_port } = *self;
        let mut name = format!("{}_s{src_len}_d{dst_len}", if v4 { "v4" } else { "v6" });
        if let Some(protocol) = proto {
            let _ = write!(name, "_p{protocol}");
        }
        for (is_present, word) in [(src_port, "_sport"), (dst_port, "_dport")] {
            name.push_str(if is_present { word } else { "" });
        }
        name
    }

    fn fields(&self) -> impl Iterator<Item = Field> {
        let transport = TransportFields::of_protocol(self.proto, self.v4);
        let addr = |name, len: u8| (len > 0).then(|| self.addr_field(name, len));
        let port = |is_present: bool, index: usize| {
            transport.filter(|_| is_present).and_then(|transport| transport.field(index))
        };
        let addrs = [addr("saddr", self.src_len), addr("daddr", self.dst_len)];
        addrs.into_iter().chain([port(self.src_port, 0), port(self.dst_port, 1)]).flatten()
    }

    fn addr_field(&self, name: &str, len: u8) -> Field {
        let (ip, type_name, width) =
            if self.v4 { ("ip", "ipv4_addr", 32) } else { ("ip6", "ipv6_addr", 128) };
        let mut expression = format!("{ip} {name}");
        if len < width {
            let _ = write!(expression, " & {}", mask(self.v4, len));
        }
        Field { type_name, expression }
    }
}

impl SetKey {
    /// The element in the format of the kernel: each field in network byte order. If there are several, each
    /// is padded to 32 bits.
    pub(crate) fn bytes(&self, shape: &SetShape) -> Vec<u8> {
        let port_len =
            TransportFields::of_protocol(shape.proto, shape.v4).map_or(2, |transport| transport.len);
        let addrs = [self.src, self.dst].into_iter().flatten().map(|addr| match addr {
            IpAddr::V4(addr) => addr.octets().to_vec(),
            IpAddr::V6(addr) => addr.octets().to_vec(),
        });
        let ports = [self.src_port, self.dst_port].into_iter().flatten();
        let ports =
            ports.map(|port| port.to_be_bytes().into_iter().skip(2usize.saturating_sub(port_len)).collect());
        let mut fields: Vec<Vec<u8>> = addrs.chain(ports).collect();
        if fields.len() > 1 {
            fields.iter_mut().for_each(|field| field.resize(field.len().next_multiple_of(4), 0));
        }
        fields.concat()
    }
}

impl fmt::Display for SetKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let addrs = [self.src, self.dst].into_iter().flatten().map(|addr| addr.to_string());
        let ports = [self.src_port, self.dst_port].into_iter().flatten().map(|port| port.to_string());
        f.write_str(&addrs.chain(ports).collect::<Vec<_>>().join(" . "))
    }
}

/// The selector as matching expressions of a rule, each followed by a space.
pub(crate) fn matching(selector: &Selector) -> String {
    let ip = if selector.src.is_ipv4() { "ip" } else { "ip6" };
    // `Display` of a range is what nft expects: a prefix, or first and last address.
    let mut text = format!("{ip} saddr {} {ip} daddr {} ", selector.src, selector.dst);
    if let Some(protocol) = selector.proto {
        let _ = write!(text, "meta l4proto {protocol} ");
    }
    let Some(fields) = TransportFields::of(selector) else { return text };
    for (name, range) in fields.names.into_iter().zip([selector.src_port, selector.dst_port]) {
        if !range.is_any() {
            let (first, last) = (range.first().min(fields.limit()), range.last().min(fields.limit()));
            let _ = match first == last {
                true => write!(text, "{name} {first} "),
                false => write!(text, "{name} {first}-{last} "),
            };
        }
    }
    text
}

/// Whether a rule can match exactly the packets that the selector matches: ports need a protocol.
pub(crate) fn is_exact(selector: &Selector) -> bool {
    !selector.needs_ports() || TransportFields::of(selector).is_some()
}

/// Whether every fragment shows all fields that the selector matches.
pub(crate) const fn is_visible_in_fragments(selector: &Selector) -> bool {
    !selector.needs_ports() && (selector.src.is_ipv4() || selector.proto.is_none())
}

/// The selector without the fields that a later fragment does not show. It matches each fragment of a packet
/// that may match `selector`.
pub(crate) const fn for_fragments(selector: &Selector) -> Selector {
    let proto = if selector.src.is_ipv4() { selector.proto } else { None };
    Selector {
        src: selector.src,
        dst: selector.dst,
        proto,
        src_port: PortRange::ANY,
        dst_port: PortRange::ANY,
    }
}

/// A field of a packet that sets match.
struct Field {
    type_name: &'static str,
    expression: String,
}

/// The two fields at the beginning of the transport header: ports, or type and code.
#[derive(Clone, Copy)]
struct TransportFields {
    names: [&'static str; 2],
    types: [&'static str; 2],
    /// Length of each field, in bytes.
    len: usize,
}

impl TransportFields {
    fn of(selector: &Selector) -> Option<Self> {
        Self::of_protocol(selector.proto, selector.src.is_ipv4())
    }

    /// Returns `None` if the protocol has no such fields. ICMP of the other IP version has none either,
    /// because no host understands it.
    fn of_protocol(protocol: Option<u8>, v4: bool) -> Option<Self> {
        let fields = |names, types, len| Some(Self { names, types, len });
        match (protocol?, v4) {
            (ICMP, true) => fields(["icmp type", "icmp code"], ["icmp_type", "icmp_code"], 1),
            (ICMPV6, false) => fields(["icmpv6 type", "icmpv6 code"], ["icmpv6_type", "icmpv6_code"], 1),
            (protocol, _) if WITH_PORTS.contains(&protocol) => {
                fields(["th sport", "th dport"], ["inet_service"; 2], 2)
            }
            _ => None,
        }
    }

    /// Largest value. Types and codes of ICMP have 8 bits; nft rejects larger numbers.
    const fn limit(self) -> u16 {
        if self.len == 1 { 255 } else { u16::MAX }
    }

    /// The single value of a range; `Some(None)` if the range has every value. Returns `None` for all other
    /// ranges.
    #[expect(clippy::option_option, reason = "`Some(None)` is every value, `None` is a range")]
    fn single(self, range: PortRange) -> Option<Option<u16>> {
        match range.first() {
            _ if range.is_any() => Some(None),
            first if first == range.last() && first <= self.limit() => Some(Some(first)),
            _ => None,
        }
    }

    fn field(self, index: usize) -> Option<Field> {
        let (name, type_name) = (self.names.get(index)?, self.types.get(index)?);
        Some(Field { type_name, expression: (*name).into() })
    }
}

/// A mask of `len` bits.
fn mask(v4: bool, len: u8) -> IpAddr {
    let ones = |width: u32| u128::MAX.checked_shl(width.saturating_sub(len.into())).unwrap_or(0);
    match v4 {
        true => Ipv4Addr::from_bits(ones(32) as u32).into(),
        false => Ipv6Addr::from_bits(ones(128)).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(text: &str) -> AddrRange {
        let (addr, len) = text.split_once('/').unwrap();
        AddrRange::prefix(addr.parse().unwrap(), len.parse().unwrap()).unwrap()
    }

    fn between(src: &str, dst: &str) -> Selector {
        Selector::between(range(src), range(dst))
    }

    #[test]
    fn addresses_are_cut_to_their_prefixes() {
        let ShapedKey { shape, key } = ShapedKey::of(&between("10.1.0.0/16", "10.2.0.1/32")).unwrap();
        assert_eq!(shape.set_type(), "ipv4_addr . ipv4_addr");
        assert_eq!(shape.lookup("s"), "ip saddr & 255.255.0.0 . ip daddr @s");
        assert_eq!((shape.name(), key.to_string()), ("v4_s16_d32".into(), "10.1.0.0 . 10.2.0.1".into()));
        assert_eq!(key.bytes(&shape), [10, 1, 0, 0, 10, 2, 0, 1]);
        let ShapedKey { shape, key } = ShapedKey::of(&between("::/0", "fd02::/20")).unwrap();
        assert_eq!(shape.lookup("s"), "ip6 daddr & ffff:f000:: @s");
        assert_eq!(key.bytes(&shape)[..3], [0xfd, 2, 0]);
        assert_eq!(key.bytes(&shape).len(), 16);
    }

    #[test]
    fn ports_follow_addresses_and_are_padded_to_words() {
        let mut selector = between("0.0.0.0/0", "10.2.0.0/24");
        (selector.proto, selector.dst_port) = (Some(17), PortRange::single(0x1234));
        let ShapedKey { shape, key } = ShapedKey::of(&selector).unwrap();
        assert_eq!(shape.set_type(), "ipv4_addr . inet_service");
        assert_eq!(shape.lookup("s"), "meta l4proto 17 ip daddr & 255.255.255.0 . th dport @s");
        assert_eq!(key.bytes(&shape), [10, 2, 0, 0, 0x12, 0x34, 0, 0]);
        assert_eq!(key.to_string(), "10.2.0.0 . 4660");
        selector.dst = AddrRange::ANY_V4;
        let ShapedKey { shape, key } = ShapedKey::of(&selector).unwrap();
        assert_eq!(shape.lookup("s"), "meta nfproto ipv4 meta l4proto 17 th dport @s");
        assert_eq!(key.bytes(&shape), [0x12, 0x34], "a single field is not padded");
        (selector.proto, selector.src_port, selector.dst_port) =
            (Some(ICMP), PortRange::single(8), PortRange::single(0));
        let ShapedKey { shape, key } = ShapedKey::of(&selector).unwrap();
        assert_eq!(shape.set_type(), "icmp_type . icmp_code");
        assert_eq!(key.bytes(&shape), [8, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn selectors_that_cannot_be_elements_are_rules() {
        let mut selector = between("0.0.0.0/0", "0.0.0.0/0");
        assert_eq!(ShapedKey::of(&selector), None);
        assert_eq!(matching(&selector), "ip saddr 0.0.0.0/0 ip daddr 0.0.0.0/0 ");
        selector.dst = AddrRange::new([10, 0, 0, 1].into(), [10, 0, 0, 9].into()).unwrap();
        assert_eq!(ShapedKey::of(&selector), None);
        assert_eq!(matching(&selector), "ip saddr 0.0.0.0/0 ip daddr 10.0.0.1-10.0.0.9 ");
        let mut selector = between("10.1.0.0/16", "10.2.0.0/16");
        (selector.proto, selector.dst_port) = (Some(6), PortRange::new(80, 90).unwrap());
        assert_eq!(ShapedKey::of(&selector), None);
        assert!(matching(&selector).ends_with("meta l4proto 6 th dport 80-90 "));
        // Ports of a protocol without ports, and ICMP of the other IP version, are not matched.
        for (proto, source) in [(47, 5), (ICMPV6, 8)] {
            (selector.proto, selector.src_port) = (Some(proto), PortRange::single(source));
            assert_eq!(ShapedKey::of(&selector).unwrap().shape.set_type(), "ipv4_addr . ipv4_addr");
        }
    }
}
