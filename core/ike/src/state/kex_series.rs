//! Additional key exchanges after CREATE_CHILD_SA, in IKE_FOLLOWUP_KE exchanges, as their initiator (RFC 9370
//! section 2.2.4). The SA exists once the last one is complete.

use super::create_child::PendingChild;
use super::create_child_response::CompletedChild;
use super::established::Phase;
use super::intermediate::public_value;
use super::rekey::{PendingRekey, RekeyAnswer, RekeyStage};
use super::rekey_response::BegunRekey;
use super::tasks::Pending;
use crate::child_sa::AcceptedChild;
use crate::config::AgreedKexes;
use crate::context::Step;
use crate::state::{Established, SaCommon, Task};
use crate::transport::{Content, required};
use crate::{DownReason, PeerFault, StateFault};
use alloc::boxed::Box;
use alloc::vec::Vec;
use casemate_crypto::{KexMethod, KexSecret, SecretBytes};
use casemate_wire::ike::{ExchangeType, Ke, KeMethod, Notify, NotifyType};

/// Number of consecutive series that the peer has forgotten, after which the IKE SA is closed.
const MAX_FORGOTTEN: u8 = 5;

/// A series of key exchanges whose last request is outstanding.
pub(super) struct KexSeries {
    progress: SeriesProgress,
    method: KexMethod,
    kex: Box<dyn KexSecret>,
}

/// Completed key exchanges of a series.
pub(super) struct SeriesProgress {
    pub(super) kexes: AgreedKexes,
    /// Secrets in order: that of CREATE_CHILD_SA, then those of the completed additional key exchanges.
    pub(super) secrets: Vec<SecretBytes>,
}

impl SeriesProgress {
    /// The method of the next key exchange; `None` if all are complete.
    pub(super) fn next_method(&self) -> Option<KexMethod> {
        self.kexes.after(self.secrets.len().saturating_sub(1))
    }
}

/// The series of a Child SA.
pub(super) struct ChildSeries {
    series: KexSeries,
    answer: AcceptedChild,
    nonce_r: Vec<u8>,
}

/// The series of a successor.
pub(super) struct RekeySeries {
    series: KexSeries,
    answer: RekeyAnswer,
}

impl KexSeries {
    /// Completes the key exchange with the peer's response.
    fn complete(self, content: &Content<'_>) -> Result<SeriesProgress, PeerFault> {
        let Self { mut progress, method, kex } = self;
        let public = public_value(content, method)?;
        progress.secrets.push(kex.agree(public).map_err(|_| StateFault::KeValue)?);
        Ok(progress)
    }
}

/// A series that goes on, or is complete.
enum NextStep {
    Sent(KexSeries),
    Complete(Vec<SecretBytes>),
}

impl Established {
    /// Sends the next request of a series. `content` is the response before it, which links the exchanges.
    fn continue_series(
        &mut self,
        common: &SaCommon,
        progress: SeriesProgress,
        content: &Content<'_>,
        step: &mut Step<'_, '_>,
    ) -> Result<NextStep, PeerFault> {
        let Some(method) = progress.next_method() else { return Ok(NextStep::Complete(progress.secrets)) };
        let link = required(content.notify(NotifyType::ADDITIONAL_KEY_EXCHANGE))?.data;
        let kex = step.context.providers.kex(method, step.context.rng).map_err(|_| StateFault::Provider)?;
        let sent = self.channel.send_request(common, ExchangeType::IKE_FOLLOWUP_KE, step, &|out| {
            out.ke(&Ke { method: KeMethod(method.id()), data: kex.public() })?;
            out.notify(&Notify::new(NotifyType::ADDITIONAL_KEY_EXCHANGE, link))
        });
        sent.map_err(|_| StateFault::Provider)?;
        Ok(NextStep::Sent(KexSeries { progress, method, kex }))
    }

    /// Goes on with the key exchanges of a Child SA, or installs it.
    pub(super) fn continue_child(
        &mut self,
        common: &SaCommon,
        mut pending: PendingChild,
        mut answer: AcceptedChild,
        nonce_r: Vec<u8>,
        content: &Content<'_>,
        step: &mut Step<'_, '_>,
    ) {
        let kexes = answer.agreed.suite.additional;
        let progress = SeriesProgress { kexes, secrets: core::mem::take(&mut answer.secrets) };
        match self.continue_series(common, progress, content, step) {
            Ok(NextStep::Sent(series)) => {
                pending.series = Some(Box::new(ChildSeries { series, answer, nonce_r }));
                self.pending = Some(Pending::Child(Box::new(pending)));
            }
            Ok(NextStep::Complete(secrets)) => {
                self.forgotten_series = 0;
                let answer = AcceptedChild { secrets, ..answer };
                let completed = CompletedChild { answer, nonce_r: &nonce_r, lost: false };
                self.complete_child(common, &pending, completed, step);
            }
            Err(fault) => self.child_series_failed(common, &pending, fault, step),
        }
    }

