//! The keys of one direction of an IKE SA, for decoding captures.
//!
//! Wireshark's tables allow suites that Casemate never negotiates: NULL encryption, and integrity that is
//! not checked because its algorithm or key is unknown. [`MessageKey`] opens messages of these suites
//! too. `casemate run` never uses it; its keys are [`SkKey`].

use super::wireshark::{Encryption, Integrity};
use casemate_crypto::{
    CipherAlg, CipherKey, JobStatus, KeyError, MacAlg, MacJob, MacKey, Provider, Providers, Salt,
    SecretBytes, Tag,
};
use casemate_ike::{SkError, SkKey, SkSuite};
use casemate_wire::ike::sk::unpad;
use casemate_wire::ike::{Parts, SkLayout};
use casemate_wire::invariant::OrBroken;
use std::ops::Range;

/// Includes the obsolete algorithms, because captures are often old.
static PROVIDERS: [&dyn Provider; 2] = [&casemate_aws_lc::AWS_LC, &casemate_legacy::LEGACY];

/// A valid combination of encryption and integrity of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RowSuite {
    /// A suite that Casemate supports for IKE SAs.
    Usual(SkSuite),
    /// Without encryption, without a checked ICV, or both.
    Partial {
        cipher: CipherAlg,
        /// `None`: the ICV is not checked.
        mac: Option<MacAlg>,
        /// Length of the ICV in bytes.
        icv: usize,
    },
}

/// The keys of one direction: SK_ei and SK_ai, or SK_er and SK_ar.
pub struct MessageKey {
    keys: SuiteKeys,
    layout: SkLayout,
    is_checked: bool,
}

enum SuiteKeys {
    Usual(SkKey),
    Partial { cipher: Option<Cipher>, mac: Option<IcvKey> },
}

/// The key of an ICV.
struct IcvKey {
    key: Box<dyn MacKey>,
    /// Length of the ICV in bytes.
    len: usize,
}

struct Cipher {
    key: Box<dyn CipherKey>,
    /// Nonce of a counter mode.
    nonce: Option<Salt>,
}

/// Parts have their positions from the parser of the message.
const INSIDE: &str = "the parts of a message are inside it";

impl RowSuite {
    /// Combines both columns; `None` if they do not fit together.
    pub(super) fn new(encryption: Encryption, integrity: Integrity) -> Option<Self> {
        match (encryption, integrity) {
            (Encryption::Combined(alg), Integrity::None) => Some(Self::Usual(SkSuite::Combined(alg))),
            (Encryption::Combined(_), _) => None,
            (Encryption::Cipher(CipherAlg::Null), Integrity::None) => {
                Some(Self::Partial { cipher: CipherAlg::Null, mac: None, icv: 0 })
            }
            (Encryption::Cipher(_), Integrity::None) => None,
            (Encryption::Cipher(cipher), Integrity::Unchecked { icv }) => {
                Some(Self::Partial { cipher, mac: None, icv })
            }
            (Encryption::Cipher(CipherAlg::Null), Integrity::Mac(mac)) => {
                Some(Self::Partial { cipher: CipherAlg::Null, mac: Some(mac), icv: mac.tag_len() })
            }
            (Encryption::Cipher(cipher), Integrity::Mac(mac)) => {
                Some(Self::Usual(SkSuite::Separate(cipher, mac)))
            }
        }
    }

    /// Length of SK_e in bytes, including salt or nonce.
    pub(super) const fn encr_key_len(self) -> usize {
        match self {
            Self::Usual(suite) => suite.encr_key_len(),
            Self::Partial { cipher, .. } => cipher.key_len().saturating_add(cipher.salt_len()),
        }
    }

    /// Length of SK_a in bytes; `None` if SK_a is not used.
    pub(super) fn integ_key_len(self) -> Option<usize> {
        match self {
            Self::Usual(suite) => Some(suite.integ_key_len()),
            Self::Partial { mac, .. } => mac.map(MacAlg::key_len),
        }
    }
}

