use super::*;
use alloc::vec;
use alloc::vec::Vec;
use casemate_crypto::{AesBits, MacKind};
use casemate_rustcrypto::RUSTCRYPTO;
use casemate_test_support::CountingRng;
use casemate_wire::ike::{
    Body, ExchangeType, Flags, Header, IkeSpi, Message, Notify, NotifyType, PayloadType, Payloads,
    ProtocolId, Version, Writer,
};
use proptest::prelude::{any, prop_assert_eq, proptest};

const PROVIDERS: Providers<'_> = Providers(&[&RUSTCRYPTO]);

/// All suites of IKE, at least one of each family.
fn suites() -> Vec<SkSuite> {
    let bits = AesBits::B256;
    let mac = MacAlg::standard;
    let mut suites = vec![
        SkSuite::Combined(AeadAlg::ChaCha20Poly1305),
        SkSuite::Separate(CipherAlg::AesCbc(AesBits::B128), mac(MacKind::HmacSha1)),
        SkSuite::Separate(CipherAlg::AesCbc(bits), mac(MacKind::HmacSha512)),
        SkSuite::Separate(CipherAlg::AesCtr(AesBits::B192), mac(MacKind::AesXcbc)),
        SkSuite::Separate(CipherAlg::AesCbc(AesBits::B192), mac(MacKind::AesCmac)),
    ];
    for icv in [8, 12, 16] {
        suites.push(SkSuite::Combined(AeadAlg::aes_gcm(bits, icv).unwrap()));
        suites.push(SkSuite::Combined(AeadAlg::aes_ccm(AesBits::B128, icv).unwrap()));
    }
    suites
}

fn key(suite: SkSuite) -> SkKey {
    let encr = SecretBytes::new(&vec![3; suite.encr_key_len()]);
    let integ = SecretBytes::new(&vec![4; suite.integ_key_len()]);
    SkKey::new(suite, &encr, &integ, &PROVIDERS).unwrap()
}

const HEADER: Header = Header {
    spi_i: IkeSpi(0xc0c1_c2c3_c4c5_c6c7),
    spi_r: IkeSpi(0xd0d1_d2d3_d4d5_d6d7),
    next_payload: PayloadType::NONE,
    version: Version::V2,
    exchange: ExchangeType::INFORMATIONAL,
    flags: Flags { initiator: false, higher_version: false, response: false },
    message_id: 9,
    length: 0,
};

/// A notification type for private use, with arbitrary data.
const PRIVATE: NotifyType = NotifyType(50_000);

/// A message with one payload: a notification with this `data`.
fn sealed(key: &SkKey, data: &[u8], counter: u64) -> Vec<u8> {
    sealed_notify(key, PRIVATE, data, counter)
}

fn sealed_notify(key: &SkKey, kind: NotifyType, data: &[u8], counter: u64) -> Vec<u8> {
    let mut buffer = vec![0xee; data.len() + 200];
    let mut writer = Writer::new(&mut buffer, &HEADER).unwrap().encrypted(*key.layout()).unwrap();
    let notify = Notify { protocol: ProtocolId(0), kind, spi: &[], data };
    writer.payloads().notify(&notify).unwrap();
    let sealable = writer.finish().unwrap();
    key.seal(sealable, counter, &mut CountingRng(7)).unwrap().to_vec()
}

/// Parts of the encrypted payload of a message.
fn parts(key: &SkKey, message: &[u8]) -> Result<Parts, Fault> {
    let payload = Message::parse(message)?.payloads().next().unwrap()?;
    match Body::parse(&payload)? {
        Body::Encrypted(encrypted) => encrypted.parts(key.layout()),
        other => panic!("{other:?}"),
    }
}

