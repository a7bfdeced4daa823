//! Commands that set up, rekey and close SAs.

use super::{Call, Outcome, failure, success};
use crate::command::PendingCommand;
use crate::log::level::Level;
use crate::output;
use crate::revocation::Fetched;
use crate::vici::message::{MessageWriter, Section};
use crate::vici::sas::identity_text;
use casemate::Endpoint;
use casemate_ike::config::Gateway;
use casemate_ike::{ChildId, Event, IkeSaId, IkeStatus};
use std::time::{Duration, Instant};

/// A command that waits for SAs.
pub(in crate::vici) struct RunningCommand {
    pending: PendingCommand,
    kind: Kind,
    /// The result, when it is known.
    result: Option<Result<(), String>>,
    timeout: Option<Duration>,
    /// When the client stops waiting.
    pub(in crate::vici) deadline: Option<Instant>,
    /// Whether the client gets `control-log` events.
    pub(in crate::vici) shows_log: bool,
}

/// What a command does, for its response.
enum Kind {
    /// Sets up the SA with this name, such as `CHILD_SA 'net'`.
    Initiate(String),
    /// Closes SAs: how many there are.
    Terminate(usize),
}

/// The time for which a client waits for a response.
enum Wait {
    /// As long as it takes.
    Forever,
    /// The response is sent at once.
    No,
    /// At most this long.
    AtMost(Duration),
}

impl Wait {
    /// Reads `timeout`: milliseconds; 0 is without limit, and -1 is not at all.
    fn of(request: &Section) -> Result<Self, String> {
        let text = request.text("timeout").unwrap_or("0");
        let milliseconds: i64 =
            text.parse().map_err(|_| "timeout: a number of milliseconds was expected".to_owned())?;
        Ok(match u64::try_from(milliseconds) {
            Ok(0) => Self::Forever,
            Ok(milliseconds) => Self::AtMost(Duration::from_millis(milliseconds)),
            Err(_) => Self::No,
        })
    }
}

impl RunningCommand {
    fn start(pending: PendingCommand, kind: Kind, wait: Wait, request: &Section) -> Outcome {
        let timeout = match wait {
            Wait::AtMost(timeout) => Some(timeout),
            Wait::Forever => None,
            Wait::No => {
                let closed = matches!(kind, Kind::Terminate(_));
                let command = Self::new(pending, kind, None, request);
                return Outcome::Response(if closed { command.response(&Ok(())) } else { success() });
            }
        };
        Outcome::Running(Self::new(pending, kind, timeout, request))
    }

    fn new(pending: PendingCommand, kind: Kind, timeout: Option<Duration>, request: &Section) -> Self {
        let result = pending.is_complete().then_some(Ok(()));
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let level = request.text("loglevel").and_then(|level| level.parse::<i32>().ok());
        // Every line of the log has level 1.
        Self { pending, kind, result, timeout, deadline, shows_log: level.is_none_or(|level| level >= 1) }
    }

    /// Processes an event.
    pub(in crate::vici) fn on_event(&mut self, event: &Event) {
        if self.result.is_none() {
            self.result = self.pending.on_event(event);
        }
    }

    /// The response, when the result is known.
    pub(in crate::vici) fn outcome(&self) -> Option<Vec<u8>> {
        self.result.as_ref().map(|result| self.response(result))
    }

    /// The response to a client that has waited too long.
    pub(in crate::vici) fn timed_out(&self) -> Vec<u8> {
        let milliseconds = self.timeout.unwrap_or_default().as_millis();
        match &self.kind {
            Kind::Initiate(what) => failure(&format!("{what} not established after {milliseconds}ms")),
            Kind::Terminate(_) => {
                let why = format!("not all matching SAs could be terminated after {milliseconds}ms");
                self.response(&Err(why))
            }
        }
    }

    fn response(&self, result: &Result<(), String>) -> Vec<u8> {
        match &self.kind {
            Kind::Initiate(what) => match result {
                Ok(()) => success(),
                Err(reason) => failure(&format!("establishing {what} failed: {reason}")),
            },
            Kind::Terminate(matches) => {
                let left = if result.is_ok() { 0 } else { self.pending.remaining() };
                MessageWriter::message(|message| {
                    message.value("success", if result.is_ok() { "yes" } else { "no" });
                    message.display("matches", matches);
                    message.display("terminated", matches.saturating_sub(left));
                    message.optional("errmsg", result.as_ref().err());
                })
            }
        }
    }
}

