use super::*;
use crate::rules::{Filter, Keying};
use casemate_crypto::{AeadAlg, AesBits};

const CHACHA: EspSuite = EspSuite::Combined(AeadAlg::ChaCha20Poly1305);

const fn gcm(icv: u8) -> EspSuite {
    EspSuite::Combined(AeadAlg::AesGcm { bits: AesBits::B128, icv })
}

fn spot(suite: EspSuite, median: f64) -> Spot {
    let admitted = Filter::new(None, false).unwrap().esp(suite, Keying::Negotiated).unwrap();
    Spot { suite, admitted, scores: vec![median], median, cpu: median, bytes: 1.0 }
}

fn contender(suite: EspSuite, packets_per_second: [f64; 3]) -> Contender {
    let turn = |packets_per_second| Turn {
        packets_per_second,
        cpu_us: 1e6 / packets_per_second,
        round_trip_us: 100.0,
        stream_gbit_per_second: 1.0,
    };
    Contender { suite, turns: packets_per_second.map(turn).to_vec() }
}

#[test]
fn one_of_each_kind_is_compared() {
    let spots = [spot(gcm(16), 1.0), spot(gcm(8), 1.0), spot(CHACHA, 2.0)];
    let places = rank(spots.to_vec(), Goal::Cpu);
    let chosen: Vec<EspSuite> = contenders(&places).into_iter().map(|spot| spot.suite).collect();
    assert_eq!(chosen, [gcm(16), CHACHA]);
}

#[test]
fn two_measurements_agree_or_not() {
    let spots = [spot(gcm(16), 1.0), spot(CHACHA, 2.0)];
    let of = |goal, of_gcm, of_chacha| {
        // The order of turns is not that of the ranking.
        let contenders = vec![contender(CHACHA, of_chacha), contender(gcm(16), of_gcm)];
        Thorough::of(contenders, &spots, goal)
    };
    let faster = of(Goal::Throughput, [200.0; 3], [100.0; 3]);
    assert!(faster.agrees && faster.verdict() == "ENCR_AES_GCM_16-128 is first end to end as well.");
    let slower = of(Goal::Throughput, [100.0; 3], [200.0; 3]);
    assert!(!slower.agrees && slower.verdict().starts_with("End to end ENCR_CHACHA20_POLY1305 is first"));
    let same = of(Goal::Latency, [200.0; 3], [100.0; 3]);
    assert!(same.agrees && same.verdict().contains("ties"), "{}", same.verdict());
}

/// Where a rule decides between suites that tie, it does not matter which of them it puts first.
#[test]
fn who_ties_with_the_first_is_as_good() {
    let spots = [spot(CHACHA, 1.0), spot(gcm(16), 2.0)];
    let of = |of_gcm| {
        let contenders = vec![contender(CHACHA, [200.0; 3]), contender(gcm(16), of_gcm)];
        Thorough::of(contenders, &spots, Goal::Throughput)
    };
    let tied = of([199.0; 3]);
    assert_eq!(tied.places[0].spot.suite, gcm(16), "the stronger level");
    assert!(
        tied.agrees
            && tied
                .verdict()
                .starts_with("ENCR_CHACHA20_POLY1305 is first end to end as well, where it ties")
    );
    assert!(!of([300.0; 3]).agrees);
}
