//! The end of IKE_AUTH as the initiator: the responder is authenticated, and the IKE SA begins with its first
//! Child SA.

use super::config_payload;
use super::init_exchange::PeerFeatures;
use super::retry::restore_later;
use crate::auth::PeerAuthenticated;
#[cfg(feature = "ppk")]
use crate::auth::ppk::UsedPpk;
use crate::child_sa::{
    ChildNegotiation, ChildOwner, ChildRequest, DynamicAddrs, KeymatSource, NewChild, install,
};
use crate::config::{ChildConfig, Childless};
use crate::context::Step;
#[cfg(feature = "records")]
use crate::counter_sync::{SyncState, SyncSupport};
use crate::crash_token::PeerToken;
use crate::keymat::Nonces;
use crate::nat::Substitution;
use crate::path_mtu::PathSearch;
use crate::state::{AuthSent, Established, SaCommon, SaContents, State, Task};
use crate::transport::Content;
use crate::{AssignedConfig, DownReason, Event, Role, StateFault};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use casemate_wire::ike::NotifyType;
use core::net::IpAddr;

/// Takes the Child SA that IKE_AUTH creates from the requested ones. `None`: the IKE SA begins without.
pub(super) fn take_first_child(
    common: &SaCommon,
    peer: &PeerFeatures,
    queued_children: &mut VecDeque<ChildRequest>,
    step: &mut Step<'_, '_>,
) -> Result<Option<Box<ChildNegotiation>>, StateFault> {
    let childless = match common.connection.childless {
        Childless::Force => true,
        Childless::Prefer => peer.childless,
        Childless::Never | Childless::Allow => queued_children.is_empty() && peer.childless,
    };
    let Some(child_request) = queued_children.pop_front_if(|_| !childless) else { return Ok(None) };
    let dynamic_addrs = dynamic_addrs_of_request(common, &common.connection.vips);
    ChildNegotiation::new(child_request, &dynamic_addrs, false, step).map(|first| Some(Box::new(first)))
}

