//! Broken builds, to prove that the invariants notice. Nothing that ships is touched: what is broken is what the endpoints
//! borrow, what they are told, or the wire.

use crate::plan::{Plan, Shape, Trouble, Weather};
use crate::style::{Layout, Protection, Style, VirtualAddrs};
use casemate_crypto::{
    AeadAlg, AeadJob, AeadKey, CipherAlg, CipherKey, Digest, EtmKey, HashAlg, KexMethod, KexSecret, KeyError,
    MacAlg, MacKey, Outcome, Provider, Rng,
};
use casemate_datapath::Unmatched;
use casemate_ike::config::{Connection, Fragmentation, Pool, Unique};
use casemate_rustcrypto::RUSTCRYPTO;
use std::sync::Arc;
use std::time::Duration;

/// What is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sabotage {
    /// Combined-mode ciphers accept every tag.
    AnyTag,
    /// No replay check.
    NoReplayCheck,
    /// After a restart, all random numbers come again.
    FrozenDice,
    /// What no policy names passes.
    NoFirewall,
    /// Nobody asks whether its peer lives.
    NoLiveness,
    /// A request goes out once more with the same number and the same IV, but with other contents.
    OtherContents,
    /// While Child SAs are replaced, a packet is lost at the endpoint.
    BreakBeforeMake,
    /// Nobody writes down the sequence numbers of SAs with manual keys.
    NumbersAgain,
    /// A provider panics.
    Panic,
    /// Whoever has any key is trusted.
    TrustAll,
    /// Nobody is authenticated anew.
    NoReauth,
    /// IKE SAs with the same peer stay beside each other.
    NotUnique,
    /// IKE messages are never cut.
    WholeMessages,
    /// A virtual address goes to two clients.
    SharedAddress,
    /// There is no virtual address for anybody.
    NoAddress,
    /// What may pass in clear is protected like the rest, and what may not pass at all, too.
    NoShunts,
}

impl Sabotage {
    /// The provider of a build that is not broken.
    pub(crate) const HONEST: &'static dyn Provider = &RUSTCRYPTO;

    /// All of them.
    pub const ALL: [Self; 16] = [
        Self::AnyTag,
        Self::NoReplayCheck,
        Self::FrozenDice,
        Self::NoFirewall,
        Self::NoLiveness,
        Self::OtherContents,
        Self::BreakBeforeMake,
        Self::NumbersAgain,
        Self::Panic,
        Self::TrustAll,
        Self::NoReauth,
        Self::NotUnique,
        Self::WholeMessages,
        Self::SharedAddress,
        Self::NoAddress,
        Self::NoShunts,
    ];

