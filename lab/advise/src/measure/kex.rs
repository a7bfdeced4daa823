//! What a key exchange costs, which an IKE SA pays when it begins and when it is rekeyed.

use casemate_crypto::{KexMethod, Provider, Providers};
use casemate_linux::rng::SystemRng;
use casemate_measure::harness::{self, Load, time};
use casemate_measure::spread::Spread;
use std::ops::RangeInclusive;
use std::time::Duration;

/// Those that are measured: the larger groups take a good part of a second, and Curve448 no provider has.
const METHODS: [KexMethod; 7] = [
    KexMethod::X25519,
    KexMethod::EcpP256,
    KexMethod::EcpP384,
    KexMethod::EcpP521,
    KexMethod::Modp2048,
    KexMethod::Modp3072,
    KexMethod::Modp4096,
];

/// A method and its price.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct KexCost {
    /// The method.
    pub method: KexMethod,
    /// Making a private value with its public one and agreeing on a secret, in microseconds: what one side does.
    pub micros: Spread,
}

/// What measuring them should take, and the fewest and most rounds. One exchange is a turn.
const BUDGET: Duration = Duration::from_millis(500);
const ROUNDS: RangeInclusive<usize> = 1..=9;

/// Measures every method that a provider has, cheapest first. `slower` is how many times as slow the processor is that is asked
/// about.
pub fn key_exchanges(providers: &[&dyn Provider], slower: f64) -> Vec<KexCost> {
    let (methods, mut loads): (Vec<KexMethod>, Vec<Box<dyn Load + '_>>) =
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

/// One side of an exchange with a peer whose public value is always the same.
struct Exchange<'p> {
    method: KexMethod,
    providers: Providers<'p>,
    rng: SystemRng,
    peer: Vec<u8>,
}

impl<'p> Exchange<'p> {
    fn boxed(method: KexMethod, providers: &'p [&'p dyn Provider]) -> Option<Box<dyn Load + 'p>> {
        let (providers, mut rng) = (Providers(providers), SystemRng::new().ok()?);
        let peer = providers.kex(method, &mut rng).ok()?.public().to_vec();
        Some(Box::new(Self { method, providers, rng, peer }))
    }
}

impl Load for Exchange<'_> {
    fn run(&mut self) -> (Duration, u32) {
        let Self { method, providers, rng, peer } = self;
        let mut agreed = false;
        let spent = time(|| {
            agreed = providers.kex(*method, rng).is_ok_and(|secret| secret.agree(peer).is_ok());
        });
        (spent, u32::from(agreed))
    }
}
