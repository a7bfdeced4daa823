//! Peer `casemate run --config FILE`. The other subcommands control it in the same namespace.

use crate::peer::{ChildSa, IkeSa, Peer, Target};
use crate::pki::Pki;
use crate::plan::SidePlan;
use casemate_interop::{Background, Error, Netns, Result, run};
use serde_json::Value;
use std::fs;
use std::net::IpAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

const START_LIMIT: Duration = Duration::from_secs(5);
const STOP_LIMIT: Duration = Duration::from_secs(5);
const LIMIT: Duration = Duration::from_secs(10);

/// A `casemate run` and its files.
pub(crate) struct Casemate {
    netns: Rc<Netns>,
    program: PathBuf,
    pki: Arc<Pki>,
    directory: PathBuf,
    running: Option<Background>,
}

impl Casemate {
    /// Creates the peer in `netns` with all its files in `directory`.
    pub(crate) fn new(netns: Rc<Netns>, program: PathBuf, pki: Arc<Pki>, directory: PathBuf) -> Self {
        Self { netns, program, pki, directory, running: None }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    fn write(&self, plan: &SidePlan) -> Result<()> {
        let keys = self.file("keys");
        fs::create_dir_all(&keys).map_err(Error::context(keys.display()))?;
        plan.write(&self.directory, &self.pki).map(drop)
    }

    /// Runs `casemate ARGUMENTS` for the instance. Returns the output as the error if the command fails.
    fn control(&self, arguments: &[&str]) -> Result<String> {
        let output = run(&self.netns, LIMIT, &self.program, arguments)?;
        if output.status == 0 {
            return Ok(output.stdout);
        }
        Err(Error::new(format!("casemate {}: {}", arguments.join(" "), output.stdout.trim_end())))
    }

    fn report(&self) -> Result<Vec<Value>> {
        let text = self.control(&["status", "--json"])?;
        let value: Value = serde_json::from_str(&text).map_err(Error::context("casemate status --json"))?;
        array(&value, "ike_sas")
            .map(<[Value]>::to_vec)
            .ok_or_else(|| Error::new(format!("no `ike_sas` in {text}")))
    }
}

impl Peer for Casemate {
    fn start(&mut self, plan: &SidePlan) -> Result<()> {
        self.write(plan)?;
        let mut command = self.netns.command(&self.program);
        command.args(["run", "--config"]).arg(self.file("swanctl.conf"));
        command.arg("--save-keys").arg(self.file("keys"));
        let mut running = Background::start("casemate", command, &self.file("log"))?;
        let ready =
            running.wait_until(START_LIMIT, |output| output.lines().any(|line| line.trim_end() == "ready"));
        self.running = Some(running);
        ready
    }

    fn reload(&mut self, plan: &SidePlan) -> Result<()> {
        self.write(plan)?;
        self.control(&["reload"]).map(drop)
    }

    fn initiate(&mut self, target: Target<'_>) -> Result<()> {
        match target {
            Target::Ike(name) => self.control(&["initiate", name, "--ike"]).map(drop),
            Target::Child(name) => self.control(&["initiate", name]).map(drop),
        }
    }

    fn terminate(&mut self, target: Target<'_>) -> Result<()> {
        let (Target::Ike(name) | Target::Child(name)) = target;
        self.control(&["terminate", name]).map(drop)
    }

    fn rekey(&mut self, target: Target<'_>) -> Result<()> {
        match target {
            Target::Ike(name) => self.control(&["rekey", name, "--ike"]).map(drop),
            Target::Child(name) => self.control(&["rekey", name]).map(drop),
        }
    }

    fn redirect(&mut self, connection: &str, gateway: &str) -> Result<()> {
        self.control(&["redirect", connection, gateway]).map(drop)
    }

    fn status(&self) -> Result<Vec<IkeSa>> {
        ike_sas(&self.report()?)
    }

    fn dns(&self) -> Result<Vec<IpAddr>> {
        dns(&self.report()?)
    }

    fn dpd_timeout(&self) -> Duration {
        // Retransmissions after 1, 2, 4, 8, 16, 32 and 60 seconds, and the delay itself.
        Duration::from_secs(135)
    }

    fn cookie_threshold(&self) -> usize {
        100
    }

    fn keys(&self) -> Result<PathBuf> {
        Ok(self.file("keys"))
    }

