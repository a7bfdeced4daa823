//! All suites, with keys whose bytes all differ.

use alloc::vec;
use alloc::vec::Vec;
use casemate_crypto::{
    AeadAlg, AesBits, AhSuite, CipherAlg, EspSuite, ImplicitIvAlg, MacAlg, MacKind, SecretBytes,
};
use casemate_sa::Transform;

/// MAC kinds without a nonce.
pub const MACS: [MacKind; 7] = [
    MacKind::HmacMd5,
    MacKind::HmacSha1,
    MacKind::HmacSha256,
    MacKind::HmacSha384,
    MacKind::HmacSha512,
    MacKind::AesXcbc,
    MacKind::AesCmac,
];

/// Returns `len` bytes of key material that depend on `salt`.
pub fn key(len: usize, salt: u8) -> SecretBytes {
    let bytes: Vec<u8> = (0..len).map(|i| (i as u8).wrapping_mul(7).wrapping_add(salt)).collect();
    SecretBytes::new(&bytes)
}

/// Returns a transform of the suite with its keys.
pub fn esp(suite: EspSuite, salt: u8) -> Transform {
    let (encr, integ) = (suite.encr_key_len(), suite.integ_key_len());
    Transform::Esp { suite, encr: key(encr, salt), integ: key(integ, salt.wrapping_add(99)) }
}

/// Returns a transform of the AH suite with its key.
pub fn ah(mac: MacAlg, salt: u8) -> Transform {
    Transform::Ah { suite: AhSuite(mac), integ: key(mac.key_len() + mac.salt_len(), salt) }
}

/// Returns all ESP suites of the project.
pub fn all_esp() -> Vec<EspSuite> {
    let mut suites = vec![EspSuite::Combined(AeadAlg::ChaCha20Poly1305)];
    for bits in AesBits::ALL {
        for icv in [8, 12, 16] {
            suites.push(EspSuite::Combined(AeadAlg::aes_gcm(bits, icv).unwrap()));
            suites.push(EspSuite::Combined(AeadAlg::aes_ccm(bits, icv).unwrap()));
        }
        suites.push(EspSuite::ImplicitIv(ImplicitIvAlg::AesGcm16(bits)));
        suites.push(EspSuite::ImplicitIv(ImplicitIvAlg::AesCcm8(bits)));
        suites.push(EspSuite::Separate(CipherAlg::Null, MacAlg::standard(MacKind::AesGmac(bits))));
    }
    suites.push(EspSuite::ImplicitIv(ImplicitIvAlg::ChaCha20Poly1305));
    let ciphers = AesBits::ALL
        .into_iter()
        .flat_map(|bits| [CipherAlg::AesCbc(bits), CipherAlg::AesCtr(bits)])
        .chain([CipherAlg::Null, CipherAlg::DesCbc, CipherAlg::TripleDesCbc]);
    for cipher in ciphers {
        suites.extend(MACS.map(|mac| EspSuite::Separate(cipher, MacAlg::standard(mac))));
    }
    suites
}

/// Returns all AH suites of the project.
pub fn all_ah() -> Vec<MacAlg> {
    let gmac = AesBits::ALL.map(|bits| MacAlg::standard(MacKind::AesGmac(bits)));
    MACS.into_iter().map(MacAlg::standard).chain(gmac).collect()
}

/// Returns AES-128-GCM with a 16-byte ICV.
pub fn gcm() -> EspSuite {
    EspSuite::Combined(AeadAlg::aes_gcm(AesBits::B128, 16).unwrap())
}

/// Returns the suite with the shortest packets: AES-128-CCM with 8 bytes of ICV and an implicit IV (RFC
/// 8750).
pub fn implicit_iv() -> EspSuite {
    EspSuite::ImplicitIv(ImplicitIvAlg::AesCcm8(AesBits::B128))
}

/// Returns AES-128-CBC with HMAC-SHA1-96.
pub fn cbc_sha1() -> EspSuite {
    EspSuite::Separate(CipherAlg::AesCbc(AesBits::B128), MacAlg::standard(MacKind::HmacSha1))
}
