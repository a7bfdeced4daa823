//! The base headers: the COMPRESSED formats of rtp_baseheader, udp_baseheader, esp_baseheader and
//! iponly_baseheader, and the header of co_repair.

use super::table::{Condition, Condition::*, ESP, Field, Format, Method::*, RTP};

const fn format(name: &'static str, when: &'static [Condition], fields: &'static [Field]) -> Format {
    Format { name, when, fields }
}

/// The fields that a CO header without them does not leave static.
pub fn defaults(profile: u16) -> &'static [Field] {
    match profile {
        RTP => &[("outer_ip_indicator", Value(0)), ("marker", Value(0))],
        _ => &[("outer_ip_indicator", Value(0))],
    }
}

/// The base header formats of a profile.
pub fn formats(profile: u16) -> &'static [Format] {
    match profile {
        RTP => RTP_FORMATS,
        ESP => ESP_FORMATS,
        _ => UDP_AND_IP_FORMATS,
    }
}

/// The co_repair header (section 6.8.2.2) up to the dynamic chain.
pub const CO_REPAIR: &[Field] = &[
    ("discriminator", Bits("11111011")),
    ("r1", Bits("0")),
    ("header_crc", HeaderCrc(7)),
    ("r2", Bits("00000")),
    ("control_crc3", ControlCrc3),
];

/// profile_1_7_flags1_enc.
const PROFILE_1_7_FLAGS1: &[Field] = &[
    ("outer_ip_indicator", Irregular(1)),
    ("ttl_hopl_indicator", Irregular(1)),
    ("tos_tc_indicator", Irregular(1)),
    ("df", DontFragment),
    ("ip_id_behavior_innermost", Irregular(2)),
    ("reorder_ratio", Irregular(2)),
];

/// profile_1_flags2_enc.
const PROFILE_1_FLAGS2: &[Field] = &[
    ("list_indicator", Irregular(1)),
    ("pt_indicator", Irregular(1)),
    ("tis_indicator", Irregular(1)),
    ("pad_bit", Irregular(1)),
    ("extension", Irregular(1)),
    ("reserved", Zeros(3)),
];

/// profile_2_3_4_flags_enc.
const PROFILE_2_3_4_FLAGS: &[Field] = &[
    ("outer_ip_indicator", Irregular(1)),
    ("df", DontFragment),
    ("ip_id_behavior_innermost", Irregular(2)),
    ("reserved", Zeros(4)),
];

const RTP_FORMATS: &[Format] = &[
    format(
        "co_common",
        &[],
        &[
            ("discriminator", Bits("11111010")),
            ("marker", Irregular(1)),
            ("header_crc", HeaderCrc(7)),
            ("flags1_indicator", Irregular(1)),
            ("flags2_indicator", Irregular(1)),
            ("tsc_indicator", Irregular(1)),
            ("tss_indicator", Irregular(1)),
            ("ip_id_indicator", Irregular(1)),
            ("control_crc3", ControlCrc3),
            ("flags1", Flags("flags1_indicator", PROFILE_1_7_FLAGS1)),
            ("flags2", Flags("flags2_indicator", PROFILE_1_FLAGS2)),
            ("tos_tc", StaticOrIrreg("tos_tc_indicator", 8)),
            ("ttl_hopl", StaticOrIrreg("ttl_hopl_indicator", 8)),
            ("payload_type", PtIrrOrStatic("pt_indicator")),
            ("sequence_number", SdvlSnLsb),
            ("ip_id", IpIdSequentialVariable("ip_id_indicator")),
            ("ts_scaled", VariableScaledTimestamp("tss_indicator", "tsc_indicator")),
            ("timestamp", VariableUnscaledTimestamp("tss_indicator", "tsc_indicator")),
            ("ts_stride", SdvlOrStatic("tss_indicator")),
            ("time_stride", SdvlOrStatic("tis_indicator")),
            ("csrc_list", CsrcListPresence("list_indicator")),
        ],
    ),
    format(
        "pt_0_crc3",
        &[],
        &[
            ("discriminator", Bits("0")),
            ("msn", MsnLsb(4)),
            ("header_crc", HeaderCrc(3)),
            ("timestamp", InferredScaledField),
            ("ip_id", InferredSequentialIpId),
        ],
    ),
    format(
        "pt_0_crc7",
        &[],
        &[
            ("discriminator", Bits("1000")),
            ("msn", MsnLsb(5)),
            ("header_crc", HeaderCrc(7)),
            ("timestamp", InferredScaledField),
            ("ip_id", InferredSequentialIpId),
        ],
    ),
    format(
        "pt_1_rnd",
        &[NonZero("ts_stride"), NotSequential],
        &[
            ("discriminator", Bits("101")),
            ("marker", Irregular(1)),
            ("msn", MsnLsb(4)),
            ("ts_scaled", ScaledTsLsb(5)),
            ("header_crc", HeaderCrc(3)),
        ],
    ),
    format(
        "pt_1_seq_id",
        &[Sequential],
        &[
            ("discriminator", Bits("1001")),
            ("ip_id", IpIdLsb(4)),
            ("msn", MsnLsb(5)),
            ("header_crc", HeaderCrc(3)),
            ("timestamp", InferredScaledField),
        ],
    ),
    format(
        "pt_1_seq_ts",
        &[NonZero("ts_stride"), Sequential],
        &[
            ("discriminator", Bits("101")),
            ("marker", Irregular(1)),
            ("msn", MsnLsb(4)),
            ("ts_scaled", ScaledTsLsb(5)),
            ("header_crc", HeaderCrc(3)),
            ("ip_id", InferredSequentialIpId),
        ],
    ),
    format(
        "pt_2_rnd",
        &[NonZero("ts_stride"), NotSequential],
        &[
            ("discriminator", Bits("110")),
            ("msn", MsnLsb(7)),
            ("ts_scaled", ScaledTsLsb(6)),
            ("marker", Irregular(1)),
            ("header_crc", HeaderCrc(7)),
        ],
    ),
    format(
        "pt_2_seq_id",
        &[Sequential],
        &[
            ("discriminator", Bits("11000")),
            ("msn", MsnLsb(7)),
            ("ip_id", IpIdLsb(5)),
            ("header_crc", HeaderCrc(7)),
            ("timestamp", InferredScaledField),
        ],
    ),
    format(
        "pt_2_seq_both",
        &[NonZero("ts_stride"), Sequential],
        &[
            ("discriminator", Bits("11001")),
            ("msn", MsnLsb(7)),
            ("ip_id", IpIdLsb(5)),
            ("header_crc", HeaderCrc(7)),
            ("ts_scaled", ScaledTsLsb(7)),
            ("marker", Irregular(1)),
        ],
    ),
    format(
        "pt_2_seq_ts",
        &[NonZero("ts_stride"), Sequential],
        &[
            ("discriminator", Bits("1101")),
            ("msn", MsnLsb(7)),
            ("ts_scaled", ScaledTsLsb(5)),
            ("marker", Irregular(1)),
            ("header_crc", HeaderCrc(7)),
            ("ip_id", InferredSequentialIpId),
        ],
    ),
];

