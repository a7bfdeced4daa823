//! The data path as IKE sees it.

use crate::children::Children;
use casemate_crypto::Rng;
use casemate_datapath::{Datapath, SaId};
use casemate_ike::{ChildId, Host, Traffic};
use casemate_sa::{Instant, Spi};
use casemate_tables::Table;
use core::net::IpAddr;

/// What the home knows of ways to others.
pub trait Routes {
    /// Our address on the way to `remote`, if there is a way.
    fn source_for(&self, remote: IpAddr) -> Option<IpAddr>;

    /// Whether addresses or routes may have changed since the last call. Traps follow them: a host that is notified of changes
    /// returns `false` if there was none, which saves a look-up for each trap and second.
    fn may_have_changed(&self) -> bool {
        true
    }

    /// MTU of the link on the way to `remote`, in bytes, outer headers included; `None` where the data path's
    /// link is the only one.
    fn link_mtu(&self, _remote: IpAddr) -> Option<usize> {
        None
    }
}

/// Inbound SPIs that are taken, with the SA of those that are negotiated and installed.
#[derive(Debug, Default)]
pub(crate) struct Spis(Table<u32, Option<SaId>>);

/// Draws until one is free. With a quarter of a million taken, one draw in 16,000 fails.
const MAX_DRAWS: usize = 16;

impl Spis {
    fn reserve(&mut self, rng: &mut dyn Rng) -> Option<Spi> {
        (0..MAX_DRAWS).find_map(|_| {
            let mut bytes = [0; 4];
            rng.public(&mut bytes);
            // RFC 4303 section 2.1: 0 to 255 are reserved.
            let spi = Spi::new(u32::from_be_bytes(bytes)).filter(|spi| !spi.is_reserved())?;
            self.take(spi).then_some(spi)
        })
    }

    /// An SPI that nobody must get, such as that of an SA with manual keys.
    pub(crate) fn block(&mut self, spi: Spi) {
        self.take(spi);
    }

    /// Whether nobody had it.
    fn take(&mut self, spi: Spi) -> bool {
        let is_free = !self.0.contains(spi.get());
        if is_free {
            self.0.insert(spi.get(), None);
        }
        is_free
    }

    /// Its SA is installed.
    pub(crate) fn install(&mut self, spi: Spi, sa: SaId) {
        self.0.insert(spi.get(), Some(sa));
    }

    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn release(&mut self, spi: Spi) {
        self.0.remove(spi.get());
    }
}

/// The data path, lent to IKE.
pub(crate) struct DatapathHost<'h> {
    pub(crate) datapath: &'h Datapath,
    pub(crate) spis: &'h mut Spis,
    pub(crate) routes: &'h dyn Routes,
    pub(crate) children: &'h Children,
}

impl Host for DatapathHost<'_> {
    fn reserve_spi(&mut self, rng: &mut dyn Rng) -> Option<Spi> {
        self.spis.reserve(rng)
    }

    fn release_spi(&mut self, spi: Spi) {
        self.spis.release(spi);
    }

    fn last_inbound(&self, spi: Spi) -> Option<Instant> {
        self.spis.0.get(spi.get()).copied().flatten().and_then(|id| self.datapath.last_used(id))
    }

    fn source_for(&self, remote: IpAddr) -> Option<IpAddr> {
        self.routes.source_for(remote)
    }

    fn allows_transport(
        &self,
        (peer, encap_port): (IpAddr, Option<u16>),
        local: &[Traffic],
        remote: &[Traffic],
        is_ignored: &dyn Fn(ChildId) -> bool,
    ) -> bool {
        let host = encap_port.into();
        !self.children.is_carried_for_another((peer, host), (local, remote), is_ignored)
    }
}
