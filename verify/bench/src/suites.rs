//! The ESP suites and sizes that are measured.

use casemate_crypto::{AeadAlg, AesBits, CipherAlg, EspSuite, MacAlg, MacKind, Provider};

/// Lengths of the packet that is protected, in bytes.
pub(crate) const SIZES: [usize; 5] = [64, 256, 576, 1024, 1420];

/// Packets that are worked on between two looks at the clock.
pub(crate) const POOL: usize = 64;

/// Packets in a batch.
pub(crate) const BATCH: usize = 32;

/// The providers. Intel's has no suite where its library is not installed, and so no row.
pub(crate) fn providers() -> [&'static dyn Provider; 3] {
    [&casemate_ipsec_mb::IPSEC_MB, &casemate_aws_lc::AWS_LC, &casemate_rustcrypto::RUSTCRYPTO]
}

/// The suites, the usual ones first.
pub(crate) fn suites() -> Vec<EspSuite> {
    use AesBits::{B128, B192, B256};
    use CipherAlg::{AesCbc, AesCtr, Null};
    let gcm = |bits| AeadAlg::aes_gcm(bits, 16).unwrap();
    let ccm = |bits| AeadAlg::aes_ccm(bits, 16).unwrap();
    let combined = [gcm(B128), gcm(B192), gcm(B256), AeadAlg::ChaCha20Poly1305, ccm(B128), ccm(B256)];
    let separate = [
        (AesCbc(B128), MacKind::HmacSha1),
        (AesCbc(B128), MacKind::HmacSha256),
        (AesCbc(B256), MacKind::HmacSha256),
        (AesCbc(B128), MacKind::HmacSha384),
        (AesCbc(B128), MacKind::HmacSha512),
        (AesCbc(B128), MacKind::AesXcbc),
        (AesCbc(B128), MacKind::AesCmac),
        (AesCtr(B128), MacKind::HmacSha256),
        (AesCtr(B256), MacKind::HmacSha256),
        (Null, MacKind::HmacSha1),
        (Null, MacKind::HmacSha256),
        (Null, MacKind::AesGmac(B128)),
        (Null, MacKind::AesGmac(B256)),
    ];
    let separate = separate.map(|(cipher, kind)| EspSuite::Separate(cipher, MacAlg::standard(kind)));
    combined.map(EspSuite::Combined).into_iter().chain(separate).collect()
}
