//! `casemate status`: shows the state of the running instances.

mod cell;
mod child_traffic;
mod connections;
mod ike_snapshot;
mod ike_table;
mod narrowing;
mod shared_traffic;
mod snapshot;
mod table;

use crate::control::{self, Request};
use crate::failure::Failure;
use crate::output::print;
use crate::printable;
use casemate_datapath::Direction;
use casemate_linux::instance::Instance;
pub(crate) use cell::role_name;
pub(crate) use child_traffic::{ChildTraffic, child_traffic};
use clap::Args;
pub(crate) use connections::{ConnectionState, ConnectionStatus, last_heard};
pub use ike_snapshot::ike_sas;
pub(crate) use narrowing::Narrowing;
use serde_json::Value;
pub(crate) use shared_traffic::SharedTraffic;
pub use snapshot::{InstanceIdentity, Snapshot};
use std::time::Duration;

/// Arguments of `status`.
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// Print a JSON object instead of tables.
    #[arg(long)]
    pub json: bool,
}

/// Version of the JSON output (docs/manual/schema/status.json).
const SCHEMA_VERSION: u32 = 1;

/// Timeout of a request.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Runs the command.
pub fn status(args: &StatusArgs) -> Result<(), Failure> {
    let mut answers = Vec::new();
    let mut silent = Vec::new();
    for instance in Instance::all().map_err(Failure::failed)? {
        match send_request(&instance) {
            Ok(answer) => answers.push(answer),
            // A socket without a listener is left over from a killed instance.
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {}
            Err(error) => silent.push(format!("{}: {error}", instance.control_socket().display())),
        }
    }
    if answers.is_empty() {
        silent.push(control::no_instance());
        return Err(Failure::failed(silent.join("\n")));
    }
    for answer in answers {
        print(&if args.json {
            format!("{}\n", printable::json(&answer))
        } else {
            table::render(&printable::value(answer))
        })?;
    }
    Ok(())
}

fn send_request(instance: &Instance) -> std::io::Result<Value> {
    let text = control::send_request(instance, &Request::Status, TIMEOUT)?;
    serde_json::from_str(&text).map_err(std::io::Error::other)
}

/// The direction of an SA or policy.
fn word(direction: Direction) -> &'static str {
    match direction {
        Direction::Outbound => "out",
        Direction::Inbound => "in",
    }
}

/// Seconds with a precision of milliseconds.
pub(crate) fn seconds(duration: std::time::Duration) -> f64 {
    duration.as_millis() as f64 / 1_000.0
}