    /// The algorithms.
    pub(crate) fn provider(self) -> &'static dyn Provider {
        match self {
            Self::AnyTag => &Wrapped { panics: false },
            Self::Panic => &Wrapped { panics: true },
            _ => Self::HONEST,
        }
    }

    /// What passes that no policy names.
    pub(crate) fn unmatched(self) -> Unmatched {
        if self == Self::NoFirewall { Unmatched::PassAll } else { Unmatched::Discard }
    }

    /// Makes a run one in which the breakage can show.
    pub(crate) fn prepare(self, plan: &mut Plan) {
        let style = &mut plan.style;
        style.protection = Protection::Combined;
        match self {
            Self::AnyTag => plan.weather.changed = 200,
            Self::NoReplayCheck => plan.weather.twice = 200,
            Self::FrozenDice => plan.trouble.restarts = 50,
            Self::NoFirewall | Self::OtherContents | Self::Panic => {}
            Self::NumbersAgain => {
                (plan.shape, style.manual, style.layout) = (Shape::Sites, true, Layout::Networks);
                (style.nat, style.virtual_addrs) = (false, VirtualAddrs::No);
                plan.trouble = Trouble { restarts: 50, ..Trouble::default() };
            }
            Self::TrustAll => (plan.shape, style.stranger) = (Shape::Clients(2), true),
            Self::NoReauth => {
                style.reauth = Some(Duration::from_secs(60));
                plan.trouble = Trouble::default();
            }
            Self::NotUnique => {
                (plan.shape, style.unique) = (Shape::Clients(1), Unique::Replace);
                style.stranger = false;
                style.live_long();
                plan.trouble = Trouble { restarts: 50, ..Trouble::default() };
            }
            Self::WholeMessages => style.fragment_bytes = 256,
            Self::SharedAddress | Self::NoAddress => {
                plan.shape = Shape::Clients(2);
                (style.virtual_addrs, style.stranger) = (VirtualAddrs::Plenty, false);
                (style.layout, style.children, style.traps) = (Layout::Networks, 1, false);
                (style.shunts, style.unique) = (false, Unique::Replace);
            }
            Self::NoShunts => (style.layout, style.shunts) = (Layout::Networks, true),

            Self::NoLiveness => {
                style.live_long();
                plan.trouble = Trouble { restarts: 20, ..Trouble::default() };
            }
            Self::BreakBeforeMake => {
                (plan.weather, plan.trouble) = (Weather::FAIR, Trouble::GENTLE);
            }
        }
    }

    /// A message that goes out beside this one.
    pub(crate) fn resend(self, message: &[u8]) -> Option<Vec<u8>> {
        if self != Self::OtherContents {
            return None;
        }
        let mut other = message.to_vec();
        *other.last_mut()? ^= 1;
        Some(other)
    }

    /// The configuration.
    pub(crate) fn change(self, connection: Arc<Connection>) -> Arc<Connection> {
        let mut changed = (*connection).clone();
        match self {
            Self::NoLiveness => changed.dpd_delay = None,
            Self::NoReauth => changed.reauth = None,
            Self::NotUnique => (changed.unique, changed.dpd_delay) = (Unique::Never, None),
            Self::WholeMessages => changed.fragmentation = Fragmentation::Accept,
            Self::NoShunts => changed.shunts.clear(),
            Self::SharedAddress => changed.pools.iter_mut().for_each(|pool| pool.push_str(&changed.name)),
            Self::NoAddress => changed.pools.clear(),
            Self::NoReplayCheck => {
                changed.children.iter_mut().for_each(|child| Arc::make_mut(child).replay_window = 0);
            }
            _ => return connection,
        }
        Arc::new(changed)
    }

    /// The pools of virtual addresses.
    pub(crate) fn change_pools(self, pools: &mut Vec<Pool>) {
        if self == Self::SharedAddress {
            let one = |pool: &Pool| {
                [1, 2].map(|peer| Pool { name: format!("{}to{peer}", pool.name), ..pool.clone() })
            };
            *pools = pools.iter().flat_map(one).collect();
        }
    }
}

impl Style {
    /// Nothing ends in its time: a rekeying would notice as well that the peer has forgotten everything.
    fn live_long(&mut self) {
        // Longer than any run.
        let long = Duration::from_secs(10_000);
        (self.child_life, self.ike_life) = (long, long);
        (self.rekey_packets, self.reauth) = (None, None);
    }
}

/// The honest provider, but for its combined-mode ciphers.
struct Wrapped {
    panics: bool,
}

impl Provider for Wrapped {
    fn name(&self) -> &'static str {
        "broken"
    }

    fn aead(&self, alg: AeadAlg, key: &[u8]) -> Result<Box<dyn AeadKey>, KeyError> {
        assert!(!self.panics, "a provider that panics");
        RUSTCRYPTO.aead(alg, key).map(|key| Box::new(AnyTag(key)) as Box<dyn AeadKey>)
    }

    fn cipher(&self, alg: CipherAlg, key: &[u8]) -> Result<Box<dyn CipherKey>, KeyError> {
        RUSTCRYPTO.cipher(alg, key)
    }

    fn mac(&self, alg: MacAlg, key: &[u8]) -> Result<Box<dyn MacKey>, KeyError> {
        RUSTCRYPTO.mac(alg, key)
    }

    fn etm(
        &self,
        cipher: CipherAlg,
        key: &[u8],
        mac: MacAlg,
        mac_key: &[u8],
    ) -> Result<Box<dyn EtmKey>, KeyError> {
        RUSTCRYPTO.etm(cipher, key, mac, mac_key)
    }

    fn kex(&self, method: KexMethod, rng: &mut dyn Rng) -> Result<Box<dyn KexSecret>, KeyError> {
        RUSTCRYPTO.kex(method, rng)
    }

    fn hash(&self, alg: HashAlg, parts: &[&[u8]]) -> Option<Digest> {
        RUSTCRYPTO.hash(alg, parts)
    }
}

struct AnyTag(Box<dyn AeadKey>);

impl AeadKey for AnyTag {
    fn seal(&self, jobs: &mut [AeadJob<'_>]) {
        self.0.seal(jobs);
    }

    fn open(&self, jobs: &mut [AeadJob<'_>]) {
        // These ciphers are a key stream: to encrypt once more is to decrypt.
        self.0.seal(jobs);
        jobs.iter_mut().for_each(|job| job.outcome = Outcome::Done);
    }
}
