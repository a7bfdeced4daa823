//! Key derivation against the values of RFCs.

use super::*;
use crate::EapCredentials;
use casemate_crypto::{PasswordAlgorithms, Providers};
use casemate_legacy::LEGACY;
use casemate_rustcrypto::RUSTCRYPTO;
use casemate_test_support::TestRng;

/// Algorithms without secrets.
struct Algorithms;

impl EapCredentials for Algorithms {
    fn algorithms(&self) -> Option<&dyn PasswordAlgorithms> {
        Some(&LEGACY)
    }

    fn password(&self, _identity: &[u8]) -> Option<&SecretBytes> {
        None
    }
}

pub(in crate::method::aka) fn with_context<T>(run: impl FnOnce(&EapContext<'_>) -> T) -> T {
    with_credentials(&Algorithms, |context| run(context))
}

pub(in crate::method::aka) fn with_credentials<T>(
    credentials: &dyn EapCredentials,
    run: impl FnOnce(&mut EapContext<'_>) -> T,
) -> T {
    run(&mut EapContext { rng: &mut TestRng::new(1), providers: &Providers(&[&RUSTCRYPTO]), credentials })
}

pub(in crate::method::aka) fn hex(digits: &str) -> Vec<u8> {
    let digits: Vec<u8> = digits.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    digits.chunks(2).map(|two| u8::from_str_radix(str::from_utf8(two).unwrap(), 16).unwrap()).collect()
}

fn key(digits: &str) -> Key {
    Zeroizing::new(hex(digits).try_into().unwrap())
}

/// RFC 4186 appendix A.5, whose generator is the same.
#[test]
fn generator_of_fips_186_2() {
    let master = hex("e576d5ca 332e9930 018bf1ba ee2763c7 95b3c712").try_into().unwrap();
    let stream = with_context(|context| fips_186_prf(&master, context)).unwrap();
    let k_encr = "536e5ebc 4465582a a6a8ec99 86ebb620";
    let k_aut = "25af1942 efcbf4bc 72b39434 21f2a974";
    let msk = "39d45aea f4e30601 983e972b 6cfd46d1 c3637733 65690d09 cd44976b 525f47d3
               a60a985e 955c53b0 90b2e4b7 3719196a 40254296 8fd14a88 8f46b9a7 886e4488";
    let emsk = "5949eab0 fff69d52 315c6c63 4fd14a7f 0d52023d 56f79698 fa6596ab eed4f93f
                bb48eb53 4d985414 ceed0d9a 8ed33c38 7c9dfdab 92ffbdf2 40fcecf6 5a2c93b9";
    assert_eq!(stream[..], [k_encr, k_aut, msk, emsk].map(hex).concat()[..]);
}

/// A test case of RFC 9048 appendix D (and RFC 5448 appendix C).
struct Case {
    network: &'static str,
    autn: &'static str,
    ik: &'static str,
    ck: &'static str,
    ck_prime: &'static str,
    ik_prime: &'static str,
    k_aut: &'static str,
    msk: &'static str,
}

const CASES: [Case; 3] = [
    Case {
        network: "WLAN",
        autn: "bb52 e91c 747a",
        ik: "9744 871a d32b f9bb d1dd 5ce5 4e3e 2e5a",
        ck: "5349 fbe0 9864 9f94 8f5d 2e97 3a81 c00f",
        ck_prime: "0093 962d 0dd8 4aa5 684b 045c 9edf fa04",
        ik_prime: "ccfc 230c a74f cc96 c0a5 d611 64f5 a76c",
        k_aut: "0842 ea72 2ff6 835b fa20 3249 9fc3 ec23 c2f0 e388 b4f0 7543 ffc6 77f1 696d 71ea",
        msk: "67c4 2d9a a56c 1b79 e295 e345 9fc3 d187 d42b e0bf 818d 3070 e362 c5e9 67a4 d544
              e8ec fe19 358a b303 9aff 03b7 c930 588c 055b abee 58a0 2650 b067 ec4e 9347 c75a",
    },
    Case {
        network: "HRPD",
        autn: "bb52 e91c 747a",
        ik: "9744 871a d32b f9bb d1dd 5ce5 4e3e 2e5a",
        ck: "5349 fbe0 9864 9f94 8f5d 2e97 3a81 c00f",
        ck_prime: "3820 f027 7fa5 f777 32b1 fb1d 90c1 a0da",
        ik_prime: "db94 a0ab 557e f6c9 ab48 619c a05b 9a9f",
        k_aut: "5b4a caef 62c6 ebb8 882b 2f3d 534c 4b35 2773 37a0 0184 f20f f25d 224c 04be 2afd",
        msk: "87b3 2157 0117 cd6c 95ab 6c43 6fb5 073f f15c f855 05d2 bc5b b735 5fc2 1ea8 a757
              57e8 f86a 2b13 8002 e057 5291 3bb4 3b82 f868 a961 17e9 1a2d 95f5 2667 7d57 2900",
    },
    Case {
        network: "WLAN",
        autn: "a0a0 a0a0 a0a0",
        ik: "b0b0 b0b0 b0b0 b0b0 b0b0 b0b0 b0b0 b0b0",
        ck: "c0c0 c0c0 c0c0 c0c0 c0c0 c0c0 c0c0 c0c0",
        ck_prime: "cd4c 8e5c 68f5 7dd1 d7d7 dfd0 c538 e577",
        ik_prime: "3ece 6b70 5dbb f7df c459 a112 80c6 5524",
        k_aut: "c407 00e7 7224 83ae 3dc7 139e b0b8 8bb5 58cb 3081 eccd 057f 9207 d128 6ee7 dd53",
        msk: "9f7d ca9e 37bb 2202 9ed9 86e7 cd09 d4a7 0d1a c76d 9553 5c5c ac40 a750 4699 bb89
              61a2 9ef6 f3e9 0f18 3de5 861a d1be dc81 ce99 1639 1b40 1aa0 06c9 8785 a575 6df7",
    },
];

/// The keys of case 1, whose identity and challenge other implementations use in their tests.
pub(in crate::method::aka) fn keys_of_case_1() -> Keys {
    let [case, ..] = CASES;
    let secrets = Secrets { ck: &key(case.ck_prime), ik: &key(case.ik_prime), identity: b"0555444333222111" };
    with_context(|context| Keys::aka_prime(&secrets, context)).unwrap()
}

#[test]
fn keys_of_rfc_9048() {
    for case in CASES {
        let derived = milenage::Derived::of_keys(key(case.ck), key(case.ik));
        let hidden = hex(case.autn).try_into().unwrap();
        let (ck, ik) =
            with_context(|context| bind_to_network(&derived, &hidden, case.network.as_bytes(), context))
                .unwrap();
        assert_eq!((ck.clone(), ik.clone()), (key(case.ck_prime), key(case.ik_prime)));
        let secrets = Secrets { ck: &ck, ik: &ik, identity: b"0555444333222111" };
        let keys = with_context(|context| Keys::aka_prime(&secrets, context)).unwrap();
        assert_eq!(*keys.k_aut, hex(case.k_aut));
        assert_eq!(keys.msk.expose(), hex(case.msk));
    }
}
