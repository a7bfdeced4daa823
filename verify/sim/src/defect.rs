//! Defects that a run injects to prove that the invariants detect them. Shipped code stays untouched: a
//! defect replaces the provider, the random source, the configuration, or datagrams.

use crate::plan::{Disruptions, NetworkConditions, Plan, Topology};
use crate::plan::{Layout, PerNode, Protection, Setup, VirtualAddrs};
use crate::post_quantum::Requirement;
use casemate_aws_lc::AWS_LC;
use casemate_crypto::{
    AeadAlg, AeadJob, AeadKey, CipherAlg, CipherKey, Digest, EtmKey, HashAlg, JobStatus, KexError, KexMethod,
    KexResponse, KexSecret, KeyError, MacAlg, MacKey, Provider, Rng, SecretBytes,
};
use casemate_datapath::Unmatched;
use casemate_ike::config::{Connection, Fragmentation, PpkPolicy, Unique};
use casemate_rustcrypto::RUSTCRYPTO;
use std::sync::Arc;
use std::time::Duration;

/// Defect to inject.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Defect {
    /// AEAD ciphers accept every tag.
    AcceptAnyTag,
    /// Replay protection is off.
    NoReplayProtection,
    /// After a restart, the random source repeats its output.
    RepeatedRandomness,
    /// Packets that match no policy pass.
    PassUnmatched,
    /// Liveness checks are off.
    NoLiveness,
    /// A request is sent again with the same message ID and IV, but with other contents.
    ChangedRetransmission,
    /// The endpoint drops some outbound packets.
    PacketLoss,
    /// A restart resets the sequence numbers of SAs with manual keys.
    RepeatedSequenceNumbers,
    /// The provider panics.
    Panic,
    /// The nodes trust every key.
    TrustAll,
    /// Reauthentication is off.
    NoReauth,
    /// IKE SAs with the same peer are not unique.
    NotUnique,
    /// IKE messages are never fragmented.
    NoFragmentation,
    /// No client gets a virtual address.
    NoAddress,
    /// Shunts are removed, so that their traffic is protected.
    NoShunts,
    /// Additional key exchanges are left out.
    NoAdditionalKexes,
    /// The responder of a key exchange with ML-KEM has another secret than the initiator.
    OtherSecret,
    /// PPKs are left out.
    NoPpk,
    /// Nodes accept less than they require.
    NothingRequired,
    /// The same session is resumed twice.
    ResumedTwice,
}

impl Defect {
    /// Provider without defects.
    const CORRECT: &'static dyn Provider = &RUSTCRYPTO;
    /// Provider of key exchanges. AWS-LC draws the same private values as RustCrypto, and is several times
    /// faster: key exchanges took most of the time of a run.
    const KEY_EXCHANGE: &'static dyn Provider = &KeyExchange { has_other_secret: false };

