//! The part of the controller that reads the configuration again and applies it.

use super::controller::{READY, RELOAD_FAILED, RunController};
use crate::config_source::{ConfigReload, LoadedConfig, ReloadKind};
use crate::control::{Reply, bad_input, outcome};
use crate::keyring::Keyring;
use crate::log::level::Level;
use crate::output;
use crate::swanctl::{Charon, RadiusConfig};
use crate::vici::{Loaded, SessionId};
use casemate::NotRestored;
use casemate_linux::{EndpointContext, EndpointHandle};
use std::mem;
use std::sync::Arc;

/// A client that waits for a reload.
pub(super) enum ReloadClient {
    Control(Reply),
    Vici(SessionId),
}

/// A reload or a change by clients of vici in progress, with the clients that wait for the reload.
pub(super) struct PendingReload {
    reload: ConfigReload,
    /// `None` if no file is read.
    clients: Option<Vec<ReloadClient>>,
    /// What clients of vici have loaded.
    change: Option<Loaded>,
}

/// Why a reload has failed.
struct ReloadError {
    error: String,
    /// Whether the files have errors.
    is_input: bool,
}

/// The response to a client of the control socket.
fn response(result: &Result<(), ReloadError>) -> String {
    match result {
        Ok(()) => outcome(&Ok(())),
        Err(ReloadError { error, is_input: true }) => bad_input(error),
        Err(ReloadError { error, is_input: false }) => outcome(&Err(error.clone())),
    }
}

/// What IKE uses besides connections and pools.
struct Settings {
    keyring: Arc<Keyring>,
    charon: Charon,
    /// AAA servers.
    radius: Option<RadiusConfig>,
}

impl RunController {
    /// The warnings of a reloaded configuration, for the log.
    fn warnings(&self, loaded: &mut LoadedConfig) -> Vec<String> {
        let mut warnings = mem::take(&mut loaded.warnings);
        // The queues of the TUN interface depend on the scheduler and cannot change at run time.
        let fixed = [
            ("scheduler", loaded.scheduling != self.scheduling),
            ("performance", loaded.performance != self.performance),
            ("charon.plugins.resolve", loaded.name_servers != self.name_servers),
            ("cell", loaded.cell != self.cell),
        ];
        for (section, _) in fixed.into_iter().filter(|(_, is_changed)| *is_changed) {
            warnings.push(format!("{section}: the changes take effect when the instance is restarted"));
        }
        warnings
    }

    /// Warns if the files of the configuration cannot be read with the remaining privileges.
    pub(super) fn check_file_access(&mut self) {
        let errors = mem::take(&mut self.start_files).unreadable();
        if !errors.is_empty() {
            let what = "a reload will fail, because the instance can no longer read files of other users:";
            self.log.program(Level::Warning, &format!("{what} {}", errors.join("\n")));
        }
    }

    /// Starts a reload. A client that asks during a reload may have changed the configuration just
    /// before, so another reload follows for all such clients.
    pub(super) fn start_reload(&mut self, clients: Vec<ReloadClient>) {
        if self.source.is_none() {
            let why = "manual keys cannot be reloaded: restart the instance";
            return self.reloaded(&Err(ReloadError { error: why.into(), is_input: false }), clients);
        }
        if self.reload.is_some() {
            return self.next_reload.get_or_insert_default().extend(clients);
        }
        let sent = self.manager.reloading();
        self.check_sent(sent);
        let change = self.vici.as_mut().map(|vici| {
            let (_, mut loaded) = vici.begin_change();
            loaded.show_file();
            loaded
        });
        let kind = ReloadKind::Files(change.clone().unwrap_or_default());
        self.start_reading(kind, Some(clients), change);
    }

    pub(super) fn start_reading(
        &mut self,
        kind: ReloadKind,
        clients: Option<Vec<ReloadClient>>,
        change: Option<Loaded>,
    ) {
        let Some(source) = &self.source else { return };
        match self.control.waker().and_then(|waker| ConfigReload::start(source, kind, waker)) {
            Ok(reload) => self.reload = Some(PendingReload { reload, clients, change }),
            Err(error) => {
                let why = format!("the thread that reads the configuration: {error}");
                if let Some(vici) = &mut self.vici {
                    vici.cancel_change();
                }
                let error = ReloadError { error: why, is_input: false };
                self.reloaded(&Err(error), clients.unwrap_or_default());
            }
        }
    }