    fn log(&self) -> String {
        // While the instance runs, it has more log lines than it printed.
        self.control(&["log"])
            .unwrap_or_else(|_| self.running.as_ref().map(Background::output).unwrap_or_default())
    }

    fn stop(&mut self) -> Result<()> {
        let Some(running) = self.running.take() else { return Ok(()) };
        let status = running.stop(STOP_LIMIT)?;
        if status.success() { Ok(()) } else { Err(Error::new(format!("casemate ended with {status}"))) }
    }
}

/// Reads the established IKE SAs from `ike_sas` of a status.
pub(crate) fn ike_sas(sas: &[Value]) -> Result<Vec<IkeSa>> {
    sas.iter().filter(|sa| text(sa, "state").eq_ignore_ascii_case("established")).map(ike_sa).collect()
}

/// Reads the DNS servers from `ike_sas` of a status.
pub(crate) fn dns(sas: &[Value]) -> Result<Vec<IpAddr>> {
    sas.iter().flat_map(|sa| texts(sa, "dns")).map(|text| parse(&text, "dns")).collect()
}

fn ike_sa(sa: &Value) -> Result<IkeSa> {
    let children = array(sa, "children").unwrap_or_default();
    let carries = |child: &&Value| text(child, "state").eq_ignore_ascii_case("installed");
    Ok(IkeSa {
        name: text(sa, "name"),
        spi_i: text(sa, "spi_i"),
        spi_r: text(sa, "spi_r"),
        remote: parse(&text(sa, "remote"), "remote")?,
        vips: texts(sa, "vips").iter().map(|text| parse(text, "vips")).collect::<Result<_>>()?,
        children: children.iter().filter(carries).map(child_sa).collect(),
    })
}

fn child_sa(child: &Value) -> ChildSa {
    ChildSa {
        name: text(child, "name"),
        spi_in: text(child, "spi_in"),
        spi_out: text(child, "spi_out"),
        local_ts: texts(child, "local_ts"),
        remote_ts: texts(child, "remote_ts"),
        bytes_in: number(child, "bytes_in"),
        bytes_out: number(child, "bytes_out"),
    }
}

fn array<'v>(value: &'v Value, name: &str) -> Option<&'v [Value]> {
    value.get(name).and_then(Value::as_array).map(Vec::as_slice)
}

fn number(value: &Value, name: &str) -> u64 {
    value.get(name).and_then(Value::as_u64).unwrap_or_default()
}

fn text(value: &Value, name: &str) -> String {
    value.get(name).and_then(Value::as_str).unwrap_or_default().into()
}

fn texts(value: &Value, name: &str) -> Vec<String> {
    array(value, name).unwrap_or_default().iter().filter_map(Value::as_str).map(Into::into).collect()
}

fn parse<T: std::str::FromStr<Err: std::fmt::Display>>(text: &str, what: &str) -> Result<T> {
    text.parse().map_err(Error::context(format!("{what} `{text}`")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_a_status_with_children() {
        let sa = serde_json::json!({
            "name": "t", "state": "established", "spi_i": "d7863a759804de18", "spi_r": "2a03d1488bd1579e",
            "local": "10.9.1.2:4500", "remote": "[fd09:2::2]:4500", "vips": ["10.98.0.1"],
            "children": [
                {"name": "c", "state": "installed", "spi_in": "11de07cd", "spi_out": "9a9848cd",
                 "local_ts": ["10.99.1.0/24"], "remote_ts": ["10.99.2.0/24"], "bytes_in": 168, "bytes_out": 84},
                {"name": "c", "state": "deleting"},
            ],
        });
        let sa = ike_sa(&sa).unwrap();
        assert_eq!((sa.name.as_str(), sa.remote.port(), sa.vips.len()), ("t", 4500, 1));
        assert_eq!(sa.children.len(), 1);
        let child = &sa.children[0];
        assert_eq!((child.spi_in.as_str(), child.bytes_in, child.bytes_out), ("11de07cd", 168, 84));
        assert_eq!(child.remote_ts, ["10.99.2.0/24"]);
    }

    #[test]
    fn rejects_an_invalid_remote_address() {
        let error = ike_sa(&serde_json::json!({"name": "t", "remote": "nowhere"})).unwrap_err();
        assert!(error.to_string().contains("remote `nowhere`"));
    }
}
