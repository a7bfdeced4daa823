//! Responses to our CREATE_CHILD_SA requests that rekey an IKE SA (RFC 7296 sections 1.3.2, 2.8.2 and
//! 2.25.2).

use super::established::Phase;
use super::rekey::{
    PendingRekey, RekeyAnswer, RekeyExchange, RekeyRequest, RekeyStage, SimultaneousRekey, Successor,
    SuccessorOptions, spi_of,
};
use super::timers::Timer;
use crate::context::Step;
use crate::crash_token::PeerToken;
use crate::engine::effects::Effect;
use crate::keymat::Nonces;
use crate::negotiate::{IkeSuite, verify_choice};
use crate::state::{Established, SaCommon, Task};
use crate::transport::{Content, required};
use crate::{DownReason, IkeSpis, PeerFault, Role, StateFault};
use casemate_wire::ike::{IkeSpi, NotifyType};

impl Established {
    /// Handles the response to our request.
    pub(super) fn on_rekey_response(
        &mut self,
        common: &SaCommon,
        pending: PendingRekey,
        response: Result<Content<'_>, PeerFault>,
        step: &mut Step<'_, '_>,
    ) {
        let Ok(content) = response else {
            return self.rekey_not_made(common, pending.simultaneous, None, step);
        };
        let PendingRekey { spi, nonce, stage, simultaneous } = pending;
        let begun = BegunRekey { spi, nonce: &nonce, simultaneous };
        match stage {
            RekeyStage::Requested(request) => {
                self.on_rekey_answer(common, begun, *request, &content, step);
            }
            #[cfg(feature = "multiple-kex")]
            RekeyStage::Series(series) => {
                self.on_rekey_series_response(common, begun, *series, &content, step);
            }
        }
    }

    /// Handles the response to CREATE_CHILD_SA.
    fn on_rekey_answer(
        &mut self,
        common: &SaCommon,
        begun: BegunRekey<'_>,
        request: RekeyRequest,
        content: &Content<'_>,
        step: &mut Step<'_, '_>,
    ) {
        match content.error() {
            None => {}
            Some(NotifyType::INVALID_KE_PAYLOAD)
                if !request.kex_corrected && begun.simultaneous.is_none() =>
            {
                return self.retry_with_kex(common, &request.offers, content, step);
            }
            refusal => return self.rekey_not_made(common, begun.simultaneous, refusal, step),
        }
        let answer = match read_answer(request, content, step) {
            Ok(answer) => answer,
            Err(fault) => {
                step.sa_fault(fault, common.path, common);
                // The peer has a successor that does not exist here. An ML-KEM ciphertext that fails its
                // check ends the IKE SA as well (draft-ietf-ipsecme-ikev2-mlkem section 2.2).
                if begun.simultaneous.is_none() {
                    self.tasks.push_front(Task::DeleteIke(DownReason::Fault(fault)));
                }
                return self.rekey_not_made(common, begun.simultaneous, None, step);
            }
        };
        #[cfg(feature = "multiple-kex")]
        if !answer.suite.additional.is_empty() {
            return self.begin_rekey_series(common, begun, answer, content, step);
        }
        self.finish_rekey(common, begun, answer, step);
    }

    /// Goes on after the exchange has made no successor: the peer has refused it, or, without `refusal`,
    /// violated the protocol, which has been reported.
    pub(super) fn rekey_not_made(
        &mut self,
        common: &SaCommon,
        simultaneous: Option<SimultaneousRekey>,
        refusal: Option<NotifyType>,
        step: &mut Step<'_, '_>,
    ) {
        match (simultaneous, refusal) {
            // The peer's own exchange makes one.
            (Some(simultaneous), _) => self.yield_to(&simultaneous, common, step),
            (None, Some(NotifyType::TEMPORARY_FAILURE)) => {
                self.timers.set(Timer::Rekey, Some(Self::busy_retry_at(step)));
            }
            (None, Some(refusal)) => self.rekey_refused(common, refusal, step),
            // Without a successor the IKE SA ends at its expiry.
            (None, None) => self.rekey_failed(step),
        }
    }

