//! What is offered when the owner says nothing: what RFC 8247 and RFC 8221 recommend, best first.

use super::{ChildAlgorithms, ChildProposal, EspCombined, IkeEncryption, IkeProposal, Sequence};
use alloc::vec;
use alloc::vec::Vec;
use casemate_crypto::{AeadAlg, AesBits, CipherAlg, KexMethod, MacAlg, MacKind, PrfAlg};

const fn gcm(bits: AesBits) -> AeadAlg {
    AeadAlg::AesGcm { bits, icv: 16 }
}

/// X25519 (RFC 8031), of which RFC 8247 does not speak, because it costs least. Of those in its section 2.4 MODP-2048 is a MUST and P-256 a SHOULD; larger ones
/// are for those who want them.
fn kex() -> Vec<KexMethod> {
    use KexMethod::{EcpP256, EcpP384, EcpP521, Modp2048, Modp3072, Modp4096, X25519};
    vec![X25519, EcpP256, EcpP384, EcpP521, Modp3072, Modp4096, Modp2048]
}

/// RFC 8247 section 2.2.
fn prfs() -> Vec<PrfAlg> {
    vec![PrfAlg::HmacSha256, PrfAlg::HmacSha384, PrfAlg::HmacSha512]
}

/// For an IKE SA: combined-mode ciphers first, then AES-CBC with HMAC-SHA2 (RFC 8247 sections 2.1 and 2.3).
pub fn ike_proposals() -> Vec<IkeProposal> {
    let combined = vec![gcm(AesBits::B128), gcm(AesBits::B256), AeadAlg::ChaCha20Poly1305];
    let ciphers = vec![CipherAlg::AesCbc(AesBits::B128), CipherAlg::AesCbc(AesBits::B256)];
    [IkeEncryption::Combined(combined), IkeEncryption::Separate(ciphers, macs())]
        .into_iter()
        .map(|encryption| IkeProposal { encryption, prfs: prfs(), kex: kex() })
        .collect()
}

/// For a Child SA with ESP, the same ciphers (RFC 8221 sections 5 and 6), without a key exchange of its own.
pub fn child_proposals() -> Vec<ChildProposal> {
    let combined = [gcm(AesBits::B128), gcm(AesBits::B256), AeadAlg::ChaCha20Poly1305];
    let combined = ChildAlgorithms::EspCombined(combined.into_iter().map(EspCombined::Aead).collect());
    let ciphers = vec![CipherAlg::AesCbc(AesBits::B128), CipherAlg::AesCbc(AesBits::B256)];
    [combined, ChildAlgorithms::EspSeparate(ciphers, macs())]
        .into_iter()
        .map(|algorithms| ChildProposal { algorithms, kex: Vec::new(), sequence: Sequence::PreferPlain })
        .collect()
}

fn macs() -> Vec<MacAlg> {
    [MacKind::HmacSha256, MacKind::HmacSha384, MacKind::HmacSha512]
        .into_iter()
        .map(MacAlg::standard)
        .collect()
}
