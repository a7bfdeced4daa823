//! What C says of a connection, as values that cannot be wrong.

use super::types::{
    CERTIFICATE, ChildSpec, ConnectionSpec, NAME_BYTES, RAW_KEY, SHARED_KEY, START_AT_ONCE, START_ON_TRAFFIC,
};
use crate::Code;
use crate::convert::{flag, mode, optional, protocol};
use crate::host::PROVIDERS;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use casemate::{Authorities, Keys, OwnProof, PeerProof};
use casemate_crypto::der::Reader;
use casemate_crypto::{KeyLimits, PrivateKey, PublicKey, SecretBytes, SigningKey};
use casemate_ike::config::{
    AddrPattern, Child, ChildMode, ChildProposal, Connection, IdPattern, IkeProposal, Lifespan, LocalAuth,
    LocalMethod, OnClose, RemoteAuth, RemoteMethod, Start,
};
use casemate_ike::spelling::{self, proposal, value};
use casemate_ike::{Settings, TrafficTemplate};
use casemate_pki::{LocalCert, LocalFault, Options, StoreLimits, TrustStore, pem};
use casemate_sa::{AddrRange, Mode, Protocol};
use core::time::Duration;

/// Authorities of one connection, and certificates of our own.
const MOST_CERTIFICATES: usize = 4;
/// Certificates of our own, in bytes: they go into a message of 4,096.
const LONGEST_CHAIN: usize = 3_072;
/// RFC 8247 section 3.1.1: 2048 bits at least. Longer ones than most would take much memory.
const KEY_LIMITS: KeyLimits = KeyLimits { min_rsa_bits: 2_048, max_rsa_bits: 4_096 };
/// The beginning of PEM (RFC 7468 section 2).
const PEM: &[u8] = b"-----BEGIN ";

/// What is offered where nothing is said: what RFC 8247 recommends, without exchanges that a small machine takes seconds for.
const IKE_PROPOSALS: &str = "aes128gcm16-aes256gcm16-chacha20poly1305-prfsha256-prfsha384-x25519-ecp256-ecp384,\
                             aes128-aes256-sha256-sha384-x25519-ecp256-ecp384";
/// The same for Child SAs (RFC 8221), with both lengths of sequence numbers.
const ESP_PROPOSALS: &str =
    "aes128gcm16-aes256gcm16-chacha20poly1305-noesn-esn,aes128-aes256-sha256-sha384-noesn-esn";
const AH_PROPOSALS: &str = "sha256-sha384-sha512-noesn-esn";

/// What stands behind the pointers of a [`ConnectionSpec`].
pub(crate) struct Wanted<'a> {
    pub(crate) spec: &'a ConnectionSpec,
    pub(crate) name: &'a str,
    pub(crate) proposals: Option<&'a str>,
    pub(crate) local_id: Option<&'a str>,
    pub(crate) remote_id: Option<&'a str>,
    pub(crate) shared_key: &'a [u8],
    pub(crate) private_key: &'a [u8],
    pub(crate) certificates: &'a [u8],
    pub(crate) peer_key: &'a [u8],
    pub(crate) authorities: &'a [u8],
    pub(crate) children: Vec<WantedChild<'a>>,
}

/// What stands behind the pointers of a [`ChildSpec`].
pub(crate) struct WantedChild<'a> {
    pub(crate) spec: &'a ChildSpec,
    pub(crate) name: &'a str,
    pub(crate) proposals: Option<&'a str>,
    pub(crate) local_traffic: Option<&'a str>,
    pub(crate) remote_traffic: Option<&'a str>,
}

