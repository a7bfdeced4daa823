//! Conversion of C connections to validated Rust types.

use super::types::{
    CERTIFICATE, ChildSpec, ConnectionSpec, NAME_BYTES, RAW_KEY, SHARED_KEY, START_AT_ONCE, START_ON_TRAFFIC,
};
use crate::Status;
use crate::convert::{flag, mode, optional, protocol};
use crate::host::PROVIDERS;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use casemate::{AuthKeys, Authorities, LocalKey, PeerTrust};
use casemate_crypto::der::Reader;
use casemate_crypto::{KeyLimits, PrivateKey, PublicKey, SecretBytes, SigningKey};
use casemate_ike::config::{
    AddrPattern, ChildConfig, ChildMode, ChildProposal, CloseAction, Connection, Encapsulation, IdPattern,
    IkeProposal, Lifespan, LocalAuth, LocalMethod, RemoteAuth, RemoteMethod, StartAction,
};
use casemate_ike::{IkeSettings, TrafficSelectorTemplate};
use casemate_pki::{LocalCert, LocalCertFault, StoreLimits, TrustStore, VerifyOptions, pem};
use casemate_sa::{AddrRange, Mode, Protocol};
use casemate_strongswan::{self as strongswan, proposal, value};
use core::time::Duration;

/// Maximum number of CA certificates per connection, and of local certificates.
const MAX_CERTIFICATES: usize = 4;
/// Maximum length of the local certificates in bytes: they must fit into a message of 4,096 bytes.
const MAX_CHAIN_LEN: usize = 3_072;
/// RFC 8247 section 3.1.1: at least 2048 bits. Very long keys would need too much memory.
const KEY_LIMITS: KeyLimits = KeyLimits { min_rsa_bits: 2_048, max_rsa_bits: 4_096 };
/// Start of a PEM file (RFC 7468 section 2).
const PEM: &[u8] = b"-----BEGIN ";

/// Default proposals: the recommendations of RFC 8247, without key exchanges that take seconds on a small
/// processor.
const IKE_PROPOSALS: &str = "aes128gcm16-aes256gcm16-chacha20poly1305-\
                             prfsha256-prfsha384-x25519-ecp256-ecp384,\
                             aes128-aes256-sha256-sha384-x25519-ecp256-ecp384";
/// Default proposals for Child SAs (RFC 8221), with both lengths of sequence numbers.
const ESP_PROPOSALS: &str =
    "aes128gcm16-aes256gcm16-chacha20poly1305-noesn-esn,aes128-aes256-sha256-sha384-noesn-esn";
const AH_PROPOSALS: &str = "sha256-sha384-sha512-noesn-esn";

/// A [`ConnectionSpec`] and the values that its pointers refer to.
pub(crate) struct ConnectionInput<'a> {
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
    pub(crate) ppk_id: Option<&'a str>,
    pub(crate) ppk: &'a [u8],
    pub(crate) children: Vec<ChildInput<'a>>,
}

/// A [`ChildSpec`] and the values that its pointers refer to.
pub(crate) struct ChildInput<'a> {
    pub(crate) spec: &'a ChildSpec,
    pub(crate) name: &'a str,
    pub(crate) proposals: Option<&'a str>,
    pub(crate) local_traffic: Option<&'a str>,
    pub(crate) remote_traffic: Option<&'a str>,
}

