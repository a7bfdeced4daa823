//! Cases with ML-KEM and post-quantum pre-shared keys (RFC 8784), and with lost IKE messages.

use super::{Case, Keys, Machine, Mode};

/// Post-quantum cryptography of IKEv2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PostQuantum {
    /// Both sides require ML-KEM-768 after X25519, and a post-quantum pre-shared key.
    Required,
    /// The firmware offers ML-KEM-768 after X25519, or X25519 alone; the gateway has X25519 alone.
    ClassicalGateway,
}

/// IKE messages that are lost until the SAs are established.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Loss {
    /// Each tenth message of both directions, from this number on.
    Tenth(u8),
    /// The first two transmissions of each request.
    Requests,
    /// The first two transmissions of each response.
    Responses,
}

/// Proposals of the IKE SA, as the status of the gateway shows them.
pub(super) const HYBRID: &str = "aes128gcm16-prfsha256-x25519-ke1_mlkem768";
pub(super) const CLASSICAL: &str = "aes128gcm16-prfsha256-x25519";

/// What the gateway's `swanctl.conf` has beside the usual settings.
#[derive(Default)]
pub(super) struct PostQuantumSections {
    pub(super) connection: String,
    pub(super) child: String,
    pub(super) secrets: String,
}

/// Number of IKE messages until the SAs are established: IKE_SA_INIT, IKE_INTERMEDIATE with a request of two
/// fragments, IKE_AUTH.
const MESSAGES: u8 = 7;

/// ML-KEM and a post-quantum pre-shared key, with losses.
pub(super) fn add(cases: &mut Vec<Case>, case: impl Fn(Machine, Keys, bool) -> Case) {
    let of = |firmware_begins, post_quantum, loss| {
        let keys = Keys::Ike { mode: Mode::Tunnel, firmware_begins };
        Case { post_quantum: Some(post_quantum), loss, ..case(Machine::Pc, keys, false) }
    };
    for firmware_begins in [true, false] {
        cases.push(of(firmware_begins, PostQuantum::ClassicalGateway, None));
        let lost = (0..MESSAGES).map(|number| Some(Loss::Tenth(number)));
        let lost = lost.chain([None, Some(Loss::Requests), Some(Loss::Responses)]);
        cases.extend(lost.map(|loss| of(firmware_begins, PostQuantum::Required, loss)));
    }
}

impl PostQuantum {
    /// Configuration of the firmware.
    pub(super) fn words(self) -> String {
        match self {
            Self::Required => format!(
                "ike={HYBRID} esp=aes128gcm16-x25519-ke1_mlkem768\nppk-id=both@ppk.test ppk=a-quantum-key-of-the-two \
                 ppk-required=yes\n"
            ),
            Self::ClassicalGateway => format!("ike={HYBRID},{CLASSICAL}\n"),
        }
    }

    pub(super) fn sections(self) -> PostQuantumSections {
        match self {
            Self::Required => PostQuantumSections {
                connection: format!(
                    "    proposals = {HYBRID}\n    ppk_id = both@ppk.test\n    ppk_required = yes\n"
                ),
                child: "        esp_proposals = aes128gcm16-x25519-ke1_mlkem768\n".into(),
                secrets: "  ppk {\n    id = both@ppk.test\n    secret = \"a-quantum-key-of-the-two\"\n  }\n"
                    .into(),
            },
            Self::ClassicalGateway => PostQuantumSections {
                connection: format!("    proposals = {CLASSICAL}\n"),
                ..PostQuantumSections::default()
            },
        }
    }
}

impl Loss {
    pub(super) fn name(self) -> String {
        match self {
            Self::Tenth(number) => format!("/lost-{number}"),
            Self::Requests => "/lost-requests".into(),
            Self::Responses => "/lost-responses".into(),
        }
    }

    /// `nft` commands that lose the messages in the namespace of the gateway. They count what they lose.
    pub(crate) fn rules(self, gateway_begins: bool) -> String {
        let (rule, hooks): (_, &[&str]) = match (self, gateway_begins) {
            (Self::Tenth(number), _) => (format!("numgen inc mod 10 {number}"), &["input", "output"]),
            (Self::Requests, true) | (Self::Responses, false) => (FIRST_TWO.into(), &["output"]),
            (Self::Requests, false) | (Self::Responses, true) => (FIRST_TWO.into(), &["input"]),
        };
        let chain = |hook: &&str| {
            format!(
                "chain {hook} {{ type filter hook {hook} priority 0\nudp dport 500 jump lose\n\
                 udp dport 4500 @th,64,32 0 jump lose\n}}\n"
            )
        };
        let chains: String = hooks.iter().map(chain).collect();
        format!("table inet loss {{ chain lose {{ {rule} counter drop\n}}\n{chains}}}\n")
    }
}

/// Of each three messages, the first two.
const FIRST_TWO: &str = "numgen inc mod 3 < 2";
