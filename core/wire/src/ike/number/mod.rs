//! Numbers of the IANA registry "Internet Key Exchange Version 2 (IKEv2) Parameters".
//!
//! Each registry is a newtype with its assigned values as constants. Values without a name are kept
//! unchanged; the IKE engine decides whether to skip or reject them. The registries are not complete: they
//! contain the values of generally used RFCs, and values that peers are likely to send.

mod notify;
mod transform;

pub use notify::NotifyType;
pub use transform::{EncrId, IntegId, KeMethod, PrfId, SequenceNumbers, TransformType};

/// Defines one registry: a newtype, its constants and their names.
macro_rules! registry {
    (
        $(#[doc = $doc:literal])+
        $registry:ident($number:ty) {
            $($constant:ident = $value:literal, $name:literal, $source:literal;)+
        }
    ) => {
        $(#[doc = $doc])+
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $registry(
            /// The number on the wire.
            pub $number,
        );

        impl $registry {
            $(#[doc = concat!("`", $name, "` (", $source, ").")] pub const $constant: Self = Self($value);)+

            /// All values with a name in this module.
            pub const ALL: &'static [Self] = &[$(Self::$constant,)+];

            /// Name of the value in the registry, if it has a name in this module.
            pub const fn name(self) -> Option<&'static str> {
                match self.0 { $($value => Some($name),)+ _ => None }
            }
        }

        /// Writes the name, or the number of a value without a name.
        impl core::fmt::Display for $registry {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                match self.name() {
                    Some(name) => f.write_str(name),
                    None => core::fmt::Display::fmt(&self.0, f),
                }
            }
        }
    };
}
use registry;

registry! {
    /// "IKEv2 Exchange Types".
    ExchangeType(u8) {
        IKE_SA_INIT = 34, "IKE_SA_INIT", "RFC 7296 section 3.1";
        IKE_AUTH = 35, "IKE_AUTH", "RFC 7296 section 3.1";
        CREATE_CHILD_SA = 36, "CREATE_CHILD_SA", "RFC 7296 section 3.1";
        INFORMATIONAL = 37, "INFORMATIONAL", "RFC 7296 section 3.1";
        IKE_SESSION_RESUME = 38, "IKE_SESSION_RESUME", "RFC 5723";
        IKE_INTERMEDIATE = 43, "IKE_INTERMEDIATE", "RFC 9242";
        IKE_FOLLOWUP_KE = 44, "IKE_FOLLOWUP_KE", "RFC 9370";
    }
}

registry! {
    /// "IKEv2 Payload Types", in the notation of the RFCs.
    ///
    /// Types 1 to 32 belong to IKEv1 and are unknown here.
    PayloadType(u8) {
        NONE = 0, "none", "RFC 7296 section 3.2: no next payload";
        SA = 33, "SA", "RFC 7296 section 3.3";
        KE = 34, "KE", "RFC 7296 section 3.4";
        ID_I = 35, "IDi", "RFC 7296 section 3.5";
        ID_R = 36, "IDr", "RFC 7296 section 3.5";
        CERT = 37, "CERT", "RFC 7296 section 3.6";
        CERTREQ = 38, "CERTREQ", "RFC 7296 section 3.7";
        AUTH = 39, "AUTH", "RFC 7296 section 3.8";
        NONCE = 40, "Nonce", "RFC 7296 section 3.9: Ni and Nr";
        NOTIFY = 41, "N", "RFC 7296 section 3.10";
        DELETE = 42, "D", "RFC 7296 section 3.11";
        VENDOR = 43, "V", "RFC 7296 section 3.12";
        TS_I = 44, "TSi", "RFC 7296 section 3.13";
        TS_R = 45, "TSr", "RFC 7296 section 3.13";
        SK = 46, "SK", "RFC 7296 section 3.14";
        CP = 47, "CP", "RFC 7296 section 3.15";
        EAP = 48, "EAP", "RFC 7296 section 3.16";
        GSPM = 49, "GSPM", "RFC 6467";
        SKF = 53, "SKF", "RFC 7383 section 2.5";
        PS = 54, "PS", "RFC 8019";
    }
}

impl PayloadType {
    /// Whether this is an encrypted payload (a whole message or a fragment), which must be the last payload.
    #[inline]
    pub const fn is_encrypted(self) -> bool {
        matches!(self, Self::SK | Self::SKF)
    }
}

registry! {
    /// "IKEv2 Security Protocol Identifiers".
    ProtocolId(u8) {
        NONE = 0, "none", "RFC 7296 section 3.10: a notification without an SPI";
        IKE = 1, "IKE", "RFC 7296 section 3.3.1";
        AH = 2, "AH", "RFC 7296 section 3.3.1";
        ESP = 3, "ESP", "RFC 7296 section 3.3.1";
    }
}

impl ProtocolId {
    /// Whether this is a Child SA protocol.
    #[inline]
    pub const fn is_child(self) -> bool {
        matches!(self, Self::AH | Self::ESP)
    }
}

registry! {
    /// "IKEv2 Transform Attribute Types", 15-bit numbers.
    AttributeType(u16) {
        KEY_LENGTH = 14, "Key Length", "RFC 7296 section 3.3.5, in bits";
    }
}

registry! {
    /// "IKEv2 Identification Payload ID Types".
    IdType(u8) {
        IPV4_ADDR = 1, "ID_IPV4_ADDR", "RFC 7296 section 3.5";
        FQDN = 2, "ID_FQDN", "RFC 7296 section 3.5";
        RFC822_ADDR = 3, "ID_RFC822_ADDR", "RFC 7296 section 3.5";
        IPV6_ADDR = 5, "ID_IPV6_ADDR", "RFC 7296 section 3.5";
        DER_ASN1_DN = 9, "ID_DER_ASN1_DN", "RFC 7296 section 3.5";
        DER_ASN1_GN = 10, "ID_DER_ASN1_GN", "RFC 7296 section 3.5";
        KEY_ID = 11, "ID_KEY_ID", "RFC 7296 section 3.5";
        NULL = 13, "ID_NULL", "RFC 7619";
    }
}

registry! {
    /// "IKEv2 Certificate Encodings".
    CertEncoding(u8) {
        PKCS7 = 1, "PKCS #7 wrapped X.509 certificate", "RFC 7296 section 3.6, unspecified";
        PGP = 2, "PGP Certificate", "RFC 7296 section 3.6, unspecified";
        DNS_KEY = 3, "DNS Signed Key", "RFC 7296 section 3.6, unspecified";
        X509_SIGNATURE = 4, "X.509 Certificate - Signature", "RFC 7296 section 3.6";
        KERBEROS = 6, "Kerberos Token", "RFC 7296 section 3.6, unspecified";
        CRL = 7, "Certificate Revocation List (CRL)", "RFC 7296 section 3.6";
        ARL = 8, "Authority Revocation List (ARL)", "RFC 7296 section 3.6, unspecified";
        SPKI = 9, "SPKI Certificate", "RFC 7296 section 3.6, unspecified";
        X509_ATTRIBUTE = 10, "X.509 Certificate - Attribute", "RFC 7296 section 3.6, unspecified";
        RAW_RSA_KEY = 11, "Raw RSA Key", "RFC 7296 section 3.6, deprecated";
        HASH_AND_URL = 12, "Hash and URL of X.509 certificate", "RFC 7296 section 3.6";
        HASH_AND_URL_BUNDLE = 13, "Hash and URL of X.509 bundle", "RFC 7296 section 3.6";
        OCSP = 14, "OCSP Content", "RFC 4806";
        RAW_PUBLIC_KEY = 15, "Raw Public Key", "RFC 7670";
    }
}

registry! {
    /// "IKEv2 Authentication Method".
    AuthMethod(u8) {
        RSA = 1, "RSA Digital Signature", "RFC 7296 section 3.8";
        SHARED_KEY = 2, "Shared Key Message Integrity Code", "RFC 7296 section 3.8";
        DSS = 3, "DSS Digital Signature", "RFC 7296 section 3.8";
        ECDSA_256 = 9, "ECDSA with SHA-256 on the P-256 curve", "RFC 4754";
        ECDSA_384 = 10, "ECDSA with SHA-384 on the P-384 curve", "RFC 4754";
        ECDSA_521 = 11, "ECDSA with SHA-512 on the P-521 curve", "RFC 4754";
        SECURE_PASSWORD = 12, "Generic Secure Password Authentication Method", "RFC 6467";
        NULL = 13, "NULL Authentication", "RFC 7619";
        DIGITAL_SIGNATURE = 14, "Digital Signature", "RFC 7427 section 3";
    }
}

registry! {
    /// "IKEv2 Hash Algorithms", for the SIGNATURE_HASH_ALGORITHMS notification.
    HashAlgorithm(u16) {
        SHA1 = 1, "SHA1", "RFC 7427 section 7";
        SHA2_256 = 2, "SHA2-256", "RFC 7427 section 7";
        SHA2_384 = 3, "SHA2-384", "RFC 7427 section 7";
        SHA2_512 = 4, "SHA2-512", "RFC 7427 section 7";
        IDENTITY = 5, "Identity", "RFC 8420";
    }
}

registry! {
    /// "IKEv2 Traffic Selector Types".
    TsType(u8) {
        IPV4_ADDR_RANGE = 7, "TS_IPV4_ADDR_RANGE", "RFC 7296 section 3.13.1";
        IPV6_ADDR_RANGE = 8, "TS_IPV6_ADDR_RANGE", "RFC 7296 section 3.13.1";
        FC_ADDR_RANGE = 9, "TS_FC_ADDR_RANGE", "RFC 4595";
        SECLABEL = 10, "TS_SECLABEL", "RFC 9478";
    }
}

registry! {
    /// "IKEv2 Configuration Payload CFG Types".
    CfgType(u8) {
        REQUEST = 1, "CFG_REQUEST", "RFC 7296 section 3.15";
        REPLY = 2, "CFG_REPLY", "RFC 7296 section 3.15";
        SET = 3, "CFG_SET", "RFC 7296 section 3.15";
        ACK = 4, "CFG_ACK", "RFC 7296 section 3.15";
    }
}

registry! {
    /// "IKEv2 Configuration Payload Attribute Types", 15-bit numbers.
    CfgAttribute(u16) {
        INTERNAL_IP4_ADDRESS = 1, "INTERNAL_IP4_ADDRESS", "RFC 7296 section 3.15.1";
        INTERNAL_IP4_NETMASK = 2, "INTERNAL_IP4_NETMASK", "RFC 7296 section 3.15.1";
        INTERNAL_IP4_DNS = 3, "INTERNAL_IP4_DNS", "RFC 7296 section 3.15.1";
        INTERNAL_IP4_NBNS = 4, "INTERNAL_IP4_NBNS", "RFC 7296 section 3.15.1";
        INTERNAL_IP4_DHCP = 6, "INTERNAL_IP4_DHCP", "RFC 7296 section 3.15.1";
        APPLICATION_VERSION = 7, "APPLICATION_VERSION", "RFC 7296 section 3.15.1";
        INTERNAL_IP6_ADDRESS = 8, "INTERNAL_IP6_ADDRESS", "RFC 7296 section 3.15.1";
        INTERNAL_IP6_DNS = 10, "INTERNAL_IP6_DNS", "RFC 7296 section 3.15.1";
        INTERNAL_IP6_DHCP = 12, "INTERNAL_IP6_DHCP", "RFC 7296 section 3.15.1";
        INTERNAL_IP4_SUBNET = 13, "INTERNAL_IP4_SUBNET", "RFC 7296 section 3.15.1";
        SUPPORTED_ATTRIBUTES = 14, "SUPPORTED_ATTRIBUTES", "RFC 7296 section 3.15.1";
        INTERNAL_IP6_SUBNET = 15, "INTERNAL_IP6_SUBNET", "RFC 7296 section 3.15.1";
        MIP6_HOME_PREFIX = 16, "MIP6_HOME_PREFIX", "RFC 5026";
        INTERNAL_IP6_LINK = 17, "INTERNAL_IP6_LINK", "RFC 5739";
        INTERNAL_IP6_PREFIX = 18, "INTERNAL_IP6_PREFIX", "RFC 5739";
        P_CSCF_IP4_ADDRESS = 20, "P_CSCF_IP4_ADDRESS", "RFC 7651";
        P_CSCF_IP6_ADDRESS = 21, "P_CSCF_IP6_ADDRESS", "RFC 7651";
        INTERNAL_DNS_DOMAIN = 25, "INTERNAL_DNS_DOMAIN", "RFC 8598";
        INTERNAL_DNSSEC_TA = 26, "INTERNAL_DNSSEC_TA", "RFC 8598";
    }
}

registry! {
    /// "ROHC Attribute Types", 15-bit numbers.
    RohcAttributeType(u16) {
        MAX_CID = 1, "MAX_CID", "RFC 5857 section 3.1.2";
        ROHC_PROFILE = 2, "ROHC_PROFILE", "RFC 5857 section 3.1.2";
        ROHC_INTEG = 3, "ROHC_INTEG", "RFC 5857 section 3.1.2";
        ROHC_ICV_LEN = 4, "ROHC_ICV_LEN", "RFC 5857 section 3.1.2";
        MRRU = 5, "MRRU", "RFC 5857 section 3.1.2";
    }
}

registry! {
    /// Codes of EAP messages.
    EapCode(u8) {
        REQUEST = 1, "Request", "RFC 7296 section 3.16";
        RESPONSE = 2, "Response", "RFC 7296 section 3.16";
        SUCCESS = 3, "Success", "RFC 7296 section 3.16";
        FAILURE = 4, "Failure", "RFC 7296 section 3.16";
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::format;
    use std::string::ToString;

    #[test]
    fn unnamed_values_display_as_numbers() {
        assert_eq!(ExchangeType(34).to_string(), "IKE_SA_INIT");
        assert_eq!(ExchangeType(33).to_string(), "33");
        assert_eq!(NotifyType(65_535).to_string(), "65535");
        assert_eq!(format!("{:>6}", EncrId(1_024)), "  1024");
    }

    #[test]
    fn cve_2015_3991_ikev1_payload_types_are_unknown() {
        // In IKEv1, SA is 1, KE is 4, and Notification is 11 (RFC 2408 section 3.1).
        for number in 1..=32 {
            assert_eq!(PayloadType(number).name(), None, "{number}");
        }
    }

    #[test]
    fn error_and_status_types_are_distinguished() {
        // RFC 7296 section 3.10.1 lists errors up to 44 and status types from 16384 on.
        for kind in NotifyType::ALL {
            assert_eq!(kind.is_error(), kind.0 < 100, "{kind}");
        }
        assert!(
            NotifyType(16_383).is_error() && !NotifyType(16_384).is_error() && !NotifyType(65_535).is_error()
        );
    }

    #[test]
    fn no_two_values_share_a_name() {
        let names: HashSet<_> = NotifyType::ALL.iter().map(|kind| kind.name().unwrap()).collect();
        assert_eq!(names.len(), NotifyType::ALL.len());
        let names: HashSet<_> = KeMethod::ALL.iter().map(|method| method.name().unwrap()).collect();
        assert_eq!(names.len(), KeMethod::ALL.len());
    }

    #[test]
    fn transforms_are_named_by_their_type() {
        assert_eq!(TransformType::ENCR.id_name(20), Some("ENCR_AES_GCM_16"));
        assert_eq!(TransformType::PRF.id_name(5), Some("PRF_HMAC_SHA2_256"));
        assert_eq!(TransformType::INTEG.id_name(0), Some("NONE"));
        assert_eq!(TransformType::KE.id_name(31), Some("Curve25519"));
        assert_eq!(TransformType::ADDKE7.id_name(36), Some("ml-kem-768"));
        assert_eq!(TransformType::ESN.id_name(1), Some("Extended Sequence Numbers"));
        assert_eq!(TransformType(13).id_name(1), None);
    }

    #[test]
    fn public_value_lengths_match_the_rfcs() {
        for method in KeMethod::ALL {
            let Some(len) = method.public_len() else { continue };
            let name = method.name().unwrap();
            let bits: usize = name
                .chars()
                .skip_while(|c| !c.is_ascii_digit())
                .map_while(|c| c.to_digit(10))
                .fold(0, |n, digit| n * 10 + digit as usize);
            let expected = match name {
                // RFC 8031 section 3.1.
                "Curve25519" => 32,
                "Curve448" => 56,
                // RFC 7296 section 3.4: as long as the prime.
                _ if name.contains("MODP") => bits / 8,
                // RFC 5903 section 7, RFC 5114 section 2, RFC 6954 section 3: two coordinates of whole bytes.
                _ => 2 * bits.div_ceil(8),
            };
            assert_eq!(len, expected, "{name}");
        }
        assert_eq!(KeMethod::ALL.iter().filter(|method| method.public_len().is_none()).count(), 4);
        assert_eq!(KeMethod(1_024).public_len(), None);
    }
}
