//! strongSwan's names of algorithms, which clients show and compare.

use super::message::MessageWriter;
use casemate_crypto::{AeadAlg, AesBits, AhSuite, CipherAlg, EspSuite, KexMethod, MacAlg, MacKind, PrfAlg};
use casemate_ike::config::AgreedKexes;
use casemate_ike::{ChildSuite, ChildTransform, IkeSuite, SkSuite};

/// A name, and the key length in bits where strongSwan states it.
struct Encryption {
    name: String,
    key_bits: Option<usize>,
}

impl Encryption {
    fn new(name: impl Into<String>, bits: Option<AesBits>) -> Self {
        Self { name: name.into(), key_bits: bits.map(AesBits::bits) }
    }

    fn aead(alg: AeadAlg) -> Self {
        match alg {
            AeadAlg::AesGcm { bits, icv } => Self::new(format!("AES_GCM_{icv}"), Some(bits)),
            AeadAlg::AesCcm { bits, icv } => Self::new(format!("AES_CCM_{icv}"), Some(bits)),
            AeadAlg::ChaCha20Poly1305 => Self::new("CHACHA20_POLY1305", None),
        }
    }

    fn cipher(alg: CipherAlg) -> Self {
        match alg {
            CipherAlg::Null => Self::new("NULL", None),
            CipherAlg::AesCbc(bits) => Self::new("AES_CBC", Some(bits)),
            CipherAlg::AesCtr(bits) => Self::new("AES_CTR", Some(bits)),
            CipherAlg::CamelliaCbc(bits) => Self::new("CAMELLIA_CBC", Some(bits)),
            CipherAlg::DesCbc => Self::new("DES_CBC", None),
            CipherAlg::TripleDesCbc => Self::new("3DES_CBC", None),
        }
    }

    fn write(&self, message: &mut MessageWriter) {
        message.value("encr-alg", &self.name);
        message.optional("encr-keysize", self.key_bits);
    }
}

fn integrity(alg: MacAlg) -> String {
    let bits = alg.tag_len().saturating_mul(8);
    match alg.kind() {
        MacKind::HmacMd5 => format!("HMAC_MD5_{bits}"),
        MacKind::HmacSha1 => format!("HMAC_SHA1_{bits}"),
        MacKind::HmacSha256 => format!("HMAC_SHA2_256_{bits}"),
        MacKind::HmacSha384 => format!("HMAC_SHA2_384_{bits}"),
        MacKind::HmacSha512 => format!("HMAC_SHA2_512_{bits}"),
        MacKind::AesXcbc => format!("AES_XCBC_{bits}"),
        MacKind::AesCmac => format!("AES_CMAC_{bits}"),
        MacKind::AesGmac(key) => format!("AES_{}_GMAC", key.bits()),
    }
}

const fn prf(alg: PrfAlg) -> &'static str {
    match alg {
        PrfAlg::HmacSha1 => "PRF_HMAC_SHA1",
        PrfAlg::HmacSha256 => "PRF_HMAC_SHA2_256",
        PrfAlg::HmacSha384 => "PRF_HMAC_SHA2_384",
        PrfAlg::HmacSha512 => "PRF_HMAC_SHA2_512",
        PrfAlg::AesXcbc => "PRF_AES128_XCBC",
        PrfAlg::AesCmac => "PRF_AES128_CMAC",
    }
}

const fn key_exchange(method: KexMethod) -> &'static str {
    match method {
        KexMethod::Modp1024 => "MODP_1024",
        KexMethod::Modp1536 => "MODP_1536",
        KexMethod::Modp2048 => "MODP_2048",
        KexMethod::Modp3072 => "MODP_3072",
        KexMethod::Modp4096 => "MODP_4096",
        KexMethod::Modp6144 => "MODP_6144",
        KexMethod::Modp8192 => "MODP_8192",
        KexMethod::EcpP256 => "ECP_256",
        KexMethod::EcpP384 => "ECP_384",
        KexMethod::EcpP521 => "ECP_521",
        KexMethod::BrainpoolP256 => "ECP_256_BP",
        KexMethod::BrainpoolP384 => "ECP_384_BP",
        KexMethod::X25519 => "CURVE_25519",
        KexMethod::X448 => "CURVE_448",
        KexMethod::MlKem512 => "ML_KEM_512",
        KexMethod::MlKem768 => "ML_KEM_768",
        KexMethod::MlKem1024 => "ML_KEM_1024",
    }
}

/// Writes the algorithms of an IKE SA.
pub(super) fn write_ike(suite: &IkeSuite, message: &mut MessageWriter) {
    match suite.sk {
        SkSuite::Combined(alg) => Encryption::aead(alg).write(message),
        SkSuite::Separate(cipher, mac) => {
            Encryption::cipher(cipher).write(message);
            message.value("integ-alg", integrity(mac));
        }
    }
    message.value("prf-alg", prf(suite.prf));
    message.value("dh-group", key_exchange(suite.kex));
    write_additional(suite.additional, message);
}

