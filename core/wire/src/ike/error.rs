//! What a peer did wrong, as far as the bytes of a message show it.
//!
//! One table: variant with its data, name, answer and source stand in one place. Counters, logs and answers read it.

use core::fmt;

use super::header::Version;
use super::number::{
    AttributeType, CfgAttribute, EapCode, IdType, KeMethod, NotifyType, PayloadType, ProtocolId, TsType,
};

/// What a fault leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Answer {
    /// A notification of this type in the response, if the message was a request.
    ///
    /// RFC 7296 section 3.10.1: INVALID_SYNTAX is sent only when Message ID and ICV of the request were right; without a
    /// protected request, and for every response (section 2.21), silence is what remains.
    Notify(NotifyType),
    /// None: the message is dropped.
    Silence,
}

macro_rules! faults {
    ($($(#[doc = $doc:literal])+ $variant:ident { $($field:ident: $type:ty),* } = $name:literal, $answer:ident, $source:literal, $text:literal;)+) => {
        /// One broken rule, with what was found.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Fault {
            $($(#[doc = $doc])+ #[doc = ""] #[doc = concat!("Source: ", $source, ".")]
            $variant { $(#[doc = field_doc!($field)] $field: $type),* },)+
        }

        /// A broken rule without what was found: for counters.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum FaultKind {
            $($(#[doc = $doc])+ $variant,)+
        }

        impl Fault {
            /// The rule that was broken.
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
            /// Every rule, in the order of the enum.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The name users see, e.g. `nonce-length`.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }

            /// What the fault leads to.
            pub const fn answer(self) -> Answer {
                match self { $(Self::$variant => faults!(@answer $answer),)+ }
            }

            /// The RFC and section of the rule.
            pub const fn source(self) -> &'static str {
                match self { $(Self::$variant => $source,)+ }
            }
        }
    };
    (@answer silence) => { Answer::Silence };
    (@answer syntax) => { Answer::Notify(NotifyType::INVALID_SYNTAX) };
    (@answer version) => { Answer::Notify(NotifyType::INVALID_MAJOR_VERSION) };
    (@answer critical) => { Answer::Notify(NotifyType::UNSUPPORTED_CRITICAL_PAYLOAD) };
}

// What a field of a fault says; one meaning for all faults.
macro_rules! field_doc {
    (at) => {
        "Where it is: bytes from the start of the message or plaintext for a payload, from the start of the payload's body for what is in it."
    };
    (len) => {
        "Bytes that are there."
    };
    (claimed) => {
        "Length or count as the field says it."
    };
    (least) => {
        "Bytes that have to be there."
    };
    (limit) => {
        "The most that is taken."
    };
    (found) => {
        "The value that was found."
    };
    (expected) => {
        "The value that belongs there."
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
    HeaderTruncated { len: usize } = "header-truncated", silence, "RFC 7296 section 3.1",
        "{len} bytes are too few for an IKE header";
    /// The major version is above 2.
    HigherMajorVersion { version: Version } = "higher-major-version", version, "RFC 7296 section 2.5",
        "version {version} is above 2";
    /// The major version is below 2.
    LowerMajorVersion { version: Version } = "lower-major-version", silence, "RFC 7296 section 2.5",
        "version {version} is below 2";
    /// The message's length does not cover its header.
    MessageLength { claimed: u32 } = "message-length", silence, "RFC 7296 section 3.1",
        "a message of {claimed} bytes does not cover its header";
    /// The message's length exceeds the datagram.
    MessageTruncated { claimed: u32, len: usize } = "message-truncated", silence, "RFC 7296 section 3.1",
        "a message of {claimed} bytes does not fit a datagram of {len}";
    /// The datagram goes on behind the message, although it holds one message only.
    BytesBehindMessage { claimed: u32, len: usize } = "bytes-behind-message", silence, "RFC 7296 section 3.1",
        "a message of {claimed} bytes does not fill a datagram of {len}";

    /// A payload is announced, and there is no room for its header.
    PayloadHeaderTruncated { at: usize, payload: PayloadType, len: usize } = "payload-header-truncated", syntax, "RFC 7296 section 3.2",
        "{len} bytes at {at} are too few for the header of a payload {payload}";
    /// A payload's length does not cover its own header.
    PayloadLength { at: usize, payload: PayloadType, claimed: u16 } = "payload-length", syntax, "RFC 7296 section 3.2",
        "a length of {claimed} does not cover the header of the payload {payload} at {at}";
    /// A payload's length exceeds the message.
    PayloadTruncated { at: usize, payload: PayloadType, claimed: u16, len: usize } = "payload-truncated", syntax, "RFC 7296 section 3.2",
        "the payload {payload} at {at} claims {claimed} bytes of {len}";
    /// The message goes on behind the last payload.
    BytesBehindPayloads { at: usize, len: usize } = "bytes-behind-payloads", syntax, "RFC 7296 section 3.1",
        "{len} bytes at {at} are behind the last payload";
    /// More payloads than this implementation takes.
    TooManyPayloads { limit: usize } = "too-many-payloads", syntax, "none: a limit of this implementation",
        "there are more than {limit} payloads";
    /// Something follows an encrypted payload.
    EncryptedNotLast { at: usize, payload: PayloadType } = "encrypted-not-last", syntax, "RFC 7296 section 3.14, RFC 7383 section 2.5",
        "the payload {payload} at {at} is not the last";
    /// An encrypted payload inside another.
    EncryptedNested { at: usize, payload: PayloadType } = "encrypted-nested", syntax, "RFC 7296 section 3.1",
        "a payload {payload} is encrypted already, at {at}";
    /// An encrypted payload in IKE_SA_INIT, where there are no keys yet.
    EncryptedInInit { at: usize, payload: PayloadType } = "encrypted-in-init", syntax, "RFC 7296 section 1.2",
        "IKE_SA_INIT has a payload {payload}, at {at}";
    /// A payload of unknown type that must not be skipped.
    UnsupportedCriticalPayload { payload: PayloadType } = "unsupported-critical-payload", critical, "RFC 7296 section 2.5",
        "a payload {payload} is critical and unknown";
    /// A payload is too short for the fields that every payload of its type has.
    BodyTruncated { payload: PayloadType, len: usize, least: usize } = "body-truncated", syntax, "RFC 7296 section 3",
        "{len} bytes are too few for a payload {payload}, which has {least} at least";

    /// An SA payload without a proposal.
    NoProposal { } = "no-proposal", syntax, "RFC 7296 section 3.3",
        "there is no proposal";
    /// A proposal is too short for its header.
    ProposalTruncated { at: usize, len: usize } = "proposal-truncated", syntax, "RFC 7296 section 3.3.1",
        "{len} bytes at {at} are too few for a proposal";
    /// A proposal's length does not cover its header and SPI, or exceeds the payload.
    ProposalLength { at: usize, claimed: u16, len: usize } = "proposal-length", syntax, "RFC 7296 section 3.3.1",
        "the proposal at {at} claims {claimed} bytes of {len}";
    /// A proposal says that it is the last and is not, or the other way round.
    ProposalMarker { at: usize, found: u8, expected: u8 } = "proposal-marker", syntax, "RFC 7296 section 3.3.1",
        "the proposal at {at} is marked {found} where {expected} belongs";
    /// A proposal's number is not one more than the one before.
    ProposalNumber { at: usize, found: u8, expected: u8 } = "proposal-number", syntax, "RFC 7296 section 3.3.1",
        "the proposal at {at} has the number {found} where {expected} belongs";
    /// A proposal's SPI is not as long as its protocol's SPIs are.
    ProposalSpiSize { at: usize, protocol: ProtocolId, claimed: u8 } = "proposal-spi-size", syntax, "RFC 7296 section 3.3.1",
        "the proposal at {at} has an SPI of {claimed} bytes for {protocol}";
    /// A proposal has not as many transforms as it says, or none.
    TransformCount { at: usize, claimed: u8, found: usize } = "transform-count", syntax, "RFC 7296 sections 3.3 and 3.3.1",
        "the proposal at {at} claims {claimed} transforms and has {found}";
    /// A transform is too short for its header.
    TransformTruncated { at: usize, len: usize } = "transform-truncated", syntax, "RFC 7296 section 3.3.2",
        "{len} bytes at {at} are too few for a transform";
    /// A transform's length does not cover its header, or exceeds the proposal.
    TransformLength { at: usize, claimed: u16, len: usize } = "transform-length", syntax, "RFC 7296 section 3.3.2",
        "the transform at {at} claims {claimed} bytes of {len}";
    /// A transform says that it is the last and is not, or the other way round.
    TransformMarker { at: usize, found: u8, expected: u8 } = "transform-marker", syntax, "RFC 7296 section 3.3.2",
        "the transform at {at} is marked {found} where {expected} belongs";
    /// An attribute of a transform is too short for its header, or its length exceeds the transform.
    AttributeTruncated { at: usize, len: usize } = "attribute-truncated", syntax, "RFC 7296 section 3.3.5",
        "{len} bytes at {at} are too few for the attribute";
    /// A transform has two attributes of one type.
    AttributeTwice { at: usize, attribute: AttributeType } = "attribute-twice", syntax, "RFC 7296 section 3.3",
        "the attribute {attribute} at {at} stands there twice";
    /// The key length is not in the format for values of two bytes.
    AttributeFormat { at: usize, attribute: AttributeType } = "attribute-format", syntax, "RFC 7296 section 3.3.5",
        "the attribute {attribute} at {at} has a fixed length and says another";
    /// A transform has more attributes than this implementation takes.
    TooManyAttributes { at: usize, limit: usize } = "too-many-attributes", syntax, "none: a limit of this implementation",
        "the transform at {at} has more than {limit} attributes";

    /// A public value is not as long as its group's public values are, or is absent.
    KeLength { method: KeMethod, len: usize } = "ke-length", syntax, "RFC 7296 section 3.4, RFC 5903 section 7, RFC 8031 section 3.1",
        "a public value of {len} bytes is none of {method}";
    /// An address as an identity has not an address's length, or a name is empty.
    IdLength { id: IdType, len: usize } = "id-length", syntax, "RFC 7296 section 3.5",
        "an identity of {len} bytes is no {id}";
    /// A name has characters that names have not.
    IdText { id: IdType, at: usize } = "id-text", syntax, "RFC 7296 section 3.5",
        "the {id} has a byte at {at} that does not belong there";
    /// A hash and URL is too short for the hash.
    CertLength { len: usize } = "cert-length", syntax, "RFC 7296 section 3.6",
        "{len} bytes are too few for a hash and a URL";
    /// A list of certification authorities is not made of hashes.
    CertReqLength { len: usize } = "certreq-length", syntax, "RFC 7296 section 3.7",
        "{len} bytes are not a list of 20-byte hashes";
    /// The algorithm of a digital signature does not lie inside the payload, or leaves no signature.
    SignatureLength { claimed: usize, len: usize } = "signature-length", syntax, "RFC 7427 section 3",
        "an algorithm identifier of {claimed} bytes and a signature do not fit {len}";
    /// A nonce of less than 16 or more than 256 bytes.
    NonceLength { len: usize } = "nonce-length", syntax, "RFC 7296 section 3.9",
        "{len} bytes are not the length of a nonce";
    /// A notification's SPI is not as long as its protocol's SPIs are, or is missing, or is of the wrong protocol.
    NotifySpi { notify: NotifyType, protocol: ProtocolId, claimed: u8 } = "notify-spi", syntax, "RFC 7296 section 3.10",
        "the notification {notify} has an SPI of {claimed} bytes for {protocol}";
    /// A notification's data is not as long as its type wants it.
    NotifyData { notify: NotifyType, len: usize } = "notify-data", syntax, "RFC 7296 sections 2 and 3.10, RFC 7427 section 4",
        "the notification {notify} has {len} bytes of data";
    /// A Delete payload is of another protocol than IKE, AH and ESP.
    DeleteProtocol { protocol: ProtocolId } = "delete-protocol", syntax, "RFC 7296 section 3.11",
        "{protocol} is not a protocol whose SAs are deleted: IKE, AH or ESP was expected";
    /// A Delete payload's SPIs are not as long as its protocol's SPIs are.
    DeleteSpiSize { protocol: ProtocolId, claimed: u8 } = "delete-spi-size", syntax, "RFC 7296 section 3.11",
        "SPIs of {claimed} bytes are none of {protocol}";
    /// A Delete payload does not hold as many SPIs as it says.
    DeleteCount { claimed: u16, len: usize } = "delete-count", syntax, "RFC 7296 section 3.11",
        "{claimed} SPIs do not fill {len} bytes";

    /// There are not as many traffic selectors as the payload says, or none.
    SelectorCount { claimed: u8, found: usize } = "selector-count", syntax, "RFC 7296 section 3.13",
        "the payload claims {claimed} selectors and has {found}";
    /// A traffic selector is too short for its header.
    SelectorTruncated { at: usize, len: usize } = "selector-truncated", syntax, "RFC 7296 section 3.13.1",
        "{len} bytes at {at} are too few for a selector";
    /// A traffic selector's length is not that of its type, or exceeds the payload.
    SelectorLength { at: usize, selector: TsType, claimed: u16, len: usize } = "selector-length", syntax, "RFC 7296 section 3.13.1",
        "the {selector} at {at} claims {claimed} bytes of {len}";
    /// A range of ports ends before it starts, and is not OPAQUE.
    SelectorPorts { start: u16, end: u16 } = "selector-ports", syntax, "RFC 7296 section 3.13.1",
        "ports {start} to {end} are no range";
    /// A traffic selector for every protocol names ports.
    SelectorPortsOfAll { start: u16, end: u16 } = "selector-ports-of-all", syntax, "RFC 7296 section 3.13.1",
        "ports {start} to {end} of every protocol mean nothing";
    /// A range of addresses ends before it starts.
    SelectorAddresses { at: usize } = "selector-addresses", syntax, "RFC 7296 section 3.13.1",
        "the addresses of the selector at {at} are no range";

    /// An encrypted payload is too short for IV, padding and ICV.
    EncryptedLength { len: usize, least: usize } = "encrypted-length", silence, "RFC 7296 section 3.14",
        "{len} bytes are too few to be decrypted, there have to be {least}";
    /// The ciphertext does not consist of whole blocks.
    EncryptedBlocks { len: usize } = "encrypted-blocks", silence, "RFC 7296 section 3.14",
        "{len} bytes of ciphertext are not whole blocks";
    /// The padding is longer than the plaintext.
    EncryptedPadding { claimed: u8, len: usize } = "encrypted-padding", syntax, "RFC 7296 section 3.14",
        "{claimed} bytes of padding do not fit a plaintext of {len}";
    /// A fragment's number or total is zero, or its number above its total.
    FragmentNumber { found: u16, limit: u16 } = "fragment-number", silence, "RFC 7383 section 2.6",
        "there is no fragment {found} of {limit}";

    /// A configuration attribute is too short for its header, or its length exceeds the payload.
    CfgTruncated { at: usize, len: usize } = "cfg-truncated", syntax, "RFC 7296 section 3.15.1",
        "{len} bytes at {at} are too few for the attribute";
    /// A configuration attribute that there can be only one of is there twice.
    CfgTwice { at: usize, attribute: CfgAttribute } = "cfg-twice", syntax, "RFC 7296 section 3.15.1",
        "the attribute {attribute} at {at} is there twice";
    /// A netmask without an address that it belongs to.
    CfgNetmaskAlone { } = "cfg-netmask-alone", syntax, "RFC 7296 section 3.15.1",
        "there is an INTERNAL_IP4_NETMASK and no INTERNAL_IP4_ADDRESS";
    /// A configuration attribute's value is not as long as its type wants it.
    CfgLength { attribute: CfgAttribute, len: usize } = "cfg-length", syntax, "RFC 7296 section 3.15.1",
        "the attribute {attribute} has {len} bytes";
    /// An IPv6 prefix is longer than an address.
    CfgPrefix { attribute: CfgAttribute, found: u8 } = "cfg-prefix", syntax, "RFC 7296 section 3.15.1",
        "the attribute {attribute} has a prefix of {found} bits";
    /// An EAP message's length is not that of the payload.
    EapLength { claimed: u16, len: usize } = "eap-length", syntax, "RFC 7296 section 3.16",
        "an EAP message of {claimed} bytes is in a payload of {len}";
    /// An EAP message is longer or shorter than its code allows.
    EapCodeLength { code: EapCode, len: usize } = "eap-code-length", syntax, "RFC 7296 section 3.16",
        "{len} bytes are not the length of an EAP {code}";
}

impl Fault {
    /// What the fault leads to.
    pub const fn answer(self) -> Answer {
        self.kind().answer()
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
    fn kinds_count_from_zero() {
        for (at, kind) in FaultKind::ALL.iter().enumerate() {
            assert_eq!(*kind as usize, at);
            assert_eq!(kind.to_string(), kind.name());
        }
    }

    #[test]
    fn only_three_notifications_answer_what_does_not_parse() {
        let syntax = Answer::Notify(NotifyType::INVALID_SYNTAX);
        for kind in FaultKind::ALL {
            let expected = match kind.name() {
                "higher-major-version" => Answer::Notify(NotifyType::INVALID_MAJOR_VERSION),
                "unsupported-critical-payload" => Answer::Notify(NotifyType::UNSUPPORTED_CRITICAL_PAYLOAD),
                // Nothing is authenticated yet: RFC 7296 section 3.10.1, RFC 7383 section 2.6.
                "header-truncated"
                | "lower-major-version"
                | "message-length"
                | "message-truncated"
                | "bytes-behind-message"
                | "encrypted-length"
                | "encrypted-blocks"
                | "fragment-number" => Answer::Silence,
                _ => syntax,
            };
            assert_eq!(kind.answer(), expected, "{kind}");
        }
    }

    #[test]
    fn text_names_what_was_found() {
        let fault = Fault::PayloadTruncated { at: 28, payload: PayloadType::SA, claimed: 99, len: 12 };
        assert_eq!(fault.to_string(), "the payload SA at 28 claims 99 bytes of 12");
        assert_eq!(fault.answer(), Answer::Notify(NotifyType::INVALID_SYNTAX));
    }
}
