//! Each algorithm in a proposal of its own.

use super::{Case, establish_and_talk};
use crate::peer::{Family, Side, Target};
use crate::plan::{CHILD, CONNECTION, Plan};
use crate::testbed::Testbed;
use casemate_interop::Result;

/// Proposals of IKE in the syntax of strongSwan, which are also the names of the cases.
const IKE: &[&str] = &[
    "aes128-sha1-modp1536",
    "aes128-sha256-modp2048",
    "aes192-sha256-modp2048",
    "aes256-sha384-ecp384",
    "aes256-sha512-ecp521",
    "aes128ctr-sha256-x25519",
    "aes256ctr-sha512-x25519",
    "aes128gcm16-prfsha256-x25519",
    "aes128gcm12-prfsha256-x25519",
    "aes128gcm8-prfsha256-x25519",
    "aes192gcm16-prfsha256-ecp256",
    "aes256gcm16-prfsha384-ecp256",
    "aes256ccm16-prfsha256-modp3072",
    "aes128ccm12-prfsha1-x25519",
    "aes128ccm8-prfsha512-x25519",
    "chacha20poly1305-prfsha256-x25519",
    "aes128-aesxcbc-prfaesxcbc-modp2048",
    "aes128-aescmac-prfaescmac-ecp256",
    "aes128-sha256-modp4096",
    "aes256-sha512-modp6144",
    "aes256-sha512-modp8192",
    "3des-sha1-modp1536",
    "camellia256-sha512-ecp256bp",
    "camellia128-sha256-ecp384bp",
];

/// Proposals of ESP without Diffie-Hellman.
const ESP: &[&str] = &[
    "aes128-sha1",
    "aes128-sha256",
    "aes192-sha256",
    "aes256-sha384",
    "aes256-sha512",
    "aes128-aesxcbc",
    "aes128-aescmac",
    "aes128ctr-sha1",
    "aes256ctr-sha256",
    "aes128gcm16",
    "aes128gcm12",
    "aes128gcm8",
    "aes192gcm16",
    "aes256gcm16",
    "aes128ccm16",
    "aes128ccm12",
    "aes256ccm8",
    "chacha20poly1305",
    "null-sha1",
    "null-sha256",
    "3des-sha1",
    "camellia192-sha384",
];

/// Proposals of ESP with perfect forward secrecy, each with another suite. The Child SA is rekeyed.
const PFS: &[&str] = &[
    "aes128-sha1-modp1536",
    "aes128-sha256-modp2048",
    "aes256-sha512-modp3072",
    "aes128gcm16-x25519",
    "aes256gcm16-ecp384",
    "aes128gcm16-ecp256",
    "chacha20poly1305-ecp521",
    "camellia256-sha512-ecp384bp",
];

pub(super) fn add(cases: &mut Vec<Case>, initiator: Side) {
    for proposal in IKE {
        let mut plan = Plan::new(initiator);
        plan.connection("proposals", proposal);
        cases.push(Case::new(&format!("proposals/ike/{proposal}"), plan, establish_and_talk));
    }
    for proposal in ESP {
        let mut plan = Plan::new(initiator);
        plan.child("esp_proposals", proposal);
        let case = Case::new(&format!("proposals/esp/{proposal}"), plan, establish_and_talk);
        cases.push(Case { is_encrypted: !proposal.starts_with("null"), ..case });
    }
    for proposal in PFS {
        let mut plan = Plan::new(initiator);
        plan.child("esp_proposals", proposal);
        cases.push(Case::new(&format!("proposals/pfs/{proposal}"), plan, talk_and_rekey));
    }
}

/// Child SAs of IKE_AUTH have no key exchange of their own (RFC 7296 section 1.2), so the case replaces
/// each SA by one with a key exchange.
fn talk_and_rekey(testbed: &mut Testbed) -> Result<String> {
    testbed.establish()?;
    for target in [Target::Child(CHILD), Target::Ike(CONNECTION)] {
        super::rekey::replace(testbed, Side::Left, target)?;
        super::rekey::replace(testbed, Side::Right, target)?;
    }
    testbed.traffic(Family::V4)
}