/// Writes additional key exchanges, as charon 6: `ake1` to `ake7`.
fn write_additional(kexes: AgreedKexes, message: &mut MessageWriter) {
    for (round, method) in kexes.iter() {
        message.value(&format!("ake{}", round.number()), key_exchange(method));
    }
}

/// Writes the algorithms of a Child SA.
pub(super) fn write_child(suite: &ChildSuite, message: &mut MessageWriter) {
    match suite.transform {
        ChildTransform::Esp(EspSuite::Combined(alg)) => Encryption::aead(alg).write(message),
        ChildTransform::Esp(EspSuite::ImplicitIv(alg)) => {
            let mut encryption = Encryption::aead(alg.aead());
            encryption.name.push_str("_IIV");
            encryption.write(message);
        }
        ChildTransform::Esp(EspSuite::Separate(CipherAlg::Null, mac))
            if matches!(mac.kind(), MacKind::AesGmac(_)) =>
        {
            let MacKind::AesGmac(bits) = mac.kind() else { return };
            Encryption::new("NULL_AES_GMAC", Some(bits)).write(message);
        }
        ChildTransform::Esp(EspSuite::Separate(cipher, mac)) => {
            Encryption::cipher(cipher).write(message);
            message.value("integ-alg", integrity(mac));
        }
        ChildTransform::Ah(AhSuite(mac)) => message.value("integ-alg", integrity(mac)),
    }
    message.optional("dh-group", suite.kex.map(key_exchange));
    write_additional(suite.additional, message);
    if suite.esn {
        message.value("esn", "1");
    }
}

/// Writes the response to `get-algorithms`: the algorithms of each type, with the name of a provider.
pub(super) fn write_supported(message: &mut MessageWriter, provider: &str) {
    let mut section = |name: &str, algorithms: Vec<String>| {
        message.section(name, |section| {
            for algorithm in algorithms {
                section.value(&algorithm, provider);
            }
        });
    };
    let ciphers = [CipherAlg::AesCbc(AesBits::B128), CipherAlg::AesCtr(AesBits::B128), CipherAlg::Null];
    section("encryption", ciphers.map(|alg| Encryption::cipher(alg).name).into());
    let macs = [MacKind::HmacSha1, MacKind::HmacSha256, MacKind::HmacSha384, MacKind::HmacSha512]
        .into_iter()
        .chain([MacKind::AesXcbc, MacKind::AesCmac]);
    section("integrity", macs.map(|kind| integrity(MacAlg::standard(kind))).collect());
    let aeads = [8, 12, 16].into_iter().flat_map(|icv| {
        let bits = AesBits::B128;
        [AeadAlg::AesGcm { bits, icv }, AeadAlg::AesCcm { bits, icv }]
    });
    let aeads = aeads.chain([AeadAlg::ChaCha20Poly1305]);
    section("aead", aeads.map(|alg| Encryption::aead(alg).name).collect());
    section("prf", PrfAlg::ALL.map(|alg| prf(alg).to_owned()).into());
    section("dh", KexMethod::ALL.map(|method| key_exchange(method).to_owned()).into());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vici::message::Section;
    use casemate_ike::config::KexRound;

    /// The names that charon 5.9.8 writes for these algorithms.
    #[test]
    fn names_are_those_of_strongswan() {
        let (bits, mac) = (AesBits::B256, MacAlg::standard(MacKind::HmacSha256));
        let written = MessageWriter::message(|message| {
            let sk = SkSuite::Separate(CipherAlg::AesCbc(bits), mac);
            let additional = AgreedKexes::NONE.with(KexRound::ALL[1], KexMethod::X25519);
            let suite = IkeSuite { sk, prf: PrfAlg::HmacSha256, kex: KexMethod::EcpP384, additional };
            write_ike(&suite, message);
            message.section("child", |message| {
                let transform = ChildTransform::Esp(EspSuite::Combined(AeadAlg::AesGcm { bits, icv: 16 }));
                let (kex, additional) = (Some(KexMethod::X25519), AgreedKexes::NONE);
                write_child(&ChildSuite { transform, kex, additional, esn: true }, message);
            });
        });
        let message = Section::decode(&written).unwrap();
        let texts = |section: &Section, names: &[&str]| {
            names.iter().map(|name| section.text(name).unwrap_or("-").to_owned()).collect::<Vec<_>>()
        };
        let names = ["encr-alg", "encr-keysize", "integ-alg", "prf-alg", "dh-group", "ake1", "ake2"];
        let expected =
            ["AES_CBC", "256", "HMAC_SHA2_256_128", "PRF_HMAC_SHA2_256", "ECP_384", "-", "CURVE_25519"];
        assert_eq!(texts(&message, &names), expected);
        let names = ["encr-alg", "encr-keysize", "integ-alg", "dh-group", "esn"];
        let child = message.sections().next().unwrap().1;
        assert_eq!(texts(child, &names), ["AES_GCM_16", "256", "-", "CURVE_25519", "1"]);
    }
}