impl ConnectionInput<'_> {
    /// Returns the total length of all strings and keys.
    pub(crate) fn bytes(&self) -> usize {
        let texts = [Some(self.name), self.proposals, self.local_id, self.remote_id, self.ppk_id];
        let keys =
            [self.shared_key, self.private_key, self.certificates, self.peer_key, self.authorities, self.ppk];
        let of_children = self
            .children
            .iter()
            .flat_map(|child| [Some(child.name), child.proposals, child.local_traffic, child.remote_traffic]);
        let texts = texts.into_iter().chain(of_children).flatten().map(str::len);
        texts.chain(keys.map(<[u8]>::len)).fold(0, usize::saturating_add)
    }

    /// Creates the connection and its keys.
    pub(crate) fn make(&self) -> Result<(Connection, AuthKeys), Status> {
        let spec = self.spec;
        let (local, remote) = (optional(&spec.local)?, optional(&spec.remote)?);
        if local.zip(remote).is_some_and(|(local, remote)| local.is_ipv4() != remote.is_ipv4()) {
            return Err(Status::Address);
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
        if flag(spec.force_encap)? {
            connection.encapsulation = Encapsulation::Always;
        }
        for child in &self.children {
            let child = child.make()?;
            if connection.children.iter().any(|known| known.name == child.name) {
                return Err(Status::Name);
            }
            connection.children.push(Arc::new(child));
        }
        Ok((connection, self.keys()?))
    }

    fn local_auth(&self) -> Result<LocalAuth, Status> {
        let id = self.local_id.map(|text| strongswan::parse_identity(text).map_err(|_| Status::Identity));
        let method = match self.spec.local_auth {
            SHARED_KEY => LocalMethod::SharedKey,
            RAW_KEY | CERTIFICATE => LocalMethod::Certificate(Vec::new()),
            _ => return Err(Status::Value),
        };
        Ok(LocalAuth { id: id.transpose()?.flatten(), method })
    }

    fn remote_auth(&self) -> Result<RemoteAuth, Status> {
        let id = self.remote_id.map(|text| strongswan::parse_id_pattern(text).map_err(|_| Status::Identity));
        let method = match self.spec.remote_auth {
            SHARED_KEY => RemoteMethod::SharedKey,
            RAW_KEY | CERTIFICATE => RemoteMethod::Certificate(self.name.into()),
            _ => return Err(Status::Value),
        };
        Ok(RemoteAuth { id: id.transpose()?.unwrap_or(IdPattern::Any), method })
    }

    fn keys(&self) -> Result<AuthKeys, Status> {
        let spec = self.spec;
        let is_shared = [spec.local_auth, spec.remote_auth].contains(&SHARED_KEY);
        if is_shared && self.shared_key.is_empty() {
            return Err(Status::Key);
        }
        let own = match spec.local_auth {
            RAW_KEY => Some(LocalKey::Raw(self.signing_key()?)),
            CERTIFICATE => Some(LocalKey::Certificate(self.own_certificate()?)),
            _ => None,
        };
        let peer = match spec.remote_auth {
            RAW_KEY => Some(PeerTrust::Raw(self.pinned_key()?)),
            CERTIFICATE => Some(PeerTrust::Certificate(self.trusted()?)),
            _ => None,
        };
        Ok(AuthKeys { shared: is_shared.then(|| SecretBytes::new(self.shared_key)), own, peer })
    }

    fn signing_key(&self) -> Result<Box<dyn SigningKey>, Status> {
        let read = |der: &[u8]| PrivateKey::from_der(der, KEY_LIMITS).map_err(|_| Status::Key);
        let key = match self.private_key.starts_with(PEM) {
            true => read(pem::private_key(self.private_key).map_err(|_| Status::Key)?.expose())?,
            false => read(self.private_key)?,
        };
        PROVIDERS.signing_key(&key).map_err(|_| Status::Key)
    }

    fn own_certificate(&self) -> Result<LocalCert, Status> {
        let chain = certificates(self.certificates)?;
        // The chain must fit into a message beside other payloads.
        if chain.iter().map(Vec::len).sum::<usize>() > MAX_CHAIN_LEN {
            return Err(Status::Certificate);
        }
        let chain: Vec<&[u8]> = chain.iter().map(Vec::as_slice).collect();
        LocalCert::new(&chain, self.signing_key()?, KEY_LIMITS).map_err(|fault| match fault {
            LocalCertFault::Key(_) => Status::Key,
            LocalCertFault::Certificate(_) | LocalCertFault::KeyMismatch => Status::Certificate,
        })
    }

    fn pinned_key(&self) -> Result<PublicKey, Status> {
        let read = |spki: &[u8]| PublicKey::from_spki(spki, KEY_LIMITS).map_err(|_| Status::Key);
        match self.peer_key.starts_with(PEM) {
            true => read(&pem::public_key(self.peer_key).map_err(|_| Status::Key)?),
            false => read(self.peer_key),
        }
    }

    fn trusted(&self) -> Result<Authorities, Status> {
        let longest = IkeSettings::DEVICE.max_unauthenticated_bytes;
        let mut store = TrustStore::new(StoreLimits {
            roots: MAX_CERTIFICATES,
            intermediates: 0,
            crls: 0,
            certificate_len: longest,
            crl_len: 0,
            chain: MAX_CERTIFICATES,
        });
        for der in certificates(self.authorities)? {
            store.add_root(&der).map_err(|_| Status::Certificate)?;
        }
        Ok(Authorities::new(
            store,
            VerifyOptions { key_limits: KEY_LIMITS, ..VerifyOptions::default() },
            &PROVIDERS,
        ))
    }
}

