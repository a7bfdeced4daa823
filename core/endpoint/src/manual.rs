//! SAs with manual keys: IKE must not give their SPIs to others.

use crate::Endpoint;
use casemate_crypto::Providers;
use casemate_datapath::{AddSaError, Direction, SaId};
use casemate_sa::{Instant, SaParams};

impl Endpoint {
    /// Adds an SA with manual keys.
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

    /// Removes an SA with manual keys; `false` if there is none.
    pub fn remove_sa(&mut self, id: SaId) -> bool {
        let spi = self.datapath.sas().find(|sa| sa.id == id).map(|sa| sa.spi);
        if let Some(spi) = spi.filter(|_| id.direction() == Direction::Inbound) {
            self.spis.release(spi);
        }
        self.datapath.remove_sa(id)
    }
}
