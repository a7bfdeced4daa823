//! Faults: rules of RFC 7296 that a received message breaks, as far as its bytes show it.
//!
//! One table defines each fault: the variant with its data, the name, the response and the source. Counters,
//! logs and responses use the table.

use core::fmt;

use super::header::Version;
use super::number::{
    AttributeType, CfgAttribute, EapCode, IdType, KeMethod, NotifyType, PayloadType, ProtocolId, TsType,
};

/// How to respond to a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FaultResponse {
    /// Send this notification in the response, if the message was a request.
    ///
    /// RFC 7296 section 3.10.1: INVALID_SYNTAX is sent only if the Message ID and the ICV of the request were
    /// valid. Requests without protection and all responses (section 2.21) are dropped silently.
    Notify(NotifyType),
    /// Send nothing and drop the message.
    Silence,
}

macro_rules! faults {
    ($(
        $(#[doc = $doc:literal])+
        $variant:ident { $($field:ident: $type:ty),* } =
            $name:literal, $response:ident, $source:literal, $text:literal;
    )+) => {
        /// A broken rule, with the offending values.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Fault {
            $($(#[doc = $doc])+ #[doc = ""] #[doc = concat!("Source: ", $source, ".")]
            $variant { $(#[doc = field_doc!($field)] $field: $type),* },)+
        }

        /// A broken rule without values, for counters.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum FaultKind {
            $($(#[doc = $doc])+ $variant,)+
        }

        impl Fault {
            /// Rule that was broken.
            pub const fn kind(self) -> FaultKind {
                match self { $(Self::$variant { .. } => FaultKind::$variant,)+ }
            }
        }

        impl fmt::Display for Fault {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match *self { $(Self::$variant { $($field),* } => write!(f, $text),)+ }
            }
        }

        impl FaultKind {
            /// All rules, in the order of the enum.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// Name that users see, e.g. `nonce-length`.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }

            /// What the fault means, as sentences that begin with a space.
            pub const fn description(self) -> &'static str {
                match self { $(Self::$variant => concat!($($doc),+),)+ }
            }

            /// How to respond to the fault.
            pub const fn response(self) -> FaultResponse {
                match self { $(Self::$variant => faults!(@response $response),)+ }
            }

            /// RFC and section of the rule.
            pub const fn source(self) -> &'static str {
                match self { $(Self::$variant => $source,)+ }
            }
        }
    };
    (@response silence) => { FaultResponse::Silence };
    (@response syntax) => { FaultResponse::Notify(NotifyType::INVALID_SYNTAX) };
    (@response version) => { FaultResponse::Notify(NotifyType::INVALID_MAJOR_VERSION) };
    (@response critical) => { FaultResponse::Notify(NotifyType::UNSUPPORTED_CRITICAL_PAYLOAD) };
}

// Documentation of the fields of all faults. A field has the same meaning in each fault.
macro_rules! field_doc {
    (at) => {
        "Offset: of a payload, in the message or plaintext; of other data, in the body of its payload."
    };
    (len) => {
        "Number of available bytes."
    };
    (claimed) => {
        "Length or count according to the field."
    };
    (min) => {
        "Minimum number of bytes."
    };
    (limit) => {
        "Maximum number."
    };
    (found) => {
        "Value found."
    };
    (expected) => {
        "Value expected."
    };
    (end) => {
        "End of the range."
    };
    (start) => {
        "Start of the range."
    };
    ($other:ident) => {
        concat!("The ", stringify!($other), " with the fault.")
    };
}

faults! {
    /// The datagram is too short for a header.
    HeaderTruncated { len: usize } =
        "header-truncated", silence, "RFC 7296 section 3.1",
        "{len} bytes are too few for an IKE header";
    /// The major version is above 2.
    HigherMajorVersion { version: Version } =
        "higher-major-version", version, "RFC 7296 section 2.5",
        "version {version} is above 2";
    /// The major version is below 2.
    LowerMajorVersion { version: Version } =
        "lower-major-version", silence, "RFC 7296 section 2.5",
        "version {version} is below 2";
    /// The message's length does not cover its header.
    MessageLength { claimed: u32 } =
        "message-length", silence, "RFC 7296 section 3.1",
        "a message of {claimed} bytes does not cover its header";
    /// The message's length exceeds the datagram.
    MessageTruncated { claimed: u32, len: usize } =
        "message-truncated", silence, "RFC 7296 section 3.1",
        "a message of {claimed} bytes does not fit a datagram of {len}";
    /// Bytes follow the message in the datagram, which must contain only one message.
    BytesBehindMessage { claimed: u32, len: usize } =
        "bytes-behind-message", silence, "RFC 7296 section 3.1",
        "a message of {claimed} bytes does not fill a datagram of {len}";

    /// The header of an announced payload is truncated.
    PayloadHeaderTruncated { at: usize, payload: PayloadType, len: usize } =
        "payload-header-truncated", syntax, "RFC 7296 section 3.2",
        "{len} bytes at {at} are too few for the header of a payload {payload}";
    /// A payload's length does not cover its own header.
    PayloadLength { at: usize, payload: PayloadType, claimed: u16 } =
        "payload-length", syntax, "RFC 7296 section 3.2",
        "a length of {claimed} does not cover the header of the payload {payload} at {at}";
    /// A payload's length exceeds the message.
    PayloadTruncated { at: usize, payload: PayloadType, claimed: u16, len: usize } =
        "payload-truncated", syntax, "RFC 7296 section 3.2",
        "the payload {payload} at {at} claims {claimed} bytes of {len}";
    /// Bytes follow the last payload of the message.
    BytesBehindPayloads { at: usize, len: usize } =
        "bytes-behind-payloads", syntax, "RFC 7296 section 3.1",
        "{len} bytes at {at} are behind the last payload";
    /// The message has more payloads than this implementation supports.
    TooManyPayloads { limit: usize } =
        "too-many-payloads", syntax, "none: a limit of this implementation",
        "there are more than {limit} payloads";
    /// A payload follows an encrypted payload.
    EncryptedNotLast { at: usize, payload: PayloadType } =
        "encrypted-not-last", syntax, "RFC 7296 section 3.14, RFC 7383 section 2.5",
        "the payload {payload} at {at} is not the last";
    /// An encrypted payload contains an encrypted payload.
    EncryptedNested { at: usize, payload: PayloadType } =
        "encrypted-nested", syntax, "RFC 7296 section 3.1",
        "a payload {payload} is encrypted already, at {at}";
    /// The first exchange contains an encrypted payload, before there are keys.
    EncryptedInInit { at: usize, payload: PayloadType } =
        "encrypted-in-init", syntax, "RFC 7296 section 1.2",
        "the first exchange has a payload {payload}, at {at}";
    /// A payload of unknown type is critical.
    UnsupportedCriticalPayload { payload: PayloadType } =
        "unsupported-critical-payload", critical, "RFC 7296 section 2.5",
        "a payload {payload} is critical and unknown";
    /// A payload is shorter than the fixed fields of its type.
    BodyTruncated { payload: PayloadType, len: usize, min: usize } =
        "body-truncated", syntax, "RFC 7296 section 3",
        "{len} bytes are too few for a payload {payload}, which has {min} at least";

    /// An SA payload contains no proposal.
    NoProposal { } =
        "no-proposal", syntax, "RFC 7296 section 3.3",
        "there is no proposal";
    /// A proposal is too short for its header.
    ProposalTruncated { at: usize, len: usize } =
        "proposal-truncated", syntax, "RFC 7296 section 3.3.1",
        "{len} bytes at {at} are too few for a proposal";
    /// A proposal's length does not cover its header and SPI, or exceeds the payload.
    ProposalLength { at: usize, claimed: u16, len: usize } =
        "proposal-length", syntax, "RFC 7296 section 3.3.1",
        "the proposal at {at} claims {claimed} bytes of {len}";
    /// The "last" marker of a proposal is wrong.
    ProposalMarker { at: usize, found: u8, expected: u8 } =
        "proposal-marker", syntax, "RFC 7296 section 3.3.1",
        "the proposal at {at} is marked {found} where {expected} belongs";
    /// The number of a proposal is not that of the previous proposal plus one.
    ProposalNumber { at: usize, found: u8, expected: u8 } =
        "proposal-number", syntax, "RFC 7296 section 3.3.1",
        "the proposal at {at} has the number {found} where {expected} belongs";
    /// The SPI of a proposal does not have the size that its protocol requires.
    ProposalSpiSize { at: usize, protocol: ProtocolId, claimed: u8 } =
        "proposal-spi-size", syntax, "RFC 7296 section 3.3.1",
        "the proposal at {at} has an SPI of {claimed} bytes for {protocol}";
    /// A proposal has no transforms, or another number of transforms than it claims.
    TransformCount { at: usize, claimed: u8, found: usize } =
        "transform-count", syntax, "RFC 7296 sections 3.3 and 3.3.1",
        "the proposal at {at} claims {claimed} transforms and has {found}";
    /// A transform is too short for its header.
    TransformTruncated { at: usize, len: usize } =
        "transform-truncated", syntax, "RFC 7296 section 3.3.2",
        "{len} bytes at {at} are too few for a transform";
    /// A transform's length does not cover its header, or exceeds the proposal.
    TransformLength { at: usize, claimed: u16, len: usize } =
        "transform-length", syntax, "RFC 7296 section 3.3.2",
        "the transform at {at} claims {claimed} bytes of {len}";
    /// The "last" marker of a transform is wrong.
    TransformMarker { at: usize, found: u8, expected: u8 } =
        "transform-marker", syntax, "RFC 7296 section 3.3.2",
        "the transform at {at} is marked {found} where {expected} belongs";
    /// A transform attribute is shorter than its header, or its length exceeds the transform.
    AttributeTruncated { at: usize, len: usize } =
        "attribute-truncated", syntax, "RFC 7296 section 3.3.5",
        "{len} bytes at {at} are too few for the attribute";
    /// A transform has two attributes of the same type.
    AttributeTwice { at: usize, attribute: AttributeType } =
        "attribute-twice", syntax, "RFC 7296 section 3.3",
                "the attribute {attribute} at {at} is a duplicate";
    /// The key length attribute does not use the fixed two-byte format.
    AttributeFormat { at: usize, attribute: AttributeType } =
        "attribute-format", syntax, "RFC 7296 section 3.3.5",
                "the attribute {attribute} at {at} must have the fixed-length format";
    /// A transform has more attributes than this implementation supports.
    TooManyAttributes { at: usize, limit: usize } =
        "too-many-attributes", syntax, "none: a limit of this implementation",
        "the transform at {at} has more than {limit} attributes";

    /// A public value is empty, or does not have the length that its group requires.
    KeLength { method: KeMethod, len: usize } =
        "ke-length", syntax, "RFC 7296 section 3.4, RFC 5903 section 7, RFC 8031 section 3.1",
                "a public value of {len} bytes does not fit {method}";
    /// An identity that is an address has the wrong length, or an identity that is a name is empty.
    IdLength { id: IdType, len: usize } =
        "id-length", syntax, "RFC 7296 section 3.5",
                "an identity of {len} bytes is not a valid {id}";
    /// A name contains an invalid character.
    IdText { id: IdType, at: usize } =
        "id-text", syntax, "RFC 7296 section 3.5",
                "the {id} has an invalid byte at {at}";
    /// A hash and URL is shorter than the hash.
    CertLength { len: usize } =
        "cert-length", syntax, "RFC 7296 section 3.6",
        "{len} bytes are too few for a hash and a URL";
    /// A list of certification authorities is not a list of hashes.
    CertReqLength { len: usize } =
        "certreq-length", syntax, "RFC 7296 section 3.7",
                "{len} bytes are not a list of 20-byte hashes";
    /// The algorithm of a digital signature exceeds the payload, or leaves no space for the signature.
    SignatureLength { claimed: usize, len: usize } =
        "signature-length", syntax, "RFC 7427 section 3",
        "an algorithm identifier of {claimed} bytes and a signature do not fit {len}";
    /// A nonce is shorter than 16 or longer than 256 bytes.
    NonceLength { len: usize } =
        "nonce-length", syntax, "RFC 7296 section 3.9",
                "{len} bytes are not a valid length of a nonce";
    /// The SPI of a notification is missing, or has the wrong size or protocol.
    NotifySpi { notify: NotifyType, protocol: ProtocolId, claimed: u8 } =
        "notify-spi", syntax, "RFC 7296 section 3.10",
        "the notification {notify} has an SPI of {claimed} bytes for {protocol}";
    /// The data of a notification does not have the length that its type requires.
    NotifyData { notify: NotifyType, len: usize } =
        "notify-data", syntax, "RFC 7296 sections 2 and 3.10, RFC 7427 section 4",
        "the notification {notify} has {len} bytes of data";
    /// The protocol of a Delete payload is not IKE, AH or ESP.
    DeleteProtocol { protocol: ProtocolId } =
        "delete-protocol", syntax, "RFC 7296 section 3.11",
                "the protocol of a Delete payload is {protocol}, expected IKE, AH or ESP";
    /// The SPIs of a Delete payload do not have the size that the protocol requires.
    DeleteSpiSize { protocol: ProtocolId, claimed: u8 } =
        "delete-spi-size", syntax, "RFC 7296 section 3.11",
                "SPIs of {claimed} bytes are not valid for {protocol}";
    /// A Delete payload contains another number of SPIs than it claims.
    DeleteCount { claimed: u16, len: usize } =
        "delete-count", syntax, "RFC 7296 section 3.11",
        "{claimed} SPIs do not fill {len} bytes";

    /// A payload contains no traffic selectors, or another number than it claims.
    SelectorCount { claimed: u8, found: usize } =
        "selector-count", syntax, "RFC 7296 section 3.13",
        "the payload claims {claimed} selectors and has {found}";
    /// A traffic selector is too short for its header.
    SelectorTruncated { at: usize, len: usize } =
        "selector-truncated", syntax, "RFC 7296 section 3.13.1",
        "{len} bytes at {at} are too few for a selector";
    /// The length of a traffic selector does not fit its type, or exceeds the payload.
    SelectorLength { at: usize, selector: TsType, claimed: u16, len: usize } =
        "selector-length", syntax, "RFC 7296 section 3.13.1",
        "the {selector} at {at} claims {claimed} bytes of {len}";
    /// A port range ends before it starts, and is not OPAQUE.
    SelectorPorts { start: u16, end: u16 } =
        "selector-ports", syntax, "RFC 7296 section 3.13.1",
                "ports {start} to {end} are not a range";
    /// A traffic selector for all protocols specifies ports.
    SelectorPortsOfAll { start: u16, end: u16 } =
        "selector-ports-of-all", syntax, "RFC 7296 section 3.13.1",
                "ports {start} to {end} need a protocol";
    /// An address range ends before it starts.
    SelectorAddresses { at: usize } =
        "selector-addresses", syntax, "RFC 7296 section 3.13.1",
                "the addresses of the selector at {at} are not a range";

    /// An encrypted payload is shorter than IV, padding and ICV.
    EncryptedLength { len: usize, min: usize } =
        "encrypted-length", silence, "RFC 7296 section 3.14",
                "{len} bytes are too few for an encrypted payload, which has at least {min}";
    /// The ciphertext is not a whole number of blocks.
    EncryptedBlocks { len: usize } =
        "encrypted-blocks", silence, "RFC 7296 section 3.14",
        "{len} bytes of ciphertext are not whole blocks";
    /// The padding exceeds the plaintext.
    EncryptedPadding { claimed: u8, len: usize } =
        "encrypted-padding", syntax, "RFC 7296 section 3.14",
        "{claimed} bytes of padding do not fit a plaintext of {len}";
    /// The number or total of a fragment is zero, or the number exceeds the total.
    FragmentNumber { found: u16, limit: u16 } =
        "fragment-number", silence, "RFC 7383 section 2.6",
                "fragment {found} of {limit} cannot exist";

    /// A configuration attribute is shorter than its header, or its length exceeds the payload.
    CfgTruncated { at: usize, len: usize } =
        "cfg-truncated", syntax, "RFC 7296 section 3.15.1",
        "{len} bytes at {at} are too few for the attribute";
    /// A configuration attribute that must be unique occurs twice.
    CfgTwice { at: usize, attribute: CfgAttribute } =
        "cfg-twice", syntax, "RFC 7296 section 3.15.1",
                "the attribute {attribute} at {at} is a duplicate";
    /// A netmask without an address.
    CfgNetmaskAlone { } =
        "cfg-netmask-alone", syntax, "RFC 7296 section 3.15.1",
        "there is an INTERNAL_IP4_NETMASK and no INTERNAL_IP4_ADDRESS";
    /// The value of a configuration attribute does not have the length that its type requires.
    CfgLength { attribute: CfgAttribute, len: usize } =
        "cfg-length", syntax, "RFC 7296 section 3.15.1",
        "the attribute {attribute} has {len} bytes";
    /// An IPv6 prefix is longer than 128 bits.
    CfgPrefix { attribute: CfgAttribute, found: u8 } =
        "cfg-prefix", syntax, "RFC 7296 section 3.15.1",
        "the attribute {attribute} has a prefix of {found} bits";
    /// The length of an EAP message is not that of its payload.
    EapLength { claimed: u16, len: usize } =
        "eap-length", syntax, "RFC 7296 section 3.16",
        "an EAP message of {claimed} bytes is in a payload of {len}";
    /// The length of an EAP message does not fit its code.
    EapCodeLength { code: EapCode, len: usize } =
        "eap-code-length", syntax, "RFC 7296 section 3.16",
                "{len} bytes are not a valid length of an EAP {code}";
}

impl Fault {
    /// How to respond to the fault.
    pub const fn response(self) -> FaultResponse {
        self.kind().response()
    }
}

impl core::error::Error for Fault {}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::string::ToString;

    #[test]
    fn names_are_unique_and_in_kebab_case() {
        let names: HashSet<_> = FaultKind::ALL.iter().map(|kind| kind.name()).collect();
        assert_eq!(names.len(), FaultKind::ALL.len());
        for name in names {
            assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-'), "{name}");
        }
    }

    #[test]
    fn kinds_are_numbered_from_zero() {
        for (at, kind) in FaultKind::ALL.iter().enumerate() {
            assert_eq!(*kind as usize, at);
            assert_eq!(kind.to_string(), kind.name());
        }
    }

    #[test]
    fn only_three_notifications_report_parse_errors() {
        let syntax = FaultResponse::Notify(NotifyType::INVALID_SYNTAX);
        for kind in FaultKind::ALL {
            let expected = match kind.name() {
                "higher-major-version" => FaultResponse::Notify(NotifyType::INVALID_MAJOR_VERSION),
                "unsupported-critical-payload" => {
                    FaultResponse::Notify(NotifyType::UNSUPPORTED_CRITICAL_PAYLOAD)
                }
                // The message is not authenticated yet: RFC 7296 section 3.10.1, RFC 7383 section 2.6.
                "header-truncated"
                | "lower-major-version"
                | "message-length"
                | "message-truncated"
                | "bytes-behind-message"
                | "encrypted-length"
                | "encrypted-blocks"
                | "fragment-number" => FaultResponse::Silence,
                _ => syntax,
            };
            assert_eq!(kind.response(), expected, "{kind}");
        }
    }

    #[test]
    fn text_contains_the_offending_values() {
        let fault = Fault::PayloadTruncated { at: 28, payload: PayloadType::SA, claimed: 99, len: 12 };
        assert_eq!(fault.to_string(), "the payload SA at 28 claims 99 bytes of 12");
        assert_eq!(fault.response(), FaultResponse::Notify(NotifyType::INVALID_SYNTAX));
    }
}
