//! Jobs: commands that take more than one round.

pub(crate) mod icmp;
mod tcp;

use crate::stack::Stack;
use casemate_app::command::PendingCommand;
use smoltcp::time::{Duration, Instant};
use std::net::IpAddr;

/// A job that runs beside the network stack.
pub(crate) trait Job {
    /// Continues the job. Returns its result when it is finished.
    fn step(&mut self, stack: &mut Stack, now: Instant) -> Option<Result<String, String>>;
}

/// Parses a command and starts its job. `ping` and `tcp` have the same syntax as in `probe` of
/// verify/interop.
pub(crate) fn parse(words: &[&str], stack: &mut Stack, now: Instant) -> Result<Box<dyn Job>, String> {
    match *words {
        ["ping", from, to, ref sizes @ ..] => {
            let mut all = Vec::new();
            for size in sizes {
                let (first, last) = size.split_once('-').unwrap_or((size, size));
                all.extend(number(first)?..=number(last)?);
            }
            Ok(Box::new(icmp::Ping::new((address(from)?, address(to)?), all, stack, now)?))
        }
        ["tcp", from, to, bytes] => {
            Ok(Box::new(tcp::Exchange::new((address(from)?, address(to)?), number(bytes)?, stack, now)?))
        }
        ["initiate", name] => Ok(Box::new(IkeCommand::initiate(name, false, stack, now)?)),
        ["initiate", name, "--ike"] => Ok(Box::new(IkeCommand::initiate(name, true, stack, now)?)),
        ["terminate", name] => Ok(Box::new(IkeCommand::terminate(name, stack, now)?)),
        _ => Err(format!("`{}`: unknown command; the option --help lists the commands", words.join(" "))),
    }
}

fn address(text: &str) -> Result<IpAddr, String> {
    text.parse().map_err(|error| format!("`{text}`: {error}"))
}

fn number(text: &str) -> Result<usize, String> {
    text.parse().map_err(|error| format!("`{text}`: {error}"))
}

/// Maximum time of a command. IKE gives up a silent peer before.
const IKE_TIMEOUT: Duration = Duration::from_secs(20);

/// An IKE command that waits for its result.
struct IkeCommand {
    pending: PendingCommand,
    started: Instant,
}

impl IkeCommand {
    fn initiate(name: &str, ike: bool, stack: &mut Stack, now: Instant) -> Result<Self, String> {
        let pending = stack
            .with_ike(now, |endpoint, context| PendingCommand::initiate(name, ike, endpoint, context))?;
        Ok(Self { pending, started: now })
    }

    fn terminate(name: &str, stack: &mut Stack, now: Instant) -> Result<Self, String> {
        let pending =
            stack.with_ike(now, |endpoint, context| PendingCommand::terminate(name, endpoint, context))?;
        Ok(Self { pending, started: now })
    }
}

impl Job for IkeCommand {
    fn step(&mut self, stack: &mut Stack, now: Instant) -> Option<Result<String, String>> {
        // The command was given after IKE ran in this round, so the events of this round precede it.
        let result = if now > self.started {
            stack.events().iter().find_map(|event| self.pending.on_event(event))
        } else {
            None
        };
        if let Some(done) = result {
            return Some(done.map(|()| "done".into()));
        }
        if self.pending.is_complete() {
            return Some(Ok("done".into()));
        }
        (now - self.started > IKE_TIMEOUT)
            .then(|| Err(format!("no result after {} s", IKE_TIMEOUT.total_millis() / 1_000)))
    }
}
