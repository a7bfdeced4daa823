use super::*;
use crate::goal::Mix;
use crate::rank::{Spot, rank};
use crate::rules::{Keying, Profile};
use crate::suites;
use casemate_crypto::KexMethod;
use casemate_ike::config::{IkeEncryption, Sequence};
use casemate_ike::spelling::proposal;
use casemate_wire::ip::IpVersion;

/// The settings under a profile, where AES-GCM with 128 bits costs `price` ns a byte and others more, in the order of
/// [`suites::all`].
fn settings(profile: &str, price: f64) -> Settings {
    let filter = Filter::new(Some(Profile::named(profile).unwrap()), false).unwrap();
    let use_case =
        UseCase { mix: Mix::simple(), mode: Mode::Tunnel, version: IpVersion::V4, behind_nat: false };
    let sorted = suites::sort(&filter, Keying::Negotiated);
    let prices = (0..).map(|rank| price * (1.0 + f64::from(rank)));
    let costs: Vec<Costs> = sorted
        .candidates
        .iter()
        .zip(prices)
        .map(|(candidate, price)| {
            let samples: Vec<_> =
                use_case.mix.sizes().map(|size| (size, price * size as f64, price * size as f64)).collect();
            Costs::made_up(candidate.suite, &samples)
        })
        .collect();
    let spots =
        sorted.candidates.iter().filter_map(|candidate| Spot::of(candidate, &costs, Goal::Cpu, &use_case));
    let places = rank(spots.collect(), Goal::Cpu);
    let micros = |median| Spread { median, least: median, most: median };
    let kex =
        [KexMethod::X25519, KexMethod::EcpP256, KexMethod::EcpP384, KexMethod::Modp2048, KexMethod::Modp3072];
    let kex: Vec<KexCost> = kex
        .into_iter()
        .zip(1..)
        .map(|(method, rank)| KexCost { method, micros: micros(f64::from(rank)) })
        .collect();
    Settings::of(&places, &costs, &kex, &filter, &use_case).unwrap()
}

#[test]
fn the_products_own_reader_takes_every_line() {
    for profile in ["rfc8221", "iot", "cnsa", "suite-b-128", "suite-b-256"] {
        for price in [0.1, 1_000.0] {
            let settings = settings(profile, price);
            assert_eq!(proposal::ike(&settings.ike).map(|read| read.len()), Ok(1), "{}", settings.ike);
            for one in settings.esp.split(',') {
                assert_eq!(proposal::esp(one).map(|read| read.len()), Ok(1), "{one}");
            }
        }
    }
}

#[test]
fn a_fast_machine_needs_long_sequence_numbers_and_a_slow_one_does_not() {
    let (fast, slow) = (settings("rfc8221", 0.1), settings("rfc8221", 1_000.0));
    assert!(fast.esn && fast.esp.ends_with("-esn-noesn") && fast.replay_window == 4_096, "{fast:?}");
    assert!(!slow.esn && !slow.esp.contains("esn") && slow.replay_window == 64, "{slow:?}");
    let read = proposal::esp(fast.esp.split(',').next().unwrap()).unwrap();
    assert_eq!(read[0].sequence, Sequence::PreferExtended);
}

#[test]
fn what_is_not_a_must_has_one_behind_it() {
    // The first of all suites is AES-GCM with an ICV of 8 bytes, which is a MAY.
    assert_eq!(settings("rfc8221", 1_000.0).esp, "aes128gcm8,aes128gcm16");
    assert_eq!(settings("rfc8221", 1_000.0).ike, "aes128gcm16-prfsha256-curve25519-ecp256-modp2048");
}

#[test]
fn profiles_choose_for_ike_as_well() {
    assert_eq!(settings("cnsa", 1_000.0).ike, "aes256gcm16-prfsha512-ecp384-modp3072");
    assert_eq!(settings("suite-b-256", 1_000.0).ike, "aes256-sha384-prfsha384-ecp384");
    let read = proposal::ike(&settings("suite-b-128", 1_000.0).ike).unwrap();
    let pair = IkeEncryption::Separate(
        vec![CipherAlg::AesCbc(AesBits::B128)],
        vec![MacAlg::standard(MacKind::HmacSha256)],
    );
    assert_eq!(read[0].encryption, pair);
}
