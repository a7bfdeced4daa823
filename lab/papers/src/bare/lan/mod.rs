//! Ping and HTTP, the machine without an operating system against Linux (figures 8 to 10 of the paper).

mod echo;
mod findings;
mod measure;
mod outcome;
mod protection;
mod server;

use crate::Context;
use casemate_report::{LeftOut, Part};
use casemate_stage::Result;
use measure::{Measured, Plan};
use server::{KINDS, Kind, Server};
use std::time::Instant;

pub(super) fn run(context: &Context) -> Result<Vec<Part>> {
    let begun = Instant::now();
    let plan = Plan::of(context.quick);
    context.progress.expect(KINDS.len() + plan.turns());
    let (mut servers, mut left_out) = (Vec::new(), Vec::new());
    for kind in KINDS {
        context.progress.next(&format!("start: {}", kind.name()));
        match start(kind, context) {
            Ok(server) => servers.push(server),
            Err(out) => {
                context.progress.say(&format!("left out: {}: {}", out.what, out.why));
                left_out.push(out);
            }
        }
    }
    let measured = Measured::take(&servers, plan, begun + context.time.mul_f64(0.9), &context.progress);
    left_out.extend(measured.left_out.iter().cloned());
    Ok(vec![Part { left_out, ..outcome::part(&measured) }])
}

/// A server whose every address answers.
fn start(kind: Kind, context: &Context) -> Result<Server, LeftOut> {
    let out = |why: String, failed| LeftOut { what: kind.name().into(), why, failed };
    if let Some(missing) = kind.needs().iter().find_map(|need| need.missing()) {
        return Err(out(missing, false));
    }
    let started = kind.start(context).and_then(|server| measure::wait_for(&server).map(|()| server));
    started.map_err(|error| out(error.to_string(), true))
}
