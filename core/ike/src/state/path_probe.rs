//! Path MTU probes (RFC 8899; docs/decisions/0091-path-mtu-probes.md).
//!
//! A probe is an INFORMATIONAL request with a status notification that fills it up to the size to test. It is
//! sent as one datagram that routers must not fragment. Peers ignore the unknown notification and respond, so
//! a response shows that packets of this size arrive. Without a response, the same request is sent again in
//! fragments that every path takes (RFC 7383 section 2.5.2). A response to these shows that the size is lost,
//! and that the peer is alive.

use super::tasks::Pending;
use crate::config::Fragmentation;
use crate::context::Step;
use crate::path_mtu::{PathSearch, ProbeSizes};
use crate::state::{Established, SaCommon};
use crate::transport::SecureChannel;
use crate::{Event, Path, Role, StateFault};
use alloc::vec;
use alloc::vec::Vec;
use casemate_sa::Instant;
use casemate_wire::ike::{HEADER_LEN, Notify, NotifyType};
use core::time::Duration;

/// Time until a probe is repeated, or counts as lost (RFC 8899 section 5.1.1: PROBE_TIMER, at least 1 s).
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);
/// Number of transmissions of a probe (RFC 8899 section 5.1.2: MAX_PROBES).
const TRANSMISSIONS: u8 = 3;
/// Time from the establishment of an IKE SA to the first probe of its responder, whose response may still be
/// on its way.
const RESPONDER_DELAY: Duration = Duration::from_secs(1);
/// Status type for private use (RFC 7296 section 3.10.1). Peers ignore status types that they do not know.
const PADDING: NotifyType = NotifyType(54_091);
/// Length of a generic payload header and of a Notify payload without SPI and data, in bytes.
const SK_HEADER: usize = 4;
const NOTIFY_HEADER: usize = 8;

/// Path MTU probes. The code that sends probes is behind this trait, so that programs that do not call
/// [`Ike::probe_path_mtu`](crate::Ike::probe_path_mtu) do not contain it.
pub(crate) trait ProbePath: Sync {
    /// The search for a new IKE SA.
    fn new_search(&self, common: &SaCommon, channel: &SecureChannel, now: Instant) -> PathSearch;

    /// Sends the next probe, if there is one to send.
    fn send(
        &self,
        ike: &mut Established,
        common: &SaCommon,
        step: &mut Step<'_, '_>,
    ) -> Result<Option<Pending>, StateFault>;

    /// Repeats the outstanding probe if that is due, or sends it again in fragments.
    fn repeat(&self, ike: &mut Established, common: &SaCommon, step: &mut Step<'_, '_>);

    /// Ends the test of a size, because other requests wait for the response.
    fn give_way(&self, ike: &mut Established, common: &SaCommon, step: &mut Step<'_, '_>);

    /// Handles the response to a probe.
    fn on_response(
        &self,
        ike: &mut Established,
        probe: OutstandingProbe,
        common: &SaCommon,
        step: &mut Step<'_, '_>,
    );
}

/// A probe that awaits its response.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OutstandingProbe {
    /// Length of the IP packet.
    size: u16,
    phase: ProbePhase,
}

#[derive(Debug, Clone, Copy)]
enum ProbePhase {
    /// The probe was sent this many times as one datagram.
    Whole { transmissions: u8 },
    /// It was sent in fragments. If it was `lost`, a response shows that the path does not take its size.
    Fragments { lost: bool },
}

/// The implementation.
pub(crate) struct PathProber;

impl ProbePath for PathProber {
    fn new_search(&self, common: &SaCommon, channel: &SecureChannel, now: Instant) -> PathSearch {
        // Without fragmentation a lost probe could not be sent again, and the IKE SA would end with it.
        let support = channel.fragments;
        let may_fragment = common.connection.fragmentation == Fragmentation::Yes;
        if !common.connection.path_mtu_probes || !may_fragment || !support.local || !support.remote {
            return PathSearch::OFF;
        }
        PathSearch::starting_at(match common.role {
            Role::Initiator => now,
            Role::Responder => now.after(RESPONDER_DELAY),
        })
    }

