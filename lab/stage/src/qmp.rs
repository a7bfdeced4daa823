//! Orders for a running QEMU: the JSON protocol of its monitor (QEMU's docs/interop/qmp-spec.txt).

use crate::{Error, Result};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// How long QEMU may take for an answer.
const LIMIT: Duration = Duration::from_secs(5);
/// Lines that may come before the answer: events.
const EVENTS: usize = 100;

/// A monitor that takes orders.
#[derive(Debug)]
pub(crate) struct Qmp(BufReader<UnixStream>);

impl Qmp {
    /// Connects to the socket at which QEMU listens.
    pub(crate) fn connect(socket: &Path) -> Result<Self> {
        let stream = UnixStream::connect(socket).map_err(Error::in_front(socket.display()))?;
        stream.set_read_timeout(Some(LIMIT)).map_err(Error::in_front("QMP"))?;
        let mut qmp = Self(BufReader::new(stream));
        // It greets first, and takes nothing before its capabilities are settled.
        qmp.line()?;
        qmp.execute("qmp_capabilities", json!({}))?;
        Ok(qmp)
    }

    /// Plugs the cable of a network device in, or out.
    pub(crate) fn set_link(&mut self, name: &str, is_up: bool) -> Result<()> {
        self.execute("set_link", json!({ "name": name, "up": is_up }))
    }

    fn execute(&mut self, command: &str, arguments: Value) -> Result<()> {
        let order = json!({ "execute": command, "arguments": arguments });
        writeln!(self.0.get_mut(), "{order}").map_err(Error::in_front("QMP"))?;
        for _ in 0..EVENTS {
            let answer = self.line()?;
            if let Some(error) = answer.get("error") {
                return Err(Error::new(format!("QMP, {command}: {error}")));
            }
            if answer.get("return").is_some() {
                return Ok(());
            }
        }
        Err(Error::new(format!("QMP, {command}: no answer")))
    }

    fn line(&mut self) -> Result<Value> {
        let mut line = String::new();
        self.0.read_line(&mut line).map_err(Error::in_front("QMP"))?;
        serde_json::from_str(&line).map_err(Error::in_front("QMP"))
    }
}