    /// Applies the result of a reload if it is ready. A configuration with errors changes nothing.
    pub(super) fn apply_reload(&mut self, handle: &EndpointHandle<'_>) {
        let Some(loaded) = self.reload.as_ref().and_then(|pending| pending.reload.result()) else { return };
        let Some(PendingReload { clients, change, .. }) = self.reload.take() else { return };
        let is_valid = loaded.is_ok();
        let result = loaded.and_then(|mut loaded| {
            let warnings = self.warnings(&mut loaded);
            let tunnels = handle.prepare_tunnels(&loaded.tunnels).map_err(|error| error.to_string())?;
            if self.cell_node.standby.is_some() {
                self.stand_by(loaded, &mut handle.lock())?;
            } else {
                self.apply(loaded, &mut handle.lock())?;
            }
            handle.use_tunnels(tunnels).map_err(|error| error.to_string())?;
            warnings.iter().for_each(|warning| self.log.program(Level::Warning, warning));
            self.validity.note(&warnings);
            Ok(())
        });
        self.end_change(&result, clients.is_some(), is_valid, change, handle);
        if let Some(clients) = clients {
            self.reloaded(&result.map_err(|error| ReloadError { error, is_input: !is_valid }), clients);
        }
        if let Some(clients) = self.next_reload.take() {
            self.start_reload(clients);
        }
    }

    /// Replaces the active configuration. If the endpoint has no room for its policies, nothing changes.
    pub(super) fn apply(
        &mut self,
        loaded: LoadedConfig,
        context: &mut EndpointContext,
    ) -> Result<(), String> {
        let LoadedConfig { connections, pools, keyring, charon, radius, scripts, base, .. } = loaded;
        self.updown.check(&scripts)?;
        // Before the connections, because the endpoint initiates them with these keys and settings.
        let former = self.use_settings(Settings { keyring: Arc::new(keyring), charon, radius }, context)?;
        let former_sas = mem::take(&mut self.former);
        let count = former_sas.len();
        let configured = context.with(|endpoint, context| match former_sas.is_empty() {
            true => endpoint.configure(connections.clone(), &pools, context).map(|()| Vec::new()),
            false => endpoint.configure_and_restore(connections.clone(), &pools, former_sas, context),
        });
        match configured {
            Ok(failed) => self.report_continued(count, &failed),
            Err(error) => {
                if let Err(problem) = self.use_settings(former, context) {
                    self.log.program(Level::Error, &problem);
                }
                return Err(error.to_string());
            }
        }
        self.updown.configure(scripts);
        self.history.reconfigure(&connections);
        if let Some(vici) = &mut self.vici {
            vici.set_configuration(base, pools);
        }
        if let Some(metrics) = &mut self.metrics {
            metrics.configure(&connections);
        }
        Ok(())
    }

    /// Logs how many IKE SAs of a former run go on, and why others do not.
    fn report_continued(&mut self, count: usize, failed: &[NotRestored]) {
        let continued = count.saturating_sub(failed.len());
        if continued > 0 {
            let what =
                output::counted(continued, "IKE SA of a former run goes on", "IKE SAs of a former run go on");
            self.log.program(Level::Info, &what);
        }
        for NotRestored { record, error } in failed {
            let name = record.connection();
            self.log.program(Level::Warning, &format!("an IKE SA of {name} does not go on: {error}"));
        }
    }

    /// Replaces the keys and the settings of IKE. Returns the former ones. An error changes nothing.
    fn use_settings(
        &mut self,
        settings: Settings,
        context: &mut EndpointContext,
    ) -> Result<Settings, String> {
        let Settings { keyring, charon, radius } = settings;
        let former_radius = self.radius.config().cloned();
        self.radius.configure(radius.as_ref(), &self.control)?;
        keyring.use_radius(self.radius.link());
        keyring.use_revocation(Some(self.revocation.link(keyring.providers(), &self.control)?));
        keyring.use_tokens(Some(self.tokens.link(&self.control)?));
        keyring.use_sequence_numbers(Arc::clone(&self.sequence_numbers));
        let former = Settings {
            keyring: mem::replace(&mut self.keyring, keyring),
            charon: mem::replace(&mut self.charon, charon),
            radius: former_radius,
        };
        context.set_credentials(self.keyring.clone());
        context.with(|endpoint, _| {
            endpoint.set_retransmission(charon.retransmission);
            endpoint.follow_redirects(charon.follow_redirects);
            endpoint.report_sa_counters(self.radius.is_recording());
        });
        self.use_crash_secret(context);
        Ok(former)
    }

    /// Logs the result of a reload and queues the responses to the clients, which are sent when the
    /// system state matches.
    fn reloaded(&mut self, result: &Result<(), ReloadError>, clients: Vec<ReloadClient>) {
        match result {
            Ok(()) => self.log.program(Level::Info, "the configuration was read again"),
            Err(ReloadError { error, .. }) => {
                error.lines().for_each(|line| self.log.program(Level::Error, &format!("reload: {line}")));
            }
        }
        self.reload_status = Some(if result.is_ok() { READY } else { RELOAD_FAILED });
        for client in clients {
            match client {
                ReloadClient::Control(reply) => self.responses.push((reply, response(result))),
                ReloadClient::Vici(id) => {
                    if let Some(vici) = &mut self.vici {
                        vici.end_reload(id, &result.as_ref().copied().map_err(|why| why.error.clone()));
                    }
                }
            }
        }
    }
}
