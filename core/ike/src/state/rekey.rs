//! CREATE_CHILD_SA for rekeying an IKE SA (RFC 7296 sections 1.3.2, 2.8.2, 2.18 and 2.25.2).

use super::tasks::Pending;
use crate::context::{KexResponse, Step};
#[cfg(feature = "records")]
use crate::counter_sync::SyncState;
use crate::crash_token::PeerToken;
use crate::engine::effects::Effect;
use crate::keymat::{Nonces, ReplacedKeys, SaKeys};
use crate::negotiate::{Chosen, IkeSuite, Offer, choose, with_proposals};
use crate::state::{Established, IkeSa, SaCommon, SaContents, State, Task};
use crate::transport::{Build, Content, SecureChannel, Window, required};
use crate::{IkeSaId, IkeSpis, PeerFault, Role, StateFault};
use alloc::boxed::Box;
use alloc::vec::Vec;
use casemate_crypto::{KexMethod, KexSecret, SecretBytes};
use casemate_wire::ike::{ExchangeType, IkeSpi, Ke, KeMethod, Nonce, NotifyType, WriteError};

/// A requested successor.
pub(crate) struct PendingRekey {
    pub(super) spi: IkeSpi,
    pub(super) nonce: Vec<u8>,
    pub(super) stage: RekeyStage,
    pub(super) simultaneous: Option<SimultaneousRekey>,
}

/// Which request for a successor is outstanding.
pub(super) enum RekeyStage {
    /// CREATE_CHILD_SA.
    Requested(Box<RekeyRequest>),
    /// IKE_FOLLOWUP_KE.
    #[cfg(feature = "multiple-kex")]
    Series(Box<super::kex_series::RekeySeries>),
}

/// What a CREATE_CHILD_SA request for a successor offers.
pub(super) struct RekeyRequest {
    pub(super) offers: Vec<Offer>,
    pub(super) method: KexMethod,
    pub(super) kex: Box<dyn KexSecret>,
    /// Whether the peer asked for this key exchange method.
    pub(super) kex_corrected: bool,
}

/// What the peer's response to CREATE_CHILD_SA says of the successor.
pub(super) struct RekeyAnswer {
    pub(super) suite: IkeSuite,
    pub(super) spi_r: IkeSpi,
    pub(super) nonce_r: Vec<u8>,
    pub(super) token: Option<PeerToken>,
    /// Secrets of the completed key exchanges.
    pub(super) secrets: Vec<SecretBytes>,
}

impl PendingRekey {
    /// Successor that the peer's simultaneous exchange made, if it is still open.
    pub(super) fn peer_successor(&self) -> Option<IkeSaId> {
        self.simultaneous
            .as_ref()
            .filter(|simultaneous| !simultaneous.is_closed)
            .and_then(|simultaneous| simultaneous.ike)
    }

    /// Whether additional key exchanges are under way.
    #[cfg(feature = "multiple-kex")]
    pub(super) const fn is_in_series(&self) -> bool {
        matches!(self.stage, RekeyStage::Series(_))
    }
}

/// Successor that the peer's simultaneous exchange made.
pub(super) struct SimultaneousRekey {
    /// The successor; `None` while additional key exchanges are awaited.
    pub(super) ike: Option<IkeSaId>,
    /// The lower of the two nonces of the peer's exchange.
    pub(super) lowest_nonce: Vec<u8>,
    /// Whether it has been closed. The response to our request tells whether the peer closed it as the
    /// redundant one or together with everything else.
    pub(super) is_closed: bool,
}

/// Result of an exchange that makes a successor.
pub(super) struct RekeyExchange<'a> {
    pub(super) suite: IkeSuite,
    /// Secrets of the key exchanges, in order.
    pub(super) secrets: &'a [SecretBytes],
    pub(super) nonces: Nonces<'a>,
    /// SPIs of the successor: of its initiator and its responder.
    pub(super) spis: IkeSpis,
    /// Our role in the exchange.
    pub(super) role: Role,
}

/// A successor that is not inserted yet.
pub(super) struct Successor {
    pub(super) common: SaCommon,
    pub(super) channel: SecureChannel,
}

