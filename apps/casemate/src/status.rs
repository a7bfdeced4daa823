//! `casemate status`: asks a running instance how it is.

mod ike;
mod snapshot;
mod table;

pub use ike::ike_sas;
pub use snapshot::{Identity, Snapshot};

use crate::cli::StatusArgs;
use crate::control::{self, Request};
use crate::failure::Failure;
use crate::printable;
use casemate_linux::instance::Instance;
use serde_json::Value;
use std::time::Duration;

/// How long an instance may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Runs the command.
pub fn status(args: &StatusArgs) -> Result<(), Failure> {
    let mut answers = Vec::new();
    let mut silent = Vec::new();
    for instance in Instance::all().map_err(Failure::failed)? {
        match ask(&instance) {
            Ok(answer) => answers.push(answer),
            // A socket that nobody listens on any more was left behind by a killed instance.
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {}
            Err(error) => silent.push(format!("{}: {error}", instance.socket().display())),
        }
    }
    if answers.is_empty() {
        silent
            .push("no instance is running in this network namespace, or none that this user may ask".into());
        return Err(Failure::failed(silent.join("\n")));
    }
    for answer in answers {
        if args.json {
            println!("{}", printable::json(&answer));
        } else {
            print!("{}", table::render(&printable::value(answer)));
        }
    }
    Ok(())
}

fn ask(instance: &Instance) -> std::io::Result<Value> {
    let text = control::ask(instance, &Request::Status, PATIENCE)?;
    serde_json::from_str(&text).map_err(std::io::Error::other)
}
