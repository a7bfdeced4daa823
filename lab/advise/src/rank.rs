//! Ranking of suites by score. Differences that the measurement does not prove are ties.

use crate::goal::{Goal, UseCase};
use crate::measure::Costs;
use crate::rules::{Admitted, RequirementLevel};
use crate::suites::{Candidate, family};
use casemate_crypto::EspSuite;
use std::cmp::Ordering;

/// Smaller relative differences are ties even if every round shows them: another build may reverse them, and
/// they do not justify a lower requirement level.
const TIE: f64 = 0.05;
/// A suite that is behind in a smaller share of the rounds is not behind.
const MIN_ROUNDS_BEHIND: f64 = 0.75;
/// A relative difference from which on suites do not tie, even if some rounds contradict it. Those were
/// disturbed.
const CLEAR_DIFFERENCE: f64 = 0.5;
/// Two key lengths of one cipher tie unless the longer key costs this much more: it does the same work with a
/// few more rounds, and where the difference is smaller, the safer key is worth more.
const KEY_LENGTH_TIE: f64 = 0.25;

/// A suite with its score.
#[derive(Debug, Clone, PartialEq)]
pub struct ScoredSuite {
    /// ESP suite.
    pub suite: EspSuite,
    /// Verdict of the rules.
    pub admitted: Admitted,
    /// Score of each round. Less is better.
    pub scores: Vec<f64>,
    /// Score on an undisturbed machine, which decides.
    pub score: f64,
    /// CPU time per byte, a tie-breaker.
    pub cpu: f64,
    /// Bytes on the wire per byte, the last tie-breaker.
    pub bytes: f64,
}

/// A suite with its rank.
#[derive(Debug, Clone, PartialEq)]
pub struct RankedSuite {
    /// The suite and its score.
    pub scored: ScoredSuite,
    /// Relative distance to the first suite: 0 is equal, 1 is twice the score. Negative if a rule has placed
    /// the suite behind a worse one.
    pub gap: f64,
    /// Whether the suite ties with the best of its group, so that a rule decided the order.
    pub is_tied: bool,
    /// Index of the group.
    pub group: usize,
}

/// Returns the first suite and all suites that tie with it.
pub fn leaders(places: &[RankedSuite]) -> impl Iterator<Item = &RankedSuite> {
    places.iter().take_while(|place| place.group == 0)
}

impl ScoredSuite {
    /// Scores a candidate. Returns `None` if it was not measured.
    pub fn new(candidate: &Candidate, measured: &[Costs], goal: Goal, use_case: &UseCase) -> Option<Self> {
        let costs = measured.iter().find(|costs| costs.suite == candidate.suite)?;
        let score = |goal: Goal| goal.undisturbed_score(costs, use_case);
        Some(Self {
            suite: candidate.suite,
            admitted: candidate.admitted.clone(),
            scores: goal.scores(costs, use_case),
            score: score(goal)?,
            cpu: score(Goal::Cpu)?,
            bytes: score(Goal::Bytes)?,
        })
    }

    /// Whether the suite is a MUST, so that every peer supports it.
    pub fn is_mandatory(&self) -> bool {
        self.admitted.status == RequirementLevel::Must
    }

    /// Order by score. Suites that are being phased out come last.
    pub fn compare(a: &Self, b: &Self) -> Ordering {
        let key = |scored: &Self| (scored.admitted.status.is_being_phased_out(), scored.score, scored.cpu);
        let (a, b) = (key(a), key(b));
        a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)).then(a.2.total_cmp(&b.2))
    }

    /// Whether the measurement does not prove that this suite is worse than `best`.
    fn ties_with(&self, best: &Self) -> bool {
        let pairs: Vec<(f64, f64)> = self.scores.iter().copied().zip(best.scores.iter().copied()).collect();
        let behind = pairs.iter().filter(|(own, best)| own > best).count() as f64;
        let ratio = self.score / best.score;
        let tie = if is_same_cipher(self.suite, best.suite) { KEY_LENGTH_TIE } else { TIE };
        ratio < 1.0 + tie || ratio < 1.0 + CLEAR_DIFFERENCE && behind < MIN_ROUNDS_BEHIND * pairs.len() as f64
    }
}