impl ChildInput<'_> {
    fn make(&self) -> Result<ChildConfig, Status> {
        let spec = self.spec;
        let mut child = ChildConfig::new(name(self.name)?);
        child.proposals = match protocol(spec.protocol)? {
            Protocol::Esp => child_proposals(self.proposals.unwrap_or(ESP_PROPOSALS), proposal::parse_esp)?,
            Protocol::Ah => child_proposals(self.proposals.unwrap_or(AH_PROPOSALS), proposal::parse_ah)?,
        };
        child.local_ts = traffic(self.local_traffic)?;
        child.remote_ts = traffic(self.remote_traffic)?;
        child.mode = match mode(spec.mode)? {
            Mode::Tunnel => ChildMode::Tunnel,
            Mode::Transport => ChildMode::Transport,
        };
        if spec.start > (START_AT_ONCE | START_ON_TRAFFIC) {
            return Err(Status::Value);
        }
        child.start_action = StartAction {
            at_once: spec.start & START_AT_ONCE != 0,
            on_traffic: spec.start & START_ON_TRAFFIC != 0,
        };
        child.dpd_action = if flag(spec.restart)? { CloseAction::Restart } else { CloseAction::Clear };
        child.close_action = child.dpd_action;
        child.replay_window = spec.replay_window;
        child.lifespan = lifespan(spec.rekey_seconds);
        child.rekey_bytes = Some(spec.rekey_bytes).filter(|bytes| *bytes > 0);
        Ok(child)
    }
}

/// Checks a name: it must fit into events and contain no `/`, which separates connection and child.
fn name(text: &str) -> Result<&str, Status> {
    let fits = (1..NAME_BYTES).contains(&text.len()) && !text.contains('/');
    if fits { Ok(text) } else { Err(Status::Name) }
}

fn seconds(count: u32) -> Option<Duration> {
    (count > 0).then(|| Duration::from_secs(count.into()))
}

fn lifespan(count: u32) -> Lifespan {
    seconds(count).map_or(Lifespan::FOREVER, Lifespan::rekeyed_after)
}

fn ike_proposals(text: &str) -> Result<Vec<IkeProposal>, Status> {
    let read: Result<Vec<_>, _> = value::list_items(text).map(proposal::parse_ike).collect();
    some(read.map_err(|_| Status::Suite)?.concat()).ok_or(Status::Suite)
}

fn child_proposals(
    text: &str,
    read: fn(&str) -> strongswan::Parsed<Vec<ChildProposal>>,
) -> Result<Vec<ChildProposal>, Status> {
    let read: Result<Vec<_>, _> = value::list_items(text).map(read).collect();
    some(read.map_err(|_| Status::Suite)?.concat()).ok_or(Status::Suite)
}

fn traffic(text: Option<&str>) -> Result<Vec<TrafficSelectorTemplate>, Status> {
    let items = value::list_items(text.unwrap_or("dynamic"));
    let read: Result<Vec<_>, _> = items.map(strongswan::parse_traffic_selector).collect();
    some(read.map_err(|_| Status::Traffic)?).ok_or(Status::Traffic)
}

fn some<T>(list: Vec<T>) -> Option<Vec<T>> {
    (!list.is_empty()).then_some(list)
}

/// Parses certificates in PEM, or concatenated in DER. At least one is required.
fn certificates(data: &[u8]) -> Result<Vec<Vec<u8>>, Status> {
    let list = if data.starts_with(PEM) {
        pem::certificates(data).map_err(|_| Status::Certificate)?
    } else {
        let mut reader = Reader::new(data);
        let mut list = Vec::new();
        while !reader.is_empty() {
            list.push(reader.read_any().map_err(|_| Status::Certificate)?.whole.to_vec());
        }
        list
    };
    some(list).filter(|list| list.len() <= MAX_CERTIFICATES).ok_or(Status::Certificate)
}
