//! The items of the static, dynamic and irregular chains, and the uncompressed headers.

use super::table::{
    Condition::*, ESP, Format, Header, IP, Method::*, Plain, RTP, Source, TIME_STRIDE_DEFAULT,
    TS_STRIDE_DEFAULT, UDP,
};

const fn format(
    name: &'static str,
    when: &'static [super::table::Condition],
    fields: &'static [super::table::Field],
) -> Format {
    Format { name, when, fields }
}

/// The static item of an IP header. Which one it is, its first bit says.
pub const IP_STATIC: &[Format] = &[
    format(
        "ipv4_static",
        &[],
        &[
            ("version_flag", Bits("0")),
            ("innermost_ip", Irregular(1)),
            ("reserved", Bits("000000")),
            ("protocol", Irregular(8)),
            ("src_addr", Irregular(32)),
            ("dst_addr", Irregular(32)),
            ("ip_version", Value(4)),
        ],
    ),
    format(
        "ipv6_static",
        &[],
        &[
            ("version_flag", Bits("1")),
            ("innermost_ip", Irregular(1)),
            ("reserved", Bits("0")),
            ("flow_label", FlEnc),
            ("next_header", Irregular(8)),
            ("src_addr", Irregular(128)),
            ("dst_addr", Irregular(128)),
            ("ip_version", Value(6)),
        ],
    ),
];

const UDP_STATIC: &[Format] =
    &[format("udp_static", &[], &[("src_port", Irregular(16)), ("dst_port", Irregular(16))])];

const RTP_STATIC: &[Format] = &[format("rtp_static", &[], &[("ssrc", Irregular(32))])];

const ESP_STATIC: &[Format] = &[format("esp_static", &[], &[("spi", Irregular(32))])];

const IPV4_DYNAMIC: &[Format] = &[
    format(
        "ipv4_endpoint_innermost_dynamic",
        &[Innermost, Profile(IP)],
        &[
            ("reserved", Bits("000")),
            ("reorder_ratio", Irregular(2)),
            ("df", Irregular(1)),
            ("ip_id_behavior_innermost", Irregular(2)),
            ("tos_tc", Irregular(8)),
            ("ttl_hopl", Irregular(8)),
            ("ip_id", IpIdEncDyn("ip_id_behavior_innermost")),
            ("msn", Irregular(16)),
        ],
    ),
    format(
        "ipv4_regular_innermost_dynamic",
        &[Innermost, NotProfile(IP)],
        &[
            ("reserved", Bits("00000")),
            ("df", Irregular(1)),
            ("ip_id_behavior_innermost", Irregular(2)),
            ("tos_tc", Irregular(8)),
            ("ttl_hopl", Irregular(8)),
            ("ip_id", IpIdEncDyn("ip_id_behavior_innermost")),
        ],
    ),
    format(
        "ipv4_outer_dynamic",
        &[Outer],
        &[
            ("reserved", Bits("00000")),
            ("df", Irregular(1)),
            ("ip_id_behavior_outer", Irregular(2)),
            ("tos_tc", Irregular(8)),
            ("ttl_hopl", Irregular(8)),
            ("ip_id", IpIdEncDyn("ip_id_behavior_outer")),
        ],
    ),
];

const IPV6_DYNAMIC: &[Format] = &[
    format(
        "ipv6_endpoint_dynamic",
        &[Innermost, Profile(IP)],
        &[
            ("tos_tc", Irregular(8)),
            ("ttl_hopl", Irregular(8)),
            ("reserved", Zeros(6)),
            ("reorder_ratio", Irregular(2)),
            ("msn", Irregular(16)),
        ],
    ),
    // The RFC says "is_innermost == 0 or not profile 0x0104", which is one format with two conditions.
    format(
        "ipv6_regular_dynamic",
        &[Innermost, NotProfile(IP)],
        &[("tos_tc", Irregular(8)), ("ttl_hopl", Irregular(8))],
    ),
    format("ipv6_regular_dynamic", &[Outer], &[("tos_tc", Irregular(8)), ("ttl_hopl", Irregular(8))]),
];