/// Whether two suites differ in the length of the key or ICV of their cipher only.
fn is_same_cipher(a: EspSuite, b: EspSuite) -> bool {
    let mac = |suite| match suite {
        EspSuite::Separate(_, mac) => Some(mac),
        EspSuite::Combined(_) | EspSuite::ImplicitIv(_) => None,
    };
    family(a) == family(b) && mac(a) == mac(b)
}

/// Sorts tied suites: higher requirement level, then the cipher with less CPU time, and of one cipher the
/// longer key first, then shorter packets.
fn sort_tied(group: &mut [ScoredSuite]) {
    let cheapest = |suite: EspSuite, all: &[ScoredSuite]| {
        let same = all.iter().filter(|other| is_same_cipher(other.suite, suite));
        same.map(|other| other.cpu).fold(f64::INFINITY, f64::min)
    };
    let all = group.to_vec();
    group.sort_by(|a, b| {
        let level = b.admitted.status.cmp(&a.admitted.status);
        let cipher = cheapest(a.suite, &all).total_cmp(&cheapest(b.suite, &all));
        let key = b.suite.encr_key_len().cmp(&a.suite.encr_key_len());
        level.then(cipher).then(key).then(a.bytes.total_cmp(&b.bytes)).then(a.cpu.total_cmp(&b.cpu))
    });
}

