//! The data path as IKE sees it, and the SPIs of inbound SAs.

use crate::Endpoint;
use crate::children::Children;
use casemate_crypto::{Providers, Rng};
use casemate_datapath::{AddSaError, Datapath, Direction, SaId};
use casemate_ike::{ChildId, Host, TrafficSelector};
use casemate_sa::table::OrderedMap;
use casemate_sa::{Instant, SaParams, Spi};
use core::net::IpAddr;

/// Reserved inbound SPIs, with the SA if it is negotiated and installed.
#[derive(Debug, Default)]
pub(crate) struct SpiTable(OrderedMap<u32, Option<SaId>>);

/// Attempts to draw a free SPI. With a quarter of a million reserved SPIs, one attempt in 16,000 fails.
const MAX_DRAWS: usize = 16;

impl SpiTable {
    fn reserve(&mut self, rng: &mut dyn Rng) -> Option<Spi> {
        (0..MAX_DRAWS).find_map(|_| {
            let mut bytes = [0; 4];
            rng.public(&mut bytes);
            // RFC 4303 section 2.1: 0 to 255 are reserved.
            let spi = Spi::new(u32::from_be_bytes(bytes)).filter(|spi| !spi.is_reserved())?;
            self.take(spi).then_some(spi)
        })
    }

    /// Reserves the SPI of an SA with manual keys.
    pub(crate) fn block(&mut self, spi: Spi) {
        self.take(spi);
    }

    /// Reserves an SPI. Returns whether it was free.
    fn take(&mut self, spi: Spi) -> bool {
        let is_free = !self.0.contains(spi.get());
        if is_free {
            self.0.insert(spi.get(), None);
        }
        is_free
    }

    /// Stores the SA of an SPI.
    pub(crate) fn install(&mut self, spi: Spi, sa: SaId) {
        self.0.insert(spi.get(), Some(sa));
    }

    /// The SA of an SPI, if it is negotiated and installed.
    #[cfg(feature = "records")]
    pub(crate) fn sa(&self, spi: Spi) -> Option<SaId> {
        self.0.get(spi.get()).copied().flatten()
    }

    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn release(&mut self, spi: Spi) {
        self.0.remove(spi.get());
    }
}

impl Endpoint {
    /// Adds an SA with manual keys, and reserves its SPI.
    pub fn add_sa(
        &mut self,
        params: &SaParams,
        direction: Direction,
        providers: &Providers<'_>,
        now: Instant,
    ) -> Result<SaId, AddSaError> {
        let id = self.datapath.add_sa(params, direction, providers, now)?;
        if direction == Direction::Inbound {
            self.spis.block(params.spi);
        }
        Ok(id)
    }

    /// Removes an SA with manual keys; `false` if it does not exist.
    pub fn remove_sa(&mut self, id: SaId) -> bool {
        let spi = self.datapath.sas().find(|sa| sa.id == id).map(|sa| sa.spi);
        if let Some(spi) = spi.filter(|_| id.direction() == Direction::Inbound) {
            self.spis.release(spi);
        }
        self.datapath.remove_sa(id)
    }
}

/// The data path as IKE sees it.
pub(crate) struct DatapathHost<'h> {
    pub(crate) datapath: &'h Datapath,
    pub(crate) spis: &'h mut SpiTable,
    pub(crate) children: &'h Children,
}

impl Host for DatapathHost<'_> {
    fn reserve_spi(&mut self, rng: &mut dyn Rng) -> Option<Spi> {
        self.spis.reserve(rng)
    }

    fn release_spi(&mut self, spi: Spi) {
        self.spis.release(spi);
    }

    fn claim_spi(&mut self, spi: Spi) -> bool {
        self.spis.take(spi)
    }

    fn last_inbound(&self, spi: Spi) -> Option<Instant> {
        self.spis.0.get(spi.get()).copied().flatten().and_then(|id| self.datapath.last_used(id))
    }

    fn last_outbound(&self, child: ChildId) -> Option<Instant> {
        self.children.sas(child)?.outbound.and_then(|id| self.datapath.last_used(id))
    }

    fn allows_transport_mode(
        &self,
        peer: IpAddr,
        encap_port: Option<u16>,
        local: &[TrafficSelector],
        remote: &[TrafficSelector],
        is_ignored: &dyn Fn(ChildId) -> bool,
    ) -> bool {
        let host = encap_port.into();
        !self.children.is_carried_for_another(peer, host, local, remote, is_ignored)
    }
}