    fn send(
        &self,
        ike: &mut Established,
        common: &SaCommon,
        step: &mut Step<'_, '_>,
    ) -> Result<Option<Pending>, StateFault> {
        let now = step.context.now;
        let peer = common.path.remote.ip();
        let sizes = probe_sizes(ike, common.path, step);
        let search = &mut ike.contents.path_search;
        search.begin(step.context.routes.link_mtu(peer), peer.is_ipv4(), sizes, now);
        let Some(size) = search.next_size(sizes, now) else { return Ok(None) };
        let probe = OutstandingProbe { size, phase: ProbePhase::Whole { transmissions: 1 } };
        let padding = padding(sizes, size);
        let sent = ike.channel.send_probe(common, now.after(PROBE_TIMEOUT), step, &|out| {
            out.notify(&Notify::new(PADDING, &padding))
        });
        sent.map(|()| Some(Pending::PathProbe(probe))).map_err(|_| StateFault::Provider)
    }

    fn repeat(&self, ike: &mut Established, common: &SaCommon, step: &mut Step<'_, '_>) {
        let now = step.context.now;
        let is_due = ike.channel.window.request_due().is_some_and(|due| due <= now);
        let Some(Pending::PathProbe(probe)) = ike.pending.as_mut().filter(|_| is_due) else { return };
        match probe.phase {
            ProbePhase::Whole { transmissions } if transmissions < TRANSMISSIONS => {
                probe.phase = ProbePhase::Whole { transmissions: transmissions.saturating_add(1) };
                ike.channel.repeat_probe(common, now.after(PROBE_TIMEOUT), step);
            }
            ProbePhase::Whole { .. } => {
                probe.phase = ProbePhase::Fragments { lost: true };
                let size = probe.size;
                send_fragments(ike, size, common, step);
            }
            // Fragments were lost as well, so the size was not the cause.
            ProbePhase::Fragments { .. } => probe.phase = ProbePhase::Fragments { lost: false },
        }
    }

    fn give_way(&self, ike: &mut Established, common: &SaCommon, step: &mut Step<'_, '_>) {
        let Some(Pending::PathProbe(probe)) = &mut ike.pending else { return };
        if let ProbePhase::Whole { .. } = probe.phase {
            probe.phase = ProbePhase::Fragments { lost: false };
            let size = probe.size;
            send_fragments(ike, size, common, step);
        }
    }

    fn on_response(
        &self,
        ike: &mut Established,
        probe: OutstandingProbe,
        common: &SaCommon,
        step: &mut Step<'_, '_>,
    ) {
        let now = step.context.now;
        let sizes = probe_sizes(ike, common.path, step);
        let search = &mut ike.contents.path_search;
        let before = search.limit();
        match probe.phase {
            ProbePhase::Whole { .. } => search.probe_passed(probe.size, now),
            ProbePhase::Fragments { lost: true } => search.probe_lost(probe.size, now),
            ProbePhase::Fragments { lost: false } => search.probe_inconclusive(now),
        }
        let (mtu, link, is_final) = (search.limit(), search.link(), search.is_finished(sizes));
        if mtu != before || (is_final && search.has_changed()) {
            let children = ike.children().iter().map(|child| child.id).collect();
            step.event(Event::PathMtu { ike: common.id, children, path: common.path, mtu, link, is_final });
        }
    }
}

/// Sends a probe again in fragments that every path takes.
fn send_fragments(ike: &mut Established, size: u16, common: &SaCommon, step: &mut Step<'_, '_>) {
    let sizes = probe_sizes(ike, common.path, step);
    let padding = padding(sizes, size);
    let limit = PathSearch::smallest(common.path.remote.is_ipv4());
    let limit = usize::from(limit).saturating_sub(outer_len(common.path, step));
    // The message was built before with the same contents.
    let _ = ike
        .channel
        .resend_in_fragments(common, limit, step, &|out| out.notify(&Notify::new(PADDING, &padding)));
}

/// Contents of the notification that gives a probe its size.
fn padding(sizes: ProbeSizes, size: u16) -> Vec<u8> {
    // The last byte of the encrypted part is the length of its padding.
    vec![0; sizes.encrypted_len(size).saturating_sub(NOTIFY_HEADER).saturating_sub(1)]
}

fn probe_sizes(ike: &Established, path: Path, step: &Step<'_, '_>) -> ProbeSizes {
    let layout = ike.channel.suite.sk.layout();
    let overhead = [outer_len(path, step), HEADER_LEN, SK_HEADER, layout.iv, layout.icv];
    ProbeSizes { overhead: overhead.into_iter().fold(0, usize::saturating_add), block: layout.block.max(1) }
}

/// Length of the IP and UDP headers and the non-ESP marker.
fn outer_len(path: Path, step: &Step<'_, '_>) -> usize {
    let ip = if path.remote.is_ipv4() { 20 } else { 40 };
    let marker = if path.local.port() == step.shared.settings.natt_port { 4 } else { 0 };
    [ip, 8, marker].into_iter().sum()
}
