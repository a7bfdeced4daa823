//! Effects: what a step of one IKE SA requests for others. The engine runs them after the step.

use super::Ike;
use crate::config::{ChildConfig, Connection};
use crate::engine::retries::Retry;
use crate::state::{IkeSa, SaContents, State};
use crate::{Context, DownReason, Host, IkeSaId, Path};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// Upper bound for the chain of effects of one message. No message reaches it.
const MAX_EFFECTS: usize = 16;

/// Action that a state requests from the engine.
pub(crate) enum Effect {
    /// Inserts the successor of an IKE SA.
    InsertSa(Box<IkeSa>),
    /// Moves the contents of another IKE SA to this one. The peer is at the path from which the other IKE SA
    /// received its last message.
    AdoptContents(IkeSaId, Box<SaContents>, Path),
    /// Waits for the peer to close this redundant IKE SA.
    AwaitDelete(IkeSaId),
    /// Drops this IKE SA if it has been replaced: the peer need not close it any more.
    DropReplaced(IkeSaId),
    /// Reports to the first IKE SA that the successor made by the peer (second) is closed.
    PeerSuccessorClosed(IkeSaId, IkeSaId),
    /// Closes another IKE SA, with a message to the peer, or without one if the peer has forgotten the IKE
    /// SA.
    Close { ike: IkeSaId, reason: DownReason, notify_peer: bool },
    /// Closes an IKE SA at once: one message is sent, and its response is not awaited.
    Evict(IkeSaId),
    /// Starts a connection again.
    Retry(Retry),
    /// Sets up a new IKE SA beside this one (RFC 7296 section 2.8.3).
    Reauthenticate(IkeSaId),
    /// Sets up a new IKE SA beside this one, which the peer seems to have forgotten.
    ReplaceForgotten(IkeSaId),
    /// Sets up a new IKE SA with another gateway beside this one.
    #[cfg(feature = "redirect")]
    Redirect(IkeSaId, Box<crate::redirect::Redirect>),
    /// Closes the IKE SA with this origin: its reauthentication is complete.
    Reauthenticated(IkeSaId),
    /// Closes this IKE SA if the peer has set up another one at the same time.
    #[cfg(feature = "records")]
    CloseDuplicate(IkeSaId),
    /// The peer has refused the IKE SA that reauthenticates another one.
    ReauthenticationRefused(Box<RefusedReauthentication>),
}

/// A refused reauthentication.
pub(crate) struct RefusedReauthentication {
    /// Origin of the IKE SA that was to be reauthenticated.
    pub(crate) origin: IkeSaId,
    pub(crate) connection: Arc<Connection>,
    /// Child SAs that the refused IKE SA requested.
    pub(crate) children: Vec<Arc<ChildConfig>>,
}

impl Effect {
    /// Whether the effect closes this IKE SA because another replaces it.
    pub(crate) fn closes(&self, id: IkeSaId) -> bool {
        matches!(self, Self::Close { ike, .. } | Self::Evict(ike) if *ike == id)
    }
}

impl Ike {
    /// Runs the effects that states have requested. An effect may request further effects; such chains are
    /// short.
    pub(super) fn run_effects(&mut self, host: &mut dyn Host, context: &mut Context<'_>) {
        for _ in 0..MAX_EFFECTS {
            let effects = core::mem::take(&mut self.shared.effects);
            if effects.is_empty() {
                return;
            }
            effects.into_iter().for_each(|effect| self.run_effect(effect, host, context));
        }
    }

    fn run_effect(&mut self, effect: Effect, host: &mut dyn Host, context: &mut Context<'_>) {
        match effect {
            Effect::InsertSa(sa) => {
                let id = sa.common.id;
                self.sas.insert(*sa);
                self.apply_to_sa(id, host, context, IkeSa::start_next_task);
                self.close_excess_replaced(host, context);
            }
            Effect::AdoptContents(id, contents, path) => {
                self.shared.set_owner(&contents.children, id);
                match self.sas.get_mut(id) {
                    Some(IkeSa { common, state: State::Established(successor) }) => {
                        successor.adopt_contents(common, *contents, path);
                    }
                    _ => contents.release(id, id, DownReason::DeadPeer, &mut self.step(host, context)),
                }
                self.apply_to_sa(id, host, context, IkeSa::start_next_task);
            }
            Effect::AwaitDelete(id) => {
                self.apply_to_sa(id, host, context, IkeSa::await_delete);
            }
            Effect::DropReplaced(id) if self.sas.get(id).is_some_and(IkeSa::is_replaced) => {
                self.apply_to_sa(id, host, context, |sa, step| sa.drop_silently(DownReason::Replaced, step));
            }
            Effect::DropReplaced(_) => {}
            Effect::PeerSuccessorClosed(id, peer_successor) => {
                self.apply_to_sa(id, host, context, |sa, _| sa.peer_successor_closed(peer_successor));
            }
            Effect::Close { ike, reason, notify_peer } => {
                if let Some(origin) = self.sas.get(ike).map(IkeSa::origin).filter(|_| !notify_peer) {
                    self.cancel_replacement(origin, host, context);
                }
                self.apply_to_sa(ike, host, context, |sa, step| {
                    if notify_peer { sa.close(reason, step) } else { sa.drop_silently(reason, step) }
                });
            }
            Effect::Evict(id) => {
                let reason = DownReason::NotUnique;
                self.apply_to_sa(id, host, context, |sa, step| {
                    sa.close(reason, step).drop_silently(reason, step)
                });
            }
            Effect::Retry(retry) if retry.at <= context.now => self.retry(retry, host, context),
            Effect::Retry(retry) => self.shared.retries.add(retry),
            Effect::Reauthenticate(id) => self.reauthenticate(id, host, context),
            Effect::ReplaceForgotten(id) => self.replace_forgotten(id, host, context),
            #[cfg(feature = "redirect")]
            Effect::Redirect(id, redirect) => self.follow_redirect(id, *redirect, host, context),
            Effect::Reauthenticated(origin) => self.close_origin(origin, host, context),
            #[cfg(feature = "records")]
            Effect::CloseDuplicate(id) => self.close_duplicate(id, host, context),
            Effect::ReauthenticationRefused(refused) => {
                self.note_refused_reauthentication(*refused, host, context);
            }
        }
    }

    /// Closes replaced IKE SAs, oldest first, until their number is within the limit.
    pub(super) fn close_excess_replaced(&mut self, host: &mut dyn Host, context: &mut Context<'_>) {
        let limit = self.shared.settings.ike_sas_with_replaced();
        while self.sas.len() > limit
            && let Some(oldest) = self.sas.oldest_replaced()
        {
            self.apply_to_sa(oldest, host, context, |sa, step| sa.drop_silently(DownReason::Replaced, step));
        }
    }
}
