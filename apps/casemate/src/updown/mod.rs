//! Updown scripts: commands that run when the Child SAs of a child come up and go down
//! (docs/decisions/0112-updown.md).
//!
//! A script runs once after a Child SA has come up, and once after the last Child SA that has replaced it has
//! gone down. Rekeying runs no script. `environment` makes the variables of a script;
//! [`casemate_linux::updown`] runs it in another process.

mod environment;

use crate::control::{Waker, signal};
use crate::failure::Failure;
use crate::keyring::Keyring;
use crate::log::level::Level;
use crate::log::message::{Message, Subject};
use crate::log::rate_limit::LogCategory;
use crate::output;
use crate::swanctl::ScriptTable;
use crate::vici::local_id;
use casemate::Notice;
use casemate_ike::{ChildId, Event, IkeStatus};
use casemate_linux::updown::{
    MAX_ENVIRONMENT, NOBODY, ScriptEnd, UpdownJob, UpdownResult, UpdownRunner, run_updown_server,
};
use casemate_linux::{EndpointContext, EndpointHandle, Error};
use casemate_sa::SpdPair;
use environment::{Facts, MAX_PAIRS, NewChild, Variables, peer_of, reqid_of};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The first argument of the internal process that runs scripts; the commands follow.
pub(crate) const RUNNER: &str = "internal-updown-runner";

/// Scripts without a result, at most. A Child SA that comes up when there are as many is closed.
const MAX_PENDING: usize = 4_096;
/// Those of one peer, at most: one user must not take the places of all others.
const MAX_PENDING_OF_PEER: usize = 256;
/// Time for all scripts at the end of a run.
const END_TIMEOUT: Duration = Duration::from_secs(10);
/// Exit status of a shell that may not execute the command (POSIX, 2.8.2).
const CANNOT_EXECUTE: i32 = 126;
/// Lines of the output of a script that are logged, and characters of each.
const MAX_LINES: usize = 8;
const MAX_LINE: usize = 200;

/// Runs the internal process until its parent ends.
pub(crate) fn run_scripts() -> Result<(), Failure> {
    let commands = std::env::args_os().skip(2).map(|command| command.into_string().unwrap_or_default());
    run_updown_server(commands.collect()).map_err(Failure::failed)
}

/// The scripts of an instance.
#[derive(Default)]
pub(crate) struct Updown(Option<Active>);

struct Active {
    runner: UpdownRunner,
    /// The TUN interface of children without one of their own.
    interface: String,
    scripts: ScriptTable,
    /// What has happened since [`Updown::serve`].
    changes: Vec<Change>,
    /// Traffic of each Child SA whose script has run.
    children: HashMap<ChildId, u64>,
    traffic: HashMap<u64, Traffic>,
    /// Scripts without a result.
    jobs: HashMap<u64, Job>,
    /// Their number for each peer that has some.
    pending: HashMap<Arc<str>, usize>,
    next_id: u64,
}

/// A change of Child SAs.
enum Change {
    Up(Box<NewChild>),
    Replaced { old: ChildId, new: ChildId },
    Down(ChildId),
}

/// Traffic that is up.
struct Traffic {
    subject: Subject,
    command: Arc<str>,
    peer: Arc<str>,
    lane: Arc<str>,
    variables: Vec<Variables>,
    /// Number of its Child SAs.
    count: usize,
}

/// A script without a result.
struct Job {
    subject: Subject,
    peer: Arc<str>,
    verb: String,
    is_up: bool,
}

impl Updown {
    /// Starts the process that runs the scripts of this configuration, if it has any. Must be called before
    /// the sandbox is entered.
    pub(crate) fn start(scripts: &ScriptTable, interface: &str, waker: Waker) -> Result<Self, Error> {
        let commands = scripts.commands();
        if commands.is_empty() {
            return Ok(Self::default());
        }
        let runner = UpdownRunner::start(RUNNER, &commands, move || signal(&waker.0))?;
        Ok(Self(Some(Active {
            runner,
            interface: interface.into(),
            scripts: ScriptTable::default(),
            changes: Vec::new(),
            children: HashMap::new(),
            traffic: HashMap::new(),
            jobs: HashMap::new(),
            pending: HashMap::new(),
            next_id: 0,
        })))
    }