    /// Makes the successor after the last key exchange.
    pub(super) fn finish_rekey(
        &mut self,
        common: &SaCommon,
        begun: BegunRekey<'_>,
        answer: RekeyAnswer,
        step: &mut Step<'_, '_>,
    ) {
        let is_lowest = begun.is_lowest(&answer);
        let BegunRekey { spi, nonce, simultaneous } = begun;
        let RekeyAnswer { suite, spi_r, nonce_r, token, secrets } = answer;
        let nonces = Nonces { initiator: nonce, responder: &nonce_r };
        let spis = IkeSpis { initiator: spi, responder: spi_r };
        let exchange = RekeyExchange { suite, secrets: &secrets, nonces, spis, role: Role::Initiator };
        let mut made = match self.negotiated_successor(common, &exchange, step) {
            Ok(made) => made,
            Err(fault) => {
                step.sa_fault(fault.into(), common.path, common);
                return self.rekey_not_made(common, simultaneous, None, step);
            }
        };
        made.channel.peer_token = token;
        match simultaneous {
            // The peer's successor already has the Child SAs, because the peer uses it.
            _ if self.phase != Phase::Open => self.insert_redundant(common, made, step),
            // RFC 7296 section 2.8.2: the lowest nonce is ours, so our successor is redundant.
            Some(simultaneous) if is_lowest => {
                self.insert_redundant(common, made, step);
                self.yield_to(&simultaneous, common, step);
            }
            simultaneous => {
                // The peer knows that its own successor is redundant.
                let redundant = simultaneous.and_then(|simultaneous| simultaneous.ike);
                redundant.into_iter().for_each(|ike| step.effect(Effect::AwaitDelete(ike)));
                #[cfg(feature = "multiple-kex")]
                self.drop_series(step);
                self.replace_with(common, made, step);
            }
        }
    }

    /// Hands over to our successor, and closes this IKE SA.
    fn replace_with(&mut self, common: &SaCommon, made: Successor, step: &mut Step<'_, '_>) {
        let contents = self.take_contents();
        // The request could not contain our token: it depends on both SPIs (RFC 6290 section 4.3).
        let task = step.crash_token(made.common.spis()).map(|_| Task::SendCrashToken);
        let options = SuccessorOptions { provisional: None, task };
        self.insert_successor(common, made, contents, options, step);
        self.mark_replaced(common, step);
        self.tasks.clear();
        self.tasks.push_front(Task::DeleteIke(DownReason::Replaced));
    }

    /// Hands over to the peer's successor. If the peer has closed it meanwhile, it has closed the Child SAs
    /// with it.
    pub(super) fn yield_to(
        &mut self,
        simultaneous: &SimultaneousRekey,
        common: &SaCommon,
        step: &mut Step<'_, '_>,
    ) {
        match simultaneous.ike {
            Some(ike) if !simultaneous.is_closed => self.hand_over_to(ike, common, step),
            Some(_) if self.phase == Phase::Open => self.tasks.push_front(Task::DeleteIke(DownReason::Peer)),
            Some(_) => {}
            #[cfg(feature = "multiple-kex")]
            None if self.give_way_to_series() => {}
            None => self.rekey_failed(step),
        }
    }

    /// Inserts our successor, which is redundant, and deletes it at once.
    fn insert_redundant(&self, common: &SaCommon, made: Successor, step: &mut Step<'_, '_>) {
        let task = Some(Task::DeleteIke(DownReason::Replaced));
        let options = SuccessorOptions { provisional: None, task };
        self.insert_successor(common, made, self.contents.empty_like(), options, step);
    }
}

/// Our side of a rekeying.
pub(super) struct BegunRekey<'a> {
    pub(super) spi: IkeSpi,
    pub(super) nonce: &'a [u8],
    pub(super) simultaneous: Option<SimultaneousRekey>,
}

impl BegunRekey<'_> {
    /// Whether the lowest nonce of two simultaneous exchanges is one of ours, so that the peer's exchange
    /// makes the successor (RFC 7296 section 2.8.2).
    pub(super) fn is_lowest(&self, answer: &RekeyAnswer) -> bool {
        let lowest = self.nonce.min(&answer.nonce_r);
        self.simultaneous.as_ref().is_some_and(|other| lowest < other.lowest_nonce.as_slice())
    }
}

/// Evaluates the response to CREATE_CHILD_SA.
fn read_answer(
    request: RekeyRequest,
    content: &Content<'_>,
    step: &mut Step<'_, '_>,
) -> Result<RekeyAnswer, PeerFault> {
    let RekeyRequest { offers, method, kex, .. } = request;
    let sa = required(content.sa)?;
    let chosen = verify_choice(&offers, &sa).inspect_err(|fault| {
        step.explain_proposals(*fault, true, &sa, &offers);
    })?;
    let suite = IkeSuite::of(&chosen).ok_or(StateFault::NotOffered)?;
    let (ke, nonce_r) = (required(content.ke)?, required(content.nonce)?.data().into());
    if suite.kex != method || ke.method.0 != method.id() {
        return Err(StateFault::KeMethod.into());
    }
    let secrets = [kex.agree(ke.data).map_err(|_| StateFault::KeValue)?].into();
    let (spi_r, token) = (spi_of(&chosen)?, PeerToken::from_message(content));
    Ok(RekeyAnswer { suite, spi_r, nonce_r, token, secrets })
}
