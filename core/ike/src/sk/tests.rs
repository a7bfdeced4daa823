use super::*;
use alloc::vec;
use alloc::vec::Vec;
use casemate_crypto::{AesBits, MacKind};
use casemate_rustcrypto::RUSTCRYPTO;
use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};

const PROVIDERS: Providers<'_> = Providers(&[&RUSTCRYPTO]);

/// All that IKE knows, one of each family at least.
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
    let (encr, integ) = match suite {
        SkSuite::Combined(alg) => (alg.key_len() + alg.salt_len(), 0),
        SkSuite::Separate(cipher, mac) => (cipher.key_len() + cipher.salt_len(), mac.key_len()),
    };
    let (encr, integ) = (SecretBytes::new(&vec![3; encr]), SecretBytes::new(&vec![4; integ]));
    SkKey::new(suite, &encr, &integ, &PROVIDERS).unwrap()
}

/// Gives 7, 8, 9, ...
struct Counting(u8);

impl Rng for Counting {
    fn public(&mut self, out: &mut [u8]) {
        for byte in out {
            *byte = self.0;
            self.0 = self.0.wrapping_add(1);
        }
    }

    fn secret(&mut self, out: &mut [u8]) {
        self.public(out);
    }
}

/// A message with `payloads` inside, sealed behind `front` bytes.
fn sealed(key: &SkKey, front: &[u8], payloads: &[u8]) -> Vec<u8> {
    let mut message = front.to_vec();
    message.resize(front.len() + key.sealed_len(payloads.len()), 0xee);
    let text = front.len() + key.iv_len();
    message[text..text + payloads.len()].copy_from_slice(payloads);
    key.seal(&mut message, front.len(), payloads.len(), 5, &mut Counting(7)).unwrap();
    message
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
    let front = hex("c0c1c2c3c4c5c6c7 d0d1d2d3d4d5d6d7 2e202500 00000009 00000045 29000029");
    let payloads = hex("0000000c 00004001 0000000a");
    let expected = [
        &front[..],
        &hex("1011121314151617 6103 9470 1f8d 017f 7c12 9248 89"),
        &hex("6b71bfe25236efd7cdc6706690 6315b2"),
    ]
    .concat();
    let mut message = front.clone();
    message.resize(0x45, 0);
    message[40..52].copy_from_slice(&payloads);
    key.seal(&mut message, 32, payloads.len(), 0x1011_1213_1415_1617, &mut Counting(0)).unwrap();
    assert_eq!(message, expected);
    assert_eq!(key.open(&mut message, 32), Ok(40..52));
    assert_eq!(message[40..52], payloads);
}

#[test]
fn ivs_are_the_counter_or_random() {
    for suite in suites() {
        let key = key(suite);
        let message = sealed(&key, &[1; 32], &[2; 20]);
        let iv = &message[32..32 + key.iv_len()];
        match suite {
            SkSuite::Separate(CipherAlg::AesCbc(_), _) => {
                assert_eq!(iv, (7..23).collect::<Vec<u8>>(), "{suite:?}");
            }
            _ => assert_eq!(iv, 5u64.to_be_bytes(), "{suite:?}"),
        }
    }
}

#[test]
fn no_changed_bit_goes_unnoticed() {
    for suite in suites() {
        let key = key(suite);
        let message = sealed(&key, &[1; 32], b"payloads");
        for bit in 0..message.len() * 8 {
            let mut changed = message.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(key.open(&mut changed, 32), Err(SkError::IcvMismatch), "{suite:?} bit {bit}");
        }
    }
}

#[test]
fn what_has_no_room_is_refused() {
    for suite in suites() {
        let key = key(suite);
        let message = sealed(&key, &[1; 32], b"payloads");
        for len in 0..message.len() {
            assert!(key.open(&mut message[..len].to_vec(), 32).is_err(), "{suite:?}");
            let mut short = message[..len].to_vec();
            assert_eq!(key.seal(&mut short, 32, 8, 1, &mut Counting(0)), Err(NotSealed));
        }
        assert_eq!(key.open(&mut message.clone(), usize::MAX), Err(SkError::Length));
        assert_eq!(key.seal(&mut message.clone(), usize::MAX, 8, 1, &mut Counting(0)), Err(NotSealed));
    }
}

/// Somebody with the key sends a pad length that points in front of the payload.
#[test]
fn a_pad_length_beyond_the_payload_is_refused() {
    let suite = SkSuite::Combined(AeadAlg::aes_gcm(AesBits::B128, 16).unwrap());
    let key = key(suite);
    // Twelve bytes of ciphertext, of which the last is the pad length.
    for (pad_len, expected) in [(0, Ok(40..51)), (11, Ok(40..40)), (12, Err(())), (255, Err(()))] {
        let mut message = [&[1; 32][..], &5u64.to_be_bytes(), &[0; 28]].concat();
        message[51] = pad_len;
        let Engine::Combined { key: aead, salt } = &key.engine else { unreachable!() };
        assert!(combined(&mut message, 32, 40..52, *salt, |job| aead.seal(job)));
        let opened = key.open(&mut message, 32);
        assert_eq!(opened.clone().map_err(|_| ()), expected, "{opened:?}");
        assert!(opened.is_ok() || opened == Err(SkError::PadLength));
    }
}

#[test]
fn what_is_not_for_ike_is_refused() {
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
    fn what_was_sealed_opens(
        which in 0..suites().len(),
        front in proptest::collection::vec(any::<u8>(), 0..60),
        payloads in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        let key = key(suites()[which]);
        let mut message = sealed(&key, &front, &payloads);
        prop_assert!(message.starts_with(&front));
        let inner = key.open(&mut message, front.len()).unwrap();
        prop_assert_eq!(&message[inner], &payloads);
    }

    #[test]
    fn any_bytes_never_panic(
        which in 0..suites().len(),
        mut message in proptest::collection::vec(any::<u8>(), 0..120),
        iv_at in 0..130usize,
    ) {
        prop_assert!(key(suites()[which]).open(&mut message, iv_at).is_err());
    }
}