    /// Checks that the process can run the scripts of another configuration.
    pub(crate) fn check(&self, scripts: &ScriptTable) -> Result<(), String> {
        let is_known =
            |command: &str| self.0.as_ref().is_some_and(|active| active.runner.has_command(command));
        match scripts.first_unknown(is_known) {
            None => Ok(()),
            Some(key) => Err(format!(
                "{key}: this script was not in the configuration when the instance started, and the running \
                 instance cannot start it: restart the instance"
            )),
        }
    }

    /// Uses the scripts of another configuration for the Child SAs that come up from now on.
    pub(crate) fn configure(&mut self, scripts: ScriptTable) {
        if let Some(active) = &mut self.0 {
            active.scripts = scripts;
        }
    }

    /// Follows the Child SAs. Returns whether [`serve`](Self::serve) has to follow.
    pub(crate) fn on_notice(&mut self, notice: &Notice) -> bool {
        let (Some(active), Notice::Ike(event)) = (&mut self.0, notice) else { return false };
        let change = match event {
            Event::ChildUp(up) => match up.replaces {
                Some(old) => Change::Replaced { old, new: up.id },
                None if active.scripts.get(&up.connection.name, &up.child.name).is_none() => return false,
                None => Change::Up(Box::new(NewChild::from(&**up))),
            },
            Event::ChildDown { id, .. } => Change::Down(*id),
            _ => return false,
        };
        active.changes.push(change);
        true
    }

    /// An error if the process that runs the scripts has ended: no Child SA may come up without its script.
    pub(crate) fn check_runner(&self) -> Result<(), Error> {
        self.0.as_ref().map_or(Ok(()), |active| active.runner.check())
    }

    /// Starts the scripts for what has happened. Returns messages about those that have ended.
    pub(crate) fn serve(&mut self, handle: &EndpointHandle<'_>, keyring: &Keyring) -> Vec<Message> {
        let Some(active) = &mut self.0 else { return Vec::new() };
        let mut messages = Vec::new();
        for change in std::mem::take(&mut active.changes) {
            match change {
                Change::Up(new) => {
                    let context = handle.lock();
                    let status = status_of(&new, &context);
                    let tunnel = active.tunnel_of(new.id, &context);
                    drop(context);
                    if let (Some(status), Some(tunnel)) = (status, tunnel) {
                        let refused = active.up(&new, &status, &tunnel, keyring).err();
                        if refused.is_some() {
                            let id = new.id;
                            let context = &mut *handle.lock();
                            context.with(|endpoint, context| endpoint.terminate_child(id, context));
                        }
                        messages.extend(refused.map(|message| *message));
                    }
                }
                Change::Replaced { old, new } => active.replaced(old, new),
                Change::Down(id) => active.down(id),
            }
        }
        while let Some(result) = active.runner.result() {
            messages.extend(active.ended(result));
        }
        messages
    }

