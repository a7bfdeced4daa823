//! CREATE_CHILD_SA for rekeying an IKE SA (RFC 7296 sections 1.3.2, 2.8.2, 2.18 and 2.25.2).

use super::established::Phase;
use super::tasks::Pending;
use super::timers::Timer;
use crate::context::{KexResponse, Step};
use crate::crash_token::PeerToken;
use crate::engine::effects::Effect;
use crate::keymat::{Nonces, ReplacedKeys, SaKeys};
use crate::negotiate::{Chosen, IkeSuite, Offer, choose, verify_choice, with_proposals};
use crate::state::{Established, IkeSa, SaCommon, SaContents, State, Task};
use crate::transport::{Content, SecureChannel, Window, required};
use crate::{DownReason, IkeSaId, IkeSpis, PeerFault, Role, StateFault};
use alloc::boxed::Box;
use alloc::vec::Vec;
use casemate_crypto::{KexMethod, KexSecret, SecretBytes};
use casemate_wire::ike::{ExchangeType, IkeSpi, Ke, KeMethod, Nonce, NotifyType, WriteError};

/// A requested successor.
pub(crate) struct PendingRekey {
    pub(super) spi: IkeSpi,
    pub(super) offers: Vec<Offer>,
    method: KexMethod,
    kex: Box<dyn KexSecret>,
    nonce: Vec<u8>,
    /// Whether the peer asked for this key exchange method.
    kex_corrected: bool,
    pub(super) simultaneous: Option<SimultaneousRekey>,
}

impl PendingRekey {
    /// Successor that the peer's simultaneous exchange made, if it is still open.
    pub(super) fn peer_successor(&self) -> Option<IkeSaId> {
        self.simultaneous
            .as_ref()
            .filter(|simultaneous| !simultaneous.is_closed)
            .map(|simultaneous| simultaneous.ike)
    }
}

/// Successor that the peer's simultaneous exchange made.
pub(super) struct SimultaneousRekey {
    pub(super) ike: IkeSaId,
    /// The lower of the two nonces of the peer's exchange.
    lowest_nonce: Vec<u8>,
    /// Whether it has been closed. The response to our request tells whether the peer closed it as the
    /// redundant one or together with everything else.
    pub(super) is_closed: bool,
}

/// Result of an exchange that makes a successor.
struct RekeyExchange<'a> {
    suite: IkeSuite,
    /// g^ir of the exchange.
    shared: &'a SecretBytes,
    nonces: Nonces<'a>,
    /// SPIs of the successor: of its initiator and its responder.
    spis: IkeSpis,
    /// Our role in the exchange.
    role: Role,
}

/// A successor that is not inserted yet.
struct Successor {
    common: SaCommon,
    channel: SecureChannel,
}

/// Why our request made no successor.
enum RekeyFailure {
    /// The peer's own exchange has made one.
    PeerSuccessor(SimultaneousRekey),
    /// The peer reports TEMPORARY_FAILURE.
    Busy,
    /// The peer reports any other error.
    Refused(NotifyType),
    /// The peer violated the protocol, which has been reported.
    Fault,
}

/// Initial state of a successor beside Child SAs.
#[derive(Default)]
struct SuccessorOptions {
    /// IKE SA whose own exchange decides whether the successor stays.
    provisional: Option<IkeSaId>,
    task: Option<Task>,
}

impl Established {
    /// Sends a request for a successor.
    pub(super) fn request_rekey(
        &mut self,
        common: &SaCommon,
        step: &mut Step<'_, '_>,
    ) -> Result<Option<Pending>, StateFault> {
        self.request_rekey_with(common, None, step)
    }

