//! The responder's part: which tickets it grants, and which it accepts.
//!
//! A session ends for the responder when it is resumed, and when its IKE SA is closed, unless the peer was
//! silent or has forgotten the IKE SA. Its tickets are then refused, although they were made by this host and
//! are not too old (RFC 5723 sections 4.3.1, 6.2 and 9.8).

use super::Session;
use super::ended::EndedSessions;
use super::ticket_key::{KeyContext, TicketKeys};
use crate::auth::resumption::PeerRecord;
#[cfg(feature = "eap")]
use crate::config::RemoteMethod;
use crate::config::{Connection, Identity};
use crate::context::Step;
use crate::engine::peer_index::Proof;
use crate::negotiate::IkeSuite;
use crate::{Credentials, IkeSaId, StateFault};
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use casemate_crypto::{PrfAlg, Providers, SecretBytes};
use casemate_sa::{Instant, RateLimiter};
use core::time::Duration;
use subtle::ConstantTimeEq as _;

/// Tickets per second, and at once, that are decrypted for hosts that have returned no cookie.
const WITHOUT_COOKIE_PER_SECOND: u32 = 200;

/// A ticket that this host grants.
pub(crate) struct Ticket {
    pub(crate) bytes: Vec<u8>,
    /// Lifetime in whole seconds.
    pub(crate) lifetime: u32,
    pub(crate) expires_at: Instant,
}

/// The IKE SA for which the peer requests a ticket.
pub(crate) struct TicketRequest<'a> {
    pub(crate) ike: IkeSaId,
    pub(crate) connection: &'a Connection,
    pub(crate) suite: IkeSuite,
    pub(crate) sk_d: &'a SecretBytes,
    pub(crate) peer: PeerRecord,
    /// When the peer must have been authenticated again; `None` for never.
    pub(crate) reauth_at: Option<Instant>,
}

/// Keys of tickets, and the tickets that are no longer accepted.
pub(crate) struct Gateway {
    keys: TicketKeys,
    ended: EndedSessions,
    /// Connections with resumption, by a number that changes when they do, except in their children.
    connections: BTreeMap<u64, Arc<Connection>>,
    numbers: BTreeMap<String, u64>,
    last_number: u64,
    without_cookie: RateLimiter,
}

impl Default for Gateway {
    fn default() -> Self {
        Self {
            keys: TicketKeys::default(),
            ended: EndedSessions::default(),
            connections: BTreeMap::new(),
            numbers: BTreeMap::new(),
            last_number: 0,
            without_cookie: RateLimiter::new(WITHOUT_COOKIE_PER_SECOND, WITHOUT_COOKIE_PER_SECOND),
        }
    }
}

impl Gateway {
    pub(super) fn configure(&mut self, connections: &[Arc<Connection>]) {
        let (mut by_number, mut numbers) = (BTreeMap::new(), BTreeMap::new());
        for connection in connections.iter().filter(|connection| connection.resumption) {
            let known = self.numbers.get(&connection.name).copied();
            let is_same = |number: &u64| {
                let before = self.connections.get(number);
                before.is_some_and(|before| before.differs_in_children_only(connection))
            };
            let number = known.filter(is_same).unwrap_or_else(|| {
                self.last_number = self.last_number.saturating_add(1);
                self.last_number
            });
            by_number.insert(number, connection.clone());
            numbers.insert(connection.name.clone(), number);
        }
        (self.connections, self.numbers) = (by_number, numbers);
    }

    /// Whether a host that has returned no cookie may have its ticket decrypted now.
    pub(crate) fn allows_without_cookie(&mut self, now: Instant) -> bool {
        self.without_cookie.allow(now)
    }

    /// Notes that a session has ended, or was resumed. All its tickets have expired at `until`.
    pub(crate) fn end(&mut self, peer: &PeerRecord, ike: IkeSaId, until: Instant, now: Instant) {
        self.ended.insert(&peer.proven_identity(), ike, until, now);
    }
}

