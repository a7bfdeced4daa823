//! The part of the controller that has the status of certificates fetched.

use crate::control::ControlServer;
use crate::revocation::{RevocationLink, RevocationReport};
use casemate_crypto::Provider;
use casemate_linux::EndpointHandle;
use std::sync::mpsc::{Receiver, channel};

/// Access to the threads that fetch.
#[derive(Default)]
pub(super) struct RevocationState(Option<(RevocationLink, Receiver<RevocationReport>)>);

impl RevocationState {
    /// The link for a keyring that is about to be used. Sources that did not answer are asked again.
    pub(super) fn link(
        &mut self,
        providers: &[&'static dyn Provider],
        control: &ControlServer,
    ) -> Result<RevocationLink, String> {
        if let Some((link, _)) = &self.0 {
            link.forget_failures();
            return Ok(link.clone());
        }
        let waker = control.waker().map_err(|error| format!("status of certificates: {error}"))?;
        let (reports, received) = channel();
        let link = RevocationLink::new(providers.to_vec(), reports, waker);
        self.0 = Some((link.clone(), received));
        Ok(link)
    }

    /// Continues with the peers for which something was found out. Returns lines for the log.
    pub(super) fn serve(&mut self, handle: &EndpointHandle<'_>) -> Vec<String> {
        let Some((_, reports)) = &self.0 else { return Vec::new() };
        let mut problems = Vec::new();
        for report in reports.try_iter() {
            match report {
                RevocationReport::Known(ike) => {
                    handle.lock().with(|endpoint, context| endpoint.continue_authentication(ike, context));
                }
                RevocationReport::Problem(text) => problems.push(text),
            }
        }
        problems
    }
}
