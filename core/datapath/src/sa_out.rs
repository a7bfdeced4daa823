//! An outbound SA in the SAD: keys that all cores share, what goes around a packet, and what changes with each packet.

use crate::dummy::Look;
use crate::framing::Framing;
use crate::lifetime::Meter;
use crate::pmtu::PathMtu;
use crate::seq::SeqCounter;
use crate::shared::Shared;
use crate::spd::Template;
use crate::{AddSaError, SaPath};
use alloc::boxed::Box;
use alloc::sync::Arc;
use casemate_crypto::Providers;
use casemate_sa::{DscpSet, Instant, Mode, Protocol, SaParams, Selector, Spi};
use core::net::IpAddr;

/// One SA.
pub(crate) struct SaOut {
    pub(crate) shared: Arc<Shared>,
    pub(crate) framing: Framing,
    pub(crate) seq: SeqCounter,
    pub(crate) meter: Meter,
    pub(crate) path_mtu: PathMtu,
    pub(crate) spi: Spi,
    pub(crate) protocol: Protocol,
    pub(crate) mode: Mode,
    pub(crate) src: IpAddr,
    pub(crate) dst: IpAddr,
    pub(crate) reqid: u32,
    /// Boxed, for few SAs have one: policies say what negotiated ones carry.
    pub(crate) selector: Option<Box<Selector>>,
    pub(crate) dscp: DscpSet,
    /// What all its packets show, if it carries dummy packets.
    pub(crate) look: Option<Look>,
    /// Order of addition, set by the SAD.
    pub(crate) serial: u64,
}

impl SaOut {
    pub(crate) fn new(
        params: &SaParams,
        providers: &Providers<'_>,
        now: Instant,
    ) -> Result<Self, AddSaError> {
        let shared = Shared::new(params, providers)?;
        let framing = Framing::new(params, &shared)?;
        Ok(Self {
            shared: Arc::new(shared),
            framing,
            seq: SeqCounter::new(params.last_sent, params.esn),
            meter: Meter::new(params.lifetime, now),
            path_mtu: if params.src.is_ipv4() { PathMtu::V4 } else { PathMtu::V6 },
            spi: params.spi,
            protocol: params.transform.protocol(),
            mode: params.mode,
            src: params.src,
            dst: params.dst,
            reqid: params.reqid,
            selector: params.selector.map(Box::new),
            dscp: params.dscp,
            look: None,
            serial: 0,
        })
    }

    /// Takes other addresses; `false` if they do not fit the SA.
    pub(crate) fn move_to(&mut self, path: SaPath) -> bool {
        let moved = self.framing.move_to(path);
        if moved && self.path() != (path.src, path.dst) {
            (self.src, self.dst) = (path.src, path.dst);
            self.path_mtu.forget();
        }
        moved
    }

    /// Source and destination.
    pub(crate) fn path(&self) -> (IpAddr, IpAddr) {
        (self.src, self.dst)
    }

    pub(crate) fn is_wanted_by(&self, template: &Template) -> bool {
        template.accepts(self.protocol, self.mode, self.src, self.dst, self.reqid)
    }
}