impl AuthSent {
    /// Establishes the IKE SA with what the last response contains.
    pub(super) fn establish(
        self: Box<Self>,
        common: &mut SaCommon,
        peer: PeerAuthenticated,
        content: &Content<'_>,
        step: &mut Step<'_, '_>,
    ) -> State {
        self.exchange_finished(common, step);
        let Self { mut channel, init, first_child, queued_children, .. } = *self;
        #[cfg(feature = "ppk")]
        let peer = {
            let mut peer = peer;
            if let Some(UsedPpk { id, sk_d }) = init.ppk.into_used(content) {
                channel.sk_d = sk_d;
                peer.set_ppk(id);
            }
            peer
        };
        channel.peer_token = PeerToken::from_message(content);
        #[cfg(feature = "records")]
        {
            channel.sync = SyncState::new(SyncSupport::announced(content));
        }
        let mut assigned = content.cp.map(|cp| config_payload::read_reply(&cp)).unwrap_or_default();
        config_payload::refuse_addrs(
            &mut assigned,
            common.path,
            &step.shared.assigned_addrs,
            step.context.routes,
        );
        #[cfg(feature = "split-dns")]
        {
            let policy = &common.connection.dns_domains;
            content.cp.iter().for_each(|cp| config_payload::add_domains(&mut assigned, cp, policy));
        }
        let dynamic_addrs = dynamic_addrs_with(common, &assigned);
        let has_no_address = content.has_notify(NotifyType::INTERNAL_ADDRESS_FAILURE);
        // A Child SA would have an address that this host does not have.
        let is_without_addrs = !common.connection.vips.is_empty()
            && assigned.addrs.is_empty()
            && !assigned.refused_addrs.is_empty();
        let refusal = is_without_addrs.then(|| DownReason::Fault(StateFault::AddressRefused.into()));
        let queued = queued_children.iter().map(|child_request| child_request.config.clone());
        let requested: Vec<Arc<ChildConfig>> =
            first_child.iter().map(|first| first.request.config.clone()).chain(queued).collect();
        let mut tasks: VecDeque<Task> =
            queued_children.into_iter().map(|child_request| Task::Child(Box::new(child_request))).collect();
        // There are many IKE SAs, and most have one Child SA. A larger capacity would waste memory.
        let mut children = Vec::with_capacity(1);
        let mut failure = refusal;
        let mut failed_child = None;
        if let Some(mut first_child) = first_child {
            let nonces = Nonces { initiator: &init.nonce_i, responder: &init.nonce_r };
            let (prf, d, role) = (channel.suite.prf, &channel.sk_d, Role::Initiator);
            let source = KeymatSource { prf, sk_d: d, nonces, secrets: &[], role };
            let made = match (content.error().filter(|_| content.sa.is_none()), refusal) {
                (Some(refused), _) => Err(DownReason::Refused(refused)),
                (None, Some(refusal)) => Err(refusal),
                (None, None) => first_child
                    .accept(content, Substitution::new(init.nat, common.path))
                    .inspect_err(|fault| first_child.explain(*fault, content, step))
                    .map_err(DownReason::Fault)
                    .and_then(|answer| {
                        let owner = ChildOwner::new(common, common.id, init.nat);
                        let config = &first_child.request.config;
                        let child = install(NewChild::first(config, answer.agreed), &source, &owner, step);
                        child.map_err(|fault| DownReason::Fault(fault.into()))
                    }),
            };
            match made {
                Ok(mut child) => {
                    child.attempts = first_child.request.attempts;
                    tasks.extend(common.delete_if_unconfigured(child.id, &child.config));
                    children.push(child);
                }
                Err(reason) => {
                    step.host.release_spi(first_child.spi);
                    // RFC 7296 section 3.15.4: only another IKE SA can have an address.
                    if has_no_address || matches!(reason, DownReason::Fault(_)) {
                        failure = failure.or(Some(reason));
                    }
                    let (connection, child) = (common.connection.clone(), first_child.request.config.clone());
                    failed_child = Some(Event::ChildFailed { connection, child, replaces: None, reason });
                }
            }
        }
        if let Some(reason) = failure {
            // After a fault, the peer may have a Child SA that does not exist here.
            tasks.push_front(Task::DeleteIke(reason));
            if let DownReason::Fault(fault) = reason {
                step.sa_fault(fault, common.path, common);
            }
            restore_later(common, requested, reason, step);
        }
        step.shared.events.extend(failed_child);
        #[cfg(feature = "resumption")]
        common.end_resumed(step);
        tasks.extend(common.predecessor.take().map(|old| Task::DeletePredecessor(old.origin)));
        if !assigned.addrs.is_empty() || !assigned.refused_addrs.is_empty() {
            let fresh = step.shared.assigned_addrs.add(&assigned.addrs);
            step.event(Event::ConfigAssigned {
                ike: common.id,
                connection: common.connection.clone(),
                config: assigned.clone(),
                new_addrs: fresh,
            });
        }
        let leased = Vec::new();
        let peer = Arc::new(peer);
        let contents = SaContents {
            peer,
            nat: init.nat,
            dynamic_addrs,
            #[cfg(feature = "mobike")]
            mobike: crate::mobike::Mobike::negotiated(
                common,
                content,
                init.nat,
                init.peer.nat_traversal,
                Role::Initiator,
                step.context.routes,
            ),
            leased,
            assigned: (assigned != AssignedConfig::default()).then(|| Box::new(assigned)),
            children,
            path_search: PathSearch::OFF,
            tasks,
        };
        let established = Established::new(common, channel, contents, step);
        #[cfg(feature = "eap")]
        let established = {
            let mut established = established;
            established.limit_authentication(content, step);
            established
        };
        #[cfg(feature = "resumption")]
        let established = established.with_requested_ticket(common, content, step);
        let established = Box::new(established);
        established.start_next_task(common, step)
    }
}

/// Addresses for `dynamic` selectors before our virtual address is known: any address of the requested IP
/// versions.
fn dynamic_addrs_of_request(common: &SaCommon, vips: &[IpAddr]) -> DynamicAddrs {
    let own = if vips.is_empty() { [common.path.local.ip()].into() } else { vips.to_vec() };
    DynamicAddrs { local: own, remote: [common.path.remote.ip()].into(), unproved: None }
}

/// Addresses for `dynamic` selectors. A host that has requested a virtual address and has got none has none:
/// its own address would be seen outside of the tunnel.
fn dynamic_addrs_with(common: &SaCommon, assigned: &AssignedConfig) -> DynamicAddrs {
    let own = match &*assigned.addrs {
        [] if common.connection.vips.is_empty() => [common.path.local.ip()].into(),
        addrs => addrs.into(),
    };
    DynamicAddrs { local: own, remote: [common.path.remote.ip()].into(), unproved: None }
}