impl MessageKey {
    /// Makes the keys of a suite. `encr` is the key followed by the nonce; `integ` is empty if the suite
    /// has no MAC.
    pub(super) fn new(suite: RowSuite, encr: &SecretBytes, integ: &SecretBytes) -> Result<Self, KeyError> {
        match suite {
            RowSuite::Usual(suite) => {
                let key = SkKey::new(suite, encr, integ, &Providers(&PROVIDERS))?;
                let layout = *key.layout();
                Ok(Self { keys: SuiteKeys::Usual(key), layout, is_checked: true })
            }
            RowSuite::Partial { cipher, mac, icv } => {
                let layout = SkLayout { iv: cipher.iv_len(), block: block_len(cipher), icv };
                let mac = mac.map(|mac| {
                    Providers(&PROVIDERS).mac(mac, integ.expose()).map(|key| IcvKey { key, len: icv })
                });
                let mac = mac.transpose()?;
                let is_checked = mac.is_some();
                let keys = SuiteKeys::Partial { cipher: Cipher::new(cipher, encr)?, mac };
                Ok(Self { keys, layout, is_checked })
            }
        }
    }

    /// The layout of an encrypted payload under these keys.
    pub fn layout(&self) -> &SkLayout {
        &self.layout
    }

    /// Whether [`Self::open`] verifies the ICV.
    pub const fn is_checked(&self) -> bool {
        self.is_checked
    }

    /// Verifies and decrypts `message`, whose parts are `parts`, in place. Returns the range of the inner
    /// payloads, or of the part of them that a fragment carries.
    pub fn open(&self, message: &mut [u8], parts: &Parts) -> Result<Range<usize>, SkError> {
        let (cipher, mac) = match &self.keys {
            SuiteKeys::Usual(key) => return key.open(message, parts),
            SuiteKeys::Partial { cipher, mac } => (cipher, mac),
        };
        let icv = message.get(parts.icv.clone()).or_broken_default(INSIDE);
        let covered = message.get(..parts.ciphertext.end).or_broken_default(INSIDE);
        if mac.as_ref().is_some_and(|mac| tag(mac, covered).as_slice() != icv) {
            return Err(SkError::IcvMismatch);
        }
        let iv: Vec<u8> = message.get(parts.iv.clone()).or_broken_default(INSIDE).to_vec();
        let text = message.get_mut(parts.ciphertext.clone()).or_broken_default(INSIDE);
        if !cipher.as_ref().is_none_or(|cipher| cipher.decrypt(&iv, text)) {
            return Err(SkError::IcvMismatch);
        }
        let payloads = unpad(text).map_err(SkError::Padding)?.len();
        let start = parts.ciphertext.start;
        Ok(start..start.saturating_add(payloads))
    }
}

impl Cipher {
    /// `None` for NULL.
    fn new(cipher: CipherAlg, encr: &SecretBytes) -> Result<Option<Self>, KeyError> {
        if cipher == CipherAlg::Null {
            return Ok(None);
        }
        let (key, nonce) = Salt::split(encr, cipher.key_len(), cipher.salt_len())?;
        let found = PROVIDERS.iter().find_map(|provider| provider.cipher(cipher, key).ok());
        let key = found.ok_or(KeyError::Unsupported)?;
        Ok(Some(Self { key, nonce: cipher.is_counter_mode().then_some(nonce) }))
    }

    fn decrypt(&self, iv: &[u8], text: &mut [u8]) -> bool {
        let block = match (self.nonce, iv.first_chunk()) {
            (Some(nonce), Some(iv)) => nonce.counter_block(*iv),
            (Some(_), None) => return false,
            (None, _) => {
                let mut block = [0; 16];
                block.iter_mut().zip(iv).for_each(|(to, from)| *to = *from);
                block
            }
        };
        self.key.decrypt(&block, text)
    }
}

/// NULL has no blocks (RFC 2410 section 2.2).
const fn block_len(cipher: CipherAlg) -> usize {
    match cipher {
        CipherAlg::Null => 1,
        other => other.block_len(),
    }
}

/// The ICV of `data`.
fn tag(mac: &IcvKey, data: &[u8]) -> Tag {
    let mut jobs = [MacJob { nonce: [0; 12], data, tag: Tag::zeroed(mac.len), status: JobStatus::Pending }];
    mac.key.sign(&mut jobs);
    let [job] = jobs;
    job.tag
}

#[cfg(test)]
mod tests {
    use super::super::wireshark::{encryption, integrity};
    use super::*;
    use casemate_wire::ike::{
        Body, ExchangeType, Flags, Header, IkeSpi, Message, Notify, NotifyType, PayloadType, Version, Writer,
    };

    const HEADER: Header = Header {
        spi_i: IkeSpi(1),
        spi_r: IkeSpi(2),
        next_payload: PayloadType::NONE,
        version: Version::V2,
        exchange: ExchangeType::INFORMATIONAL,
        flags: Flags { initiator: true, higher_version: false, response: false },
        message_id: 7,
        length: 0,
    };

