//! Keys derived from key exchanges (RFC 7296 sections 2.14, 2.17 and 2.18, RFC 9370 section 2.2).
//!
//! [`SaKeys`] are the keys of an IKE SA, and [`child_keymat`] derives the key material of a Child SA. All
//! keys are wiped on drop.

use crate::{IkeSpis, SkSuite};
use alloc::vec::Vec;
use casemate_crypto::{KeyError, PrfAlg, PrfError, Providers, SecretBytes, prf_plus};
use casemate_wire::invariant::OrBroken;
use core::fmt;

const STREAM_LEN: &str = "the length of the stream is the sum of the key lengths";

/// Nonces of the exchange that creates the keys.
#[derive(Debug, Clone, Copy)]
pub struct Nonces<'a> {
    /// Nonce of the initiator.
    pub initiator: &'a [u8],
    /// Nonce of the responder.
    pub responder: &'a [u8],
}

/// Reason why the keys could not be derived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeymatError {
    /// The PRF could not be set up.
    Prf(KeyError),
    /// The PRF failed.
    Output(PrfError),
}

impl From<KeyError> for KeymatError {
    fn from(error: KeyError) -> Self {
        Self::Prf(error)
    }
}

impl From<PrfError> for KeymatError {
    fn from(error: PrfError) -> Self {
        Self::Output(error)
    }
}

impl fmt::Display for KeymatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Prf(error) => write!(f, "PRF: {error}"),
            Self::Output(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for KeymatError {}

/// The seven keys of an IKE SA (RFC 7296 section 2.14).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SaKeys {
    /// SK_d, from which the keys of Child SAs and of the successor are derived.
    pub d: SecretBytes,
    /// SK_ai, integrity of the initiator's messages; empty with a combined-mode algorithm.
    pub ai: SecretBytes,
    /// SK_ar, integrity of the responder's messages; empty with a combined-mode algorithm.
    pub ar: SecretBytes,
    /// SK_ei, encryption of the initiator's messages, salt or nonce included.
    pub ei: SecretBytes,
    /// SK_er, encryption of the responder's messages, salt or nonce included.
    pub er: SecretBytes,
    /// SK_pi, for the initiator's AUTH payload.
    pub pi: SecretBytes,
    /// SK_pr, for the responder's AUTH payload.
    pub pr: SecretBytes,
}

/// Keys of the IKE SA that a rekeying replaces.
#[derive(Clone, Copy)]
pub struct ReplacedKeys<'a> {
    /// PRF of the replaced IKE SA, which computes SKEYSEED.
    pub prf: PrfAlg,
    /// SK_d of the replaced IKE SA.
    pub sk_d: &'a SecretBytes,
}

impl SaKeys {
    /// Keys of an IKE SA from IKE_SA_INIT. `shared` is g^ir (RFC 7296 section 2.14).
    pub fn initial(
        prf: PrfAlg,
        suite: SkSuite,
        shared: &SecretBytes,
        nonces: Nonces<'_>,
        spis: IkeSpis,
        providers: &Providers<'_>,
    ) -> Result<Self, KeymatError> {
        let parts = [prf.skeyseed_nonce(nonces.initiator), prf.skeyseed_nonce(nonces.responder)];
        let seed = providers.prf(prf, &parts.concat())?.prf(&[shared.expose()])?;
        Self::expand(prf, suite, seed.expose(), nonces, spis, providers)
    }

    /// Keys of an IKE SA after an additional key exchange with the secret `shared` (RFC 9370 section 2.2.2).
    /// `sk_d` is SK_d before it, and `nonces` are those of IKE_SA_INIT.
    #[cfg(feature = "multiple-kex")]
    pub fn updated(
        prf: PrfAlg,
        suite: SkSuite,
        sk_d: &SecretBytes,
        shared: &SecretBytes,
        nonces: Nonces<'_>,
        spis: IkeSpis,
        providers: &Providers<'_>,
    ) -> Result<Self, KeymatError> {
        let parts = [shared.expose(), nonces.initiator, nonces.responder];
        let seed = providers.prf(prf, sk_d.expose())?.prf(&parts)?;
        Self::expand(prf, suite, seed.expose(), nonces, spis, providers)
    }