    pub(super) fn request_rekey_with(
        &mut self,
        common: &SaCommon,
        wanted: Option<KexMethod>,
        step: &mut Step<'_, '_>,
    ) -> Result<Option<Pending>, StateFault> {
        let offers: Vec<Offer> = common.connection.proposals.iter().map(Offer::ike).collect();
        let first = offers.iter().find_map(|offer| offer.kex().next());
        // The peer will accept the method that it accepted before.
        let known =
            Some(self.channel.suite.kex).filter(|kex| offers.iter().any(|o| o.kex().any(|m| m == *kex)));
        let method = wanted.or(known).or(first).ok_or(StateFault::NoProposalChosen)?;
        let kex = step.context.providers.kex(method, step.context.rng).map_err(|_| StateFault::Provider)?;
        let (spi, nonce) = (step.ike_spi(), step.nonce());
        let sent = self.channel.send_request(common, ExchangeType::CREATE_CHILD_SA, step, &|out| {
            with_proposals(&offers, &spi.0.to_be_bytes(), |proposals| out.sa(proposals))?;
            out.nonce(&Nonce::parse(&nonce).map_err(WriteError::Invalid)?)?;
            out.ke(&Ke { method: KeMethod(method.id()), data: kex.public() })
        });
        sent.map_err(|_| StateFault::Provider)?;
        let corrected = wanted.is_some();
        let pending =
            PendingRekey { spi, offers, method, kex, nonce, kex_corrected: corrected, simultaneous: None };
        Ok(Some(Pending::Rekey(Box::new(pending))))
    }

    /// Responds to a request for a successor.
    pub(super) fn on_rekey(
        &mut self,
        common: &SaCommon,
        content: &Content<'_>,
        step: &mut Step<'_, '_>,
    ) -> Result<(), PeerFault> {
        // RFC 7296 section 2.25.2: no rekeying while a Child SA is being created, rekeyed or deleted.
        if matches!(self.pending, Some(Pending::Child(_) | Pending::DeleteChild { .. })) {
            return Err(StateFault::Busy.into());
        }
        // One successor of the peer beside ours is enough.
        if self.peer_successor().is_some() {
            return Err(StateFault::Busy.into());
        }
        let (sa, ke, nonce_i) =
            (required(content.sa)?, required(content.ke)?, required(content.nonce)?.data());
        let offers: Vec<Offer> = common.connection.proposals.iter().map(Offer::ike).collect();
        let chosen = choose(&offers, &sa, KexMethod::from_id(ke.method.0)).inspect_err(|fault| {
            step.explain_proposals(*fault, true, &sa, &offers);
        })?;
        let suite = IkeSuite::of(&chosen).ok_or(StateFault::NoProposalChosen)?;
        if ke.method.0 != suite.kex.id() {
            step.sa_fault(StateFault::KeMethod.into(), common.path, common);
            let data = suite.kex.id().to_be_bytes();
            let kind = NotifyType::INVALID_KE_PAYLOAD;
            self.channel.send_notify(common, ExchangeType::CREATE_CHILD_SA, kind, &data, step);
            return Ok(());
        }
        let KexResponse { public, shared, .. } = step.respond_to_kex(suite.kex, ke.data)?;
        let (spi_r, nonce_r) = (step.ike_spi(), step.nonce());
        let spis = IkeSpis { initiator: spi_of(&chosen)?, responder: spi_r };
        let nonces = Nonces { initiator: nonce_i, responder: &nonce_r };
        let exchange = RekeyExchange { suite, shared: &shared, nonces, spis, role: Role::Responder };
        let successor = self.negotiated_successor(common, &exchange, step)?;
        let token = step.crash_token(spis);
        let sent = self.channel.send_response(common, ExchangeType::CREATE_CHILD_SA, step, &|out| {
            chosen.with_proposal(&spi_r.0.to_be_bytes(), |proposal| out.sa(proposal))?;
            out.nonce(&Nonce::parse(&nonce_r).map_err(WriteError::Invalid)?)?;
            out.ke(&Ke { method: KeMethod(suite.kex.id()), data: &public })?;
            token.iter().try_for_each(|token| out.notify(&token.notify()))
        });
        sent.map_err(|_| StateFault::Provider)?;
        let lowest_nonce: Vec<u8> = nonce_i.min(&nonce_r).into();
        self.add_peer_successor(common, successor, lowest_nonce, step);
        // The peer uses this IKE SA, so it no longer waits for the response that made it. A peer that rekeys
        // again and again keeps two IKE SAs at most.
        self.predecessor.take().into_iter().for_each(|old| step.effect(Effect::DropReplaced(old)));
        Ok(())
    }