/// Sets up a Child SA of the configuration `child`, or without `child` the IKE SA of the connection `ike`.
pub(super) fn initiate(Call { request, context, .. }: Call<'_, '_, '_>) -> Outcome {
    let [child, ike] = ["child", "ike"].map(|key| request.text(key).filter(|name| !name.is_empty()));
    let wait = match Wait::of(request) {
        Ok(wait) => wait,
        Err(error) => return Outcome::Response(failure(&error)),
    };
    let (name, what) = match (child, ike) {
        (None, None) => return Outcome::Response(failure("missing configuration name")),
        (Some(child), ike) => match whole_name(context.handle.lock().endpoint(), child, ike) {
            Some(name) => (name, format!("CHILD_SA '{child}'")),
            None => return Outcome::Response(failure(&format!("CHILD_SA config '{child}' not found"))),
        },
        (None, Some(ike)) => {
            let context = context.handle.lock();
            if !context.endpoint().ike().connections().iter().any(|connection| connection.name == ike) {
                return Outcome::Response(failure(&format!("IKE_SA config '{ike}' not found")));
            }
            (ike.to_owned(), format!("IKE_SA '{ike}'"))
        }
    };
    let started = context
        .handle
        .lock()
        .with(|endpoint, context| PendingCommand::initiate(&name, child.is_none(), endpoint, context));
    match started {
        Ok(pending) => RunningCommand::start(pending, Kind::Initiate(what), wait, request),
        Err(error) => Outcome::Response(failure(&format!("establishing {what} failed: {error}"))),
    }
}

/// The name `connection/child` of a child; `ike` is its connection, if it is given.
fn whole_name(endpoint: &Endpoint, child: &str, ike: Option<&str>) -> Option<String> {
    let mut connections = endpoint.ike().connections().iter();
    let connection = connections.find(|connection| {
        ike.is_none_or(|ike| ike == connection.name)
            && connection.children.iter().any(|known| known.name == child)
    })?;
    Some(format!("{}/{child}", connection.name))
}

/// The SAs that a request selects.
struct Selected {
    ikes: Vec<IkeSaId>,
    children: Vec<ChildId>,
}

impl Selected {
    /// Finds SAs by `child`, `ike`, `child-id` and `ike-id`. With a child, the IKE SAs only limit the search.
    fn find(request: &Section, endpoint: &Endpoint) -> Result<Self, String> {
        let keys = ["child", "child-id", "ike", "ike-id"];
        let [child, child_id, ike, ike_id] =
            keys.map(|key| request.text(key).filter(|text| !text.is_empty()));
        if [child, child_id, ike, ike_id].iter().all(Option::is_none) {
            return Err("missing terminate selector".into());
        }
        let is_it = |wanted: Option<&str>, value: &str| wanted.is_none_or(|wanted| wanted == value);
        let sas = endpoint
            .ike()
            .status()
            .filter(|sa| is_it(ike, &sa.connection.name) && is_it(ike_id, &sa.id.to_string()));
        let mut selected = Self { ikes: Vec::new(), children: Vec::new() };
        for sa in sas {
            if child.is_none() && child_id.is_none() {
                selected.ikes.push(sa.id);
                continue;
            }
            let children = sa
                .children
                .iter()
                .filter(|one| is_it(child, &one.child.name) && is_it(child_id, &one.id.to_string()));
            selected.children.extend(children.map(|child| child.id));
        }
        Ok(selected)
    }

    fn count(&self) -> usize {
        self.ikes.len().saturating_add(self.children.len())
    }
}

/// Closes SAs. With `force`, the response does not wait for the peers.
pub(super) fn terminate(Call { request, context, .. }: Call<'_, '_, '_>) -> Outcome {
    let wait = match Wait::of(request) {
        Ok(_) if request.is_true("force") => Wait::No,
        Ok(wait) => wait,
        Err(error) => return Outcome::Response(failure(&error)),
    };
    let mut locked = context.handle.lock();
    let selected = match Selected::find(request, locked.endpoint()) {
        Ok(selected) => selected,
        Err(error) => return Outcome::Response(failure(&error)),
    };
    if selected.count() == 0 {
        return Outcome::Response(none_found("terminate", true));
    }
    let matches = selected.count();
    let pending = locked
        .with(|endpoint, context| PendingCommand::close(selected.ikes, selected.children, endpoint, context));
    drop(locked);
    let count = output::counted(matches, "SA", "SAs");
    context.log.program(Level::Info, &format!("a client of vici requests the end of {count}"));
    RunningCommand::start(pending, Kind::Terminate(matches), wait, request)
}

