//! The vocabulary of the tables: fields, encoding methods, conditions and formats.

pub const RTP: u16 = 0x0101;
pub const UDP: u16 = 0x0102;
pub const ESP: u16 = 0x0103;
pub const IP: u16 = 0x0104;

pub const IP_ID_BEHAVIOR_SEQUENTIAL: u128 = 0;
pub const IP_ID_BEHAVIOR_SEQUENTIAL_SWAPPED: u128 = 1;
pub const IP_ID_BEHAVIOR_RANDOM: u128 = 2;
pub const IP_ID_BEHAVIOR_ZERO: u128 = 3;

pub const TS_STRIDE_DEFAULT: u128 = 160;
pub const TIME_STRIDE_DEFAULT: u128 = 0;

/// One header of the uncompressed chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header {
    Ipv4,
    Ipv6,
    Udp,
    Rtp,
    Esp,
}

/// A field of a compressed format: its name and how it is encoded.
pub type Field = (&'static str, Method);

/// The encoding methods of RFC 4997 and RFC 5225. A `&'static str` argument is the name of the field
/// whose value the RFC passes as the argument.
#[derive(Clone, Copy, Debug)]
pub enum Method {
    /// Fixed bits, such as `'101'`.
    Bits(&'static str),
    /// irregular(n).
    Irregular(u32),
    /// compressed_value(n, 0): n zero bits which mean nothing.
    Zeros(u32),
    /// uncompressed_value(_, v): no bits, and the field has the value v.
    Value(u128),
    /// ENFORCE(field == (other != 0)): no bits.
    IsNonZero(&'static str),
    /// msn_lsb(k), on "msn" or "sequence_number".
    MsnLsb(u32),
    /// ip_id_lsb(ip_id_behavior_innermost, k).
    IpIdLsb(u32),
    /// scaled_ts_lsb(time_stride, k).
    ScaledTsLsb(u32),
    /// crc3 or crc7 over the whole uncompressed header chain.
    HeaderCrc(u32),
    /// control_crc3_encoding.
    ControlCrc3,
    /// inferred_scaled_field: no bits.
    InferredScaledField,
    /// inferred_sequential_ip_id: no bits.
    InferredSequentialIpId,
    /// fl_enc.
    FlEnc,
    /// ip_id_enc_dyn(behavior).
    IpIdEncDyn(&'static str),
    /// ip_id_enc_irreg(behavior).
    IpIdEncIrreg(&'static str),
    /// ip_id_sequential_variable(ip_id_behavior_innermost, indicator).
    IpIdSequentialVariable(&'static str),
    /// static_or_irreg(flag, n).
    StaticOrIrreg(&'static str, u32),
    /// dont_fragment(version of the innermost IP header).
    DontFragment,
    /// pt_irr_or_static(flag).
    PtIrrOrStatic(&'static str),
    /// sdvl_sn_lsb(width of the field).
    SdvlSnLsb,
    /// sdvl_or_static(flag).
    SdvlOrStatic(&'static str),
    /// sdvl_or_default(flag, default value).
    SdvlOrDefault(&'static str, u128),
    /// variable_scaled_timestamp(tss_flag, tsc_flag, ...).
    VariableScaledTimestamp(&'static str, &'static str),
    /// variable_unscaled_timestamp(tss_flag, tsc_flag).
    VariableUnscaledTimestamp(&'static str, &'static str),
    /// csrc_list_dynchain(presence, cc).
    CsrcListDynchain(&'static str),
    /// csrc_list_presence(presence, cc).
    CsrcListPresence(&'static str),
    /// One of the profile_*_flags*_enc octets: the fields are there if the flag is 1. If it is 0, the
    /// fields with a name that ends in "_indicator" are 0 and the others are static.
    Flags(&'static str, &'static [Field]),
}

/// An ENFORCE statement that says when a format can be used.
#[derive(Clone, Copy, Debug)]
pub enum Condition {
    Innermost,
    Outer,
    Profile(u16),
    NotProfile(u16),
    /// ip_id_behavior_innermost is SEQUENTIAL or SEQUENTIAL_SWAPPED.
    Sequential,
    /// ip_id_behavior_innermost is RANDOM or ZERO.
    NotSequential,
    NonZero(&'static str),
    Is(&'static str, u128),
}

/// A COMPRESSED format.
#[derive(Clone, Copy, Debug)]
pub struct Format {
    pub name: &'static str,
    pub when: &'static [Condition],
    pub fields: &'static [Field],
}

/// How a field of an uncompressed header gets its bits.
#[derive(Clone, Copy, Debug)]
pub enum Source {
    /// The value bound to the name of the field.
    Bound,
    /// uncompressed_value: always the same.
    Fixed(u128),
    InferredIpv4Length,
    InferredIpv6Length,
    InferredUdpLength,
    InferredIpv4Checksum,
}

/// A field of an UNCOMPRESSED format: name, where the bits come from, width.
pub type Plain = (&'static str, Source, u32);

/// The discriminators of the self-describing variable-length encodings, with the bits that follow.
/// For the last one it is the whole field that follows.
pub const SDVL: [(&str, u32); 5] = [("0", 7), ("10", 14), ("110", 21), ("1110", 28), ("11111111", 32)];

/// The fields that each IP header of the chain has of its own.
pub const PER_IP_HEADER: [&str; 12] = [
    "ip_version",
    "innermost_ip",
    "tos_tc",
    "flow_label",
    "next_header",
    "protocol",
    "ttl_hopl",
    "src_addr",
    "dst_addr",
    "ip_id",
    "df",
    "ip_id_behavior_outer",
];

/// The fields that exist in one compressed header only and are never kept in the context.
pub fn is_compressed_only(name: &str) -> bool {
    name.ends_with("_indicator") || matches!(name, "header_crc" | "control_crc3" | "list_present")
}
