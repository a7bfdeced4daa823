use super::*;
use crate::goal::Mix;
use crate::rules::{Filter, Keying, Profile};
use crate::suites;
use casemate_crypto::{AeadAlg, AesBits, CipherAlg, MacAlg, MacKind};
use casemate_sa::Mode;
use casemate_wire::ip::IpVersion;
use proptest::prelude::*;

const CHACHA: EspSuite = EspSuite::Combined(AeadAlg::ChaCha20Poly1305);
const CBC_SHA1: EspSuite =
    EspSuite::Separate(CipherAlg::AesCbc(AesBits::B128), MacAlg::standard(MacKind::HmacSha1));

const fn gcm(icv: u8) -> EspSuite {
    EspSuite::Combined(AeadAlg::AesGcm { bits: AesBits::B128, icv })
}

fn spot(suite: EspSuite, scores: &[f64]) -> Spot {
    let filter = Filter::new(None, false).unwrap();
    let median = Spread::of(scores.iter().copied()).unwrap().median;
    let admitted = filter.esp(suite, Keying::Negotiated).unwrap();
    Spot { suite, admitted, scores: scores.to_vec(), median, cpu: median, bytes: 1.0 }
}

fn order(spots: &[Spot], goal: Goal) -> Vec<(EspSuite, bool)> {
    rank(spots.to_vec(), goal).into_iter().map(|place| (place.spot.suite, place.is_tied)).collect()
}

#[test]
fn a_difference_that_every_round_shows_decides() {
    let (fast, slow) = (spot(CHACHA, &[10.0, 11.0, 10.0, 12.0]), spot(gcm(16), &[12.0, 13.2, 12.0, 14.4]));
    assert_eq!(order(&[slow, fast], Goal::Cpu), [(CHACHA, false), (gcm(16), false)]);
}

#[test]
fn a_difference_below_the_spread_is_a_tie_and_the_stronger_level_wins() {
    // Behind in two rounds of four.
    let (fast, slow) = (spot(CHACHA, &[10.0, 12.0, 10.0, 12.0]), spot(gcm(16), &[12.0, 10.0, 12.0, 12.0]));
    assert_eq!(order(&[fast, slow], Goal::Cpu), [(gcm(16), true), (CHACHA, true)]);
    // Behind in every round, by one part in a hundred.
    let (fast, slow) = (spot(CHACHA, &[10.0; 5]), spot(gcm(16), &[10.1; 5]));
    assert_eq!(order(&[fast, slow], Goal::Cpu), [(gcm(16), true), (CHACHA, true)]);
}

#[test]
fn exact_numbers_tie_only_if_they_are_the_same() {
    let (short, long) = (spot(gcm(8), &[1.0]), spot(gcm(16), &[1.001]));
    assert_eq!(order(&[long.clone(), short], Goal::Bytes), [(gcm(8), false), (gcm(16), false)]);
    let same = spot(CHACHA, &[1.001]);
    assert_eq!(order(&[same, long], Goal::Bytes), [(gcm(16), true), (CHACHA, true)]);
}

#[test]
fn what_is_on_its_way_out_comes_last_however_fast() {
    let spots = [spot(CBC_SHA1, &[1.0; 3]), spot(gcm(16), &[10.0; 3]), spot(CHACHA, &[20.0; 3])];
    let places = rank(spots.to_vec(), Goal::Cpu);
    let suites: Vec<EspSuite> = places.iter().map(|place| place.spot.suite).collect();
    assert_eq!(suites, [gcm(16), CHACHA, CBC_SHA1]);
    assert!((places[1].behind - 1.0).abs() < 1e-12 && (places[2].behind + 0.9).abs() < 1e-12);
}

/// A use and a made-up price for each suite, in which those that the RFCs forbid cost next to nothing.
fn costs(suite: EspSuite, forbidden: bool, price: f64) -> Costs {
    let price = if forbidden { 1e-3 } else { price };
    let samples: Vec<(usize, f64, f64)> =
        Mix::simple().sizes().map(|size| (size, price * size as f64, price * size as f64)).collect();
    Costs::made_up(suite, &samples)
}

/// From the tables of RFC 8221 sections 5 and 6, not from the profile.
fn is_forbidden(suite: EspSuite) -> bool {
    match suite {
        EspSuite::Combined(_) => false,
        EspSuite::Separate(cipher, mac) => {
            matches!(cipher, CipherAlg::DesCbc | CipherAlg::TripleDesCbc) || mac.kind() == MacKind::HmacMd5
        }
    }
}

proptest! {
    /// Whatever is measured and wanted, and whatever the profile: nothing that RFC 8221 says MUST NOT or SHOULD NOT to has a
    /// place, nothing is first that is on its way out if there is anything else, and NULL has a place only if it was asked for.
    #[test]
    fn nothing_forbidden_has_a_place(
        goal in prop::sample::select(Goal::ALL.to_vec()),
        profile in prop::sample::select(vec!["rfc8221", "iot", "cnsa", "suite-b-128", "suite-b-256"]),
        integrity_only: bool,
        behind_nat: bool,
        prices in prop::collection::vec(1.0f64..100.0, suites::all().len()),
    ) {
        let filter = Filter::new(Some(Profile::named(profile).unwrap()), integrity_only).unwrap();
        let use_case = UseCase { mix: Mix::simple(), mode: Mode::Tunnel, version: IpVersion::V4, behind_nat };
        let measured: Vec<Costs> = suites::all().into_iter().zip(&prices)
            .map(|(suite, price)| costs(suite, is_forbidden(suite), *price)).collect();
        let candidates = suites::sort(&filter, Keying::Negotiated).candidates;
        let spots = candidates.iter().filter_map(|candidate| Spot::of(candidate, &measured, goal, &use_case)).collect();
        let places = rank(spots, goal);
        prop_assert!(!places.is_empty());
        prop_assert!(places.iter().all(|place| !is_forbidden(place.spot.suite)));
        let is_null = |place: &Place| matches!(place.spot.suite, EspSuite::Separate(CipherAlg::Null, _));
        prop_assert!(integrity_only || !places.iter().any(is_null));
        let leaving: Vec<bool> = places.iter().map(|place| place.spot.admitted.status.is_leaving()).collect();
        prop_assert!(leaving.is_sorted(), "{leaving:?}");
    }
}
