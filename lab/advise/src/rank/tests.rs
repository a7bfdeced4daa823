use super::*;
use crate::as_if::AsIf;
use crate::goal::Mix;
use crate::measure::KexCost;
use crate::rules::{Filter, Keying, Profile};
use crate::settings::Settings;
use crate::suites;
use casemate_crypto::{AeadAlg, AesBits, CipherAlg, KexMethod, MacAlg, MacKind};
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
    assert_eq!(order(&[fast.clone(), slow.clone()], Goal::Cpu), [(gcm(16), true), (CHACHA, true)]);
    // Another group of two behind them.
    let others = [spot(gcm(8), &[20.0; 4]), spot(gcm(12), &[20.0; 4])];
    let places = rank([fast, slow].into_iter().chain(others).collect(), Goal::Cpu);
    assert_eq!(places.iter().map(|place| place.group).collect::<Vec<_>>(), [0, 0, 1, 1]);
    assert_eq!(leaders(&places).count(), 2);
    // Behind in every round, by one part in a hundred.
    let (fast, slow) = (spot(CHACHA, &[10.0; 5]), spot(gcm(16), &[10.1; 5]));
    assert_eq!(order(&[fast, slow], Goal::Cpu), [(gcm(16), true), (CHACHA, true)]);
}

/// As an emulated ARM was measured on a busy machine.
#[test]
fn a_plain_difference_decides_although_rounds_were_disturbed() {
    let (fast, slow) = (spot(CHACHA, &[22.0, 90.0, 21.0, 23.0]), spot(gcm(16), &[53.0, 54.0, 20.0, 52.0]));
    assert_eq!(order(&[slow, fast], Goal::Cpu), [(CHACHA, false), (gcm(16), false)]);
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

/// Words of a proposal that no advice may have: RFC 8221 sections 5 and 6, RFC 8247 sections 2.1 to 2.4.
fn forbidden_words(lines: &Settings, integrity_only: bool) -> Vec<&str> {
    let words = |line| str::split(line, [',', '-']);
    let never = ["des", "md5", "modp768", "modp1024", "modp1536", "dh22"];
    let ike = words(&lines.ike).filter(|word| never.contains(word) || *word == "null");
    let esp = words(&lines.esp)
        .filter(|word| never.contains(word) || *word == "3des" || (*word == "null" && !integrity_only));
    ike.chain(esp).collect()
}

proptest! {
    /// Whatever is measured and wanted, whatever the profile and whatever processor it is taken for: nothing that RFC 8221 says MUST NOT or SHOULD NOT to has a
    /// place, nothing is first that is on its way out if there is anything else, and NULL has a place only if it was asked for.
    #[test]
    fn nothing_forbidden_has_a_place(
        goal in prop::sample::select(Goal::ALL.to_vec()),
        profile in prop::sample::select(Profile::built_in().unwrap()),
        as_if in (any::<bool>(), prop::option::of(1.0f64..100_000.0)),
        keying in prop::sample::select(vec![Keying::Negotiated, Keying::Manual]),
        integrity_only: bool,
        behind_nat: bool,
        kex_prices in prop::collection::vec(1.0f64..100.0, KexMethod::ALL.len()),
        prices in prop::collection::vec(1.0f64..100.0, suites::all().len()),
    ) {
        let filter = Filter::new(Some(profile), integrity_only).unwrap();
        let as_if = AsIf { no_aes: as_if.0, clock_mhz: as_if.1 };
        let slower = as_if.slower(Some(2_100.0)).unwrap();
        let use_case = UseCase { mix: Mix::simple(), mode: Mode::Tunnel, version: IpVersion::V4, behind_nat };
        let measured: Vec<Costs> = suites::all().into_iter().zip(&prices)
            .map(|(suite, price)| {
                let price = if as_if.no_aes && suite.to_string().contains("AES") { price * 20.0 } else { *price };
                costs(suite, is_forbidden(suite), price).slowed(slower)
            })
            .collect();
        let candidates = suites::sort(&filter, keying).candidates;
        let spots = candidates.iter().filter_map(|candidate| Spot::of(candidate, &measured, goal, &use_case)).collect();
        let places = rank(spots, goal);
        prop_assert!(!places.is_empty() || keying == Keying::Manual);
        prop_assert!(places.iter().all(|place| !is_forbidden(place.spot.suite)));
        let is_null = |place: &Place| matches!(place.spot.suite, EspSuite::Separate(CipherAlg::Null, _));
        prop_assert!(integrity_only || !places.iter().any(is_null));
        let leaving: Vec<bool> = places.iter().map(|place| place.spot.admitted.status.is_leaving()).collect();
        prop_assert!(leaving.is_sorted(), "{leaving:?}");
        let is_counter = |place: &Place| keying == Keying::Manual && place.spot.suite.iv_is_counter();
        prop_assert!(!places.iter().any(is_counter), "RFC 8221 section 3");
        let kex: Vec<KexCost> = KexMethod::ALL.into_iter().zip(&kex_prices)
            .map(|(method, price)| KexCost { method, micros: Spread::of([*price]).unwrap() }).collect();
        if let Some(lines) = Settings::of(&places, &measured, &kex, &filter, &use_case) {
            let forbidden = forbidden_words(&lines, integrity_only);
            prop_assert!(forbidden.is_empty(), "{forbidden:?} in {lines:?}");
        }
    }
}
