//! Cost of the key exchange that sets up or rekeys an IKE SA.

use casemate_crypto::{KexMethod, Provider, Providers};
use casemate_linux::process::SystemRng;
use casemate_measure::harness::{self, Workload, time};
use casemate_measure::stats::Spread;
use std::ops::RangeInclusive;
use std::time::Duration;

/// Measured methods. Larger groups take a large part of a second, and no provider supports Curve448.
const METHODS: [KexMethod; 7] = [
    KexMethod::X25519,
    KexMethod::EcpP256,
    KexMethod::EcpP384,
    KexMethod::EcpP521,
    KexMethod::Modp2048,
    KexMethod::Modp3072,
    KexMethod::Modp4096,
];

/// Cost of a method.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct KexCost {
    /// Key exchange method.
    pub method: KexMethod,
    /// Time of one side in microseconds: generating a key pair and computing the shared secret.
    pub micros: Spread,
}

/// Time budget and limits of the number of rounds. One exchange is one turn.
const BUDGET: Duration = Duration::from_millis(500);
const ROUNDS: RangeInclusive<usize> = 1..=9;

/// Measures every method that a provider supports and returns them cheapest first. The times are multiplied
/// by `slower`, the slowdown of the simulated processor.
pub fn measure_key_exchanges(providers: &[&dyn Provider], slower: f64) -> Vec<KexCost> {
    let (methods, mut loads): (Vec<KexMethod>, Vec<Box<dyn Workload + '_>>) =
        METHODS.into_iter().filter_map(|method| Some((method, Exchange::boxed(method, providers)?))).unzip();
    let series = harness::measure_within(&mut loads, Duration::from_nanos(1), BUDGET, ROUNDS, |_| {});
    let cost = |(method, series): (KexMethod, harness::Series)| {
        let micros = Spread::of(series.samples().iter().map(|nanos| nanos / 1e3 * slower))?;
        Some(KexCost { method, micros })
    };
    let mut costs: Vec<KexCost> = methods.into_iter().zip(series).filter_map(cost).collect();
    costs.sort_by(|a, b| a.micros.median.total_cmp(&b.micros.median));
    costs
}

/// One side of a key exchange with a peer whose public value is constant.
struct Exchange<'p> {
    method: KexMethod,
    providers: Providers<'p>,
    rng: SystemRng,
    peer: Vec<u8>,
}

impl<'p> Exchange<'p> {
    fn boxed(method: KexMethod, providers: &'p [&'p dyn Provider]) -> Option<Box<dyn Workload + 'p>> {
        let (providers, mut rng) = (Providers(providers), SystemRng::new().ok()?);
        let peer = providers.kex(method, &mut rng).ok()?.public().to_vec();
        Some(Box::new(Self { method, providers, rng, peer }))
    }
}

impl Workload for Exchange<'_> {
    fn run(&mut self) -> (Duration, u32) {
        let Self { method, providers, rng, peer } = self;
        let mut agreed = false;
        let spent = time(|| {
            agreed = providers.kex(*method, rng).is_ok_and(|secret| secret.agree(peer).is_ok());
        });
        (spent, u32::from(agreed))
    }
}