const UDP_DYNAMIC: &[Format] = &[
    format(
        "udp_endpoint_dynamic",
        &[Profile(UDP)],
        &[
            ("udp_checksum", Irregular(16)),
            ("msn", Irregular(16)),
            ("reserved", Zeros(6)),
            ("reorder_ratio", Irregular(2)),
            ("checksum_used", IsNonZero("udp_checksum")),
        ],
    ),
    format(
        "udp_regular_dynamic",
        &[Profile(RTP)],
        &[("udp_checksum", Irregular(16)), ("checksum_used", IsNonZero("udp_checksum"))],
    ),
];

const RTP_DYNAMIC: &[Format] = &[format(
    "rtp_dynamic",
    &[],
    &[
        ("reserved", Zeros(1)),
        ("reorder_ratio", Irregular(2)),
        ("list_present", Irregular(1)),
        ("tss_indicator", Irregular(1)),
        ("tis_indicator", Irregular(1)),
        ("pad_bit", Irregular(1)),
        ("extension", Irregular(1)),
        ("marker", Irregular(1)),
        ("payload_type", Irregular(7)),
        ("sequence_number", Irregular(16)),
        ("timestamp", Irregular(32)),
        ("ts_stride", SdvlOrDefault("tss_indicator", TS_STRIDE_DEFAULT)),
        ("time_stride", SdvlOrDefault("tis_indicator", TIME_STRIDE_DEFAULT)),
        ("csrc_list", CsrcListDynchain("list_present")),
    ],
)];

const ESP_DYNAMIC: &[Format] = &[format(
    "esp_dynamic",
    &[Profile(ESP)],
    &[("sequence_number", Irregular(32)), ("reserved", Zeros(6)), ("reorder_ratio", Irregular(2))],
)];

const IPV4_IRREGULAR: &[Format] = &[
    format(
        "ipv4_outer_irregular",
        &[Outer],
        &[
            ("ip_id", IpIdEncIrreg("ip_id_behavior_outer")),
            ("tos_tc", StaticOrIrreg("outer_ip_indicator", 8)),
            ("ttl_hopl", StaticOrIrreg("outer_ip_indicator", 8)),
        ],
    ),
    format("ipv4_innermost_irregular", &[Innermost], &[("ip_id", IpIdEncIrreg("ip_id_behavior_innermost"))]),
];

const IPV6_IRREGULAR: &[Format] = &[
    format(
        "ipv6_outer_irregular",
        &[Outer],
        &[
            ("tos_tc", StaticOrIrreg("outer_ip_indicator", 8)),
            ("ttl_hopl", StaticOrIrreg("outer_ip_indicator", 8)),
        ],
    ),
    format("ipv6_innermost_irregular", &[Innermost], &[]),
];

const UDP_IRREGULAR: &[Format] = &[
    format("udp_zero_checksum_irregular", &[Is("checksum_used", 0)], &[("udp_checksum", Value(0))]),
    format("udp_with_checksum_irregular", &[Is("checksum_used", 1)], &[("udp_checksum", Irregular(16))]),
];

const RTP_IRREGULAR: &[Format] = &[format("rtp_irregular", &[], &[])];

const ESP_IRREGULAR: &[Format] = &[format("esp_irregular", &[], &[])];

/// The headers that follow the innermost IP header.
pub fn upper_headers(profile: u16) -> &'static [Header] {
    match profile {
        RTP => &[Header::Udp, Header::Rtp],
        UDP => &[Header::Udp],
        ESP => &[Header::Esp],
        _ => &[],
    }
}

/// The static item of a header.
pub fn static_item(header: Header) -> &'static [Format] {
    match header {
        Header::Ipv4 | Header::Ipv6 => IP_STATIC,
        Header::Udp => UDP_STATIC,
        Header::Rtp => RTP_STATIC,
        Header::Esp => ESP_STATIC,
    }
}

/// The formats of the dynamic item of a header.
pub fn dynamic_item(header: Header) -> &'static [Format] {
    match header {
        Header::Ipv4 => IPV4_DYNAMIC,
        Header::Ipv6 => IPV6_DYNAMIC,
        Header::Udp => UDP_DYNAMIC,
        Header::Rtp => RTP_DYNAMIC,
        Header::Esp => ESP_DYNAMIC,
    }
}