impl Wanted<'_> {
    /// Length of all that the caller says.
    pub(crate) fn bytes(&self) -> usize {
        let texts = [Some(self.name), self.proposals, self.local_id, self.remote_id];
        let keys = [self.shared_key, self.private_key, self.certificates, self.peer_key, self.authorities];
        let of_children = self
            .children
            .iter()
            .flat_map(|child| [Some(child.name), child.proposals, child.local_traffic, child.remote_traffic]);
        let texts = texts.into_iter().chain(of_children).flatten().map(str::len);
        texts.chain(keys.map(<[u8]>::len)).fold(0, usize::saturating_add)
    }

    /// The connection and its keys.
    pub(crate) fn make(&self) -> Result<(Connection, Keys), Code> {
        let spec = self.spec;
        let (local, remote) = (optional(&spec.local)?, optional(&spec.remote)?);
        if local.zip(remote).is_some_and(|(local, remote)| local.is_ipv4() != remote.is_ipv4()) {
            return Err(Code::Address);
        }
        let ends = |addr: Option<_>| {
            vec![addr.map_or(AddrPattern::Any, |addr| AddrPattern::Range(AddrRange::single(addr)))]
        };
        let mut connection = Connection::new(name(self.name)?, self.local_auth()?, self.remote_auth()?);
        (connection.local_addrs, connection.remote_addrs) = (ends(local), ends(remote));
        connection.proposals = ike_proposals(self.proposals.unwrap_or(IKE_PROPOSALS))?;
        connection.dpd_delay = seconds(spec.dpd_seconds);
        connection.lifespan = lifespan(spec.rekey_seconds);
        connection.keying_tries = spec.tries;
        connection.force_encap = flag(spec.force_encap)?;
        for child in &self.children {
            let child = child.make()?;
            if connection.children.iter().any(|known| known.name == child.name) {
                return Err(Code::Name);
            }
            connection.children.push(Arc::new(child));
        }
        Ok((connection, self.keys()?))
    }

    fn local_auth(&self) -> Result<LocalAuth, Code> {
        let id = self.local_id.map(|text| spelling::identity(text).map_err(|_| Code::Identity));
        let method = match self.spec.local_auth {
            SHARED_KEY => LocalMethod::SharedKey,
            RAW_KEY | CERTIFICATE => LocalMethod::Certificate(Vec::new()),
            _ => return Err(Code::Value),
        };
        Ok(LocalAuth { id: id.transpose()?.flatten(), method })
    }

    fn remote_auth(&self) -> Result<RemoteAuth, Code> {
        let id = self.remote_id.map(|text| spelling::id_pattern(text).map_err(|_| Code::Identity));
        let method = match self.spec.remote_auth {
            SHARED_KEY => RemoteMethod::SharedKey,
            RAW_KEY | CERTIFICATE => RemoteMethod::Certificate(self.name.into()),
            _ => return Err(Code::Value),
        };
        Ok(RemoteAuth { id: id.transpose()?.unwrap_or(IdPattern::Any), method })
    }

    fn keys(&self) -> Result<Keys, Code> {
        let spec = self.spec;
        let is_shared = [spec.local_auth, spec.remote_auth].contains(&SHARED_KEY);
        if is_shared && self.shared_key.is_empty() {
            return Err(Code::Key);
        }
        let own = match spec.local_auth {
            RAW_KEY => Some(OwnProof::Raw(self.signing_key()?)),
            CERTIFICATE => Some(OwnProof::Certificate(self.own_certificate()?)),
            _ => None,
        };
        let peer = match spec.remote_auth {
            RAW_KEY => Some(PeerProof::Raw(self.pinned_key()?)),
            CERTIFICATE => Some(PeerProof::Certificate(self.trusted()?)),
            _ => None,
        };
        Ok(Keys { shared: is_shared.then(|| SecretBytes::new(self.shared_key)), own, peer })
    }

    fn signing_key(&self) -> Result<Box<dyn SigningKey>, Code> {
        let read = |der: &[u8]| PrivateKey::from_der(der, KEY_LIMITS).map_err(|_| Code::Key);
        let key = match self.private_key.starts_with(PEM) {
            true => read(pem::private_key(self.private_key).map_err(|_| Code::Key)?.expose())?,
            false => read(self.private_key)?,
        };
        PROVIDERS.signing_key(&key).map_err(|_| Code::Key)
    }

    fn own_certificate(&self) -> Result<LocalCert, Code> {
        let chain = certificates(self.certificates)?;
        // It has to fit into a message, with the rest of it.
        if chain.iter().map(Vec::len).sum::<usize>() > LONGEST_CHAIN {
            return Err(Code::Certificate);
        }
        let chain: Vec<&[u8]> = chain.iter().map(Vec::as_slice).collect();
        LocalCert::new(&chain, self.signing_key()?, KEY_LIMITS).map_err(|fault| match fault {
            LocalFault::Key(_) => Code::Key,
            LocalFault::Certificate(_) | LocalFault::OtherKey => Code::Certificate,
        })
    }

    fn pinned_key(&self) -> Result<PublicKey, Code> {
        let read = |spki: &[u8]| PublicKey::from_spki(spki, KEY_LIMITS).map_err(|_| Code::Key);
        match self.peer_key.starts_with(PEM) {
            true => read(&pem::public_key(self.peer_key).map_err(|_| Code::Key)?),
            false => read(self.peer_key),
        }
    }

    fn trusted(&self) -> Result<Authorities, Code> {
        let longest = Settings::DEVICE.stranger_bytes;
        let mut store = TrustStore::new(StoreLimits {
            roots: MOST_CERTIFICATES,
            intermediates: 0,
            crls: 0,
            certificate_len: longest,
            crl_len: 0,
            chain: MOST_CERTIFICATES,
        });
        for der in certificates(self.authorities)? {
            store.add_root(&der).map_err(|_| Code::Certificate)?;
        }
        Ok(Authorities::new(store, Options { key_limits: KEY_LIMITS, ..Options::default() }, &PROVIDERS))
    }
}