    /// Providers of a node with this defect.
    pub(crate) fn providers(defect: Option<Self>) -> [&'static dyn Provider; 2] {
        let kex: &'static dyn Provider = match defect {
            Some(Self::OtherSecret) => &KeyExchange { has_other_secret: true },
            _ => Self::KEY_EXCHANGE,
        };
        [kex, defect.map_or(Self::CORRECT, Self::provider)]
    }

    /// All defects.
    pub const ALL: [Self; 20] = [
        Self::AcceptAnyTag,
        Self::NoReplayProtection,
        Self::RepeatedRandomness,
        Self::PassUnmatched,
        Self::NoLiveness,
        Self::ChangedRetransmission,
        Self::PacketLoss,
        Self::RepeatedSequenceNumbers,
        Self::Panic,
        Self::TrustAll,
        Self::NoReauth,
        Self::NotUnique,
        Self::NoFragmentation,
        Self::NoAddress,
        Self::NoShunts,
        Self::NoAdditionalKexes,
        Self::OtherSecret,
        Self::NoPpk,
        Self::NothingRequired,
        Self::ResumedTwice,
    ];

    /// Provider of everything but key exchanges.
    fn provider(self) -> &'static dyn Provider {
        match self {
            Self::AcceptAnyTag => &DefectiveProvider { panics: false },
            Self::Panic => &DefectiveProvider { panics: true },
            _ => Self::CORRECT,
        }
    }

    /// Action for packets that match no policy.
    pub(crate) fn unmatched(self) -> Unmatched {
        if self == Self::PassUnmatched { Unmatched::PassAll } else { Unmatched::Discard }
    }

    /// Changes the plan so that the defect can show.
    pub(crate) fn prepare(self, plan: &mut Plan) {
        let setup = &mut plan.setup;
        setup.protection = Protection::Combined;
        match self {
            Self::AcceptAnyTag => plan.conditions.corrupt = 200,
            Self::NoReplayProtection => plan.conditions.duplicate = 200,
            Self::RepeatedRandomness => plan.disruptions.restarts = 50,
            Self::PassUnmatched | Self::ChangedRetransmission | Self::Panic => {}
            Self::RepeatedSequenceNumbers => {
                (plan.topology, setup.manual, setup.layout) = (Topology::Sites, true, Layout::Networks);
                (setup.nat, setup.virtual_addrs) = (false, VirtualAddrs::No);
                plan.disruptions = Disruptions { restarts: 50, ..Disruptions::default() };
            }
            Self::TrustAll => (plan.topology, setup.untrusted) = (Topology::Clients(2), true),
            Self::NoReauth => {
                setup.reauth = Some(Duration::from_secs(60));
                plan.disruptions = Disruptions::default();
            }
            Self::NotUnique => {
                (plan.topology, setup.unique) = (Topology::Clients(1), Unique::Replace);
                setup.untrusted = false;
                setup.disable_expiry();
                plan.disruptions = Disruptions { restarts: 50, ..Disruptions::default() };
            }
            Self::NoFragmentation => setup.fragment_bytes = 256,
            Self::NoAddress => {
                plan.topology = Topology::Clients(2);
                (setup.virtual_addrs, setup.untrusted) = (VirtualAddrs::Plenty, false);
                (setup.layout, setup.children, setup.traps) = (Layout::Networks, 1, false);
                (setup.shunts, setup.unique) = (false, Unique::Replace);
            }
            Self::NoShunts => (setup.layout, setup.shunts) = (Layout::Networks, true),
            Self::NoAdditionalKexes => {
                (setup.post_quantum.ike, setup.post_quantum.child) = (PerNode::OPTIONAL, PerNode::OPTIONAL);
            }
            Self::OtherSecret => {
                // IKE SAs without ML-KEM, because no peer would be authenticated.
                (setup.post_quantum.ike, setup.post_quantum.child) = (PerNode::NEVER, PerNode::OPTIONAL);
                setup.pfs = true;
            }
            Self::NoPpk => setup.post_quantum.ppk = PerNode::OPTIONAL,
            Self::NothingRequired => {
                setup.post_quantum.ike = PerNode { first: Requirement::Never, others: Requirement::Required };
            }
            Self::ResumedTwice => {
                (setup.tickets, setup.certificates, setup.untrusted) = (true, false, false);
                plan.disruptions = Disruptions { outages: 30, ..Disruptions::default() };
            }
            Self::NoLiveness => {
                setup.disable_expiry();
                plan.disruptions = Disruptions { restarts: 20, ..Disruptions::default() };
            }
            Self::PacketLoss => {
                (plan.conditions, plan.disruptions) = (NetworkConditions::PERFECT, Disruptions::ONLY_REKEYS);
            }
        }
    }

    /// Additional message to record beside a sent message; none without
    /// [`ChangedRetransmission`](Self::ChangedRetransmission).
    pub(crate) fn resend(self, message: &[u8]) -> Option<Vec<u8>> {
        if self != Self::ChangedRetransmission {
            return None;
        }
        let mut other = message.to_vec();
        *other.last_mut()? ^= 1;
        Some(other)
    }

    /// Changes a connection.
    pub(crate) fn change(self, connection: Arc<Connection>) -> Arc<Connection> {
        let mut changed = (*connection).clone();
        match self {
            Self::NoLiveness => changed.dpd_delay = None,
            Self::NoReauth => changed.reauth = None,
            Self::NotUnique => (changed.unique, changed.dpd_delay) = (Unique::Never, None),
            Self::NoFragmentation => changed.fragmentation = Fragmentation::Accept,
            Self::NoShunts => changed.shunts.clear(),
            Self::NoAddress => changed.pools.clear(),
            Self::NoPpk => changed.ppk = PpkPolicy::default(),
            Self::NoAdditionalKexes => {
                changed.proposals.iter_mut().for_each(|proposal| proposal.additional.clear());
            }
            Self::NothingRequired => {
                let rounds =
                    changed.proposals.iter_mut().flat_map(|proposal| proposal.additional.values_mut());
                rounds.for_each(|kex| kex.optional = true);
            }
            Self::NoReplayProtection => {
                changed.children.iter_mut().for_each(|child| Arc::make_mut(child).replay_window = 0);
            }
            _ => return connection,
        }
        Arc::new(changed)
    }
}

