//! Vectors of the RFCs, limits of the job fields, and one key on several threads. `verify/vectors` contains
//! the large vector sets and the comparison with other providers.

use super::*;
use casemate_crypto::{AeadJob, MacJob, Tag};
use std::thread;

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.chars().filter_map(|c| c.to_digit(16)).map(|d| d as u8).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

fn block(text: &str) -> [u8; 16] {
    hex(text).try_into().unwrap()
}

fn sign(key: &dyn MacKey, nonce: [u8; 12], data: &[u8], tag_len: usize) -> (JobStatus, Vec<u8>) {
    let mut job = [MacJob { nonce, data, tag: Tag::zeroed(tag_len), status: JobStatus::Pending }];
    key.sign(&mut job);
    (job[0].status, job[0].tag.as_slice().to_vec())
}

fn mac(kind: MacKind, key: &str, data: &[u8]) -> Vec<u8> {
    let alg = MacAlg::standard(kind);
    let (status, tag) = sign(&*AWS_LC.mac(alg, &hex(key)).unwrap(), [0; 12], data, alg.tag_len());
    assert_eq!(status, JobStatus::Done);
    tag
}

#[derive(Clone, Copy)]
enum Direction {
    Seal,
    Open,
}

fn aead(
    key: &dyn AeadKey,
    direction: Direction,
    nonce: [u8; 12],
    aad: &[u8],
    text: &mut [u8],
    tag: &mut [u8],
) -> JobStatus {
    let mut jobs = [AeadJob { nonce, aad, text, tag, status: JobStatus::Pending }];
    match direction {
        Direction::Seal => key.seal(&mut jobs),
        Direction::Open => key.open(&mut jobs),
    }
    jobs[0].status
}

#[test]
fn chacha20_poly1305_rfc8439_2_8_2() {
    let key = AWS_LC.aead(
        AeadAlg::ChaCha20Poly1305,
        &hex("808182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9f"),
    );
    let nonce = hex("070000004041424344454647").try_into().unwrap();
    let mut text =
        *b"Ladies and Gentlemen of the class of '99: If I could offer you only one tip for the future, \
        sunscreen would be it.";
    let mut tag = [0; 16];
    let aad = hex("50515253c0c1c2c3c4c5c6c7");
    assert_eq!(aead(&*key.unwrap(), Direction::Seal, nonce, &aad, &mut text, &mut tag), JobStatus::Done);
    assert_eq!(text[..16], hex("d31a8d34648e60db7b86afbc53ef7ec2"));
    assert_eq!(tag[..], hex("1ae10b594f09e26a7e902ecbd0600691"));
}

/// Test cases 1 and 4 of "The Galois/Counter Mode of Operation", to which RFC 4106 section 7 refers.
#[test]
fn aes_gcm_and_gmac_of_the_gcm_specification() {
    let mut zeros = [0; 16];
    let alg = AeadAlg::aes_gcm(AesBits::B128, 16).unwrap();
    let key = AWS_LC.aead(alg, &zeros).unwrap();
    assert_eq!(aead(&*key, Direction::Seal, [0; 12], &[], &mut [], &mut zeros), JobStatus::Done);
    assert_eq!(zeros, block("58e2fccefa7e3061367f1d57a4e7455a"));
    let gmac = mac(MacKind::AesGmac(AesBits::B128), "00000000000000000000000000000000", &[]);
    assert_eq!(gmac, zeros);

    for icv in [8, 12, 16] {
        let alg = AeadAlg::aes_gcm(AesBits::B128, icv).unwrap();
        let key = AWS_LC.aead(alg, &hex("feffe9928665731c6d6a8f9467308308")).unwrap();
        let nonce = hex("cafebabefacedbaddecaf888").try_into().unwrap();
        let aad = hex("feedfacedeadbeeffeedfacedeadbeefabaddad2");
        let plain =
            hex("d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a721c3c0c95956809532fcf0e24\
            49a6b525b16aedf5aa0de657ba637b39");
        let (mut text, mut tag) = (plain.clone(), vec![0; icv]);
        assert_eq!(aead(&*key, Direction::Seal, nonce, &aad, &mut text, &mut tag), JobStatus::Done);
        assert_eq!(text[48..], hex("1ba30b396a0aac973d58e091"));
        assert_eq!(tag, hex("5bc94fbc3221a5db94fae95ae7121a47")[..icv]);
        assert_eq!(aead(&*key, Direction::Open, nonce, &aad, &mut text, &mut tag), JobStatus::Done);
        assert_eq!(text, plain);
    }
}