/// Starts rekeying. The response does not wait for the peers. An IKE SA is rekeyed with `reauth`, too.
pub(super) fn rekey(Call { request, context, .. }: Call<'_, '_, '_>) -> Outcome {
    let mut locked = context.handle.lock();
    let selected = match Selected::find(request, locked.endpoint()) {
        Ok(selected) => selected,
        Err(error) => return Outcome::Response(failure(&error.replace("terminate", "rekey"))),
    };
    let started = locked.with(|endpoint, context| {
        let ikes = selected.ikes.iter().filter(|id| endpoint.rekey(**id, context)).count();
        let children = selected.children.iter().filter(|id| endpoint.rekey_child(**id, context)).count();
        ikes.saturating_add(children)
    });
    Outcome::Response(if started == 0 {
        none_found("rekey", false)
    } else {
        MessageWriter::message(|message| {
            message.value("success", "yes");
            message.display("matches", started);
        })
    })
}

/// Redirects the peers of IKE SAs to `gateway`. They are selected by `ike`, `ike-id`, `peer-ip` (an address)
/// and
/// `peer-id` (an identity).
pub(super) fn redirect(Call { request, context, .. }: Call<'_, '_, '_>) -> Outcome {
    let text = |key| request.text(key).filter(|text: &&str| !text.is_empty());
    let Some(gateway) = text("gateway") else { return Outcome::Response(failure("missing target gateway")) };
    let Some(gateway) = Gateway::parse(gateway) else {
        return Outcome::Response(failure("gateway: the address or the name of a gateway was expected"));
    };
    let [ike, ike_id, peer_ip, peer_id] = ["ike", "ike-id", "peer-ip", "peer-id"].map(text);
    if [ike, ike_id, peer_ip, peer_id].iter().all(Option::is_none) {
        return Outcome::Response(failure("missing redirect selector"));
    }
    let is_it = |wanted: Option<&str>, value: &str| wanted.is_none_or(|wanted| wanted == value);
    let mut locked = context.handle.lock();
    let selects = |sa: &IkeStatus| {
        is_it(ike, &sa.connection.name)
            && is_it(ike_id, &sa.id.to_string())
            && is_it(peer_ip, &sa.path.remote.ip().to_string())
            && peer_id.is_none_or(|id| sa.peer.as_ref().is_some_and(|peer| identity_text(peer) == id))
    };
    let ids: Vec<IkeSaId> = locked.endpoint().ike().status().filter(selects).map(|sa| sa.id).collect();
    let redirected = locked.with(|endpoint, context| {
        ids.iter().filter(|id| endpoint.redirect(**id, gateway.clone(), context)).count()
    });
    Outcome::Response(if redirected == 0 {
        none_found("redirect", false)
    } else {
        MessageWriter::message(|message| {
            message.value("success", "yes");
            message.display("matches", redirected);
        })
    })
}

/// Forgets CRLs, OCSP responses, or both, that were fetched, so that they are fetched again. `type` selects
/// them; other certificates are not fetched.
pub(super) fn flush_certificates(Call { request, context, .. }: Call<'_, '_, '_>) -> Outcome {
    let kind = request.text("type").unwrap_or("any").to_ascii_lowercase();
    let fetched = match kind.as_str() {
        "any" => Some(Fetched::All),
        "x509_crl" => Some(Fetched::Crls),
        "ocsp_response" => Some(Fetched::OcspResponses),
        "x509" | "x509_ac" | "pubkey" => None,
        _ => return Outcome::Response(failure(&format!("invalid certificate type '{kind}'"))),
    };
    fetched.into_iter().for_each(|fetched| context.keyring.forget(fetched));
    Outcome::Response(success())
}

fn none_found(action: &str, counts_terminated: bool) -> Vec<u8> {
    MessageWriter::message(|message| {
        message.value("success", "no");
        message.value("matches", "0");
        if counts_terminated {
            message.value("terminated", "0");
        }
        message.value("errmsg", format!("no matching SAs to {action} found"));
    })
}
