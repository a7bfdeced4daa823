//! Commands to a running instance, and how they travel: one line of JSON each way over its control socket; a log has as
//! many lines as it wants.

mod client;

pub use client::{ask, initiate, log, rekey, reload, terminate};

use serde_json::{Value, json};

/// What a client wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// The state.
    Status,
    /// To set something up; without Child SAs if the flag is set.
    Initiate(String, bool),
    /// To close something.
    Terminate(String),
    /// Other keys; for an IKE SA if the flag is set.
    Rekey(String, bool),
    /// To have the configuration read again.
    Reload,
    /// What happened; with the flag, also what will happen.
    Log(bool),
}

impl Request {
    /// As a line of JSON.
    pub fn to_line(&self) -> String {
        let value = match self {
            Self::Status => json!({"do": "status"}),
            Self::Initiate(name, ike) => json!({"do": "initiate", "name": name, "ike": ike}),
            Self::Terminate(name) => json!({"do": "terminate", "name": name}),
            Self::Rekey(name, ike) => json!({"do": "rekey", "name": name, "ike": ike}),
            Self::Reload => json!({"do": "reload"}),
            Self::Log(follow) => json!({"do": "log", "follow": follow}),
        };
        format!("{value}\n")
    }

    /// From a line of JSON; `None` if it is no request.
    pub fn from_line(line: &str) -> Option<Self> {
        let value: Value = serde_json::from_str(line).ok()?;
        let name = || Some(value.get("name")?.as_str()?.to_owned());
        let flag = |name: &str| value.get(name).and_then(Value::as_bool).unwrap_or(false);
        Some(match value.get("do")?.as_str()? {
            "status" => Self::Status,
            "initiate" => Self::Initiate(name()?, flag("ike")),
            "terminate" => Self::Terminate(name()?),
            "rekey" => Self::Rekey(name()?, flag("ike")),
            "reload" => Self::Reload,
            "log" => Self::Log(flag("follow")),
            _ => return None,
        })
    }
}

/// What an instance answers to a command: nothing more, or what went wrong.
pub fn outcome(done: &Result<(), String>) -> String {
    match done {
        Ok(()) => json!({"ok": true}).to_string(),
        Err(error) => json!({"ok": false, "error": error}).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_as_they_were_written() {
        for request in [
            Request::Status,
            Request::Initiate("a \"b\"\n".into(), true),
            Request::Terminate(String::new()),
            Request::Rekey("x".into(), true),
            Request::Reload,
            Request::Log(false),
        ] {
            let line = request.to_line();
            assert_eq!(line.matches('\n').count(), 1);
            assert_eq!(Request::from_line(&line), Some(request));
        }
        for line in ["", "{}", "[]", "{\"do\": 5}", "{\"do\": \"initiate\"}", "{\"do\": \"dance\"}", "\u{0}"]
        {
            assert_eq!(Request::from_line(line), None, "{line}");
        }
    }
}