/// RFC 3602 section 4, cases 1 and 2.
#[test]
fn aes_cbc_rfc3602() {
    for (key, iv, plain, sealed) in [
        (
            "06a9214036b8a15b512e03d534120006",
            "3dafba429d9eb430b422da802c9fac41",
            b"Single block msg".to_vec(),
            "e353779c1079aeb82708942dbe77181a",
        ),
        (
            "c286696d887c9aa0611bbb3e2025a45a",
            "562e17996d093d28ddb3ba695a2e6f58",
            (0..32).collect(),
            "d296cd94c2cccf8a3a863028b5e1dc0a7586602d253cfff91b8266bea6d61ab1",
        ),
    ] {
        let key = AWS_LC.cipher(CipherAlg::AesCbc(AesBits::B128), &hex(key)).unwrap();
        let (iv, mut text) = (block(iv), plain.clone());
        assert!(key.encrypt(&iv, &mut text));
        assert_eq!(text, hex(sealed));
        assert!(key.decrypt(&iv, &mut text));
        assert_eq!(text, plain);
        assert!(key.encrypt(&iv, &mut []));
        assert!(!key.encrypt(&iv, &mut text[1..]) && !key.decrypt(&iv, &mut text[1..]));
        assert_eq!(text, plain, "a rejected text changed");
    }
}

/// RFC 3686 section 6, vectors 3 (128 bits, not a whole number of blocks) and 9 (256 bits).
#[test]
fn aes_ctr_rfc3686() {
    for (bits, key, counter, sealed) in [
        (
            AesBits::B128,
            "7691be035e5020a8ac6e618529f9a0dc",
            "00e0017b27777f3f4a1786f000000001",
            "c1cf48a89f2ffdd9cf4652e9efdb72d74540a42bde6d7836d59a5ceaaef3105325b2072f",
        ),
        (
            AesBits::B256,
            "ff7a617ce69148e4f1726e2f43581de2aa62d9f805532edff1eed687fb54153d",
            "001cc5b751a51d70a1c1114800000001",
            "eb6c52821d0bbbf7ce7594462aca4faab407df866569fd07f48cc0b583d6071f1ec0e6b8",
        ),
    ] {
        let key = AWS_LC.cipher(CipherAlg::AesCtr(bits), &hex(key)).unwrap();
        let mut text: Vec<u8> = (0..36).collect();
        assert!(key.encrypt(&block(counter), &mut text));
        assert_eq!(text, hex(sealed));
        assert!(key.decrypt(&block(counter), &mut text) && text.iter().copied().eq(0..36));
        assert!(key.encrypt(&block(counter), &mut []));
    }
}

#[test]
fn hmac_rfc2202_and_rfc4868() {
    let hi = b"Hi There";
    assert_eq!(mac(MacKind::HmacSha1, &"0b".repeat(20), hi), hex("b617318655057264e28bc0b6"));
    // RFC 4868 sections 2.7.2.1 to 2.7.2.3
    assert_eq!(mac(MacKind::HmacSha256, &"0b".repeat(32), hi), hex("198a607eb44bfbc69903a0f1cf2bbdc5"));
    assert_eq!(
        mac(MacKind::HmacSha384, &"0b".repeat(48), hi),
        hex("b6a8d5636f5c6a7224f9977dcf7ee6c7fb6d0c48cbdee973")
    );
    assert_eq!(
        mac(MacKind::HmacSha512, &"0b".repeat(64), hi),
        hex("637edc6e01dce7e6742a99451aae82df23da3e92439e590e43e761b33e910fb8")
    );
    // RFC 2202 section 3, case 6: a key longer than the block.
    assert_eq!(
        mac(MacKind::HmacSha1, &"aa".repeat(80), b"Test Using Larger Than Block-Size Key - Hash Key First"),
        hex("aa4ae5e15272d00e95705637")
    );
}

#[test]
fn aes_cmac_rfc4493_and_xcbc_rfc3566() {
    let message =
        hex("6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e5130c81c46a35ce411e5fbc1191a0a52\
        eff69f2445df4f9b17ad2b417be66c3710");
    for (len, tag) in [
        (0, "bb1d6929e95937287fa37d12"),
        (16, "070a16b46b4d4144f79bdd9d"),
        (40, "dfa66747de9ae63030ca3261"),
        (64, "51f0bebf7e3b9d92fc497417"),
    ] {
        assert_eq!(mac(MacKind::AesCmac, "2b7e151628aed2a6abf7158809cf4f3c", &message[..len]), hex(tag));
    }
    let counting: Vec<u8> = (0..34).collect();
    for (data, tag) in [
        (&[][..], "75f0251d528ac01c4573dfd5"),
        (&counting[..3], "5b376580ae2f19afe7219cee"),
        (&counting[..16], "d2a246fa349b68a79998a439"),
        (&counting[..20], "47f51b4564966215b8985c63"),
        (&counting[..32], "f54f0ec8d2b9f3d36807734b"),
        (&counting[..], "becbb3bccdb518a30677d548"),
        // Longer than the input of one library call.
        (&[0; 1000], "f0dafee895db30253761103b"),
    ] {
        assert_eq!(mac(MacKind::AesXcbc, "000102030405060708090a0b0c0d0e0f", data), hex(tag));
    }
}