/// udp_baseheader and iponly_baseheader have the same compressed formats.
const UDP_AND_IP_FORMATS: &[Format] = &[
    format(
        "co_common",
        &[],
        &[
            ("discriminator", Bits("11111010")),
            ("ip_id_indicator", Irregular(1)),
            ("header_crc", HeaderCrc(7)),
            ("flags_indicator", Irregular(1)),
            ("ttl_hopl_indicator", Irregular(1)),
            ("tos_tc_indicator", Irregular(1)),
            ("reorder_ratio", Irregular(2)),
            ("control_crc3", ControlCrc3),
            ("flags", Flags("flags_indicator", PROFILE_2_3_4_FLAGS)),
            ("tos_tc", StaticOrIrreg("tos_tc_indicator", 8)),
            ("ttl_hopl", StaticOrIrreg("ttl_hopl_indicator", 8)),
            ("msn", MsnLsb(8)),
            ("ip_id", IpIdSequentialVariable("ip_id_indicator")),
        ],
    ),
    format(
        "pt_0_crc3",
        &[],
        &[
            ("discriminator", Bits("0")),
            ("msn", MsnLsb(4)),
            ("header_crc", HeaderCrc(3)),
            ("ip_id", InferredSequentialIpId),
        ],
    ),
    format(
        "pt_0_crc7",
        &[],
        &[
            ("discriminator", Bits("100")),
            ("msn", MsnLsb(6)),
            ("header_crc", HeaderCrc(7)),
            ("ip_id", InferredSequentialIpId),
        ],
    ),
    format(
        "pt_1_seq_id",
        &[Sequential],
        &[
            ("discriminator", Bits("101")),
            ("header_crc", HeaderCrc(3)),
            ("msn", MsnLsb(6)),
            ("ip_id", IpIdLsb(4)),
        ],
    ),
    format(
        "pt_2_seq_id",
        &[Sequential],
        &[
            ("discriminator", Bits("110")),
            ("ip_id", IpIdLsb(6)),
            ("header_crc", HeaderCrc(7)),
            ("msn", MsnLsb(8)),
        ],
    ),
];

/// esp_baseheader sends the 32-bit sequence number in place of the MSN.
const ESP_FORMATS: &[Format] = &[
    format(
        "co_common",
        &[],
        &[
            ("discriminator", Bits("11111010")),
            ("ip_id_indicator", Irregular(1)),
            ("header_crc", HeaderCrc(7)),
            ("flags_indicator", Irregular(1)),
            ("ttl_hopl_indicator", Irregular(1)),
            ("tos_tc_indicator", Irregular(1)),
            ("reorder_ratio", Irregular(2)),
            ("control_crc3", ControlCrc3),
            ("flags", Flags("flags_indicator", PROFILE_2_3_4_FLAGS)),
            ("tos_tc", StaticOrIrreg("tos_tc_indicator", 8)),
            ("ttl_hopl", StaticOrIrreg("ttl_hopl_indicator", 8)),
            ("sequence_number", SdvlSnLsb),
            ("ip_id", IpIdSequentialVariable("ip_id_indicator")),
        ],
    ),
    format(
        "pt_0_crc3",
        &[],
        &[
            ("discriminator", Bits("0")),
            ("sequence_number", MsnLsb(4)),
            ("header_crc", HeaderCrc(3)),
            ("ip_id", InferredSequentialIpId),
        ],
    ),
    format(
        "pt_0_crc7",
        &[],
        &[
            ("discriminator", Bits("100")),
            ("sequence_number", MsnLsb(6)),
            ("header_crc", HeaderCrc(7)),
            ("ip_id", InferredSequentialIpId),
        ],
    ),
    format(
        "pt_1_seq_id",
        &[Sequential],
        &[
            ("discriminator", Bits("101")),
            ("header_crc", HeaderCrc(3)),
            ("sequence_number", MsnLsb(6)),
            ("ip_id", IpIdLsb(4)),
        ],
    ),
    format(
        "pt_2_seq_id",
        &[Sequential],
        &[
            ("discriminator", Bits("110")),
            ("ip_id", IpIdLsb(6)),
            ("header_crc", HeaderCrc(7)),
            ("sequence_number", MsnLsb(8)),
        ],
    ),
];