/// Initial state of a successor beside Child SAs.
#[derive(Default)]
pub(super) struct SuccessorOptions {
    /// IKE SA whose own exchange decides whether the successor stays.
    pub(super) provisional: Option<IkeSaId>,
    pub(super) task: Option<Task>,
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
        let offers = Offer::all_ike(&common.connection);
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
        let request = RekeyRequest { offers, method, kex, kex_corrected: wanted.is_some() };
        let stage = RekeyStage::Requested(Box::new(request));
        let pending = PendingRekey { spi, nonce, stage, simultaneous: None };
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
        // A lost exchange may do the same, and what it has made is deleted in this IKE SA.
        #[cfg(feature = "records")]
        if matches!(self.pending, Some(Pending::Lost(_) | Pending::DeleteSpi(_))) {
            return Err(StateFault::Busy.into());
        }
        // One successor of the peer beside ours is enough.
        if self.peer_successor().is_some() {
            return Err(StateFault::Busy.into());
        }
        // RFC 9370 section 2.2.4: our own exchange has been completed, and its key exchanges go on.
        #[cfg(feature = "multiple-kex")]
        if matches!(&self.pending, Some(Pending::Rekey(pending)) if pending.is_in_series()) {
            return Err(StateFault::Busy.into());
        }
        let (sa, ke, nonce_i) =
            (required(content.sa)?, required(content.ke)?, required(content.nonce)?.data());
        let offers = Offer::all_ike(&common.connection);
        let chosen = choose(&offers, &sa, KexMethod::from_id(ke.method.0), true).inspect_err(|fault| {
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
        let secrets = &[shared];
        let exchange = RekeyExchange { suite, secrets, nonces, spis, role: Role::Responder };
        let token = step.crash_token(spis);
        let write: Build<'_> = &|out| {
            chosen.with_proposal(&spi_r.0.to_be_bytes(), |proposal| out.sa(proposal))?;
            out.nonce(&Nonce::parse(&nonce_r).map_err(WriteError::Invalid)?)?;
            out.ke(&Ke { method: KeMethod(suite.kex.id()), data: &public })?;
            token.iter().try_for_each(|token| out.notify(&token.notify()))
        };
        #[cfg(feature = "multiple-kex")]
        if !suite.additional.is_empty() {
            return self.await_rekey_series(common, &exchange, write, step).map_err(PeerFault::from);
        }
        let made =
            self.add_responded_successor(common, &exchange, ExchangeType::CREATE_CHILD_SA, write, step);
        made.map_err(PeerFault::from)
    }

    /// Makes the successor that the peer has requested, and sends the last response.
    pub(super) fn add_responded_successor(
        &mut self,
        common: &SaCommon,
        exchange: &RekeyExchange<'_>,
        kind: ExchangeType,
        write: Build<'_>,
        step: &mut Step<'_, '_>,
    ) -> Result<(), StateFault> {
        let successor = self.negotiated_successor(common, exchange, step)?;
        let sent = self.channel.send_response(common, kind, step, write);
        sent.map_err(|_| StateFault::Provider)?;
        let lowest_nonce = exchange.nonces.initiator.min(exchange.nonces.responder);
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
        lowest_nonce: &[u8],
        step: &mut Step<'_, '_>,
    ) {
        if self.note_simultaneous_rekey(Some(successor.common.id), lowest_nonce) {
            // RFC 7296 section 2.8.2: the response to our request decides which of the two successors stays.
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

    /// Notes that the peer requests a successor, too. Returns false if no request of ours is outstanding.
    pub(super) fn note_simultaneous_rekey(&mut self, ike: Option<IkeSaId>, lowest_nonce: &[u8]) -> bool {
        let Some(Pending::Rekey(pending)) = &mut self.pending else { return false };
        let lowest_nonce = lowest_nonce.into();
        pending.simultaneous = Some(SimultaneousRekey { ike, lowest_nonce, is_closed: false });
        true
    }

    /// Creates common fields and secure channel of a successor.
    pub(super) fn negotiated_successor(
        &self,
        common: &SaCommon,
        exchange: &RekeyExchange<'_>,
        step: &mut Step<'_, '_>,
    ) -> Result<Successor, StateFault> {
        let RekeyExchange { suite, secrets, nonces, spis, role } = *exchange;
        let old = ReplacedKeys { prf: self.channel.suite.prf, sk_d: &self.channel.sk_d };
        let keys = SaKeys::rekeyed(old, suite.prf, suite.sk, secrets, nonces, spis, step.context.providers);
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
        #[cfg(feature = "records")]
        let channel = channel.with_sync(SyncState::new(self.channel.sync.support));
        Ok(Successor { common: new, channel })
    }

    pub(super) fn insert_successor(
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
}

/// SPI of the peer in the chosen proposal.
pub(super) fn spi_of(chosen: &Chosen) -> Result<IkeSpi, StateFault> {
    let value = chosen.spi.as_slice().try_into().map_or(0, u64::from_be_bytes);
    if value == 0 { Err(StateFault::ZeroSpi) } else { Ok(IkeSpi(value)) }
}
