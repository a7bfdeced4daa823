//! Ping and HTTP: firmware against Linux (figures 8 to 10 of the paper).

mod echo;
mod findings;
mod measure;
mod protection;
mod results;
mod server;

use crate::Context;
use casemate_measure::report::{Part, Skipped};
use casemate_testbed::Result;
use measure::{Measurements, Plan};
use server::{KINDS, Server, ServerKind};
use std::time::Instant;

pub(super) fn run(context: &Context) -> Result<Vec<Part>> {
    let begun = Instant::now();
    let plan = Plan::of(context.quick);
    context.progress.set_total(KINDS.len() + plan.turns());
    let (mut servers, mut skipped) = (Vec::new(), Vec::new());
    for kind in KINDS {
        context.progress.advance(&format!("start: {}", kind.name()));
        match start(kind, context) {
            Ok(server) => servers.push(server),
            Err(out) => {
                context.progress.print_line(&format!("skipped: {}: {}", out.what, out.why));
                skipped.push(out);
            }
        }
    }
    let measured = Measurements::run(&servers, plan, begun + context.time.mul_f64(0.9), &context.progress);
    skipped.extend(measured.skipped.iter().cloned());
    Ok(vec![Part { skipped, ..results::part(&measured) }])
}

/// Starts a server and waits until all its addresses respond.
fn start(kind: ServerKind, context: &Context) -> Result<Server, Skipped> {
    let out = |why: String, failed| Skipped { what: kind.name().into(), why, failed };
    if let Some(missing) = kind.needs().iter().find_map(|requirement| requirement.missing()) {
        return Err(out(missing, false));
    }
    let started = kind.start(context).and_then(|server| measure::wait_for(&server).map(|()| server));
    started.map_err(|error| out(error.to_string(), true))
}