    /// Runs the scripts of all traffic that is up, as if it went down, and waits for their ends. Returns
    /// messages.
    pub(crate) fn stop(&mut self) -> Vec<Message> {
        let Some(mut active) = self.0.take() else { return Vec::new() };
        for change in std::mem::take(&mut active.changes) {
            match change {
                // No script has run for it.
                Change::Up(_) => {}
                Change::Replaced { old, new } => active.replaced(old, new),
                Change::Down(id) => active.down(id),
            }
        }
        let mut left: Vec<u64> = active.traffic.keys().copied().collect();
        left.sort_unstable();
        left.into_iter().for_each(|traffic| active.traffic_down(traffic));
        let mut messages = Vec::new();
        let start = Instant::now();
        while active.runner.pending() > 0
            && let Some(left) = END_TIMEOUT.checked_sub(start.elapsed())
        {
            let result = active.runner.wait_for_result(left);
            messages.extend(result.and_then(|result| active.ended(result)));
        }
        if active.runner.pending() > 0 {
            let count = output::counted(active.runner.pending(), "updown script", "updown scripts");
            let text = format!("{count} had not ended {} seconds after the end", END_TIMEOUT.as_secs());
            messages.push(Message::new(Level::Warning, LogCategory::Updown, Subject::default(), text));
        }
        messages
    }
}

/// The IKE SA of a new Child SA, which may have been rekeyed since.
fn status_of(new: &NewChild, context: &EndpointContext) -> Option<IkeStatus> {
    let has_child = |status: &IkeStatus| status.children.iter().any(|child| child.id == new.id);
    let ike = context.endpoint().ike();
    ike.status_of(new.ike).filter(has_child).or_else(|| ike.status().find(has_child))
}

/// Where a Child SA is installed.
struct TunnelFacts {
    reqid: u32,
    /// The interface of its packets.
    interface: String,
    spds: SpdPair,
}

impl Active {
    /// Where a Child SA is installed. `None` if its interface could not be made, so that it is closed.
    fn tunnel_of(&self, child: ChildId, context: &EndpointContext) -> Option<TunnelFacts> {
        let spds = context.endpoint().spds_of(child).unwrap_or_default();
        let interface = match spds.outbound.is_main() {
            true => self.interface.clone(),
            false => context.tunnel_names().get(&spds.outbound)?.clone(),
        };
        Some(TunnelFacts { reqid: reqid_of(child, context), interface, spds })
    }

    /// Starts the scripts for a Child SA. If they cannot be run, returns a message: the Child SA must not be
    /// used without them, because they may be its packet filter, and what prevents them is up to the peer.
    fn up(
        &mut self,
        new: &NewChild,
        status: &IkeStatus,
        tunnel: &TunnelFacts,
        keyring: &Keyring,
    ) -> Result<(), Box<Message>> {
        let Some(script) = self.scripts.get(&new.connection.name, &new.child.name) else { return Ok(()) };
        let subject =
            Subject { child_sa: Some(new.id), ..Subject::child(&new.connection.name, &new.child.name) };
        let refused = |why: String| {
            let text = format!("closed, because its updown script cannot be run: {why}");
            Err(Box::new(Message::new(Level::Warning, LogCategory::Updown, subject.clone(), text)))
        };
        let peer = peer_of(new, status);
        if let Some(why) = self.why_full(&peer) {
            return refused(why);
        }
        let TunnelFacts { reqid, ref interface, spds } = *tunnel;
        let local_id = &local_id(status, keyring);
        let facts = Facts { status, local_id, reqid, script, interface, spds };
        let variables = Variables::of(new, &facts);
        if variables.len() > MAX_PAIRS {
            let count = variables.len();
            return refused(format!("{count} pairs of traffic selectors, at most {MAX_PAIRS} were expected"));
        }
        let len = |(name, value): &(String, String)| name.len().saturating_add(value.len()).saturating_add(2);
        let is_long = |variables: &Variables| {
            variables.environment(false).iter().map(len).sum::<usize>() > MAX_ENVIRONMENT
        };
        if variables.iter().any(is_long) {
            return refused(format!("its environment has more than {MAX_ENVIRONMENT} bytes"));
        }
        let (command, lane) = (script.command.clone(), new.lane());
        let id = self.new_id();
        self.children.insert(new.id, id);
        let traffic = Traffic { subject, command, peer, lane, variables, count: 1 };
        self.run(&traffic, true);
        self.traffic.insert(id, traffic);
        Ok(())
    }

