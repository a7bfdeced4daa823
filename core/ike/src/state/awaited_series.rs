//! Additional key exchanges after CREATE_CHILD_SA, in IKE_FOLLOWUP_KE exchanges, as their responder (RFC 9370
//! section 2.2.4).

use super::create_child::RespondedChild;
use super::established::Phase;
use super::intermediate::public_value;
use super::kex_series::SeriesProgress;
use super::rekey::RekeyExchange;
use super::timers::Timer;
use crate::child_sa::ChildResponse;
use crate::context::{KexResponse, Step};
use crate::keymat::Nonces;
use crate::negotiate::IkeSuite;
use crate::state::{Established, SaCommon, Task};
use crate::transport::{Build, Content, required};
use crate::{ChildId, IkeSpis, PeerFault, Role, StateFault};
use alloc::boxed::Box;
use alloc::vec::Vec;
use casemate_sa::Instant;
use casemate_wire::ike::{ExchangeType, Ke, KeMethod, Notify, NotifyType, WriteError, Writer};
use core::time::Duration;

/// Time for which the next request of a series is awaited (RFC 9370 section 2.2.4 suggests 5 to 20 s).
const SERIES_LIFETIME: Duration = Duration::from_secs(20);

/// Time for which messages about addresses wait for the next request of a series.
#[cfg(feature = "mobike")]
const ADDRESS_DELAY: Duration = Duration::from_secs(2);

/// A series of the peer, whose next request is awaited.
pub(crate) struct AwaitedSeries {
    progress: SeriesProgress,
    nonce_i: Vec<u8>,
    nonce_r: Vec<u8>,
    /// The peer repeats this in its next request.
    link: SeriesLink,
    makes: SeriesResult,
    /// The series ends at this time. A series that takes the place of an incomplete one ends when that one
    /// would have ended, because the requests of this host wait for the end of both.
    ends_at: Instant,
    /// When this host sent its last response.
    answered_at: Instant,
    /// Whether this host gave up its own exchange for this one, and has to try again if this one fails.
    pub(super) has_precedence: bool,
}

/// Message ID of the exchange before the awaited one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SeriesLink([u8; 4]);

impl SeriesLink {
    fn write(self, out: &mut Writer<'_>) -> Result<(), WriteError> {
        out.notify(&Notify::new(NotifyType::ADDITIONAL_KEY_EXCHANGE, &self.0))
    }
}

/// What a series makes.
enum SeriesResult {
    Child { response: Box<ChildResponse>, replaces: Option<ChildId> },
    Successor { suite: IkeSuite, spis: IkeSpis },
}

/// Nonces of a CREATE_CHILD_SA exchange.
pub(super) struct OwnedNonces {
    pub(super) initiator: Vec<u8>,
    pub(super) responder: Vec<u8>,
}

impl Established {
    /// Responds to a request for a Child SA with additional key exchanges, and awaits these.
    pub(super) fn await_child_series(
        &mut self,
        common: &SaCommon,
        response: ChildResponse,
        nonces: OwnedNonces,
        replaces: Option<ChildId>,
        step: &mut Step<'_, '_>,
    ) -> Result<(), StateFault> {
        let link = self.next_link();
        let sent = self.channel.send_response(common, ExchangeType::CREATE_CHILD_SA, step, &|out| {
            response.write(Some(&nonces.responder), out)?;
            link.write(out)
        });
        if sent.is_err() {
            step.host.release_spi(response.agreed.spi_in);
            return Err(StateFault::Provider);
        }
        let lowest = nonces.initiator.clone().min(nonces.responder.clone());
        if let Some(old) = replaces {
            self.note_simultaneous_child(old, None, lowest);
        }
        let kexes = response.agreed.suite.additional;
        let progress = SeriesProgress { kexes, secrets: response.secrets() };
        let makes = SeriesResult::Child { response: Box::new(response), replaces };
        self.await_series(progress, nonces, link, makes, step);
        Ok(())
    }