/// Ranks suites. Computed scores tie only if they are equal.
pub fn rank(mut scored: Vec<ScoredSuite>, goal: Goal) -> Vec<RankedSuite> {
    scored.sort_by(ScoredSuite::compare);
    let ties = |scored: &ScoredSuite, best: &ScoredSuite| {
        let same_class =
            scored.admitted.status.is_being_phased_out() == best.admitted.status.is_being_phased_out();
        let same = if goal.is_exact() { scored.score <= best.score } else { scored.ties_with(best) };
        same_class && same
    };
    let mut places: Vec<RankedSuite> = Vec::new();
    let mut number = 0_usize;
    while let Some(best) = scored.first().cloned() {
        let (mut group, rest): (Vec<_>, Vec<_>) = scored.into_iter().partition(|one| ties(one, &best));
        scored = rest;
        sort_tied(&mut group);
        let is_tied = group.len() > 1;
        places.extend(group.into_iter().map(|scored| RankedSuite {
            scored,
            gap: 0.0,
            is_tied,
            group: number,
        }));
        number = number.wrapping_add(1);
    }
    let first = places.first().map_or(f64::NAN, |place| place.scored.score);
    for place in &mut places {
        place.gap = place.scored.score / first - 1.0;
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::as_if::AsIf;
    use crate::goal::Mix;
    use crate::measure::KexCost;
    use crate::rules::{Filter, Keying, Profile};
    use crate::settings::Settings;
    use crate::suites;
    use casemate_crypto::{AeadAlg, AesBits, CipherAlg, KexMethod, MacAlg, MacKind};
    use casemate_measure::stats::Spread;
    use casemate_sa::Mode;
    use casemate_wire::ip::IpVersion;
    use proptest::prelude::*;

    const CHACHA: EspSuite = EspSuite::Combined(AeadAlg::ChaCha20Poly1305);
    const CBC_SHA1: EspSuite =
        EspSuite::Separate(CipherAlg::AesCbc(AesBits::B128), MacAlg::standard(MacKind::HmacSha1));

    const fn gcm(icv: u8) -> EspSuite {
        EspSuite::Combined(AeadAlg::AesGcm { bits: AesBits::B128, icv })
    }

    fn scored(suite: EspSuite, scores: &[f64]) -> ScoredSuite {
        let filter = Filter::new(None, false).unwrap();
        let median = Spread::of(scores.iter().copied()).unwrap().median;
        let admitted = filter.esp(suite, Keying::Negotiated).unwrap();
        ScoredSuite { suite, admitted, scores: scores.to_vec(), score: median, cpu: median, bytes: 1.0 }
    }

    fn order(scored: &[ScoredSuite], goal: Goal) -> Vec<(EspSuite, bool)> {
        rank(scored.to_vec(), goal).into_iter().map(|place| (place.scored.suite, place.is_tied)).collect()
    }

    #[test]
    fn a_difference_in_every_round_decides() {
        let (fast, slow) =
            (scored(CHACHA, &[10.0, 11.0, 10.0, 12.0]), scored(gcm(16), &[12.0, 13.2, 12.0, 14.4]));
        assert_eq!(order(&[slow, fast], Goal::Cpu), [(CHACHA, false), (gcm(16), false)]);
    }

    #[test]
    fn ties_are_ordered_by_requirement_level() {
        // Behind in two of four rounds.
        let (fast, slow) =
            (scored(CHACHA, &[10.0, 12.0, 10.0, 12.0]), scored(gcm(16), &[12.0, 10.0, 12.0, 12.0]));
        assert_eq!(order(&[fast.clone(), slow.clone()], Goal::Cpu), [(gcm(16), true), (CHACHA, true)]);
        // Another group of two follows.
        let others = [scored(gcm(8), &[20.0; 4]), scored(gcm(12), &[20.0; 4])];
        let places = rank([fast, slow].into_iter().chain(others).collect(), Goal::Cpu);
        assert_eq!(places.iter().map(|place| place.group).collect::<Vec<_>>(), [0, 0, 1, 1]);
        assert_eq!(leaders(&places).count(), 2);
        // Behind by 1 % in every round.
        let (fast, slow) = (scored(CHACHA, &[10.0; 5]), scored(gcm(16), &[10.1; 5]));
        assert_eq!(order(&[fast, slow], Goal::Cpu), [(gcm(16), true), (CHACHA, true)]);
    }

    #[test]
    fn the_longer_key_of_a_cipher_is_first_unless_it_costs_much() {
        let long = EspSuite::Combined(AeadAlg::AesGcm { bits: AesBits::B256, icv: 16 });
        let short = scored(gcm(16), &[10.0; 5]);
        assert_eq!(order(&[short.clone(), scored(long, &[12.0; 5])], Goal::Cpu)[0].0, long);
        assert_eq!(order(&[short.clone(), scored(long, &[13.0; 5])], Goal::Cpu)[0].0, gcm(16));
        // Another cipher between them does not separate them.
        let all = [short, scored(CHACHA, &[10.8; 5]), scored(long, &[11.0; 5])];
        assert_eq!(order(&all, Goal::Cpu), [(long, true), (gcm(16), true), (CHACHA, false)]);
    }

    /// Measurement of an emulated ARM on a busy machine.
    #[test]
    fn a_clear_difference_decides_despite_disturbed_rounds() {
        let (fast, slow) =
            (scored(CHACHA, &[22.0, 90.0, 21.0, 23.0]), scored(gcm(16), &[53.0, 54.0, 20.0, 52.0]));
        assert_eq!(order(&[slow, fast], Goal::Cpu), [(CHACHA, false), (gcm(16), false)]);
    }

    #[test]
    fn computed_scores_tie_only_if_equal() {
        let (short, long) = (scored(gcm(8), &[1.0]), scored(gcm(16), &[1.001]));
        assert_eq!(order(&[long.clone(), short], Goal::Bytes), [(gcm(8), false), (gcm(16), false)]);
        let same = scored(CHACHA, &[1.001]);
        assert_eq!(order(&[same, long], Goal::Bytes), [(gcm(16), true), (CHACHA, true)]);
    }

    #[test]
    fn suites_being_phased_out_come_last() {
        let scored = [scored(CBC_SHA1, &[1.0; 3]), scored(gcm(16), &[10.0; 3]), scored(CHACHA, &[20.0; 3])];
        let places = rank(scored.to_vec(), Goal::Cpu);
        let suites: Vec<EspSuite> = places.iter().map(|place| place.scored.suite).collect();
        assert_eq!(suites, [gcm(16), CHACHA, CBC_SHA1]);
        assert!((places[1].gap - 1.0).abs() < 1e-12 && (places[2].gap + 0.9).abs() < 1e-12);
    }

    /// Costs of a suite with a given price. Suites that the RFCs forbid cost almost nothing.
    fn costs(suite: EspSuite, forbidden: bool, price: f64) -> Costs {
        let price = if forbidden { 1e-3 } else { price };
        let samples: Vec<(usize, f64, f64)> =
            Mix::simple().sizes().map(|size| (size, price * size as f64, price * size as f64)).collect();
        Costs::made_up(suite, &samples)
    }

    /// From the tables of RFC 8221 sections 5 and 6, independent of the profile.
    fn is_forbidden(suite: EspSuite) -> bool {
        match suite {
            EspSuite::Combined(_) | EspSuite::ImplicitIv(_) => false,
            EspSuite::Separate(cipher, mac) => {
                matches!(cipher, CipherAlg::DesCbc | CipherAlg::TripleDesCbc)
                    || mac.kind() == MacKind::HmacMd5
            }
        }
    }

    /// Keywords of a proposal that no advice may contain: RFC 8221 sections 5 and 6, RFC 8247 sections 2.1 to
    /// 2.4.
    fn forbidden_words(lines: &Settings, integrity_only: bool) -> Vec<&str> {
        let words = |line| str::split(line, [',', '-']);
        let never = ["des", "md5", "modp768", "modp1024", "modp1536", "dh22"];
        let ike = words(&lines.ike).filter(|word| never.contains(word) || *word == "null");
        let esp = words(&lines.esp)
            .filter(|word| never.contains(word) || *word == "3des" || (*word == "null" && !integrity_only));
        ike.chain(esp).collect()
    }

    proptest! {
        /// For any measurement, goal, profile and simulated processor: no suite that RFC 8221 forbids (MUST
        /// NOT or SHOULD NOT) is ranked, suites that are being phased out are last, and NULL is ranked only
        /// on request.
        #[test]
        fn forbidden_suites_are_never_ranked(
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
            let slower = as_if.slowdown(Some(2_100.0)).unwrap();
            let (mode, version) = (Mode::Tunnel, IpVersion::V4);
            let use_case = UseCase { mix: Mix::simple(), mode, version, behind_nat };
            let measured: Vec<Costs> = suites::all().into_iter().zip(&prices)
                .map(|(suite, price)| {
                    let is_slow = as_if.no_aes && suite.to_string().contains("AES");
                    let price = if is_slow { price * 20.0 } else { *price };
                    costs(suite, is_forbidden(suite), price).slowed(slower)
                })
                .collect();
            let candidates = suites::classify(&filter, keying, goal, true).candidates;
            let score = |candidate| ScoredSuite::new(candidate, &measured, goal, &use_case);
            let scored = candidates.iter().filter_map(score).collect();
            let places = rank(scored, goal);
            prop_assert!(!places.is_empty() || keying == Keying::Manual);
            prop_assert!(places.iter().all(|place| !is_forbidden(place.scored.suite)));
            let is_null = |place: &RankedSuite| {
                matches!(place.scored.suite, EspSuite::Separate(CipherAlg::Null, _))
            };
            prop_assert!(integrity_only || !places.iter().any(is_null));
            let leaving: Vec<bool> =
                places.iter().map(|place| place.scored.admitted.status.is_being_phased_out()).collect();
            prop_assert!(leaving.is_sorted(), "{leaving:?}");
            let is_counter = |place: &RankedSuite| {
                keying == Keying::Manual && place.scored.suite.iv_is_counter()
            };
            prop_assert!(!places.iter().any(is_counter), "RFC 8221 section 3");
            let kex: Vec<KexCost> = KexMethod::ALL.into_iter().zip(&kex_prices)
                .map(|(method, price)| KexCost::made_up(method, *price)).collect();
            if let Some(lines) = Settings::recommend(&places, &measured, &kex, &filter, &use_case, goal) {
                let forbidden = forbidden_words(&lines, integrity_only);
                prop_assert!(forbidden.is_empty(), "{forbidden:?} in {lines:?}");
            }
        }
    }
}