impl Step<'_, '_> {
    /// Makes a ticket; `None` if the peer gets none.
    pub(crate) fn grant_ticket(&mut self, request: TicketRequest<'_>) -> Option<Ticket> {
        let TicketRequest { ike, connection, suite, sk_d, peer, reauth_at } = request;
        let (now, providers) = (self.context.now, self.context.providers);
        let number = *self.shared.resumption.gateway.numbers.get(&connection.name)?;
        let longest = self.shared.settings.ticket_lifetime;
        let left = reauth_at.map_or(longest, |at| at.since(now).min(longest));
        let lifetime = u32::try_from(left.as_secs()).ok().filter(|secs| *secs > 0)?;
        let credentials = self.context.credentials;
        let secret_mac = secret_mac(connection, &peer, suite.prf, sk_d, credentials, providers)?;
        let expires_at = now.after(Duration::from_secs(lifetime.into()));
        let sk_d = sk_d.clone();
        let session =
            Session { ike, expires_at, reauth_at, connection: number, suite, sk_d, peer, secret_mac };
        let context = KeyContext { now, lifetime: longest, providers };
        let keys = &mut self.shared.resumption.gateway.keys;
        let bytes = keys.seal(&session.encode()?, self.context.rng, &context)?;
        Some(Ticket { bytes, lifetime, expires_at })
    }

    /// Opens a ticket of this host.
    pub(crate) fn open_ticket(&self, ticket: &[u8]) -> Result<Session, StateFault> {
        let (now, providers) = (self.context.now, self.context.providers);
        let context = KeyContext { now, lifetime: self.shared.settings.ticket_lifetime, providers };
        let opened = self.shared.resumption.gateway.keys.open(ticket, &context);
        opened.and_then(|session| Session::decode(&session)).ok_or(StateFault::Ticket)
    }

    /// The connection of a session that can be resumed.
    pub(crate) fn resumable_connection(&self, session: &Session) -> Result<Arc<Connection>, StateFault> {
        let (gateway, providers) = (&self.shared.resumption.gateway, self.context.providers);
        if session.expires_at <= self.context.now {
            return Err(StateFault::Ticket);
        }
        let connection = gateway.connections.get(&session.connection).ok_or(StateFault::NotResumable)?;
        let (prf, sk_d) = (session.suite.prf, &session.sk_d);
        let mac = secret_mac(connection, &session.peer, prf, sk_d, self.context.credentials, providers);
        let is_same = mac.is_some_and(|mac| bool::from(mac.ct_eq(&session.secret_mac)));
        if gateway.ended.contains(&session.peer.proven_identity(), session.ike) || !is_same {
            return Err(StateFault::NotResumable);
        }
        Ok(connection.clone())
    }
}

/// MAC of the secrets with which an IKE SA was set up, under SK_d: a ticket is void once one of them is
/// removed or changed. `None` for peers that get no ticket.
fn secret_mac(
    connection: &Connection,
    peer: &PeerRecord,
    prf: PrfAlg,
    sk_d: &SecretBytes,
    credentials: &dyn Credentials,
    providers: &Providers<'_>,
) -> Option<Vec<u8>> {
    let mac = |label: &[u8], secret: &[u8]| {
        let key = providers.prf(prf, sk_d.expose()).ok()?;
        Some(key.prf(&[label, secret]).ok()?.expose().to_vec())
    };
    let proof = proof_mac(connection, peer, credentials, mac)?;
    #[cfg(feature = "ppk")]
    let proof = match &peer.ppk_id {
        None => proof,
        Some(id) => [proof, mac(b"post-quantum pre-shared key", credentials.ppk(id)?.expose())?].concat(),
    };
    Some(proof)
}

/// MAC of the secret that has authenticated a peer. Empty if an AAA server has the secret. `None` for peers
/// whose certificates may be revoked or expire, or that have several proofs.
fn proof_mac(
    connection: &Connection,
    peer: &PeerRecord,
    credentials: &dyn Credentials,
    mac: impl Fn(&[u8], &[u8]) -> Option<Vec<u8>>,
) -> Option<Vec<u8>> {
    match peer.proof {
        Proof::SharedKey => {
            let own_id: &Identity = &peer.own_id;
            mac(b"shared key", credentials.shared_key(connection, own_id, &peer.id)?.expose())
        }
        #[cfg(feature = "eap")]
        Proof::Eap | Proof::EapLogin => {
            use casemate_eap::Method::{Aka, AkaPrime, Tls};
            let RemoteMethod::Eap(remote) = &connection.remote.method else { return None };
            if remote.is_relayed() {
                return Some(Vec::new());
            }
            if remote.methods.iter().any(|method| matches!(method, Tls | Aka | AkaPrime)) {
                return None;
            }
            let (eap, identity) = (credentials.eap(), peer.eap_identity.as_ref()?.proven()?);
            match (eap.password(identity), eap.nt_hash(identity)) {
                (Some(password), _) => mac(b"password", password.expose()),
                (None, Some(hash)) => mac(b"NT hash", hash.expose()),
                (None, None) => None,
            }
        }
        Proof::Signature => None,
        #[cfg(feature = "eap")]
        Proof::Rounds => None,
    }
}
