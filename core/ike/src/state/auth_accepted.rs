//! The end of IKE_AUTH as the responder: what an authenticated peer requests, and the IKE SA with its first
//! Child SA.

use super::config_payload::LeasedConfig;
use super::half_open::HalfOpen;
use super::select_connection::is_childless;
use crate::address_pool::LeaseRequest;
use crate::auth::PeerAuthenticated;
use crate::child_sa::{
    ChildOwner, ChildPolicy, ChildRejected, ChildResponse, DynamicAddrs, KeymatSource, NewChild, install,
    respond,
};
use crate::config::Unique;
use crate::context::Step;
use crate::crash_token::PeerToken;
use crate::engine::effects::Effect;
use crate::keymat::Nonces;
use crate::path_mtu::PathSearch;
#[cfg(feature = "mobike")]
use crate::state::Task;
use crate::state::{Established, SaCommon, SaContents, State};
use crate::transport::{Build, Content};
use crate::{DownReason, Path, PeerFault, Role, StateFault};
use alloc::boxed::Box;
use alloc::collections::{BTreeSet, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use casemate_wire::ike::{ExchangeType, FaultResponse, Notify, NotifyType};

/// An IKE_AUTH request whose sender is authenticated.
pub(super) struct Authentic<'a, 'm> {
    /// The first IKE_AUTH request.
    pub(super) content: &'a Content<'m>,
    /// Path of the last one.
    pub(super) path: Path,
    pub(super) peer: PeerAuthenticated,
    /// Writes the payloads with which we authenticate ourselves.
    pub(super) write_proof: Build<'a>,
}

/// An accepted IKE_AUTH request.
pub(super) struct Accepted {
    peer: PeerAuthenticated,
    dynamic_addrs: DynamicAddrs,
    first_child: FirstChild,
    #[cfg(feature = "mobike")]
    mobike: Option<Box<crate::mobike::Mobike>>,
}

/// Result for the first Child SA.
enum FirstChild {
    Accepted(Box<ChildResponse>),
    Rejected(StateFault),
    /// Neither side wants one (RFC 6023).
    None,
}

impl HalfOpen {
    /// Decides on what an authenticated peer requests, and responds.
    pub(super) fn accept(
        &mut self,
        common: &mut SaCommon,
        request: Authentic<'_, '_>,
        leased: &mut LeasedConfig,
        step: &mut Step<'_, '_>,
    ) -> Result<Box<Accepted>, PeerFault> {
        let Authentic { content, path, peer, write_proof } = request;
        // The connection was selected for the addresses of IKE_SA_INIT. From others, this request is a move.
        if !common.connection.may_move_to(path, step.context.routes) {
            return Err(StateFault::UnacceptableAddresses.into());
        }
        let replaces = self.check_unique(common, &peer, content, step)?;
        // From here on the peer's address is authenticated. It has proved that it receives where it began, by
        // the nonce of our response.
        let proved = core::mem::replace(&mut common.path, path).remote.ip();
        let remote = common.path.remote.ip();
        // A refusal must not leave a Child SA behind.
        #[cfg(feature = "mobike")]
        let (connection, routes) = (common.connection.clone(), step.context.routes);
        #[cfg(feature = "mobike")]
        let mobike = crate::mobike::accept(common, content, (path, proved), &self.init, routes)?;
        let lease_request = LeaseRequest { scope: peer.scope(), remote, replaces_older: replaces, held: &[] };
        #[cfg(feature = "eap")]
        leased.set_assigned(peer.assigned_addrs());
        #[cfg(feature = "redirect")]
        let redirect = crate::redirect::RedirectState::gateway_for_peer(common).cloned();
        #[cfg(feature = "redirect")]
        let is_redirected = redirect.is_some();
        #[cfg(not(feature = "redirect"))]
        let is_redirected = false;
        let requested = content.cp.filter(|_| !is_redirected);
        let leasing =
            requested.map_or(Ok(()), |cp| leased.lease(&cp, &common.connection, lease_request, step));
        let mut dynamic_addrs =
            DynamicAddrs { local: [common.path.local.ip()].into(), remote: [proved].into(), unproved: None };
        match &*leased.addrs {
            [] if common.connection.pools.is_empty() => dynamic_addrs.peer_moved(proved, remote),
            addrs => dynamic_addrs.remote = addrs.into(),
        }
        let first_child = match leasing {
            // RFC 5685 section 6: the redirect prevents the first Child SA.
            Ok(()) if is_redirected => FirstChild::None,
            Ok(()) => match self.first_child(common, content, &dynamic_addrs, step)? {
                FirstChild::Rejected(StateFault::TsUnacceptable) if dynamic_addrs.remote.is_empty() => {
                    FirstChild::Rejected(StateFault::AddressNotRequested)
                }
                first_child => first_child,
            },
            Err(fault) => FirstChild::Rejected(fault),
        };
        if let FirstChild::Rejected(fault) = first_child {
            step.sa_fault(fault.into(), path, common);
        }
        self.channel.peer_token = PeerToken::from_message(content);
        let token = step.crash_token(common.spis());
        #[cfg(feature = "records")]
        let sync = crate::counter_sync::SyncSupport::announced(content);
        #[cfg(feature = "records")]
        {
            self.channel.sync = crate::counter_sync::SyncState::new(sync);
        }
        #[cfg(feature = "eap")]
        let lifetime = super::retry::announced_lifetime(common, step);
        #[cfg(feature = "resumption")]
        let ticket = self.answer_ticket_request(common, &peer, content, step);
        #[cfg(feature = "ppk")]
        let ppk = &self.init.ppk;
        let sent = self.channel.send_response(common, ExchangeType::IKE_AUTH, step, &|out| {
            write_proof(out)?;
            #[cfg(feature = "ppk")]
            ppk.write_acceptance(out)?;
            token.iter().try_for_each(|token| out.notify(&token.notify()))?;
            #[cfg(feature = "records")]
            sync.write(out)?;
            #[cfg(feature = "eap")]
            if let Some(lifetime) = &lifetime {
                out.notify(&Notify::new(NotifyType::AUTH_LIFETIME, lifetime))?;
            }
            #[cfg(feature = "mobike")]
            if let Some(mobike) = &mobike {
                crate::mobike::write_support(&connection, path, mobike.has_nat_traversal, routes, out)?;
            }
            #[cfg(feature = "redirect")]
            if let Some(gateway) = &redirect {
                crate::redirect::write_protected(gateway, out)?;
            }
            #[cfg(feature = "resumption")]
            ticket.write(out)?;
            leased.write(out)?;
            match &first_child {
                FirstChild::Accepted(response) => response.write(None, out),
                FirstChild::Rejected(fault) => match fault.response() {
                    FaultResponse::Notify(kind) => out.notify(&Notify::new(kind, &[])),
                    FaultResponse::Silence => Ok(()),
                },
                FirstChild::None => Ok(()),
            }
        });
        if sent.is_err() {
            if let FirstChild::Accepted(response) = &first_child {
                step.host.release_spi(response.agreed.spi_in);
            }
            return Err(StateFault::Provider.into());
        }
        #[cfg(feature = "resumption")]
        {
            self.ticket_until = ticket.expires_at();
        }
        Ok(Box::new(Accepted {
            peer,
            dynamic_addrs,
            first_child,
            #[cfg(feature = "mobike")]
            mobike,
        }))
    }

    /// Applies `unique` to other IKE SAs with the same peer that was authenticated equally (RFC 7296 section
    /// 2.4). If none is closed and the limit is reached, the oldest is closed. Returns whether this IKE SA
    /// replaces others.
    ///
    /// Of those that this host has initiated, only the ones that were established before this IKE SA was
    /// started count: when both sides start at the same time, neither replaces the other's new IKE SA. An
    /// INITIAL_CONTACT also spares those that the peer set up meanwhile: it could not know of them.
    fn check_unique(
        &self,
        common: &SaCommon,
        peer: &PeerAuthenticated,
        content: &Content<'_>,
        step: &mut Step<'_, '_>,
    ) -> Result<bool, StateFault> {
        let first_contact = content.has_notify(NotifyType::INITIAL_CONTACT);
        let (peers, scope) = (&step.shared.peers, peer.scope());
        let is_unique = matches!(common.connection.unique, Unique::Keep | Unique::Replace);
        let meanwhile = peers.begun_by_peer(scope).filter(|_| is_unique);
        let older: BTreeSet<_> = peers.established_before(scope, self.started_at).chain(meanwhile).collect();
        let older = older.into_iter();
        #[cfg(feature = "resumption")]
        let older = older.filter(|ike| common.resumes.is_none_or(|resumes| resumes.ike != *ike));
        let older: Vec<_> = older.collect();
        let most = step.shared.settings.max_ike_sas_per_peer;
        let is_full = peers.count(scope, most) >= most;
        let closes_older = match common.connection.unique {
            Unique::Never => return Ok(false),
            Unique::No => first_contact,
            Unique::Keep if !first_contact && !older.is_empty() => return Err(StateFault::NotUnique),
            Unique::Keep | Unique::Replace => true,
        };
        if older.is_empty() || !closes_older {
            if is_full && let Some(oldest) = peers.oldest(scope) {
                // A peer that restarts without INITIAL_CONTACT leaves IKE SAs behind. The oldest is closed,
                // so that the peer is never locked out.
                step.sa_fault(StateFault::PeerLimit.into(), common.path, common);
                step.effect(Effect::Evict(oldest));
            }
            return Ok(false);
        }
        // A peer that has forgotten its old IKE SAs need not be notified.
        let reason = if first_contact { DownReason::InitialContact } else { DownReason::NotUnique };
        let closes = older.into_iter().map(|ike| Effect::Close { ike, reason, notify_peer: !first_contact });
        step.shared.effects.extend(closes);
        Ok(true)
    }

    fn first_child(
        &self,
        common: &SaCommon,
        content: &Content<'_>,
        dynamic_addrs: &DynamicAddrs,
        step: &mut Step<'_, '_>,
    ) -> Result<FirstChild, PeerFault> {
        let connection = &common.connection;
        if is_childless(content) {
            return Ok(FirstChild::None);
        }
        let policy = ChildPolicy { configs: &connection.children, installed: &[], dynamic_addrs };
        match respond(policy, content, self.init.nat, common.path, false, step) {
            Ok(response) => Ok(FirstChild::Accepted(Box::new(response))),
            Err(ChildRejected::Fault(PeerFault::State(fault))) if fault != StateFault::PayloadMissing => {
                Ok(FirstChild::Rejected(fault))
            }
            Err(ChildRejected::Fault(fault)) => Err(fault),
            // IKE_AUTH has no key exchange.
            Err(ChildRejected::WrongKexMethod(_)) => Ok(FirstChild::Rejected(StateFault::NoProposalChosen)),
        }
    }

    /// Establishes the IKE SA after the response was sent.
    pub(super) fn establish(
        self: Box<Self>,
        common: &mut SaCommon,
        accepted: Accepted,
        leased: LeasedConfig,
        step: &mut Step<'_, '_>,
    ) -> State {
        #[cfg(feature = "resumption")]
        let ticket_until = self.ticket_until;
        let Self { channel, init, .. } = *self;
        let Accepted {
            peer,
            dynamic_addrs,
            first_child,
            #[cfg(feature = "mobike")]
            mobike,
        } = accepted;
        // There are many IKE SAs, and most have one Child SA. A larger capacity would waste memory.
        let mut children = Vec::with_capacity(1);
        if let FirstChild::Accepted(response) = first_child {
            let nonces = Nonces { initiator: &init.nonce_i, responder: &init.nonce_r };
            let (prf, d, role) = (channel.suite.prf, &channel.sk_d, Role::Responder);
            let source = KeymatSource { prf, sk_d: d, nonces, secrets: &[], role };
            let ChildResponse { config, agreed, .. } = *response;
            let (spi, owner) = (agreed.spi_in, ChildOwner::new(common, common.id, init.nat));
            #[cfg(feature = "mobike")]
            let owner = owner.until_check(mobike.as_deref());
            match install(NewChild::first(&config, agreed), &source, &owner, step) {
                Ok(child) => children.push(child),
                Err(fault) => {
                    step.host.release_spi(spi);
                    leased.addrs.iter().for_each(|addr| step.shared.pools.release(*addr));
                    return State::Closed(DownReason::Fault(fault.into()));
                }
            }
        }
        let leased = leased.addrs;
        let tasks = VecDeque::new();
        #[cfg(feature = "mobike")]
        let tasks = match &mobike {
            Some(mobike) if mobike.is_unverified => [Task::CheckRoute].into(),
            Some(_) | None => tasks,
        };
        let contents = SaContents {
            peer: Arc::new(peer),
            nat: init.nat,
            dynamic_addrs,
            #[cfg(feature = "mobike")]
            mobike,
            leased,
            assigned: None,
            children,
            path_search: PathSearch::OFF,
            tasks,
        };
        let established = Established::new(common, channel, contents, step);
        #[cfg(feature = "redirect")]
        let established = {
            let mut established = established;
            if crate::redirect::RedirectState::gateway_for_peer(common).is_some() {
                established.expire_redirected(step.context.now);
            }
            established
        };
        #[cfg(feature = "resumption")]
        let established = established.with_granted_ticket(ticket_until);
        Box::new(established).start_next_task(common, step)
    }
}