    /// Awaits the additional key exchanges of a successor. `write` writes the response without the link.
    pub(super) fn await_rekey_series(
        &mut self,
        common: &SaCommon,
        exchange: &RekeyExchange<'_>,
        write: Build<'_>,
        step: &mut Step<'_, '_>,
    ) -> Result<(), StateFault> {
        let RekeyExchange { suite, secrets, nonces, spis, .. } = *exchange;
        let link = self.next_link();
        let sent = self.channel.send_response(common, ExchangeType::CREATE_CHILD_SA, step, &|out| {
            write(out)?;
            link.write(out)
        });
        sent.map_err(|_| StateFault::Provider)?;
        let lowest = nonces.initiator.min(nonces.responder);
        self.note_simultaneous_rekey(None, lowest);
        let progress = SeriesProgress { kexes: suite.additional, secrets: secrets.to_vec() };
        let nonces = OwnedNonces { initiator: nonces.initiator.into(), responder: nonces.responder.into() };
        self.await_series(progress, nonces, link, SeriesResult::Successor { suite, spis }, step);
        Ok(())
    }

    fn await_series(
        &mut self,
        progress: SeriesProgress,
        nonces: OwnedNonces,
        link: SeriesLink,
        makes: SeriesResult,
        step: &mut Step<'_, '_>,
    ) {
        // A peer that begins another series has given up this one.
        let former = self.drop_series(step);
        let rounds = u32::try_from(progress.kexes.iter().count()).unwrap_or(u32::MAX);
        let longest = step.context.now.after(SERIES_LIFETIME.saturating_mul(rounds));
        let ends_at = former.map_or(longest, |former| longest.min(former.ends_at));
        let OwnedNonces { initiator: nonce_i, responder: nonce_r } = nonces;
        let now = step.context.now;
        let series = AwaitedSeries {
            progress,
            nonce_i,
            nonce_r,
            link,
            makes,
            ends_at,
            answered_at: now,
            has_precedence: false,
        };
        self.await_next_round(Box::new(series), now);
    }

    fn await_next_round(&mut self, mut series: Box<AwaitedSeries>, now: Instant) {
        series.answered_at = now;
        self.timers.set(Timer::Series, Some(now.after(SERIES_LIFETIME).min(series.ends_at)));
        self.series = Some(series);
    }

    /// The link in the response to the request that is being answered.
    fn next_link(&self) -> SeriesLink {
        SeriesLink(self.channel.window.expected_id().to_be_bytes())
    }

    /// Responds to an IKE_FOLLOWUP_KE request.
    pub(super) fn on_followup(
        &mut self,
        common: &SaCommon,
        content: &Content<'_>,
        step: &mut Step<'_, '_>,
    ) -> Result<(), PeerFault> {
        if self.phase != Phase::Open {
            return Err(StateFault::Busy.into());
        }
        let link = required(content.notify(NotifyType::ADDITIONAL_KEY_EXCHANGE))?.data;
        let Some(series) = self.series.take_if(|series| series.link.0 == link) else {
            return Err(StateFault::NoKexSeries.into());
        };
        self.timers.set(Timer::Series, None);
        let mut series = *series;
        let agreed = series.progress.next_method();
        let KexResponse { method, public, .. } = match (series.respond(content, step), agreed) {
            (Ok(response), _) => response,
            (Err(fault), Some(agreed)) if fault == StateFault::KeMethod.into() => {
                series.release(step);
                step.sa_fault(fault, common.path, common);
                self.channel.send_invalid_ke(common, ExchangeType::IKE_FOLLOWUP_KE, agreed, step);
                return Ok(());
            }
            (Err(fault), _) => {
                series.release(step);
                return Err(fault);
            }
        };
        let write_ke = |out: &mut Writer<'_>| out.ke(&Ke { method: KeMethod(method.id()), data: &public });
        if series.progress.next_method().is_none() {
            return self.finish_series(common, series, &write_ke, step).map_err(PeerFault::from);
        }
        series.link = self.next_link();
        let link = series.link;
        let sent = self.channel.send_response(common, ExchangeType::IKE_FOLLOWUP_KE, step, &|out| {
            write_ke(out)?;
            link.write(out)
        });
        if sent.is_err() {
            series.release(step);
            return Err(StateFault::Provider.into());
        }
        self.await_next_round(Box::new(series), step.context.now);
        Ok(())
    }

