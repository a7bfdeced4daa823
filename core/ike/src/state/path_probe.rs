//! Path MTU probes (RFC 8899; docs/decisions/0091-path-mtu-probes.md).
//!
//! A probe is a retransmission of a small request that the peer has answered, an empty INFORMATIONAL request.
//! Its IKE message is the same; the IP packet around it is longer than the UDP datagram and has the size to
//! test. A receiver ignores the rest of the packet, recognizes a retransmission by the message ID, and sends
//! its response again (RFC 7296 section 2.1). A lost probe thus changes nothing at the peer, and the window
//! stays free for other requests. Each size has its own request, so that a late response is not taken for
//! that of the next size. That request also shows that the peer was alive while longer packets were lost.

use super::tasks::Pending;
use crate::context::Step;
use crate::path_mtu::PathSearch;
use crate::state::{Established, SaCommon};
use crate::transport::AnsweredRequest;
use crate::{Event, Role, StateFault};
use alloc::boxed::Box;
use alloc::vec::Vec;
use casemate_sa::Instant;
use casemate_wire::ike::ExchangeType;
use core::time::Duration;

/// Shortest time until a probe is repeated, or counts as lost (RFC 8899 section 5.1.1: PROBE_TIMER).
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);
/// Number of transmissions of a probe (RFC 8899 section 5.1.2: MAX_PROBES).
const TRANSMISSIONS: u8 = 3;
/// Time from the establishment of an IKE SA to the first probe of its responder, whose response may still be
/// on its way.
const RESPONDER_DELAY: Duration = Duration::from_secs(1);

/// Path MTU probes. The code that sends probes is behind this trait, so that programs that do not call
/// [`Ike::probe_path_mtu`](crate::Ike::probe_path_mtu) do not contain it.
pub(crate) trait ProbePath: Sync {
    /// The search for a new IKE SA.
    fn new_search(&self, common: &SaCommon, now: Instant) -> PathSearch;

    /// Sends the request that the next probe will repeat.
    fn prepare(
        &self,
        ike: &mut Established,
        common: &SaCommon,
        step: &mut Step<'_, '_>,
    ) -> Result<Option<Pending>, StateFault>;

    /// Sends a probe, now that the peer has answered the request that it repeats.
    fn start(
        &self,
        ike: &mut Established,
        request: AnsweredRequest,
        sent_at: Instant,
        common: &SaCommon,
        step: &mut Step<'_, '_>,
    );

    /// Repeats the probe, or regards it as lost.
    fn on_timeout(&self, ike: &mut Established, common: &SaCommon, step: &mut Step<'_, '_>);

    /// Handles the response to a probe.
    fn on_response(&self, ike: &mut Established, common: &SaCommon, step: &mut Step<'_, '_>);
}

/// Probe of an IKE SA.
#[derive(Debug, Default)]
pub(crate) enum PathProbe {
    #[default]
    None,
    /// The probe awaits its response.
    Sent(Box<SentProbe>),
    /// No response came. The next request shows whether shorter packets arrive.
    Lost { size: u16 },
}

/// A probe that awaits its response.
#[derive(Debug)]
pub(crate) struct SentProbe {
    /// Length of the IP packet.
    size: u16,
    datagram: Vec<u8>,
    transmissions: u8,
    sent_at: Instant,
    /// Time from the request to its response.
    round_trip: Duration,
    due: Instant,
}

impl PathProbe {
    /// When the probe is repeated, or counts as lost.
    pub(crate) const fn due(&self) -> Option<Instant> {
        match self {
            Self::Sent(probe) => Some(probe.due),
            Self::None | Self::Lost { .. } => None,
        }
    }
}

impl SentProbe {
    fn transmit(&mut self, common: &SaCommon, step: &mut Step<'_, '_>) {
        let now = step.context.now;
        self.transmissions = self.transmissions.saturating_add(1);
        self.sent_at = now;
        self.due = now.after(PROBE_TIMEOUT.max(self.round_trip.saturating_mul(2)));
        step.send_path_probe(common.path, &self.datagram, self.size);
    }
}

/// The implementation.
pub(crate) struct PathProber;