    fn key(encr: &str, integ: &str) -> MessageKey {
        let suite = RowSuite::new(encryption(encr).unwrap(), integrity(integ).unwrap()).unwrap();
        let encr = vec![0x11; suite.encr_key_len()];
        let integ = vec![0x22; suite.integ_key_len().unwrap_or(0)];
        MessageKey::new(suite, &SecretBytes::new(&encr), &SecretBytes::new(&integ)).unwrap()
    }

    /// A message with a notification, encrypted with `cipher` and authenticated with HMAC-SHA-1 of `icv`
    /// bytes, both computed by the provider directly.
    fn message(layout: SkLayout, cipher: Option<CipherAlg>, icv: usize) -> Vec<u8> {
        let mut buffer = [0; 200];
        let writer = Writer::new(&mut buffer, &HEADER).unwrap();
        let mut writer = writer.encrypted(layout).unwrap();
        writer.payloads().notify(&Notify::new(NotifyType::INITIAL_CONTACT, &[])).unwrap();
        let sealable = writer.finish().unwrap();
        let (parts, mut bytes) = (sealable.parts.clone(), sealable.message.to_vec());
        bytes[parts.iv.clone()].fill(0x33);
        if let Some(cipher) = cipher {
            let provider =
                PROVIDERS.iter().find_map(|p| p.cipher(cipher, &vec![0x11; cipher.key_len()]).ok());
            let mut iv = [0x33; 16];
            iv[8..].fill(0);
            assert!(provider.unwrap().encrypt(&iv, &mut bytes[parts.ciphertext.clone()]));
        }
        let mac = MacAlg::truncated(casemate_crypto::MacKind::HmacSha1, icv).unwrap();
        let mac = Providers(&PROVIDERS).mac(mac, &[0x22; 20]).unwrap();
        let icv = tag(&IcvKey { key: mac, len: icv }, &bytes[..parts.ciphertext.end]);
        bytes[parts.icv].copy_from_slice(icv.as_slice());
        bytes
    }

    /// Checks that the key opens the message and that the notification is in it.
    fn opens(key: &MessageKey, bytes: &[u8]) -> Result<(), SkError> {
        let message = Message::parse(bytes).unwrap();
        let payload = message.payloads().next().unwrap().unwrap();
        let Body::Encrypted(encrypted) = Body::parse(&payload).unwrap() else { panic!("{payload:?}") };
        let parts = encrypted.parts(key.layout()).unwrap();
        let mut opened = bytes.to_vec();
        let inner = key.open(&mut opened, &parts)?;
        assert_eq!(opened[inner], [0, 0, 0, 8, 0, 0, 0x40, 0]);
        Ok(())
    }

    #[test]
    fn partial_suites_decrypt_messages() {
        let triple = Some(CipherAlg::TripleDesCbc);
        for (encr, cipher, integ, icv, checked) in [
            ("3DES [RFC2451]", triple, "HMAC_SHA1_160 [RFC4595]", 20, true),
            ("3DES [RFC2451]", triple, "ANY 160-bits of Authentication [No Checking]", 20, false),
            ("NULL [RFC2410]", None, "HMAC_SHA1_96 [RFC2404]", 12, true),
            ("NULL [RFC2410]", None, "ANY 96-bits of Authentication [No Checking]", 12, false),
        ] {
            let key = key(encr, integ);
            let mut bytes = message(*key.layout(), cipher, icv);
            assert_eq!((opens(&key, &bytes), key.is_checked()), (Ok(()), checked), "{encr} {integ}");
            *bytes.last_mut().unwrap() ^= 1;
            let changed = if checked { Err(SkError::IcvMismatch) } else { Ok(()) };
            assert_eq!(opens(&key, &bytes), changed, "{encr} {integ}");
        }
    }

    #[test]
    fn incompatible_columns_are_refused() {
        let suite = |encr, integ| RowSuite::new(encryption(encr).unwrap(), integrity(integ).unwrap());
        assert!(
            suite("CHACHA20_POLY1305", "NONE").is_some() && suite("AES-CBC-128", "HMAC_SHA1_96").is_some()
        );
        assert!(
            suite("NULL", "NONE").is_some() && suite("AES-CBC-128", "ANY 96 bit authentication").is_some()
        );
        assert!(
            suite("CHACHA20_POLY1305", "HMAC_SHA1_96").is_none() && suite("AES-CBC-128", "NONE").is_none()
        );
        assert!(suite("CHACHA20_POLY1305", "ANY 96 bit authentication").is_none());
    }
}