    /// Makes the Child SA or the successor, and sends the last response.
    fn finish_series(
        &mut self,
        common: &SaCommon,
        series: AwaitedSeries,
        write: Build<'_>,
        step: &mut Step<'_, '_>,
    ) -> Result<(), StateFault> {
        let AwaitedSeries { progress, nonce_i, nonce_r, makes, .. } = series;
        let (secrets, exchange) = (&*progress.secrets, ExchangeType::IKE_FOLLOWUP_KE);
        let nonces = Nonces { initiator: &nonce_i, responder: &nonce_r };
        match makes {
            SeriesResult::Child { response, replaces } => {
                let ChildResponse { config, agreed, .. } = *response;
                // The peer may have closed the old Child SA since, and a command of this host, too.
                let installed = replaces.filter(|old| self.child(*old).is_some());
                let made = RespondedChild {
                    config: &config,
                    agreed,
                    nonces,
                    secrets,
                    replaces: installed,
                    exchange,
                    write,
                };
                let made = self.add_responded_child(common, made, step)?;
                replaces.into_iter().for_each(|old| self.inherit_delete(old, made));
                Ok(())
            }
            SeriesResult::Successor { suite, spis } => {
                let made = RekeyExchange { suite, secrets, nonces, spis, role: Role::Responder };
                self.add_responded_successor(common, &made, exchange, write, step)
            }
        }
    }

    /// Drops the peer's series after its time. If this host gave up its own exchange for it, this host tries
    /// again.
    pub(super) fn expire_series(&mut self, step: &mut Step<'_, '_>) {
        let Some(series) = self.drop_series(step).filter(|series| series.has_precedence) else { return };
        match series.makes {
            SeriesResult::Child { response, replaces } => {
                if let Some(old) = replaces {
                    self.child_rekey_failed(old, &response.config, step);
                }
            }
            SeriesResult::Successor { .. } => self.rekey_failed(step),
        }
    }

    /// Drops the peer's series.
    pub(super) fn drop_series(&mut self, step: &mut Step<'_, '_>) -> Option<AwaitedSeries> {
        self.timers.set(Timer::Series, None);
        let series = self.series.take()?;
        series.release(step);
        Some(*series)
    }

    /// Gives up an exchange of this host for the peer's series. Returns false if there is none.
    pub(super) fn give_way_to_series(&mut self) -> bool {
        self.series.as_mut().map(|series| series.has_precedence = true).is_some()
    }
}

impl AwaitedSeries {
    /// Earliest time to start a task meanwhile; `None` if it waits for the end of the series: strongSwan 6.1
    /// closes the IKE SA if another request arrives where it expects a key exchange. But a peer that does not
    /// know the address of this host cannot go on.
    #[cfg_attr(not(feature = "mobike"), expect(unused_variables, reason = "all tasks wait"))]
    pub(super) fn allows_at(&self, task: &Task) -> Option<Instant> {
        #[cfg(feature = "mobike")]
        if matches!(task, Task::UpdateAddresses | Task::AnnounceAddresses | Task::CheckRoute) {
            return Some(self.answered_at.after(ADDRESS_DELAY));
        }
        None
    }

    /// Completes the next key exchange.
    fn respond(&mut self, content: &Content<'_>, step: &mut Step<'_, '_>) -> Result<KexResponse, PeerFault> {
        let method = self.progress.next_method().ok_or(StateFault::NoKexSeries)?;
        let response = step.respond_to_kex(method, public_value(content, method)?)?;
        self.progress.secrets.push(response.shared.clone());
        Ok(response)
    }

    /// Releases the SPI that is reserved for the Child SA.
    pub(super) fn release(&self, step: &mut Step<'_, '_>) {
        if let SeriesResult::Child { response, .. } = &self.makes {
            step.host.release_spi(response.agreed.spi_in);
        }
    }
}