impl Setup {
    /// Disables expiry and rekeying, which would also detect that the peer lost its state.
    fn disable_expiry(&mut self) {
        // Longer than any run.
        let long = Duration::from_secs(10_000);
        (self.child_life, self.ike_life) = (long, long);
        (self.rekey_packets, self.reauth) = (None, None);
    }
}

/// Key exchanges of AWS-LC, and nothing else.
struct KeyExchange {
    /// Whether the responder of a key exchange with ML-KEM has another secret than the initiator.
    has_other_secret: bool,
}

impl Provider for KeyExchange {
    fn name(&self) -> &'static str {
        AWS_LC.name()
    }

    fn kex(&self, method: KexMethod, rng: &mut dyn Rng) -> Result<Box<dyn KexSecret>, KeyError> {
        AWS_LC.kex(method, rng)
    }

    fn kex_response(
        &self,
        method: KexMethod,
        peer: &[u8],
        rng: &mut dyn Rng,
    ) -> Result<KexResponse, KexError> {
        let response = AWS_LC.kex_response(method, peer, rng)?;
        let is_ml_kem = matches!(method, KexMethod::MlKem512 | KexMethod::MlKem768 | KexMethod::MlKem1024);
        if self.has_other_secret && is_ml_kem {
            return Ok(KexResponse { shared: SecretBytes::new(&[0; 32]), ..response });
        }
        Ok(response)
    }
}

/// The correct provider, except for its AEAD ciphers.
struct DefectiveProvider {
    panics: bool,
}

impl Provider for DefectiveProvider {
    fn name(&self) -> &'static str {
        "broken"
    }

    fn aead(&self, alg: AeadAlg, key: &[u8]) -> Result<Box<dyn AeadKey>, KeyError> {
        assert!(!self.panics, "injected panic of the provider");
        RUSTCRYPTO.aead(alg, key).map(|key| Box::new(AcceptAnyTag(key)) as Box<dyn AeadKey>)
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

    fn hash(&self, alg: HashAlg, parts: &[&[u8]]) -> Option<Digest> {
        RUSTCRYPTO.hash(alg, parts)
    }
}

struct AcceptAnyTag(Box<dyn AeadKey>);

impl AeadKey for AcceptAnyTag {
    fn seal(&self, jobs: &mut [AeadJob<'_>]) {
        self.0.seal(jobs);
    }

    fn open(&self, jobs: &mut [AeadJob<'_>]) {
        // These ciphers are key streams, so encrypting again decrypts.
        self.0.seal(jobs);
        jobs.iter_mut().for_each(|job| job.status = JobStatus::Done);
    }
}