impl ProbePath for PathProber {
    fn new_search(&self, common: &SaCommon, now: Instant) -> PathSearch {
        if !common.connection.path_mtu_probes {
            return PathSearch::OFF;
        }
        PathSearch::starting_at(match common.role {
            Role::Initiator => now,
            Role::Responder => now.after(RESPONDER_DELAY),
        })
    }

    fn prepare(
        &self,
        ike: &mut Established,
        common: &SaCommon,
        step: &mut Step<'_, '_>,
    ) -> Result<Option<Pending>, StateFault> {
        let (now, peer) = (step.context.now, common.path.remote.ip());
        let sent = ike.children().iter().filter_map(|child| step.host.last_outbound(child.id)).max();
        let search = &mut ike.contents.path_search;
        if search.postpone_if_unused(sent, now) {
            return Ok(None);
        }
        search.begin(step.context.routes.link_mtu(peer), peer.is_ipv4(), now);
        if search.next_size(now).is_none() {
            return Ok(None);
        }
        let sent = ike.channel.send_request(common, ExchangeType::INFORMATIONAL, step, &|_| Ok(()));
        sent.map(|()| Some(Pending::PathProbe { sent_at: now })).map_err(|_| StateFault::Provider)
    }

    fn start(
        &self,
        ike: &mut Established,
        request: AnsweredRequest,
        sent_at: Instant,
        common: &SaCommon,
        step: &mut Step<'_, '_>,
    ) {
        let now = step.context.now;
        let lost = match core::mem::take(&mut ike.path_probe) {
            PathProbe::Lost { size } => Some(size),
            PathProbe::None | PathProbe::Sent(_) => None,
        };
        if request.tries > 0 {
            // Short packets were lost as well, and there may be a second response to the same request.
            ike.contents.path_search.probe_inconclusive(now);
            return;
        }
        if let Some(size) = lost {
            finish_test(ike, common, step, |search| search.probe_lost(size, now));
        }
        let Some(size) = ike.contents.path_search.next_size(now) else { return };
        let Some(datagram) = request.datagrams.into_iter().next() else { return };
        let round_trip = now.since(sent_at);
        let mut probe = SentProbe { size, datagram, transmissions: 0, sent_at: now, round_trip, due: now };
        ike.channel.window.await_repetition(request.id);
        probe.transmit(common, step);
        ike.path_probe = PathProbe::Sent(Box::new(probe));
    }

    fn on_timeout(&self, ike: &mut Established, common: &SaCommon, step: &mut Step<'_, '_>) {
        let PathProbe::Sent(probe) = &mut ike.path_probe else { return };
        if probe.due > step.context.now {
            return;
        }
        if probe.transmissions < TRANSMISSIONS {
            probe.transmit(common, step);
        } else {
            ike.path_probe = PathProbe::Lost { size: probe.size };
        }
    }

    fn on_response(&self, ike: &mut Established, common: &SaCommon, step: &mut Step<'_, '_>) {
        let now = step.context.now;
        let PathProbe::Sent(probe) = &ike.path_probe else { return };
        // A response that is much faster than the first one is a duplicate of that.
        if probe.transmissions == 1 && now.since(probe.sent_at).saturating_mul(2) < probe.round_trip {
            return;
        }
        let size = probe.size;
        ike.path_probe = PathProbe::None;
        finish_test(ike, common, step, |search| search.probe_passed(size, now));
    }
}

impl Established {
    /// Ends the test of a size, because another request is sent: the peer answers repetitions of the last
    /// request only.
    pub(super) fn abandon_probe(&mut self, now: Instant) {
        if !matches!(core::mem::take(&mut self.path_probe), PathProbe::None) {
            self.contents.path_search.probe_inconclusive(now);
        }
    }
}

/// Applies the result of a probe, and reports another path MTU.
fn finish_test(
    ike: &mut Established,
    common: &SaCommon,
    step: &mut Step<'_, '_>,
    apply: impl FnOnce(&mut PathSearch),
) {
    let search = &mut ike.contents.path_search;
    let before = search.limit();
    apply(search);
    let (mtu, link, is_final) = (search.limit(), search.link(), search.is_finished());
    if mtu != before || (is_final && search.has_changed()) {
        let children = ike.children().iter().map(|child| child.id).collect();
        step.event(Event::PathMtu { ike: common.id, children, path: common.path, mtu, link, is_final });
    }
}
