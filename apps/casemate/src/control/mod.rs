//! The protocol of the control socket: a request is one line of JSON, a response is one line of JSON, or
//! for a log any number of text lines, and for a trace any number of lines of JSON.

mod client;
mod server;
mod session;

pub use client::{InitiateArgs, LogArgs, NameArgs, RedirectArgs, RekeyArgs};
pub(crate) use client::{command, has_left_changes, is_running, no_instance, query, stream};
pub use client::{initiate, log, redirect, rekey, reload, send_request, terminate};
pub(crate) use server::{
    Channels, ControlServer, Listeners, PendingRequest, Ready, Reply, Waker, clear, pair, signal,
};

use casemate_ike::config::Gateway;
use serde_json::{Value, json};

/// A request to a running instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// Report the state.
    Status,
    /// Report the state of the cell.
    Cell,
    /// Set up the SAs of this name.
    Initiate {
        /// A connection, one of its children, or both as `connection/child`.
        name: String,
        /// Whether only the IKE SA is set up.
        ike: bool,
    },
    /// Close the SAs of this name.
    Terminate(String),
    /// Rekey the SAs of this name.
    Rekey {
        /// A connection, one of its children, or both as `connection/child`.
        name: String,
        /// Whether the IKE SA is rekeyed, instead of Child SAs.
        ike: bool,
    },
    /// Redirect the peers of the IKE SAs of this name.
    Redirect {
        /// A connection, or one of its IKE SAs.
        name: String,
        /// The other gateway.
        gateway: Gateway,
    },
    /// Reload the configuration.
    Reload,
    /// Hand the SAs of a cell over, and do not own them again; or let this node own them again.
    Drain {
        /// Whether the node must not own the SAs.
        is_drained: bool,
    },
    /// Explain the state of the connection with this name.
    Why(String),
    /// Trace packets.
    Trace {
        /// Which packets.
        selector: String,
        /// How many packets.
        count: u16,
        /// For how many seconds.
        timeout: u16,
    },
    /// Send the log.
    Log {
        /// Whether later messages are sent too.
        follow: bool,
    },
}

impl Request {
    /// Encodes the request as a line of JSON.
    pub fn to_line(&self) -> String {
        let value = match self {
            Self::Status => json!({"do": "status"}),
            Self::Cell => json!({"do": "cell"}),
            Self::Initiate { name, ike } => json!({"do": "initiate", "name": name, "ike": ike}),
            Self::Terminate(name) => json!({"do": "terminate", "name": name}),
            Self::Rekey { name, ike } => json!({"do": "rekey", "name": name, "ike": ike}),
            Self::Redirect { name, gateway } => {
                json!({"do": "redirect", "name": name, "gateway": gateway.to_string()})
            }
            Self::Reload => json!({"do": "reload"}),
            Self::Drain { is_drained } => json!({"do": "drain", "is_drained": is_drained}),
            Self::Why(name) => json!({"do": "why", "name": name}),
            Self::Trace { selector, count, timeout } => {
                json!({"do": "trace", "selector": selector, "count": count, "timeout": timeout})
            }
            Self::Log { follow } => json!({"do": "log", "follow": follow}),
        };
        format!("{value}\n")
    }

    /// Decodes a line of JSON; `None` if it is not a valid request.
    pub fn from_line(line: &str) -> Option<Self> {
        let value: Value = serde_json::from_str(line).ok()?;
        let name = || Some(value.get("name")?.as_str()?.to_owned());
        let flag = |name: &str| value.get(name).map_or(Some(false), Value::as_bool);
        let number = |name: &str| value.get(name)?.as_u64().and_then(|number| u16::try_from(number).ok());
        Some(match value.get("do")?.as_str()? {
            "status" => Self::Status,
            "cell" => Self::Cell,
            "initiate" => Self::Initiate { name: name()?, ike: flag("ike")? },
            "terminate" => Self::Terminate(name()?),
            "rekey" => Self::Rekey { name: name()?, ike: flag("ike")? },
            "redirect" => {
                Self::Redirect { name: name()?, gateway: Gateway::parse(value.get("gateway")?.as_str()?)? }
            }
            "reload" => Self::Reload,
            "drain" => Self::Drain { is_drained: value.get("is_drained")?.as_bool()? },
            "why" => Self::Why(name()?),
            "trace" => Self::Trace {
                selector: value.get("selector")?.as_str()?.to_owned(),
                count: number("count")?,
                timeout: number("timeout")?,
            },
            "log" => Self::Log { follow: flag("follow")? },
            _ => return None,
        })
    }
}

/// The response to a command: success, or an error message.
pub fn outcome(result: &Result<(), String>) -> String {
    match result {
        Ok(()) => json!({"ok": true}).to_string(),
        Err(error) => json!({"ok": false, "error": error}).to_string(),
    }
}

/// The response to a reload whose files have errors.
pub fn bad_input(error: &str) -> String {
    json!({"ok": false, "error": error, "is_input": true}).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_survive_encoding_and_decoding() {
        for request in [
            Request::Status,
            Request::Cell,
            Request::Initiate { name: "a \"b\"\n".into(), ike: true },
            Request::Terminate(String::new()),
            Request::Rekey { name: "x".into(), ike: true },
            Request::Reload,
            Request::Drain { is_drained: true },
            Request::Why("gw".into()),
            Request::Trace { selector: "proto icmp".into(), count: 10, timeout: 60 },
            Request::Log { follow: false },
        ] {
            let line = request.to_line();
            assert_eq!(line.matches('\n').count(), 1);
            assert_eq!(Request::from_line(&line), Some(request));
        }
        let without_ike = "{\"do\": \"rekey\", \"name\": \"x\"}";
        assert_eq!(Request::from_line(without_ike), Some(Request::Rekey { name: "x".into(), ike: false }));
        for line in [
            "",
            "{}",
            "[]",
            "{\"do\": 5}",
            "{\"do\": \"initiate\"}",
            "{\"do\": \"dance\"}",
            "{\"do\": \"trace\", \"selector\": \"\", \"count\": 65536, \"timeout\": 1}",
            "{\"do\": \"rekey\", \"name\": \"x\", \"ike\": \"yes\"}",
            "\u{0}",
        ] {
            assert_eq!(Request::from_line(line), None, "{line}");
        }
    }
}