/// The formats of the irregular item of a header.
pub fn irregular_item(header: Header) -> &'static [Format] {
    match header {
        Header::Ipv4 => IPV4_IRREGULAR,
        Header::Ipv6 => IPV6_IRREGULAR,
        Header::Udp => UDP_IRREGULAR,
        Header::Rtp => RTP_IRREGULAR,
        Header::Esp => ESP_IRREGULAR,
    }
}

const IPV4: &[Plain] = &[
    ("version", Source::Fixed(4), 4),
    ("hdr_length", Source::Fixed(5), 4),
    ("tos_tc", Source::Bound, 8),
    ("length", Source::InferredIpv4Length, 16),
    ("ip_id", Source::Bound, 16),
    ("rf", Source::Fixed(0), 1),
    ("df", Source::Bound, 1),
    ("mf", Source::Fixed(0), 1),
    ("frag_offset", Source::Fixed(0), 13),
    ("ttl_hopl", Source::Bound, 8),
    ("protocol", Source::Bound, 8),
    ("checksum", Source::InferredIpv4Checksum, 16),
    ("src_addr", Source::Bound, 32),
    ("dst_addr", Source::Bound, 32),
];

const IPV6: &[Plain] = &[
    ("version", Source::Fixed(6), 4),
    ("tos_tc", Source::Bound, 8),
    ("flow_label", Source::Bound, 20),
    ("payload_length", Source::InferredIpv6Length, 16),
    ("next_header", Source::Bound, 8),
    ("ttl_hopl", Source::Bound, 8),
    ("src_addr", Source::Bound, 128),
    ("dst_addr", Source::Bound, 128),
];

const UDP_HEADER: &[Plain] = &[
    ("src_port", Source::Bound, 16),
    ("dst_port", Source::Bound, 16),
    ("udp_length", Source::InferredUdpLength, 16),
    ("udp_checksum", Source::Bound, 16),
];

/// The fixed part of the RTP header; the CSRC list follows it. (The rtp method of the RFC says version 0,
/// its rtp_baseheader says 2, and RFC 3550 says 2.)
const RTP_HEADER: &[Plain] = &[
    ("rtp_version", Source::Fixed(2), 2),
    ("pad_bit", Source::Bound, 1),
    ("extension", Source::Bound, 1),
    ("cc", Source::Bound, 4),
    ("marker", Source::Bound, 1),
    ("payload_type", Source::Bound, 7),
    ("sequence_number", Source::Bound, 16),
    ("timestamp", Source::Bound, 32),
    ("ssrc", Source::Bound, 32),
];

const ESP_HEADER: &[Plain] = &[("spi", Source::Bound, 32), ("sequence_number", Source::Bound, 32)];

/// The uncompressed format of a header.
pub fn uncompressed(header: Header) -> &'static [Plain] {
    match header {
        Header::Ipv4 => IPV4,
        Header::Ipv6 => IPV6,
        Header::Udp => UDP_HEADER,
        Header::Rtp => RTP_HEADER,
        Header::Esp => ESP_HEADER,
    }
}

/// The global control fields, with their widths.
pub const CONTROL: &[(&str, u32)] = &[
    ("profile", 16),
    ("msn", 16),
    ("reorder_ratio", 2),
    ("ip_id_offset", 16),
    ("ip_id_behavior_innermost", 2),
    ("ts_stride", 32),
    ("time_stride", 32),
    ("ts_scaled", 32),
    ("ts_offset", 32),
];

/// What control_crc3_encoding covers before the octets for IP-ID behavior (section 6.6.11).
pub fn control_crc_fields(profile: u16) -> &'static [(&'static str, u32)] {
    match profile {
        RTP => &[("reorder_ratio", 8), ("ts_stride", 32), ("time_stride", 32)],
        ESP => &[("reorder_ratio", 8)],
        _ => &[("reorder_ratio", 8), ("msn", 16)],
    }
}
