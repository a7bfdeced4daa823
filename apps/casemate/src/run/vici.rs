//! The part of the controller that serves clients of vici and applies what they have loaded.

use super::controller::RunController;
use super::reload::ReloadClient;
use crate::config_source::ReloadKind;
use crate::vici::{Loaded, ViciChannel, ViciContext, ViciRequest, ViciServer};
use casemate_crypto::Provider;
use casemate_linux::EndpointHandle;
use std::path::Path;

impl RunController {
    /// Serves clients of vici on the socket at `path`.
    pub(super) fn serve_vici(
        &mut self,
        channel: ViciChannel,
        path: &Path,
        threads: usize,
        providers: &[&'static dyn Provider],
    ) {
        self.log.observe();
        self.vici = Some(ViciServer::new(channel, path.to_owned(), threads, providers));
    }

    /// Starts to build the configuration with what clients of vici have loaded.
    fn start_change(&mut self) {
        let Some(vici) = self.vici.as_mut().filter(|_| self.reload.is_none()) else { return };
        let (base, loaded) = vici.begin_change();
        self.start_reading(ReloadKind::Loaded(base, loaded.clone()), None, Some(loaded));
    }

    /// Reports the result of a change to clients of vici. A file with errors changes nothing of what they
    /// have loaded.
    pub(super) fn end_change(
        &mut self,
        result: &Result<(), String>,
        has_read_file: bool,
        is_valid: bool,
        change: Option<Loaded>,
        handle: &EndpointHandle<'_>,
    ) {
        let Some(change) = change else { return };
        let Some(mut vici) = self.vici.take() else { return };
        let mut context = ViciContext { handle, keyring: &self.keyring, log: &mut self.log };
        let mut requests = Vec::new();
        if has_read_file && !is_valid {
            vici.cancel_change();
        } else {
            requests = vici.end_change(result, change, &mut context);
        }
        if has_read_file && result.is_ok() {
            vici.show_file();
        }
        self.vici = Some(vici);
        self.handle_vici_requests(requests);
    }

    /// Serves the clients of vici.
    pub(super) fn serve_clients(&mut self, handle: &EndpointHandle<'_>) {
        let Some(mut vici) = self.vici.take() else { return };
        let mut context = ViciContext { handle, keyring: &self.keyring, log: &mut self.log };
        let requests = vici.serve(&mut context);
        self.vici = Some(vici);
        self.handle_vici_requests(requests);
    }

    fn handle_vici_requests(&mut self, requests: Vec<ViciRequest>) {
        for request in requests {
            match request {
                ViciRequest::ReloadFile(id) => self.start_reload(vec![ReloadClient::Vici(id)]),
                ViciRequest::Apply => self.start_change(),
            }
        }
    }
}
