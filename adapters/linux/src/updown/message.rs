//! Messages between an instance and the process that runs scripts. Numbers have the byte order of the
//! machine.
//!
//! | | bytes |
//! |---|---|
//! | request | job (8), number of the command (4), length (4), `NAME=VALUE` with a zero byte for each |
//! | result | job (8), kind of the end (1), its value (4), length (4), output or reason |

use super::{MAX_ENVIRONMENT, MAX_OUTPUT, ScriptEnd, UpdownResult};
use std::io::{self, ErrorKind, Read};

/// A script to start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) id: u64,
    /// Place of the command among those that the process was started with.
    pub(super) command: usize,
    pub(super) environment: Vec<(String, String)>,
}

impl Request {
    /// The request as bytes; `None` if the environment is too long or contains a zero byte.
    pub(super) fn encode(&self) -> Option<Vec<u8>> {
        let mut environment = Vec::new();
        for (name, value) in &self.environment {
            if name.contains(['\0', '=']) || value.contains('\0') {
                return None;
            }
            environment.extend_from_slice(format!("{name}={value}\0").as_bytes());
        }
        let len = u32::try_from(environment.len()).ok()?;
        if environment.len() > MAX_ENVIRONMENT {
            return None;
        }
        let command = u32::try_from(self.command).ok()?;
        let head = [&self.id.to_ne_bytes()[..], &command.to_ne_bytes(), &len.to_ne_bytes()].concat();
        Some([head, environment].concat())
    }
}

/// Receives the next request; `None` at the end.
pub(super) fn receive_request(socket: &mut impl Read) -> io::Result<Option<Request>> {
    let Some(id) = first_number(socket)? else { return Ok(None) };
    let command = number(socket)? as usize;
    let text = text(socket, MAX_ENVIRONMENT)?;
    let pairs = text.split_terminator('\0').map(|pair| pair.split_once('='));
    let environment = pairs.map(|pair| pair.map(|(name, value)| (name.to_owned(), value.to_owned())));
    let environment = environment.collect::<Option<_>>().ok_or(ErrorKind::InvalidData)?;
    Ok(Some(Request { id, command, environment }))
}

/// The result as bytes.
pub(super) fn encode_result(result: &UpdownResult) -> Vec<u8> {
    let (kind, value, text) = match &result.end {
        ScriptEnd::Exited(status) => (0, *status, &result.output),
        ScriptEnd::Signal(signal) => (1, *signal, &result.output),
        ScriptEnd::TimedOut => (2, 0, &result.output),
        ScriptEnd::Failed(reason) => (3, 0, reason),
    };
    let text = text.get(..text.floor_char_boundary(MAX_OUTPUT)).unwrap_or_default();
    let len = text.len() as u32;
    let head = [&result.id.to_ne_bytes()[..], &[kind], &value.to_ne_bytes(), &len.to_ne_bytes()].concat();
    [&head, text.as_bytes()].concat()
}

/// Receives the next result; `None` at the end.
pub(super) fn receive_result(socket: &mut impl Read) -> io::Result<Option<UpdownResult>> {
    let Some(id) = first_number(socket)? else { return Ok(None) };
    let mut kind = [0];
    socket.read_exact(&mut kind)?;
    let value = number(socket)?.cast_signed();
    let text = text(socket, MAX_OUTPUT)?;
    let (end, output) = match kind {
        [0] => (ScriptEnd::Exited(value), text),
        [1] => (ScriptEnd::Signal(value), text),
        [2] => (ScriptEnd::TimedOut, text),
        [3] => (ScriptEnd::Failed(text), String::new()),
        _ => return Err(ErrorKind::InvalidData.into()),
    };
    Ok(Some(UpdownResult { id, end, output }))
}

/// The first field of a message; `None` if the other end has closed the socket.
fn first_number(socket: &mut impl Read) -> io::Result<Option<u64>> {
    let mut bytes = [0; 8];
    match socket.read_exact(&mut bytes) {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(None),
        read => read.map(|()| Some(u64::from_ne_bytes(bytes))),
    }
}

fn number(socket: &mut impl Read) -> io::Result<u32> {
    let mut bytes = [0; 4];
    socket.read_exact(&mut bytes)?;
    Ok(u32::from_ne_bytes(bytes))
}

fn text(socket: &mut impl Read, max: usize) -> io::Result<String> {
    let len = number(socket)? as usize;
    if len > max {
        return Err(ErrorKind::InvalidData.into());
    }
    let mut bytes = vec![0; len];
    socket.read_exact(&mut bytes)?;
    String::from_utf8(bytes).map_err(|_| ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_the_way_and_too_long_ones_are_refused() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let environment = vec![pair("A", "1=2\n3"), pair("B", "")];
        let request = Request { id: 5, command: 2, environment };
        let bytes = request.encode().unwrap();
        assert_eq!(receive_request(&mut &bytes[..]).unwrap(), Some(request.clone()));
        assert_eq!(receive_request(&mut &[][..]).unwrap(), None);
        for wrong in [pair("A", "\0"), pair("A=", ""), pair("A", &"x".repeat(MAX_ENVIRONMENT))] {
            assert_eq!(Request { environment: vec![wrong], ..request.clone() }.encode(), None);
        }
        let ends = [ScriptEnd::Exited(-1), ScriptEnd::Signal(9), ScriptEnd::TimedOut];
        for end in ends.into_iter().chain([ScriptEnd::Failed("é".into())]) {
            let output = if matches!(end, ScriptEnd::Failed(_)) { "" } else { "out" };
            let result = UpdownResult { id: 6, end, output: output.into() };
            assert_eq!(receive_result(&mut &encode_result(&result)[..]).unwrap(), Some(result));
        }
        let long = UpdownResult { id: 1, end: ScriptEnd::TimedOut, output: "é".repeat(MAX_OUTPUT) };
        let received = receive_result(&mut &encode_result(&long)[..]).unwrap().unwrap();
        assert_eq!(received.output.len(), MAX_OUTPUT);
    }
}
