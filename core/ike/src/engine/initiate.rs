//! Attempts to set up SAs: by a command, a packet or a retry.

use super::Ike;
use crate::child_sa::ChildRequest;
use crate::config::{ChildConfig, Connection};
use crate::engine::retries::Retry;
use crate::state::{InitSent, SaCommon, retry_at};
use crate::{Context, Event, Host, IkeSaId, InitiateError, Lookup, PacketSelectors, Path, StateFault};
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use casemate_sa::Instant;
use core::time::Duration;

/// Longest time until an attempt that waits for the addresses of its peer asks for them again.
const LOOKUP_WAIT: Duration = Duration::from_secs(30);

impl Ike {
    /// Sets up a Child SA in an existing IKE SA of the connection, or in a new one. `packet` is the packet
    /// that triggered the request, if there is one. Without a child, only the IKE SA is set up.
    pub fn initiate(
        &mut self,
        connection: &Arc<Connection>,
        child: Option<&Arc<ChildConfig>>,
        packet: Option<PacketSelectors>,
        host: &mut dyn Host,
        context: &mut Context<'_>,
    ) -> Result<(), InitiateError> {
        let child_request = child.map(|child| ChildRequest::new(child.clone(), packet));
        #[cfg(feature = "any-peer")]
        if let (Some(packet), Some(child)) = (packet, child)
            && connection.takes_peer_of_packet(child)
        {
            return self.initiate_to(packet, connection, child, host, context);
        }
        let existing =
            self.sas.of_connection(connection).find(|sa| sa.accepts_child_requests()).map(|sa| sa.common.id);
        match (existing, child_request) {
            (Some(id), Some(child_request)) => {
                self.update_sa(id, host, context, |sa, step| sa.request_child(child_request, step));
                Ok(())
            }
            (Some(_), None) => Ok(()),
            (None, child_request) => {
                let limit = self.shared.settings.max_ike_sas;
                let child_requests = child_request.into_iter().collect();
                let path = connection.path(Lookup::Fresh, context.routes);
                let begun = path.and_then(|path| {
                    self.begin_ike_sa(connection, path, child_requests, limit, host, context).map(|_| ())
                });
                if begun == Err(InitiateError::Pending) {
                    let (connection, children) = (connection.clone(), child.cloned().into_iter().collect());
                    self.wait_for_addrs(connection, children, (0, false), context.now);
                    return Ok(());
                }
                begun
            }
        }
    }

    /// Sets up a Child SA with the destination of a packet as the peer, unless there is one or it is
    /// requested.
    #[cfg(feature = "any-peer")]
    fn initiate_to(
        &mut self,
        packet: PacketSelectors,
        connection: &Arc<Connection>,
        child: &Arc<ChildConfig>,
        host: &mut dyn Host,
        context: &mut Context<'_>,
    ) -> Result<(), InitiateError> {
        let peer = packet.dst.addrs.first();
        let with_peer = || self.sas.of_connection(connection).filter(|sa| sa.common.path.remote.ip() == peer);
        if with_peer().any(|sa| sa.has_or_requests(child)) {
            return Ok(());
        }
        let existing = with_peer().find(|sa| sa.accepts_child_requests()).map(|sa| sa.common.id);
        let child_request = ChildRequest::new(child.clone(), Some(packet));
        if let Some(id) = existing {
            self.update_sa(id, host, context, |sa, step| sa.request_child(child_request, step));
            return Ok(());
        }
        let limit = self.shared.settings.max_ike_sas;
        let path = connection.path_to(peer, context.routes)?;
        self.begin_ike_sa(connection, path, vec![child_request], limit, host, context).map(|_| ())
    }

    /// Begins an attempt as soon as the addresses of its peer are known.
    fn wait_for_addrs(
        &mut self,
        connection: Arc<Connection>,
        children: Vec<Arc<ChildConfig>>,
        (attempts, restores): (u8, bool),
        now: Instant,
    ) {
        let at = now.after(LOOKUP_WAIT);
        let retry = Retry { connection, children, at, attempts, waits_for_addrs: true, restores };
        self.shared.retries.add(retry);
    }

    /// Reports that a look-up of host names has ended, whatever its result. Attempts that wait for one begin
    /// at the next call of [`handle_timeouts`](Self::handle_timeouts).
    pub fn hosts_resolved(&mut self, now: Instant) {
        self.shared.retries.end_waits_for_addrs(now);
    }

    /// Sets up a Child SA as [`initiate`](Self::initiate) does. If the attempt cannot start now, reports
    /// [`Event::InitiateFailed`] and tries again later if the connection's `keying_tries` allow that.
    pub fn initiate_or_retry(
        &mut self,
        connection: &Arc<Connection>,
        child: &Arc<ChildConfig>,
        host: &mut dyn Host,
        context: &mut Context<'_>,
    ) {
        if let Err(error) = self.initiate(connection, Some(child), None, host, context) {
            let (connection, children) = (connection.clone(), vec![child.clone()]);
            let at = context.now;
            let retry =
                Retry { connection, children, at, attempts: 0, waits_for_addrs: false, restores: false };
            self.initiate_failed(retry, error, host, context);
        }
    }

