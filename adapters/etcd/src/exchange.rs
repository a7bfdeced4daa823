//! One request to one server, the login, and what etcd's errors mean: whether the request was executed.

use crate::cluster::Cluster;
use crate::connection::{Connection, Response, TOO_LONG};
use crate::message::{self, Fault};
use serde_json::Value;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use zeroize::Zeroizing;

/// Longest body of a response. A range with a longer one is read in parts.
const MAX_BODY: usize = 8 << 20;
/// Longest wait for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);
/// Maximum number of characters of a text that is not JSON in a message.
const MAX_SHOWN: usize = 120;
const LOGIN: &str = "/v3/auth/authenticate";

/// Why a request to a server has no result.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Failed {
    /// The server has not executed the request, and another one may do so.
    NotExecuted(String),
    /// The server has not executed the request, because of the token with which it came.
    Token(Fault),
    /// The server may have executed the request.
    Unknown(String),
    /// The response is too long.
    TooLong,
    /// etcd reports this error, and has not executed the request.
    Refused(Fault),
    /// etcd has found damage.
    Damaged(String),
}

impl Failed {
    /// Text for the administrator.
    pub(crate) fn describe(&self, path: &str) -> String {
        match self {
            Self::NotExecuted(why) | Self::Unknown(why) | Self::Damaged(why) => why.clone(),
            Self::Token(fault) | Self::Refused(fault) => describe(path, fault),
            Self::TooLong => format!("{path}: at most {MAX_BODY} bytes were expected"),
        }
    }
}

/// Text of an error that etcd reports for a request.
pub(crate) fn describe(path: &str, fault: &Fault) -> String {
    format!("etcd: {path}: {} (code {})", fault.message, fault.code)
}

fn not_executed(error: io::Error) -> Failed {
    Failed::NotExecuted(error.to_string())
}

/// Connects to the server that is used. Returns its index, too.
pub(crate) fn open(cluster: &Cluster, deadline: Instant) -> Result<(usize, Connection), Failed> {
    let (index, endpoint) = cluster.preferred().ok_or(Failed::Unknown("no server".into()))?;
    let deadline = deadline.min(Instant::now() + CONNECT_TIMEOUT);
    let opened = Connection::open(endpoint, cluster.config.tls.as_ref(), deadline);
    opened.map(|connection| (index, connection)).map_err(not_executed)
}

/// The token of the user; `None` if the configuration has no user. Without a token, logs in.
pub(crate) fn token(
    cluster: &Cluster,
    connection: &mut Connection,
    deadline: Instant,
) -> Result<Option<Arc<str>>, Failed> {
    let Some(login) = &cluster.config.login else { return Ok(None) };
    if let Some(token) = cluster.token() {
        return Ok(Some(token));
    }
    let text = |bytes| Value::from(String::from_utf8_lossy(bytes));
    let user = text(login.user.as_bytes());
    let password = Zeroizing::new(text(login.password.expose()).to_string());
    let body = Zeroizing::new(format!("{{\"name\":{user},\"password\":{}}}", *password));
    let response = exchange(connection, LOGIN, None, body.as_bytes(), deadline);
    // The request itself is not sent, whatever became of the login.
    let response = response.and_then(|response| interpret(&response)).map_err(|failed| match failed {
        Failed::Unknown(why) => Failed::NotExecuted(why),
        other => other,
    })?;
    let found = response.get("token").and_then(Value::as_str);
    let is_header = |token: &&str| !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
    let Some(found) = found.filter(is_header) else {
        return Err(Failed::NotExecuted(format!("{LOGIN}: a token was expected")));
    };
    cluster.set_token(found);
    Ok(Some(found.into()))
}

/// Sends a request and waits for the response.
pub(crate) fn exchange(
    connection: &mut Connection,
    path: &str,
    token: Option<&str>,
    body: &[u8],
    deadline: Instant,
) -> Result<Response, Failed> {
    connection.send(path, token, body, deadline).map_err(not_executed)?;
    connection.receive(MAX_BODY, deadline).map_err(|error| match error.kind() {
        TOO_LONG => Failed::TooLong,
        _ => Failed::Unknown(error.to_string()),
    })
}

/// Returns the JSON value of a response.
pub(crate) fn interpret(response: &Response) -> Result<Value, Failed> {
    let Ok(value) = serde_json::from_slice::<Value>(&response.body) else {
        return Err(Failed::Unknown(not_json(response)));
    };
    // A stream reports an error of its call within a response.
    let nested = value.get("error").filter(|error| error.is_object());
    if response.status == 200 && nested.is_none() && value.is_object() {
        return Ok(value);
    }
    match message::fault(nested.unwrap_or(&value)) {
        Some(fault) => Err(meaning(fault)),
        None => Err(Failed::Unknown(format!("status {}: an error of etcd was expected", response.status))),
    }
}

