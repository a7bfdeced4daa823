//! What an IKE SA has in every state.

use crate::config::Connection;
use crate::context::Step;
use crate::settings::Retransmission;
use crate::state::traffic::RETRANSMISSIONS_AFTER_REPORT;
use crate::{IkeSaId, IkeSpis, Path, Role, StateFault};
use alloc::sync::Arc;
use alloc::vec::Vec;
use casemate_wire::ike::IkeSpi;
use core::net::IpAddr;
use core::time::Duration;

/// Longest wait for a response to the first request of an IKE SA that restores or replaces another: the peer
/// may be back at any moment.
const LONGEST_WAIT: Duration = Duration::from_secs(16);
/// Retransmissions that such a request has in addition, so that all of them take about as long as usual.
const MORE_TRIES: u32 = 4;

/// Number of times that the setup of an IKE SA is begun again because the peer says that it does not know it.
const MAX_NEW_BEGINNINGS: u8 = 2;

/// Fields that every state has.
#[derive(Debug)]
pub(crate) struct SaCommon {
    pub(crate) id: IkeSaId,
    pub(crate) connection: Arc<Connection>,
    pub(crate) path: Path,
    pub(crate) role: Role,
    pub(crate) spi_i: IkeSpi,
    pub(crate) spi_r: IkeSpi,
    /// Number of consecutive IKE SAs of the connection that ended soon, before this one was started.
    pub(crate) attempts: u8,
    /// Whether this IKE SA is set up because one of the connection that was up has ended.
    pub(crate) restores: bool,
    /// Whether the peer has answered that it does not know this IKE SA, which is being set up.
    pub(crate) is_reported_unknown: bool,
    /// Number of times that the setup was begun again because of that.
    pub(crate) new_beginnings: u8,
    /// IKE SA that is closed once this one is established (RFC 7296 section 2.8.3).
    pub(crate) predecessor: Option<Predecessor>,
    /// Redirection to other gateways.
    #[cfg(feature = "redirect")]
    pub(crate) redirect: crate::redirect::RedirectState,
    /// The IKE SA whose session this one resumes. A successor by rekeying inherits it.
    #[cfg(feature = "resumption")]
    pub(crate) resumes: Option<crate::resumption::Resumes>,
}

/// An IKE SA that is being reauthenticated, or that the peer seems to have forgotten.
#[derive(Debug)]
pub(crate) struct Predecessor {
    /// Its origin: the IKE SA whose IKE_AUTH exchange authenticated the peer.
    pub(crate) origin: IkeSaId,
    /// Virtual addresses that the peer assigned to it.
    pub(crate) addrs: Vec<IpAddr>,
    /// Whether it is closed at its deadline, and set up anew, if the peer refuses the new IKE SA: perhaps the
    /// peer accepts only one.
    pub(crate) ends_if_refused: bool,
}

impl SaCommon {
    /// A new IKE SA of this host.
    pub(crate) fn of_initiator(connection: Arc<Connection>, path: Path, step: &mut Step<'_, '_>) -> Self {
        let spis = IkeSpis { initiator: step.ike_spi(), responder: IkeSpi::NONE };
        let common = Self::new(connection, path, Role::Initiator, spis, step);
        #[cfg(feature = "redirect")]
        let common = Self {
            redirect: crate::redirect::RedirectState::of_initiator(step.shared.settings.follow_redirects),
            ..common
        };
        common
    }

    /// A new IKE SA of either role, which replaces none.
    pub(crate) fn new(
        connection: Arc<Connection>,
        path: Path,
        role: Role,
        spis: IkeSpis,
        step: &mut Step<'_, '_>,
    ) -> Self {
        Self {
            id: step.shared.next_ike_id(),
            connection,
            path,
            role,
            spi_i: spis.initiator,
            spi_r: spis.responder,
            attempts: 0,
            restores: false,
            is_reported_unknown: false,
            new_beginnings: 0,
            predecessor: None,
            #[cfg(feature = "redirect")]
            redirect: crate::redirect::RedirectState::default(),
            #[cfg(feature = "resumption")]
            resumes: None,
        }
    }

    /// Retransmission of the first request.
    pub(crate) fn first_retransmission(&self, step: &Step<'_, '_>) -> Retransmission {
        let usual = step.shared.settings.retransmission;
        if (!self.restores && self.predecessor.is_none()) || usual.max_timeout <= LONGEST_WAIT {
            return usual;
        }
        let tries = usual.tries.saturating_add(MORE_TRIES);
        Retransmission { max_timeout: LONGEST_WAIT, tries, ..usual }
    }

    /// Whether to begin again with IKE_SA_INIT after this number of retransmissions: the peer says that it
    /// does not know the IKE SA that this host is setting up. The message may be forged, so the peer gets
    /// time to respond.
    pub(crate) fn begins_again(&mut self, retransmissions: u32, step: &mut Step<'_, '_>) -> bool {
        let is_due = self.is_reported_unknown && retransmissions >= RETRANSMISSIONS_AFTER_REPORT;
        let begins = is_due && self.new_beginnings < MAX_NEW_BEGINNINGS;
        if begins {
            self.new_beginnings = self.new_beginnings.saturating_add(1);
            step.sa_fault(StateFault::SetupUnknown.into(), self.path, self);
        }
        begins
    }

    pub(crate) const fn spis(&self) -> IkeSpis {
        IkeSpis { initiator: self.spi_i, responder: self.spi_r }
    }

    /// Our SPI. Messages of the peer are looked up by it.
    pub(crate) const fn own_spi(&self) -> IkeSpi {
        match self.role {
            Role::Initiator => self.spi_i,
            Role::Responder => self.spi_r,
        }
    }
}