    /// Adds the successor that the peer requested. It takes the Child SAs, unless a request of ours is
    /// pending.
    fn add_peer_successor(
        &mut self,
        common: &SaCommon,
        successor: Successor,
        lowest_nonce: Vec<u8>,
        step: &mut Step<'_, '_>,
    ) {
        if let Some(Pending::Rekey(pending)) = &mut self.pending {
            // RFC 7296 section 2.8.2: the response to our request decides which of the two successors stays.
            pending.simultaneous =
                Some(SimultaneousRekey { ike: successor.common.id, lowest_nonce, is_closed: false });
            let nothing = self.contents.empty_like();
            self.insert_successor(
                common,
                successor,
                nothing,
                SuccessorOptions { provisional: Some(common.id), task: None },
                step,
            );
        } else {
            let contents = self.take_contents();
            self.insert_successor(common, successor, contents, SuccessorOptions::default(), step);
            self.await_delete(common, step);
        }
    }

    /// Creates common fields and secure channel of a successor.
    fn negotiated_successor(
        &self,
        common: &SaCommon,
        exchange: &RekeyExchange<'_>,
        step: &mut Step<'_, '_>,
    ) -> Result<Successor, StateFault> {
        let RekeyExchange { suite, shared, nonces, spis, role } = *exchange;
        let old = ReplacedKeys { prf: self.channel.suite.prf, sk_d: &self.channel.sk_d };
        let keys = SaKeys::rekeyed(old, suite.prf, suite.sk, shared, nonces, spis, step.context.providers);
        let keys = keys.map_err(|_| StateFault::Provider)?;
        let new = SaCommon {
            attempts: common.attempts,
            #[cfg(feature = "redirect")]
            redirect: common.redirect.clone(),
            #[cfg(feature = "resumption")]
            resumes: common.resumes,
            ..SaCommon::new(common.connection.clone(), common.path, role, spis, step)
        };
        // RFC 7296 section 2.18: message IDs start at 0 again.
        let channel =
            SecureChannel::new(&new, suite, &keys, Window::new(0, 0), self.channel.fragments, step)?;
        Ok(Successor { common: new, channel })
    }

    fn insert_successor(
        &self,
        old: &SaCommon,
        successor: Successor,
        contents: SaContents,
        fresh: SuccessorOptions,
        step: &mut Step<'_, '_>,
    ) {
        let Successor { common, channel } = successor;
        let mut state = self.successor(old, &common, channel, contents, step);
        state.provisional = fresh.provisional;
        state.tasks.extend(fresh.task);
        let sa = IkeSa { common, state: State::Established(Box::new(state)) };
        step.effect(Effect::InsertSa(Box::new(sa)));
    }

    /// Handles the response to our request.
    pub(super) fn on_rekey_response(
        &mut self,
        common: &SaCommon,
        pending: PendingRekey,
        response: Result<Content<'_>, PeerFault>,
        step: &mut Step<'_, '_>,
    ) {
        let refusal = response.as_ref().ok().and_then(|content| content.error());
        let made = match (&response, refusal) {
            (Ok(content), Some(NotifyType::INVALID_KE_PAYLOAD))
                if !pending.kex_corrected && pending.simultaneous.is_none() =>
            {
                return self.retry_with_kex(common, &pending, content, step);
            }
            (Ok(content), None) => self.complete_rekey(common, pending, content, step),
            (_, refusal) => Err(match (pending.simultaneous, refusal) {
                (Some(simultaneous), _) => RekeyFailure::PeerSuccessor(simultaneous),
                (None, Some(NotifyType::TEMPORARY_FAILURE)) => RekeyFailure::Busy,
                (None, Some(refusal)) => RekeyFailure::Refused(refusal),
                (None, None) => RekeyFailure::Fault,
            }),
        };
        match made {
            Ok(()) => {}
            Err(RekeyFailure::PeerSuccessor(simultaneous)) => self.yield_to(&simultaneous, common, step),
            Err(RekeyFailure::Busy) => self.timers.set(Timer::Rekey, Some(Self::busy_retry_at(step))),
            Err(RekeyFailure::Refused(refusal)) => self.rekey_refused(common, refusal, step),
            // Without a successor the IKE SA ends at its expiry.
            Err(RekeyFailure::Fault) => self.rekey_failed(step),
        }
    }

