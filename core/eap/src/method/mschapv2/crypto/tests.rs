//! Known answers of RFC 2759 section 9.2 and RFC 3079 section 3.5.3.

use super::*;
use crate::EapCredentials;
use casemate_crypto::Providers;
use casemate_legacy::LEGACY;
use casemate_rustcrypto::RUSTCRYPTO;
use casemate_test_support::TestRng;

const PASSWORD: &str = "clientPass";
const AUTHENTICATOR_CHALLENGE: [u8; 16] = *b"[]|}{?/><,`!2&&(";
const PEER_CHALLENGE: [u8; 16] = *b"!@#$%^&*()_+:3|~";
const CHALLENGE: [u8; 8] = [0xD0, 0x2E, 0x43, 0x86, 0xBC, 0xE9, 0x12, 0x26];

struct NoCredentials;

impl EapCredentials for NoCredentials {
    fn algorithms(&self) -> Option<&dyn PasswordAlgorithms> {
        Some(&LEGACY)
    }

    fn password(&self, _identity: &[u8]) -> Option<&SecretBytes> {
        None
    }
}

fn hex(bytes: &[u8]) -> alloc::string::String {
    bytes.iter().map(|byte| alloc::format!("{byte:02X}")).collect()
}

fn with_context<T>(test: impl FnOnce(&EapContext<'_>) -> T) -> T {
    test(&EapContext {
        rng: &mut TestRng::new(0),
        providers: &Providers(&[&RUSTCRYPTO]),
        credentials: &NoCredentials,
    })
}

fn derived(name: &[u8]) -> Derived {
    let exchange =
        Exchange { authenticator_challenge: &AUTHENTICATOR_CHALLENGE, peer_challenge: &PEER_CHALLENGE, name };
    with_context(|context| Derived::new(&NtHash::of(PASSWORD, &LEGACY), &exchange, context)).unwrap()
}

#[test]
fn hashes_of_rfc_2759_section_9_2() {
    let hash = NtHash::of(PASSWORD, &LEGACY);
    assert_eq!(hex(&*hash.0), "44EBBA8D5312B8D611474411F56989AE");
    assert_eq!(hex(&*hash.hashed(&LEGACY).0), "41C00C584BD2D91C4017A2A12FA59F3F");
}

#[test]
fn challenge_and_responses_of_rfc_2759_section_9_2() {
    let exchange = Exchange {
        authenticator_challenge: &AUTHENTICATOR_CHALLENGE,
        peer_challenge: &PEER_CHALLENGE,
        name: b"User",
    };
    assert_eq!(with_context(|context| challenge_hash(&exchange, context)), Ok(CHALLENGE));
    let derived = derived(b"User");
    assert_eq!(hex(&*derived.nt_response), "82309ECD8D708B5EA08FAA3981CD83544233114A3D85D6DF");
    assert_eq!(hex(&*derived.authenticator_response), "407A5589115FD0D6209F510FE9C04566932CDA56");
}

/// From the tests of a RADIUS client in Go: github.com/markeytos/radius-client,
/// `src/eap/mschapv2/crypto_test.go`.
#[test]
fn nt_response_of_another_implementation() {
    let exchange = Exchange {
        authenticator_challenge: &0x3114_9c19_e070_4707_f4cf_f863_5936_e75f_u128.to_be_bytes(),
        peer_challenge: &0x6c8c_217c_a7fd_a182_bb56_62ad_3e54_de83_u128.to_be_bytes(),
        name: b"test01",
    };
    let derived = with_context(|context| Derived::new(&NtHash::of("test01", &LEGACY), &exchange, context));
    assert_eq!(hex(&*derived.unwrap().nt_response), "47563111AF9B8A8414899DD62A0CB0966DAB42E592E0013F");
}

/// The RFC has the key that the authenticator sends with (SendStartKey128). The key for receiving is in the
/// tests of Android's IKE library; both, in this order, are the MSK there.
#[test]
fn master_session_key_of_rfc_3079_section_3_5_3() {
    let msk = derived(b"User").msk;
    let (keys, padding) = msk.expose().split_at(32);
    assert_eq!(hex(&keys[..16]), "D5F0E9521E3EA9589645E86051C82226");
    assert_eq!(hex(&keys[16..]), "8B7CDC149B993A1BA118CB153F56DCCB");
    assert_eq!(padding, [0; 32]);
}

#[test]
fn a_domain_in_front_of_the_name_is_no_part_of_the_proof() {
    let plain = derived(b"User");
    assert_eq!(*derived(b"BIGCO\\User").nt_response, *plain.nt_response);
    assert_ne!(*derived(b"BIGCO/User").nt_response, *plain.nt_response);
    assert_ne!(*derived(b"user").nt_response, *plain.nt_response);
    assert_eq!(without_domain(b"A\\B\\C"), b"B\\C");
    assert_eq!(without_domain(b"A\\"), b"");
    assert_eq!(without_domain(b""), b"");
}

/// Computed with `iconv -t UTF-16LE | openssl dgst -md4`. strongSwan hashes the bytes of UTF-8 instead, each
/// followed by a zero byte.
#[test]
fn passwords_that_are_not_ascii_are_hashed_as_utf_16() {
    assert_eq!(hex(&*NtHash::of("pässwörd 🔑", &LEGACY).0), "4CFE3B98A7EDB7A31E18CBE92CBBC421");
}

#[test]
fn debug_output_has_no_secret() {
    assert_eq!(alloc::format!("{:?}", NtHash::of(PASSWORD, &LEGACY)), "NtHash");
}