impl WantedChild<'_> {
    fn make(&self) -> Result<Child, Code> {
        let spec = self.spec;
        let mut child = Child::new(name(self.name)?);
        child.proposals = match protocol(spec.protocol)? {
            Protocol::Esp => child_proposals(self.proposals.unwrap_or(ESP_PROPOSALS), proposal::esp)?,
            Protocol::Ah => child_proposals(self.proposals.unwrap_or(AH_PROPOSALS), proposal::ah)?,
        };
        child.local_ts = traffic(self.local_traffic)?;
        child.remote_ts = traffic(self.remote_traffic)?;
        child.mode = match mode(spec.mode)? {
            Mode::Tunnel => ChildMode::Tunnel,
            Mode::Transport => ChildMode::Transport,
        };
        if spec.start > (START_AT_ONCE | START_ON_TRAFFIC) {
            return Err(Code::Value);
        }
        child.start = Start {
            at_once: spec.start & START_AT_ONCE != 0,
            on_traffic: spec.start & START_ON_TRAFFIC != 0,
        };
        child.on_dead_peer = if flag(spec.restart)? { OnClose::Restart } else { OnClose::Clear };
        child.on_close = child.on_dead_peer;
        child.replay_window = spec.replay_window;
        child.lifespan = lifespan(spec.rekey_seconds);
        child.rekey_bytes = Some(spec.rekey_bytes).filter(|bytes| *bytes > 0);
        Ok(child)
    }
}

/// A name that fits into events, and does not look like two.
fn name(text: &str) -> Result<&str, Code> {
    let fits = (1..NAME_BYTES).contains(&text.len()) && !text.contains('/');
    if fits { Ok(text) } else { Err(Code::Name) }
}

fn seconds(count: u32) -> Option<Duration> {
    (count > 0).then(|| Duration::from_secs(count.into()))
}

fn lifespan(count: u32) -> Lifespan {
    seconds(count).map_or(Lifespan::FOREVER, Lifespan::rekeyed_after)
}

fn ike_proposals(text: &str) -> Result<Vec<IkeProposal>, Code> {
    let read: Result<Vec<_>, _> = value::items(text).map(proposal::ike).collect();
    some(read.map_err(|_| Code::Suite)?.concat()).ok_or(Code::Suite)
}

fn child_proposals(
    text: &str,
    read: fn(&str) -> spelling::Read<Vec<ChildProposal>>,
) -> Result<Vec<ChildProposal>, Code> {
    let read: Result<Vec<_>, _> = value::items(text).map(read).collect();
    some(read.map_err(|_| Code::Suite)?.concat()).ok_or(Code::Suite)
}

fn traffic(text: Option<&str>) -> Result<Vec<TrafficTemplate>, Code> {
    let items = value::items(text.unwrap_or("dynamic"));
    let read: Result<Vec<_>, _> = items.map(spelling::traffic).collect();
    some(read.map_err(|_| Code::Traffic)?).ok_or(Code::Traffic)
}

fn some<T>(list: Vec<T>) -> Option<Vec<T>> {
    (!list.is_empty()).then_some(list)
}

/// Certificates in PEM, or in DER one behind the other. At least one.
fn certificates(data: &[u8]) -> Result<Vec<Vec<u8>>, Code> {
    let list = if data.starts_with(PEM) {
        pem::certificates(data).map_err(|_| Code::Certificate)?
    } else {
        let mut reader = Reader::new(data);
        let mut list = Vec::new();
        while !reader.is_empty() {
            list.push(reader.any().map_err(|_| Code::Certificate)?.whole.to_vec());
        }
        list
    };
    some(list).filter(|list| list.len() <= MOST_CERTIFICATES).ok_or(Code::Certificate)
}
