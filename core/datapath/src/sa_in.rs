//! An inbound SA in the SAD: keys that all cores share, and what changes with each packet.

use crate::esp::EspSizes;
use crate::lifetime::Meter;
use crate::replay::{Authenticated, ReplayWindow, Replayed};
use crate::sad::Arrival;
use crate::shared::{Engine, Shared};
use crate::spd::Template;
use crate::{AddSaError, DropReason};
use alloc::boxed::Box;
use alloc::sync::Arc;
use casemate_crypto::Providers;
use casemate_sa::{Instant, Mode, Protocol, SaParams, Selector, Spi};
use core::net::IpAddr;

/// What can be said of a packet before its SA is touched: whether it comes in the right wrapping, and whether it can have
/// that many bytes.
#[derive(Clone, Copy)]
pub(crate) enum Gate {
    /// AH; its length is checked against the key's later.
    Ah,
    /// ESP right behind IP.
    Esp(EspSizes),
    /// ESP behind UDP.
    EspInUdp(EspSizes),
}

impl Gate {
    /// Checks a packet with `len` bytes from its ESP or AH header on.
    #[inline]
    pub(crate) fn check(&self, in_udp: bool, len: usize) -> Result<(), DropReason> {
        let sizes = match (self, in_udp) {
            (Self::Esp(sizes), false) | (Self::EspInUdp(sizes), true) => sizes,
            (Self::Ah, false) => return Ok(()),
            _ => return Err(DropReason::EncapsulationMismatch),
        };
        if sizes.accept(len) { Ok(()) } else { Err(DropReason::Truncated) }
    }
}

/// What changes with each packet.
pub(crate) struct State {
    pub(crate) window: ReplayWindow,
    pub(crate) meter: Meter,
    /// Packets dropped as replays.
    pub(crate) replays: u64,
    /// Packets dropped for a wrong ICV.
    pub(crate) icv_failures: u64,
}

/// An inbound SA in the SAD. In this order: what each packet needs comes first.
#[repr(C, align(64))]
pub(crate) struct SaIn {
    pub(crate) shared: Arc<Shared>,
    pub(crate) state: State,
    /// Whether it delivers the header that came in front of its packets.
    pub(crate) is_transport: bool,
    pub(crate) spi: Spi,
    pub(crate) protocol: Protocol,
    pub(crate) src: IpAddr,
    pub(crate) dst: IpAddr,
    pub(crate) reqid: u32,
    /// Boxed, for few SAs have one: policies say what negotiated ones carry.
    pub(crate) selector: Option<Box<Selector>>,
    pub(crate) gate: Gate,
}

impl SaIn {
    pub(crate) fn new(
        params: &SaParams,
        providers: &Providers<'_>,
        now: Instant,
    ) -> Result<Self, AddSaError> {
        let protocol = params.transform.protocol();
        let shared = Shared::new(params, providers)?;
        let gate = match &shared.engine {
            Engine::Ah(_) => Gate::Ah,
            Engine::Esp(key) if params.encap.is_some() => Gate::EspInUdp(key.sizes),
            Engine::Esp(key) => Gate::Esp(key.sizes),
        };
        let state = State {
            window: ReplayWindow::new(params.replay_window, params.esn, params.last_received),
            meter: Meter::new(params.lifetime, now),
            replays: 0,
            icv_failures: 0,
        };
        Ok(Self {
            gate,
            shared: Arc::new(shared),
            state,
            is_transport: params.mode == Mode::Transport,
            spi: params.spi,
            protocol,
            src: params.src,
            dst: params.dst,
            reqid: params.reqid,
            selector: params.selector.map(Box::new),
        })
    }

    /// What its packets show.
    pub(crate) fn arrival(&self) -> Arrival {
        Arrival::new(self.spi.get(), self.protocol, self.dst)
    }

    pub(crate) fn satisfies(&self, template: &Template) -> bool {
        template.accepts(self.protocol, self.shared.mode, self.src, self.dst, self.reqid)
    }
}

impl State {
    /// The full number of a packet that carries `low`, if it may be new.
    #[inline]
    pub(crate) fn check_replay(&mut self, low: u32) -> Result<u64, DropReason> {
        self.window.check(low).map_err(|Replayed| self.count_replay())
    }

    /// Marks an authenticated number as received.
    #[inline]
    pub(crate) fn commit_replay(&mut self, proof: &Authenticated) -> Result<(), DropReason> {
        self.window.commit(proof).map_err(|Replayed| self.count_replay())
    }

    #[cold]
    fn count_replay(&mut self) -> DropReason {
        self.replays = self.replays.saturating_add(1);
        DropReason::Replay
    }
}
