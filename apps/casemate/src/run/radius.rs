//! The part of the controller that serves RADIUS.

use crate::control::ControlServer;
use crate::radius::{RadiusLink, RadiusService, Report, Sessions};
use crate::swanctl::RadiusConfig;
use casemate::Notice;
use casemate_linux::EndpointContext;
use casemate_linux::process::SystemRng;

/// AAA servers, and the sessions that they have accepted.
#[derive(Default)]
pub(super) struct RadiusState {
    service: Option<RadiusService>,
    sessions: Option<Sessions>,
}

impl RadiusState {
    /// Uses these servers. A thread with other settings goes on until nothing awaits an answer of it.
    pub(super) fn configure(
        &mut self,
        config: Option<&RadiusConfig>,
        control: &ControlServer,
    ) -> Result<(), String> {
        if self.service.as_ref().map(RadiusService::config) == config {
            return Ok(());
        }
        let Some(config) = config else {
            self.service = None;
            return Ok(());
        };
        let waker = control.waker().map_err(|error| format!("RADIUS: {error}"))?;
        let started = RadiusService::start(config, waker)?;
        if self.sessions.is_none() {
            let mut rng = SystemRng::new().map_err(|error| format!("RADIUS: {error}"))?;
            self.sessions = Some(Sessions::new(rng.secret_u64()));
        }
        self.service = Some(started);
        Ok(())
    }

    /// For the authenticators of peers.
    pub(super) fn link(&self) -> Option<RadiusLink> {
        self.service.as_ref().map(|service| service.link().clone())
    }

    /// Whether a session has to be looked at each second.
    pub(super) fn wants_tick(&self) -> bool {
        self.service.is_some() && self.sessions.as_ref().is_some_and(|sessions| !sessions.is_empty())
    }

    /// Handles what the thread has reported. Returns lines for the log.
    pub(super) fn serve(&mut self, context: &mut EndpointContext) -> Vec<String> {
        let (Some(service), Some(sessions)) = (&self.service, &mut self.sessions) else { return Vec::new() };
        let mut problems = Vec::new();
        while let Some(report) = service.next_report() {
            match report {
                Report::Answered(ike) => {
                    context.with(|endpoint, context| endpoint.continue_eap(ike, context));
                }
                Report::Accepted(ike, response) => sessions.accept(ike, response),
                Report::Dynamic(from, request) => {
                    sessions.disconnect(from, request, context, service.link());
                }
                Report::Problem(text) => problems.push(text),
            }
        }
        sessions.update(context, service.link(), service.config());
        problems
    }

    /// Follows the IKE SAs. Returns whether [`serve`](Self::serve) has to follow.
    pub(super) fn on_notice(&mut self, notice: &Notice) -> bool {
        let (Some(service), Some(sessions)) = (&self.service, &mut self.sessions) else { return false };
        sessions.on_notice(notice, service.link(), service.config())
    }

    /// Records the end of all sessions.
    pub(super) fn stop(&mut self) {
        if let (Some(service), Some(sessions)) = (self.service.take(), &mut self.sessions) {
            sessions.stop_all(service.link(), service.config());
            service.finish();
        }
    }
}