/// Text about a response that is not JSON, with its beginning. Some errors of the gateway are plain text.
fn not_json(response: &Response) -> String {
    let text = String::from_utf8_lossy(&response.body);
    let shown: String = text.trim_end().chars().take(MAX_SHOWN).collect();
    format!("status {}: JSON was expected, not `{}`", response.status, shown.escape_debug())
}

/// What an error of etcd means, by its code of gRPC and the texts of etcd's `rpctypes`.
pub(crate) fn meaning(fault: Fault) -> Failed {
    const INVALID_ARGUMENT: u64 = 3;
    const NOT_FOUND: u64 = 5;
    const PERMISSION_DENIED: u64 = 7;
    const RESOURCE_EXHAUSTED: u64 = 8;
    const FAILED_PRECONDITION: u64 = 9;
    const UNIMPLEMENTED: u64 = 12;
    const UNAVAILABLE: u64 = 14;
    const DATA_LOSS: u64 = 15;
    const UNAUTHENTICATED: u64 = 16;
    let has = |text: &str| fault.message.contains(text);
    match fault.code {
        UNAUTHENTICATED => Failed::Token(fault),
        INVALID_ARGUMENT if has("revision of auth store is old") || has("user name is empty") => {
            Failed::Token(fault)
        }
        RESOURCE_EXHAUSTED if has("too many requests") => Failed::NotExecuted(fault.message),
        UNAVAILABLE if has("etcdserver: no leader") => Failed::NotExecuted(fault.message),
        INVALID_ARGUMENT | NOT_FOUND | PERMISSION_DENIED | RESOURCE_EXHAUSTED | FAILED_PRECONDITION
        | UNIMPLEMENTED => Failed::Refused(fault),
        DATA_LOSS => Failed::Damaged(fault.message),
        _ => Failed::Unknown(fault.message),
    }
}

/// Whether a lease does not exist.
pub(crate) fn is_lease_missing(fault: &Fault) -> bool {
    fault.message.contains("requested lease not found")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interpreted(status: u16, body: &str) -> Result<Value, Failed> {
        interpret(&Response { status, body: body.into() })
    }

    /// The texts are those of etcd 3.5.16.
    #[test]
    fn errors_say_whether_the_request_was_executed() {
        let of = |code: u64, message: &str| meaning(Fault { code, message: message.into() });
        assert!(matches!(of(14, "etcdserver: no leader"), Failed::NotExecuted(_)));
        assert!(matches!(of(8, "etcdserver: too many requests"), Failed::NotExecuted(_)));
        assert!(matches!(of(8, "etcdserver: mvcc: database space exceeded"), Failed::Refused(_)));
        assert!(matches!(of(3, "etcdserver: request is too large"), Failed::Refused(_)));
        assert!(matches!(of(7, "etcdserver: permission denied"), Failed::Refused(_)));
        assert!(matches!(of(16, "etcdserver: invalid auth token"), Failed::Token(_)));
        assert!(matches!(of(3, "etcdserver: revision of auth store is old"), Failed::Token(_)));
        assert!(matches!(of(15, "etcdserver: corrupt cluster"), Failed::Damaged(_)));
        let unknown = ["etcdserver: request timed out", "etcdserver: leader changed", "connection error"];
        assert!(unknown.iter().all(|text| matches!(of(14, text), Failed::Unknown(_))));
        assert!(matches!(of(2, "raft proposal dropped"), Failed::Unknown(_)));
        assert!(matches!(of(4, "context deadline exceeded"), Failed::Unknown(_)));
    }

    #[test]
    fn responses_of_etcd_are_told_from_others() {
        assert!(interpreted(200, r#"{"header":{}}"#).is_ok());
        let refused = r#"{"code":5, "message":"etcdserver: requested lease not found"}"#;
        let Err(Failed::Refused(fault)) = interpreted(404, refused) else { panic!("not refused") };
        assert!(is_lease_missing(&fault));
        // etcd 3.4 repeats the message.
        let old = r#"{"error":"etcdserver: no leader","message":"etcdserver: no leader","code":14}"#;
        assert!(matches!(interpreted(503, old), Err(Failed::NotExecuted(_))));
        let stream = r#"{"error":{"grpc_code":14,"http_code":503,"message":"etcdserver: no leader"}}"#;
        assert!(matches!(interpreted(200, stream), Err(Failed::NotExecuted(_))));
        for (status, body) in
            [(502, "<html>"), (404, "{}"), (200, "[]"), (200, ""), (500, "{\"code\":\"x\"}")]
        {
            assert!(matches!(interpreted(status, body), Err(Failed::Unknown(_))), "{status} {body}");
        }
    }
}