#[test]
fn modified_packets_and_wrong_lengths_are_rejected() {
    for (alg, key_len) in
        [(AeadAlg::aes_gcm(AesBits::B256, 12).unwrap(), 32), (AeadAlg::ChaCha20Poly1305, 32)]
    {
        let key = AWS_LC.aead(alg, &vec![7; key_len]).unwrap();
        let (icv, aad) = (alg.icv_len(), [1; 8]);
        for len in [0, 1, 15, 16, 17, 1500] {
            let (mut text, mut tag) = (vec![0x5A; len], vec![0; icv]);
            assert_eq!(aead(&*key, Direction::Seal, [9; 12], &aad, &mut text, &mut tag), JobStatus::Done);
            let opens = |nonce: u8, aad: &[u8], flip_text: bool, tag: &[u8]| {
                let mut text = text.clone();
                text.iter_mut().last().filter(|_| flip_text).into_iter().for_each(|b| *b ^= 0x80);
                aead(&*key, Direction::Open, [nonce; 12], aad, &mut text, &mut tag.to_vec())
                    == JobStatus::Done
            };
            assert!(opens(9, &aad, false, &tag));
            assert!(!opens(8, &aad, false, &tag) && !opens(9, &aad[1..], false, &tag));
            assert!(len == 0 || !opens(9, &aad, true, &tag));
            assert!(!opens(9, &aad, false, &tag[1..]) && !opens(9, &aad, false, &[&tag[..], &[0]].concat()));
            assert!(!opens(9, &aad, false, &[]) && !opens(9, &aad, false, &vec![0; icv]));
        }
        for wrong in [0, icv - 1, icv + 1] {
            let sealed = aead(&*key, Direction::Seal, [9; 12], &aad, &mut [0; 64], &mut vec![0; wrong]);
            assert_eq!(sealed, JobStatus::Failed, "a tag of {wrong} bytes");
        }
    }
    for kind in [MacKind::HmacSha256, MacKind::AesCmac, MacKind::AesGmac(AesBits::B128)] {
        let alg = MacAlg::standard(kind);
        let key = AWS_LC.mac(alg, &vec![7; alg.key_len()]).unwrap();
        for wrong in [0, alg.tag_len() - 1, alg.tag_len() + 1] {
            assert_eq!(
                sign(&*key, [0; 12], b"data", wrong).0,
                JobStatus::Failed,
                "{alg}, a tag of {wrong} bytes"
            );
        }
    }
}

#[test]
fn keys_of_a_wrong_length_are_rejected() {
    let wrong = KeyError::KeyLength { expected: 16, given: 24 };
    let gcm = AeadAlg::aes_gcm(AesBits::B128, 16).unwrap();
    assert_eq!(AWS_LC.aead(gcm, &[0; 24]).err(), Some(wrong));
    for alg in [CipherAlg::AesCbc(AesBits::B128), CipherAlg::AesCtr(AesBits::B128)] {
        assert_eq!(AWS_LC.cipher(alg, &[0; 24]).err(), Some(wrong));
    }
    for kind in [MacKind::AesCmac, MacKind::AesXcbc, MacKind::AesGmac(AesBits::B128)] {
        assert_eq!(AWS_LC.mac(MacAlg::standard(kind), &[0; 24]).err(), Some(wrong));
    }
    let ccm = AeadAlg::aes_ccm(AesBits::B128, 16).unwrap();
    assert_eq!(AWS_LC.aead(ccm, &[0; 24]).err(), Some(wrong));
    assert_eq!(AWS_LC.cipher(CipherAlg::DesCbc, &[0; 8]).err(), Some(KeyError::Unsupported));
    let md5 = MacAlg::standard(MacKind::HmacMd5);
    assert_eq!(AWS_LC.mac(md5, &[0; 16]).err(), Some(KeyError::Unsupported));
}

/// The result of a thread does not depend on other threads that use the same key at the same time.
#[test]
fn threads_share_a_key() {
    const ROUNDS: u32 = 3000;
    let gcm = AeadAlg::aes_gcm(AesBits::B128, 16).unwrap();
    let combined = AWS_LC.aead(gcm, &[3; 16]).unwrap();
    let cbc = AWS_LC.cipher(CipherAlg::AesCbc(AesBits::B128), &[4; 16]).unwrap();
    let hmac_alg = MacAlg::standard(MacKind::HmacSha256);
    let hmac = AWS_LC.mac(hmac_alg, &[5; 32]).unwrap();
    let trace = |seed: u32| {
        let mut text = [0u8; 512];
        let mut sum = Vec::new();
        for round in 0..ROUNDS {
            let mut nonce = [0; 12];
            nonce[..4].copy_from_slice(&(seed + round).to_be_bytes());
            let mut tag = [0; 16];
            assert_eq!(
                aead(&*combined, Direction::Seal, nonce, &nonce, &mut text, &mut tag),
                JobStatus::Done
            );
            assert!(cbc.encrypt(&tag, &mut text));
            sum = sign(&*hmac, nonce, &text, hmac_alg.tag_len()).1;
            text[..16].copy_from_slice(&sum);
        }
        sum
    };
    let alone = [trace(0), trace(ROUNDS)];
    let together = thread::scope(|scope| {
        let threads = [0, ROUNDS].map(|seed| scope.spawn(move || trace(seed)));
        threads.map(|thread| thread.join().unwrap())
    });
    assert_ne!(alone[0], alone[1]);
    assert_eq!(alone, together);
}