    /// Starts an IKE SA on this path if there are fewer than `limit`.
    pub(super) fn begin_ike_sa(
        &mut self,
        connection: &Arc<Connection>,
        path: Path,
        child_requests: Vec<ChildRequest>,
        limit: usize,
        host: &mut dyn Host,
        context: &mut Context<'_>,
    ) -> Result<IkeSaId, InitiateError> {
        if self.sas.current_count() >= limit {
            return Err(InitiateError::Full);
        }
        let mut step = self.step(host, context);
        let started = InitSent::begin(connection.clone(), path, child_requests, &mut step);
        let sa = started.map_err(|fault| match fault {
            StateFault::PpkMissing => InitiateError::NoPpk,
            _ => InitiateError::Provider,
        })?;
        let id = sa.common.id;
        self.sas.insert(sa);
        // An attempt that a packet or a command begins before a retry is due restores the connection as well.
        let restores = self.shared.retries.restores(connection);
        self.update_common(id, |common| common.restores |= restores);
        self.close_excess_replaced(host, context);
        self.run_effects(host, context);
        Ok(id)
    }

    /// Sets up the SAs of a retry, unless another IKE SA of the connection has them. If the peer starts again
    /// as well, two IKE SAs would soon become four, or each would replace the other for ever. Ignores a
    /// connection that is no longer configured.
    pub(super) fn retry(&mut self, retry: Retry, host: &mut dyn Host, context: &mut Context<'_>) {
        let Retry { connection, children, attempts, restores, .. } = retry;
        if !self.shared.connections.contains(&connection) {
            return;
        }
        // An attempt that has begun before, as for a forgotten IKE SA, restores the connection as well.
        for sa in self.sas.values_mut().filter(|sa| Arc::ptr_eq(&sa.common.connection, &connection)) {
            sa.common.restores |= restores && children.iter().any(|child| sa.has_or_requests(child));
        }
        let others = || self.sas.values().filter(|sa| Arc::ptr_eq(&sa.common.connection, &connection));
        let missing = children.iter().filter(|child| !others().any(|sa| sa.has_or_requests(child)));
        let child_requests: Vec<ChildRequest> =
            missing.map(|child| ChildRequest::new(child.clone(), None)).collect();
        let other = others().find(|sa| sa.accepts_child_requests()).map(|sa| sa.common.id);
        if let Some(other) = other {
            for child_request in child_requests {
                self.apply_to_sa(other, host, context, |sa, step| sa.request_child(child_request, step));
            }
            return;
        }
        let limit = self.shared.settings.max_ike_sas;
        let path = connection.path(Lookup::Fresh, context.routes);
        let begin = |path| self.begin_ike_sa(&connection, path, child_requests, limit, host, context);
        match path.and_then(begin) {
            Ok(id) => {
                self.update_common(id, |common| (common.attempts, common.restores) = (attempts, restores))
            }
            Err(InitiateError::Pending) => {
                self.wait_for_addrs(connection, children, (attempts, restores), context.now);
            }
            Err(error) => self.initiate_failed(Retry { connection, children, ..retry }, error, host, context),
        }
    }

    pub(super) fn update_common(&mut self, id: IkeSaId, change: impl FnOnce(&mut SaCommon)) {
        if let Some(sa) = self.sas.get_mut(id) {
            change(&mut sa.common);
        }
    }

    /// Reports that a connection could not be started, and schedules another attempt if the connection allows
    /// one. There is no other attempt without a remote address. Without a route, or without an address for
    /// the name of the peer, another attempt follows for a child that is to be kept up, whatever
    /// `keying_tries` says: the network may not be up yet, and no peer was asked in vain.
    fn initiate_failed(
        &mut self,
        retry: Retry,
        error: InitiateError,
        host: &mut dyn Host,
        context: &mut Context<'_>,
    ) {
        let Retry { connection, children, attempts, .. } = &retry;
        let attempts = attempts.saturating_add(1);
        let allows_another = connection.allows_another_sequence(attempts.into());
        self.shared.events.push_back(Event::InitiateFailed { connection: connection.clone(), error });
        let is_repeated = match error {
            InitiateError::UnknownHost | InitiateError::NoRoute => {
                allows_another || children.iter().any(|child| child.is_kept_up())
            }
            error => allows_another && !error.is_final(),
        };
        if is_repeated {
            let at = retry_at(attempts, &mut self.step(host, context));
            self.shared.retries.add(Retry { at, attempts, waits_for_addrs: false, ..retry });
        }
    }
}