    fn complete_rekey(
        &mut self,
        common: &SaCommon,
        pending: PendingRekey,
        content: &Content<'_>,
        step: &mut Step<'_, '_>,
    ) -> Result<(), RekeyFailure> {
        let PendingRekey { spi, offers, method, kex, nonce, simultaneous, .. } = pending;
        let agreed = || {
            let sa = required(content.sa)?;
            let chosen = verify_choice(&offers, &sa).inspect_err(|fault| {
                step.explain_proposals(*fault, true, &sa, &offers);
            })?;
            let suite = IkeSuite::of(&chosen).ok_or(StateFault::NotOffered)?;
            let (ke, nonce_r) = (required(content.ke)?, required(content.nonce)?.data());
            if suite.kex != method || ke.method.0 != method.id() {
                return Err(PeerFault::State(StateFault::KeMethod));
            }
            let shared = kex.agree(ke.data).map_err(|_| StateFault::KeValue)?;
            Ok((suite, spi_of(&chosen)?, shared, nonce_r))
        };
        let made = agreed().and_then(|(suite, spi_r, shared, nonce_r)| {
            let nonces = Nonces { initiator: &nonce, responder: nonce_r };
            let spis = IkeSpis { initiator: spi, responder: spi_r };
            let exchange = RekeyExchange { suite, shared: &shared, nonces, spis, role: Role::Initiator };
            let mut made = self.negotiated_successor(common, &exchange, step)?;
            made.channel.peer_token = PeerToken::from_message(content);
            Ok((made, nonce_r))
        });
        let (made, nonce_r) = match made {
            Ok(made) => made,
            Err(fault) => {
                step.sa_fault(fault, common.path, common);
                return Err(simultaneous.map_or(RekeyFailure::Fault, RekeyFailure::PeerSuccessor));
            }
        };
        let is_lower = |simultaneous: &SimultaneousRekey| {
            nonce.as_slice().min(nonce_r) < simultaneous.lowest_nonce.as_slice()
        };
        match simultaneous {
            // The peer's successor already has the Child SAs, because the peer uses it.
            simultaneous if self.phase != Phase::Open => {
                self.insert_redundant(common, made, step);
                drop(simultaneous);
            }
            // RFC 7296 section 2.8.2: the lowest nonce is ours, so our successor is redundant.
            Some(simultaneous) if is_lower(&simultaneous) => {
                self.insert_redundant(common, made, step);
                self.yield_to(&simultaneous, common, step);
            }
            simultaneous => {
                // The peer knows that its own successor is redundant.
                simultaneous
                    .into_iter()
                    .for_each(|simultaneous| step.effect(Effect::AwaitDelete(simultaneous.ike)));
                let contents = self.take_contents();
                // The request could not contain our token: it depends on both SPIs (RFC 6290 section 4.3).
                let task = step.crash_token(made.common.spis()).map(|_| Task::SendCrashToken);
                self.insert_successor(
                    common,
                    made,
                    contents,
                    SuccessorOptions { provisional: None, task },
                    step,
                );
                self.mark_replaced(common, step);
                self.tasks.clear();
                self.tasks.push_front(Task::DeleteIke(DownReason::Replaced));
            }
        }
        Ok(())
    }

    /// Hands over to the peer's successor. If the peer has closed it meanwhile, it has closed the Child SAs
    /// with it.
    pub(super) fn yield_to(
        &mut self,
        simultaneous: &SimultaneousRekey,
        common: &SaCommon,
        step: &mut Step<'_, '_>,
    ) {
        if !simultaneous.is_closed {
            self.hand_over_to(simultaneous.ike, common, step);
        } else if self.phase == Phase::Open {
            self.tasks.push_front(Task::DeleteIke(DownReason::Peer));
        }
    }

    /// Inserts our successor, which is redundant, and deletes it at once.
    fn insert_redundant(&self, common: &SaCommon, made: Successor, step: &mut Step<'_, '_>) {
        let task = Some(Task::DeleteIke(DownReason::Replaced));
        self.insert_successor(
            common,
            made,
            self.contents.empty_like(),
            SuccessorOptions { provisional: None, task },
            step,
        );
    }
}

fn spi_of(chosen: &Chosen) -> Result<IkeSpi, StateFault> {
    let value = chosen.spi.as_slice().try_into().map_or(0, u64::from_be_bytes);
    if value == 0 { Err(StateFault::ZeroSpi) } else { Ok(IkeSpi(value)) }
}
