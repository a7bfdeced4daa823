//! Redirects to the name of a gateway: the IKE SA waits until its addresses are known.
//!
//! If the name leads nowhere, the original gateway is asked again after a pause. The new IKE SA beside an
//! established one ends instead: the established one stays.

use super::{Redirect, way_to};
use crate::child_sa::ChildRequest;
use crate::config::{Gateway, HostAddrs, HostName, Lookup};
use crate::context::Step;
use crate::state::{InitSent, SaCommon, State, retry_at};
use crate::{DownReason, StateFault};
use alloc::boxed::Box;
use alloc::vec::Vec;
use casemate_sa::Instant;
use core::time::Duration;

/// Time between two questions for the addresses, whose look-up goes on elsewhere.
const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// Longest time of a look-up, as for the names of peers.
const LOOK_UP_LIMIT: Duration = Duration::from_secs(30);

/// What an IKE SA that was redirected to a name waits for. No request is outstanding.
#[derive(Debug)]
pub(crate) enum Waiting {
    /// The addresses of the gateway.
    Addrs { name: HostName, until: Instant },
    /// The end of the pause before the original gateway is asked again.
    Pause,
}

impl InitSent {
    /// Starts again with another gateway, or waits for its addresses.
    pub(crate) fn restart_redirected(
        common: &mut SaCommon,
        redirect: Redirect,
        child_requests: Vec<ChildRequest>,
        sequences: u32,
        step: &mut Step<'_, '_>,
    ) -> State {
        match Self::redirected(common, redirect, child_requests, sequences, step) {
            Ok(state) => State::InitSent(Box::new(state)),
            Err(fault) => State::Closed(DownReason::Fault(fault.into())),
        }
    }

    /// State of an IKE SA that begins with another gateway.
    pub(super) fn redirected(
        common: &mut SaCommon,
        redirect: Redirect,
        child_requests: Vec<ChildRequest>,
        sequences: u32,
        step: &mut Step<'_, '_>,
    ) -> Result<Self, StateFault> {
        let Redirect { gateway, state } = redirect;
        common.redirect = state;
        let name = match gateway {
            Gateway::Addr(addr) => {
                common.path = way_to(addr, common, step).ok_or(StateFault::RedirectGateway)?;
                return Self::restart(common, child_requests, sequences, step);
            }
            Gateway::Name(name) => name,
        };
        Self::reset(common, step);
        let mut methods = common.connection.proposals.iter().flat_map(|proposal| proposal.kex.iter());
        let method = methods.next().copied().ok_or(StateFault::NoProposalChosen)?;
        let mut state = Self::unsent(method, child_requests, sequences, step);
        state.waiting = Some(Waiting::Addrs { name, until: step.context.now.after(LOOK_UP_LIMIT) });
        Ok(state)
    }

    /// Goes on after a wait.
    pub(crate) fn end_waiting(
        mut self: Box<Self>,
        common: &mut SaCommon,
        waiting: Waiting,
        step: &mut Step<'_, '_>,
    ) -> State {
        let now = step.context.now;
        let restarted = match waiting {
            Waiting::Pause => Self::restart(common, self.child_requests, self.sequences, step),
            Waiting::Addrs { name, until } => {
                let path = match step.context.routes.host_addrs(name.as_str(), Lookup::Fresh) {
                    HostAddrs::Pending if now < until => {
                        self.waiting = Some(Waiting::Addrs { name, until });
                        self.due = now.after(POLL_INTERVAL);
                        return State::InitSent(self);
                    }
                    HostAddrs::Known(addrs) => addrs.iter().find_map(|addr| way_to(*addr, common, step)),
                    HostAddrs::Pending | HostAddrs::Unknown => None,
                };
                let Some(path) = path else { return self.ask_original_gateway(common, step) };
                common.path = path;
                Self::restart(common, self.child_requests, self.sequences, step)
            }
        };
        match restarted {
            Ok(state) => State::InitSent(Box::new(state)),
            Err(fault) => State::Closed(DownReason::Fault(fault.into())),
        }
    }

    /// Reports that no address was found, and asks the original gateway again after a pause if the connection
    /// allows another attempt.
    fn ask_original_gateway(mut self: Box<Self>, common: &mut SaCommon, step: &mut Step<'_, '_>) -> State {
        let fault = StateFault::RedirectGateway;
        step.sa_fault(fault.into(), common.path, common);
        self.sequences = self.sequences.saturating_add(1);
        let may_retry = common.connection.allows_another_sequence(self.sequences);
        // An established IKE SA stays beside one with a predecessor.
        if common.predecessor.is_some() || !may_retry {
            return State::Closed(DownReason::Fault(fault.into()));
        }
        common.redirect.from = None;
        self.waiting = Some(Waiting::Pause);
        self.due = retry_at(u8::try_from(self.sequences).unwrap_or(u8::MAX), step);
        State::InitSent(self)
    }
}
