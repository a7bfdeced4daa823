//! Every algorithm that `casemate-crypto` can name.

use alloc::vec;
use alloc::vec::Vec;
use casemate_crypto::{AeadAlg, AesBits, CipherAlg, MacAlg, MacKind};

/// All combined-mode ciphers.
pub fn aeads() -> Vec<AeadAlg> {
    let mut all = vec![AeadAlg::ChaCha20Poly1305];
    for bits in AesBits::ALL {
        for icv in [8, 12, 16] {
            all.push(AeadAlg::aes_gcm(bits, icv).unwrap());
            all.push(AeadAlg::aes_ccm(bits, icv).unwrap());
        }
    }
    all
}

/// All ciphers but NULL.
pub fn ciphers() -> Vec<CipherAlg> {
    let aes = AesBits::ALL.into_iter().flat_map(|bits| [CipherAlg::AesCbc(bits), CipherAlg::AesCtr(bits)]);
    aes.chain([CipherAlg::DesCbc, CipherAlg::TripleDesCbc]).collect()
}

/// All MACs at the length of the RFCs, and those that may be cut at 8 bytes, 12 bytes and in full as well.
pub fn macs() -> Vec<MacAlg> {
    let gmac = AesBits::ALL.map(MacKind::AesGmac);
    let mut all = Vec::new();
    for kind in KINDS.into_iter().chain(gmac) {
        let lengths = [kind.standard_tag_len(), 8, 12, kind.full_tag_len()];
        for alg in lengths.into_iter().filter_map(|len| MacAlg::truncated(kind, len).ok()) {
            if !all.contains(&alg) {
                all.push(alg);
            }
        }
    }
    all
}

const KINDS: [MacKind; 7] = [
    MacKind::HmacMd5,
    MacKind::HmacSha1,
    MacKind::HmacSha256,
    MacKind::HmacSha384,
    MacKind::HmacSha512,
    MacKind::AesXcbc,
    MacKind::AesCmac,
];
