//! Header compression of a child (RFC 5856 to 5858). strongSwan has no such keys: they are extensions of
//! Casemate.

use super::schema::Keys;
use super::value::{parse_number, truth};
use casemate_crypto::{MacAlg, MacKind};
use casemate_ike::config::{ChildAlgorithms, ChildMode, ChildProposal, RohcConfig};
use casemate_rohc::MAX_CID;
use casemate_strongswan::proposal::parse_integrity;

const KEYS: [&str; 3] = ["rohc_max_cid", "rohc_integrity", "rohc_icv_len"];

/// Reads the keys of header compression; `None`: it is not negotiated.
pub(super) fn read(keys: &Keys<'_>, mode: ChildMode, proposals: &[ChildProposal]) -> Option<RohcConfig> {
    if !keys.get("rohc", truth).unwrap_or(false) {
        for name in KEYS.into_iter().filter(|name| keys.has(name)) {
            keys.error(name, "it belongs to header compression: rohc = yes was expected");
        }
        return None;
    }
    check(keys, mode, proposals);
    let default = RohcConfig::default();
    let integrity = keys.list("rohc_integrity", integrity);
    let icv_len = keys.get("rohc_icv_len", icv_len);
    let longest = integrity.iter().flatten().map(|alg| alg.tag_len()).max();
    match (icv_len, longest) {
        (Some(_), None) => {
            keys.error(
                "rohc_icv_len",
                "there is no ICV to cut: rohc_integrity with an algorithm was expected",
            );
        }
        (Some(len), Some(longest)) if usize::from(len) > longest => keys.error(
            "rohc_icv_len",
            &format!("the ICV of rohc_integrity has {longest} bytes: at most that was expected"),
        ),
        _ => {}
    }
    Some(RohcConfig {
        max_cid: keys.get("rohc_max_cid", max_cid).unwrap_or(default.max_cid),
        integrity: if integrity.is_empty() { default.integrity } else { integrity },
        icv_len,
        ..default
    })
}

/// Reports what header compression cannot be combined with.
fn check(keys: &Keys<'_>, mode: ChildMode, proposals: &[ChildProposal]) {
    let has_ah = proposals.iter().any(|proposal| matches!(proposal.algorithms, ChildAlgorithms::Ah(_)));
    if mode == ChildMode::Transport || has_ah {
        keys.error("rohc", "it compresses the packets inside a tunnel: mode = tunnel with ESP was expected");
    }
    if keys.has("tfc_padding") {
        keys.error("rohc", "padded packets cannot be compressed: no tfc_padding was expected");
    }
}

/// Reads `none` or the name of an integrity algorithm. HMAC-MD5 is for old peers, and no old peer compresses
/// headers.
fn integrity(text: &str) -> Result<Option<MacAlg>, String> {
    let expected =
        "none, sha1, sha256, sha384, sha512, aesxcbc or aescmac was expected, separated by commas if several";
    if text.eq_ignore_ascii_case("none") {
        return Ok(None);
    }
    let alg = parse_integrity(text).ok().filter(|alg| alg.kind() != MacKind::HmacMd5);
    alg.map(Some).ok_or_else(|| expected.into())
}

fn max_cid(text: &str) -> Result<u16, String> {
    let number = parse_number::<u16>(text).ok().filter(|number| *number <= MAX_CID);
    number.ok_or_else(|| format!("a number from 0 to {MAX_CID} was expected"))
}

fn icv_len(text: &str) -> Result<u8, String> {
    let number = parse_number::<u8>(text).ok().filter(|number| (1..=32).contains(number));
    number.ok_or_else(|| "a number of bytes from 1 to 32 was expected".into())
}
