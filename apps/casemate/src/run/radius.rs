//! The part of the controller that serves RADIUS.

use crate::control::ControlServer;
use crate::log::level::Level;
use crate::radius::{RadiusLink, RadiusService, Report, Sessions};
use crate::swanctl::RadiusConfig;
use casemate::Notice;
use casemate_linux::process::SystemRng;
use casemate_linux::{EndpointContext, EndpointHandle};
use std::sync::mpsc::{Receiver, Sender, channel};

/// AAA servers, and the sessions that they have accepted.
#[derive(Default)]
pub(super) struct RadiusState(Option<Active>);

struct Active {
    service: RadiusService,
    sessions: Sessions,
    /// Reports of the service and of those before, which still await answers.
    reports: (Sender<Report>, Receiver<Report>),
}

impl RadiusState {
    /// Uses these servers. Conversations that have begun go on with the former ones.
    pub(super) fn configure(
        &mut self,
        config: Option<&RadiusConfig>,
        control: &ControlServer,
    ) -> Result<(), String> {
        if self.config() == config {
            return Ok(());
        }
        let Some(config) = config else {
            self.0 = None;
            return Ok(());
        };
        let waker = control.waker().map_err(|error| format!("RADIUS: {error}"))?;
        if let Some(Active { service, reports, .. }) = &mut self.0 {
            *service = RadiusService::start(config, waker, reports.0.clone(), Some(service))?;
            return Ok(());
        }
        let reports = channel();
        let service = RadiusService::start(config, waker, reports.0.clone(), None)?;
        let mut rng = SystemRng::new().map_err(|error| format!("RADIUS: {error}"))?;
        self.0 = Some(Active { service, sessions: Sessions::new(rng.secret_u64()), reports });
        Ok(())
    }

    /// The servers in use.
    pub(super) fn config(&self) -> Option<&RadiusConfig> {
        self.0.as_ref().map(|active| active.service.config())
    }

    /// For the authenticators of peers.
    pub(super) fn link(&self) -> Option<RadiusLink> {
        self.0.as_ref().map(|active| active.service.link().clone())
    }

    /// A second has passed. Returns whether [`serve`](Self::serve) has to follow.
    pub(super) fn on_tick(&mut self) -> bool {
        self.0.as_mut().is_some_and(|Active { service, sessions, .. }| sessions.on_tick(service.config()))
    }

    /// Handles what the thread has reported, and looks at sessions. Returns lines for the log, and whether
    /// another call has to follow.
    pub(super) fn serve(&mut self, handle: &EndpointHandle<'_>) -> (Vec<(Level, String)>, bool) {
        let Some(Active { service, sessions, reports }) = &mut self.0 else { return (Vec::new(), false) };
        let (mut lines, mut requests) = (Vec::new(), Vec::new());
        let context = &mut *handle.lock();
        while let Ok(report) = reports.1.try_recv() {
            match report {
                Report::Answered(ike) => {
                    context.with(|endpoint, context| endpoint.continue_eap(ike, context));
                }
                Report::Accepted { ike, user_name, path, response } => {
                    sessions.accept(ike, user_name, path, response);
                }
                Report::Dynamic(from, request) => requests.push((from, request)),
                Report::Problem(text) => lines.push((Level::Warning, text)),
            }
        }
        // Last, because they are also about logins that the server has accepted before.
        for (from, request) in requests {
            sessions.disconnect(from, request, context, service.link());
        }
        let has_more = sessions.update(context, service.link(), service.config());
        lines.extend(sessions.take_lines().into_iter().map(|line| (Level::Info, line)));
        (lines, has_more)
    }

    /// Follows the IKE SAs. Returns whether [`serve`](Self::serve) has to follow.
    pub(super) fn on_notice(&mut self, notice: &Notice) -> bool {
        self.0.as_mut().is_some_and(|active| active.sessions.on_notice(notice))
    }

    /// Records the end of all sessions. Returns lines for the log.
    pub(super) fn stop(&mut self, context: &EndpointContext) -> Vec<String> {
        let Some(Active { service, sessions, reports }) = self.0.take() else { return Vec::new() };
        sessions.stop_all(context, service.link(), service.config());
        service.finish();
        let problem = |report| if let Report::Problem(text) = report { Some(text) } else { None };
        reports.1.try_iter().filter_map(problem).collect()
    }

    /// Whether sessions are recorded, so that counters of SAs that end are needed.
    pub(super) fn is_recording(&self) -> bool {
        self.config().is_some_and(|config| config.accounting.is_some())
    }
}