/// Plaintext of a message without padding.
fn opened(key: &SkKey, message: &[u8]) -> Result<Vec<u8>, SkError> {
    let mut copy = message.to_vec();
    let parts = parts(key, message).unwrap();
    key.open(&mut copy, &parts).map(|inner| copy[inner].to_vec())
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let pair = |pair: &[u8]| u8::from_str_radix(core::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(pair).collect()
}

/// RFC 7634 appendix B.
#[test]
fn the_message_of_rfc_7634() {
    let encr: Vec<u8> = (0x80..=0x9f).chain(0xa0..=0xa3).collect();
    let suite = SkSuite::Combined(AeadAlg::ChaCha20Poly1305);
    let key = SkKey::new(suite, &SecretBytes::new(&encr), &SecretBytes::new(&[]), &PROVIDERS).unwrap();
    let ten = [0, 0, 0, 10];
    let message = sealed_notify(&key, NotifyType::SET_WINDOW_SIZE, &ten, 0x1011_1213_1415_1617);
    let expected =
        hex("c0c1c2c3c4c5c6c7 d0d1d2d3d4d5d6d7 2e202500 00000009 00000045 29000029 1011121314151617
         61 03 94 70 1f 8d 01 7f 7c 12 92 48 89 6b 71 bf e2 52 36 ef d7 cd c6 70 66 90 63 15 b2");
    assert_eq!(message, expected);
    assert_eq!(opened(&key, &message), Ok(hex("0000000c 00004001 0000000a")));
}

#[test]
fn ivs_are_the_counter_or_random() {
    for suite in suites() {
        let key = key(suite);
        let message = sealed(&key, &[2; 20], 5);
        let iv = &message[32..32 + key.layout().iv];
        match suite {
            SkSuite::Separate(CipherAlg::AesCbc(_), _) => {
                assert_eq!(iv, (7..23).collect::<Vec<u8>>(), "{suite:?}");
            }
            _ => assert_eq!(iv, 5u64.to_be_bytes(), "{suite:?}"),
        }
    }
}

#[test]
fn a_message_with_a_changed_bit_is_rejected() {
    for suite in suites() {
        let key = key(suite);
        let message = sealed(&key, b"data", 1);
        let parts = parts(&key, &message).unwrap();
        for bit in 0..message.len() * 8 {
            let mut changed = message.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(key.open(&mut changed, &parts), Err(SkError::IcvMismatch), "{suite:?} bit {bit}");
        }
    }
}

#[test]
fn mismatched_parts_do_not_decrypt() {
    for suite in suites() {
        let key = key(suite);
        let message = sealed(&key, b"data", 1);
        let parts = parts(&key, &message).unwrap();
        for len in 0..message.len() {
            assert_eq!(key.open(&mut message[..len].to_vec(), &parts), Err(SkError::IcvMismatch));
        }
        let beyond = Parts { icv: usize::MAX - 1..usize::MAX, ..parts.clone() };
        assert_eq!(key.open(&mut message.clone(), &beyond), Err(SkError::IcvMismatch));
        let beyond = Parts { ciphertext: usize::MAX - 16..usize::MAX, ..parts };
        assert_eq!(key.open(&mut message.clone(), &beyond), Err(SkError::IcvMismatch));
    }
}

/// A sender with the key uses a pad length that points before the payload.
#[test]
fn a_pad_length_beyond_the_payload_is_refused() {
    let suite = SkSuite::Combined(AeadAlg::aes_gcm(AesBits::B128, 16).unwrap());
    let key = key(suite);
    let message = sealed(&key, &[0; 3], 1);
    let parts = parts(&key, &message).unwrap();
    assert_eq!(parts.ciphertext.len(), 12);
    for (pad_len, left) in [(0, Some(11)), (11, Some(0)), (12, None), (255, None)] {
        let mut message = message.clone();
        message[parts.ciphertext.clone()].fill(0);
        message[parts.ciphertext.end - 1] = pad_len;
        let Engine::Combined { key: aead, salt } = &key.engine else { unreachable!() };
        assert!(run_aead(&mut message, &parts, *salt, |job| aead.seal(job)));
        let opened = key.open(&mut message, &parts);
        assert_eq!(opened.as_ref().ok().map(ExactSizeIterator::len), left, "{opened:?}");
        assert!(opened.is_ok() || matches!(opened, Err(SkError::Padding(_))));
    }
}

#[test]
fn suites_that_ike_does_not_allow_are_rejected() {
    let (encr, integ) = (SecretBytes::new(&[0; 20]), SecretBytes::new(&[0; 20]));
    let none = SecretBytes::new(&[]);
    let new =
        |suite, encr: &SecretBytes, integ: &SecretBytes| SkKey::new(suite, encr, integ, &PROVIDERS).err();
    let sha1 = MacAlg::standard(MacKind::HmacSha1);
    assert_eq!(new(SkSuite::Separate(CipherAlg::Null, sha1), &none, &integ), Some(KeyError::Unsupported));
    let gmac = MacAlg::standard(MacKind::AesGmac(AesBits::B128));
    let cbc = CipherAlg::AesCbc(AesBits::B128);
    assert_eq!(new(SkSuite::Separate(cbc, gmac), &encr, &integ), Some(KeyError::Unsupported));
    let gcm = SkSuite::Combined(AeadAlg::aes_gcm(AesBits::B128, 16).unwrap());
    assert!(matches!(new(gcm, &encr, &integ), Some(KeyError::KeyLength { expected: 0, given: 20 })));
    assert!(new(gcm, &integ, &none).is_none());
    assert!(matches!(new(SkSuite::Separate(cbc, sha1), &encr, &integ), Some(KeyError::KeyLength { .. })));
}

proptest! {
    #[test]
    fn an_encrypted_message_decrypts(
        which in 0..suites().len(),
        data in proptest::collection::vec(any::<u8>(), 0..200),
        counter: u64,
    ) {
        let key = key(suites()[which]);
        let inner = opened(&key, &sealed(&key, &data, counter)).unwrap();
        let payloads: Vec<_> = Payloads::from_plaintext(PayloadType::NOTIFY, &inner).map(Result::unwrap).collect();
        prop_assert_eq!(payloads.len(), 1);
        prop_assert_eq!(&payloads[0].body[4..], &data);
    }
}
