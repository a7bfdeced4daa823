//! Commands to IKE that take their time.

use super::Job;
use crate::stack::Stack;
use casemate_app::command::Wanted;
use smoltcp::time::{Duration, Instant};

/// IKE gives its peer up by itself before.
const LIMIT: Duration = Duration::from_secs(20);

pub(crate) struct Command {
    wanted: Wanted,
    began: Instant,
}

impl Command {
    pub(crate) fn initiate(name: &str, ike: bool, stack: &mut Stack, now: Instant) -> Result<Self, String> {
        let wanted = stack.with_ike(now, |endpoint, means| Wanted::initiate(name, ike, endpoint, means))?;
        Ok(Self { wanted, began: now })
    }

    pub(crate) fn terminate(name: &str, stack: &mut Stack, now: Instant) -> Result<Self, String> {
        let wanted = stack.with_ike(now, |endpoint, means| Wanted::terminate(name, endpoint, means))?;
        Ok(Self { wanted, began: now })
    }
}

impl Job for Command {
    fn step(&mut self, stack: &mut Stack, now: Instant) -> Option<Result<String, String>> {
        // It was given after the last round: what that told is of before, unless time has passed.
        let heard = if now > self.began {
            stack.told().iter().find_map(|event| self.wanted.hear(event))
        } else {
            None
        };
        if let Some(done) = heard {
            return Some(done.map(|()| "done".into()));
        }
        if self.wanted.is_met() {
            return Some(Ok("done".into()));
        }
        (now - self.began > LIMIT).then(|| Err(format!("not done after {} s", LIMIT.total_millis() / 1_000)))
    }
}