    /// Handles the response to an IKE_FOLLOWUP_KE request for a Child SA.
    pub(super) fn on_child_series_response(
        &mut self,
        common: &SaCommon,
        pending: PendingChild,
        series: ChildSeries,
        content: &Content<'_>,
        step: &mut Step<'_, '_>,
    ) {
        if let Some(refusal) = content.error() {
            self.note_forgotten_series(refusal);
            return self.on_child_error(common, &pending, as_busy(refusal), content, step);
        }
        let ChildSeries { series, answer, nonce_r } = series;
        match series.complete(content) {
            Ok(SeriesProgress { secrets, .. }) => {
                let answer = AcceptedChild { secrets, ..answer };
                self.continue_child(common, pending, answer, nonce_r, content, step);
            }
            Err(fault) => self.child_series_failed(common, &pending, fault, step),
        }
    }

    /// Ends an IKE SA whose peer has violated the protocol in a series: the two sides have different keys.
    fn child_series_failed(
        &mut self,
        common: &SaCommon,
        pending: &PendingChild,
        fault: PeerFault,
        step: &mut Step<'_, '_>,
    ) {
        step.sa_fault(fault, common.path, common);
        self.tasks.push_front(Task::DeleteIke(DownReason::Fault(fault)));
        self.child_failed(common, pending, DownReason::Fault(fault), step);
    }

    /// Begins with the additional key exchanges of a successor, unless the peer's exchange makes it.
    pub(super) fn begin_rekey_series(
        &mut self,
        common: &SaCommon,
        begun: BegunRekey<'_>,
        answer: RekeyAnswer,
        content: &Content<'_>,
        step: &mut Step<'_, '_>,
    ) {
        if self.phase != Phase::Open {
            return;
        }
        if begun.is_lowest(&answer) {
            // RFC 9370 section 2.2.4: this exchange has made no successor and ends here.
            return self.rekey_not_made(common, begun.simultaneous, None, step);
        }
        // The peer ends its own exchange.
        self.drop_series(step);
        self.continue_rekey(common, begun, answer, content, step);
    }

    /// Goes on with the key exchanges of a successor, or makes it.
    fn continue_rekey(
        &mut self,
        common: &SaCommon,
        begun: BegunRekey<'_>,
        mut answer: RekeyAnswer,
        content: &Content<'_>,
        step: &mut Step<'_, '_>,
    ) {
        let kexes = answer.suite.additional;
        let progress = SeriesProgress { kexes, secrets: core::mem::take(&mut answer.secrets) };
        match self.continue_series(common, progress, content, step) {
            Ok(NextStep::Sent(series)) => {
                let BegunRekey { spi, nonce, simultaneous } = begun;
                let stage = RekeyStage::Series(Box::new(RekeySeries { series, answer }));
                let pending = PendingRekey { spi, nonce: nonce.into(), stage, simultaneous };
                self.pending = Some(Pending::Rekey(Box::new(pending)));
            }
            Ok(NextStep::Complete(secrets)) => {
                self.forgotten_series = 0;
                self.finish_rekey(common, begun, RekeyAnswer { secrets, ..answer }, step);
            }
            Err(fault) => {
                step.sa_fault(fault, common.path, common);
                self.tasks.push_front(Task::DeleteIke(DownReason::Fault(fault)));
            }
        }
    }

    /// Handles the response to an IKE_FOLLOWUP_KE request for a successor.
    pub(super) fn on_rekey_series_response(
        &mut self,
        common: &SaCommon,
        begun: BegunRekey<'_>,
        series: RekeySeries,
        content: &Content<'_>,
        step: &mut Step<'_, '_>,
    ) {
        if let Some(refusal) = content.error() {
            self.note_forgotten_series(refusal);
            return self.rekey_not_made(common, begun.simultaneous, Some(as_busy(refusal)), step);
        }
        let RekeySeries { series, answer } = series;
        match series.complete(content) {
            Ok(SeriesProgress { secrets, .. }) => {
                let answer = RekeyAnswer { secrets, ..answer };
                self.continue_rekey(common, begun, answer, content, step);
            }
            Err(fault) => {
                step.sa_fault(fault, common.path, common);
                self.tasks.push_front(Task::DeleteIke(DownReason::Fault(fault)));
            }
        }
    }

    /// Closes the IKE SA if the peer has forgotten several series one after the other (RFC 9370 section
    /// 2.2.4).
    fn note_forgotten_series(&mut self, refusal: NotifyType) {
        if refusal == NotifyType::STATE_NOT_FOUND {
            self.forgotten_series = self.forgotten_series.saturating_add(1);
            if self.forgotten_series >= MAX_FORGOTTEN {
                self.tasks.push_front(Task::DeleteIke(DownReason::Refused(refusal)));
            }
        }
    }
}

/// A forgotten series may be tried again, as after TEMPORARY_FAILURE.
fn as_busy(refusal: NotifyType) -> NotifyType {
    if refusal == NotifyType::STATE_NOT_FOUND { NotifyType::TEMPORARY_FAILURE } else { refusal }
}