    /// Keys of an IKE SA by rekeying (RFC 7296 section 2.18). `secrets` are those of the key exchanges in
    /// order: the new g^ir, then those of additional key exchanges (RFC 9370 section 2.2.4).
    pub fn rekeyed(
        old: ReplacedKeys<'_>,
        prf: PrfAlg,
        suite: SkSuite,
        secrets: &[SecretBytes],
        nonces: Nonces<'_>,
        spis: IkeSpis,
        providers: &Providers<'_>,
    ) -> Result<Self, KeymatError> {
        let parts = with_nonces(secrets, nonces);
        let seed = providers.prf(old.prf, old.sk_d.expose())?.prf(&parts)?;
        Self::expand(prf, suite, seed.expose(), nonces, spis, providers)
    }

    /// Keys of an IKE SA that resumes a session, without a key exchange (RFC 5723 section 5.1). `sk_d` is
    /// SK_d of the earlier IKE SA, whose algorithms the new one has.
    #[cfg(feature = "resumption")]
    pub fn resumed(
        prf: PrfAlg,
        suite: SkSuite,
        sk_d: &SecretBytes,
        nonces: Nonces<'_>,
        spis: IkeSpis,
        providers: &Providers<'_>,
    ) -> Result<Self, KeymatError> {
        let parts = [&b"Resumption"[..], nonces.initiator, nonces.responder];
        let seed = providers.prf(prf, sk_d.expose())?.prf(&parts)?;
        Self::expand(prf, suite, seed.expose(), nonces, spis, providers)
    }

    /// {SK_d | SK_ai | SK_ar | SK_ei | SK_er | SK_pi | SK_pr} = prf+ (SKEYSEED, Ni | Nr | SPIi | SPIr)
    fn expand(
        prf: PrfAlg,
        suite: SkSuite,
        skeyseed: &[u8],
        nonces: Nonces<'_>,
        spis: IkeSpis,
        providers: &Providers<'_>,
    ) -> Result<Self, KeymatError> {
        let (encr, integ) = (suite.encr_key_len(), suite.integ_key_len());
        let key = prf.key_len();
        let lens = [key, integ, integ, encr, encr, key, key];
        let len = lens.into_iter().fold(0, usize::saturating_add);
        let (spi_i, spi_r) = (spis.initiator.0.to_be_bytes(), spis.responder.0.to_be_bytes());
        let seed = [nonces.initiator, nonces.responder, &spi_i, &spi_r];
        let stream = prf_plus(&*providers.prf(prf, skeyseed)?, &seed, len)?;
        let mut rest = stream.expose();
        let [d, ai, ar, ei, er, pi, pr] = lens.map(|len| {
            let (key, behind) = rest.split_at_checked(len).or_broken_default(STREAM_LEN);
            rest = behind;
            SecretBytes::new(key)
        });
        Ok(Self { d, ai, ar, ei, er, pi, pr })
    }
}

/// KEYMAT of a Child SA (RFC 7296 section 2.17): `len` bytes. The SA from the initiator comes first, and in
/// each SA encryption before integrity. `secrets` are those of the key exchanges in order: none, or the new
/// g^ir, then those of additional key exchanges (RFC 9370 section 2.2.4).
pub fn child_keymat(
    prf: PrfAlg,
    sk_d: &SecretBytes,
    secrets: &[SecretBytes],
    nonces: Nonces<'_>,
    len: usize,
    providers: &Providers<'_>,
) -> Result<SecretBytes, KeymatError> {
    let seed = with_nonces(secrets, nonces);
    Ok(prf_plus(&*providers.prf(prf, sk_d.expose())?, &seed, len)?)
}