    /// Why no more scripts of a peer may wait, if so.
    fn why_full(&self, peer: &str) -> Option<String> {
        if self.pending.get(peer).is_some_and(|count| *count >= MAX_PENDING_OF_PEER) {
            return Some(format!("{MAX_PENDING_OF_PEER} others of this peer wait"));
        }
        (self.runner.pending() >= MAX_PENDING).then(|| format!("{MAX_PENDING} others wait"))
    }

    fn replaced(&mut self, old: ChildId, new: ChildId) {
        let Some(id) = self.children.get(&old).copied() else { return };
        if let Some(traffic) = self.traffic.get_mut(&id) {
            traffic.count = traffic.count.saturating_add(1);
            traffic.subject.child_sa = Some(new);
            self.children.insert(new, id);
        }
    }

    fn down(&mut self, child: ChildId) {
        let Some(id) = self.children.remove(&child) else { return };
        let Some(traffic) = self.traffic.get_mut(&id) else { return };
        traffic.count = traffic.count.saturating_sub(1);
        if traffic.count == 0 {
            self.traffic_down(id);
        }
    }

    fn traffic_down(&mut self, id: u64) {
        if let Some(traffic) = self.traffic.remove(&id) {
            self.run(&traffic, false);
        }
    }

    fn run(&mut self, traffic: &Traffic, is_up: bool) {
        for variables in &traffic.variables {
            let id = self.new_id();
            let (subject, peer) = (traffic.subject.clone(), traffic.peer.clone());
            let pending = self.pending.entry(peer.clone()).or_default();
            *pending = pending.saturating_add(1);
            let job = Job { subject, peer: peer.clone(), verb: variables.verb(is_up), is_up };
            self.jobs.insert(id, job);
            self.runner.submit(UpdownJob {
                id,
                peer,
                lane: traffic.lane.clone(),
                command: traffic.command.clone(),
                environment: variables.environment(is_up),
            });
        }
    }

    /// The message about a script that has ended. Its output may contain anything; the log escapes it.
    fn ended(&mut self, result: UpdownResult) -> Option<Message> {
        let Job { subject, peer, verb, is_up } = self.jobs.remove(&result.id)?;
        if let Entry::Occupied(mut pending) = self.pending.entry(peer) {
            *pending.get_mut() = pending.get().saturating_sub(1);
            if *pending.get() == 0 {
                pending.remove();
            }
        }
        let lines = result.output.lines().take(MAX_LINES);
        let lines: Vec<String> = lines.map(|line| line.chars().take(MAX_LINE).collect()).collect();
        let (level, note) = match &result.end {
            ScriptEnd::Exited(0) if lines.is_empty() => (Level::Debug, ""),
            ScriptEnd::Exited(0) => (Level::Info, ""),
            _ if is_up => (Level::Warning, "; the Child SA stays up"),
            _ => (Level::Warning, ""),
        };
        let is_denied = |line: &String| line.contains("Permission denied");
        let hint = match &result.end {
            ScriptEnd::Exited(CANNOT_EXECUTE) => self.who_runs_scripts(),
            ScriptEnd::Exited(1..) if lines.iter().any(is_denied) => self.who_runs_scripts(),
            _ => String::new(),
        };
        let text = format!("updown script for {verb}: {}{note}{hint}", result.end);
        Some(Message::new(level, LogCategory::Updown, subject, text).with_details(lines))
    }

    /// For a script that was not permitted to do something, or to run at all.
    fn who_runs_scripts(&self) -> String {
        let user = match self.runner.user() {
            NOBODY => "`nobody`".to_owned(),
            user => format!("{user} (`id -un {user}`)"),
        };
        format!(
            "; scripts run as the user {user}: a command that this user may read and execute was expected \
             (`chmod a+rx` for the file, `chmod a+x` for its directories)"
        )
    }

    fn new_id(&mut self) -> u64 {
        self.next_id = self.next_id.wrapping_add(1);
        self.next_id
    }
}