/// SK(0) | Ni | Nr | SK(1) | ... SK(n)
fn with_nonces<'a>(secrets: &'a [SecretBytes], nonces: Nonces<'a>) -> Vec<&'a [u8]> {
    let exposed = |secrets: &'a [SecretBytes]| secrets.iter().map(SecretBytes::expose);
    let (first, others) = secrets.split_at(secrets.len().min(1));
    exposed(first).chain([nonces.initiator, nonces.responder]).chain(exposed(others)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use casemate_crypto::{AeadAlg, AesBits, CipherAlg, MacAlg, MacKind};
    use casemate_rustcrypto::RUSTCRYPTO;
    use casemate_wire::ike::IkeSpi;

    const PROVIDERS: Providers<'_> = Providers(&[&RUSTCRYPTO]);

    /// One IKE SA of strongswan.txt.
    struct Known {
        name: &'static str,
        words: BTreeMap<&'static str, &'static str>,
    }

    impl Known {
        fn bytes(&self, name: &str) -> Vec<u8> {
            let pair = |pair: &[u8]| u8::from_str_radix(core::str::from_utf8(pair).unwrap(), 16).unwrap();
            self.words[name].as_bytes().chunks(2).map(pair).collect()
        }

        fn secret(&self, name: &str) -> SecretBytes {
            SecretBytes::new(&self.bytes(name))
        }

        fn spis(&self) -> IkeSpis {
            let spi = |name: &str| IkeSpi(u64::from_str_radix(self.words[name], 16).unwrap());
            IkeSpis { initiator: spi("spi_i"), responder: spi("spi_r") }
        }

        fn prf(&self) -> PrfAlg {
            PrfAlg::ALL.into_iter().find(|prf| prf.keyword() == self.words["prf"]).unwrap()
        }

        fn suite(&self) -> SkSuite {
            let (b128, b192, b256) = (AesBits::B128, AesBits::B192, AesBits::B256);
            let mac = MacAlg::standard;
            match self.name.split_once(' ').unwrap().0 {
                "gcm" => SkSuite::Combined(AeadAlg::aes_gcm(b128, 16).unwrap()),
                "ccm" => SkSuite::Combined(AeadAlg::aes_ccm(b256, 8).unwrap()),
                "chacha" => SkSuite::Combined(AeadAlg::ChaCha20Poly1305),
                "cbc" => SkSuite::Separate(CipherAlg::AesCbc(b256), mac(MacKind::HmacSha256)),
                "sha1" => SkSuite::Separate(CipherAlg::AesCbc(b128), mac(MacKind::HmacSha1)),
                "ctr" => SkSuite::Separate(CipherAlg::AesCtr(b192), mac(MacKind::AesXcbc)),
                "cmac" => SkSuite::Separate(CipherAlg::AesCbc(b128), mac(MacKind::AesCmac)),
                other => panic!("{other}"),
            }
        }

        fn keys(&self) -> SaKeys {
            let [d, ai, ar, ei, er, pi, pr] =
                ["d", "ai", "ar", "ei", "er", "pi", "pr"].map(|name| self.secret(name));
            SaKeys { d, ai, ar, ei, er, pi, pr }
        }
    }

    /// Every SA of the file. A rekeyed SA comes with the SA that it replaced.
    fn all() -> Vec<Known> {
        let mut all: Vec<Known> = Vec::new();
        for line in include_str!("keymat/strongswan.txt").lines().filter(|line| !line.starts_with('#')) {
            if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
                all.push(Known { name, words: BTreeMap::new() });
            } else if let Some((name, value)) = line.split_once('=') {
                all.last_mut().unwrap().words.insert(name.trim(), value.trim());
            }
        }
        all
    }

    #[test]
    fn keys_match_those_of_strongswan() {
        let all = all();
        assert_eq!(all.len(), 14);
        for pair in all.chunks(2) {
            let (first, second) = (&pair[0], &pair[1]);
            for known in pair {
                let (ni, nr) = (known.bytes("ni"), known.bytes("nr"));
                let nonces = Nonces { initiator: &ni, responder: &nr };
                let (prf, suite, shared) = (known.prf(), known.suite(), known.secret("shared"));
                let keys = if known.name.ends_with("first") {
                    SaKeys::initial(prf, suite, &shared, nonces, known.spis(), &PROVIDERS)
                } else {
                    let old = ReplacedKeys { prf: first.prf(), sk_d: &first.secret("d") };
                    SaKeys::rekeyed(old, prf, suite, &[shared], nonces, known.spis(), &PROVIDERS)
                };
                let keys = keys.unwrap();
                assert!(keys == known.keys(), "{}", known.name);
            }
            assert!(second.name.ends_with("rekeyed"));
        }
    }

    #[test]
    fn keys_of_child_sas_match_those_of_strongswan() {
        for known in all().iter().filter(|known| known.name.ends_with("first")) {
            let (ni, nr, expected) = (known.bytes("ni"), known.bytes("nr"), known.secret("child"));
            let nonces = Nonces { initiator: &ni, responder: &nr };
            assert_eq!(expected.len(), 40, "two keys of AES-GCM-128 with their salts");
            let keymat = child_keymat(known.prf(), &known.secret("d"), &[], nonces, 40, &PROVIDERS).unwrap();
            assert!(keymat == expected, "{}", known.name);
            // A new g^ir gives other keys.
            let shared = known.secret("shared");
            let keymat =
                child_keymat(known.prf(), &known.secret("d"), &[shared], nonces, 40, &PROVIDERS).unwrap();
            assert!(keymat != expected, "{}", known.name);
        }
    }
}
