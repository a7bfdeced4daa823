//! Guest whose kernel processes ESP and AH. It is reused for many cases, because its boot takes longer than
//! most of them.

use super::{
    Daemon, FlowProbe, Platform, Program, ProgramHost, RUN_LIMIT, START_LIMIT, STOP_LIMIT, addresses,
};
use crate::path::interface;
use crate::peer::Side;
use crate::xfrm::Xfrm;
use casemate_interop::{Error, Guest, GuestImages, GuestNetwork, Netns, Output, Result};
use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(10);
/// Prints the SAs of the kernel and, after the mark, the error counters.
const XFRM: &str = "ip -s xfrm state; echo ----; cat /proc/net/xfrm_stat";
const MARK: &str = "----\n";

/// Guests of a worker. Each is booted when a case first needs it.
#[derive(Default)]
pub(crate) struct Guests {
    booted: [Option<Rc<GuestPlatform>>; 2],
}

impl Guests {
    /// Returns the guest on a side.
    pub(crate) fn get(
        &mut self,
        side: Side,
        images: &GuestImages,
        directory: &Path,
    ) -> Result<Rc<GuestPlatform>> {
        let [left, right] = &mut self.booted;
        let platform = if side == Side::Left { left } else { right };
        if let Some(guest) = platform {
            return Ok(guest.clone());
        }
        let guest = Rc::new(GuestPlatform::boot(side, images, directory)?);
        Ok(platform.insert(guest).clone())
    }
}

/// What the kernel of the guest reports.
struct XfrmReport {
    states: String,
    /// `/proc/net/xfrm_stat`.
    counters: String,
}

/// Guest on one side of the path.
pub(crate) struct GuestPlatform {
    machine: Rc<SharedGuest>,
    /// Namespace of QEMU. During a case, the tap device is in the namespace of the router. It returns here
    /// before that namespace ends.
    netns: Netns,
    side: Side,
    /// Counters of `/proc/net/xfrm_stat` at the start of the case. The kernel cannot reset them.
    before: RefCell<String>,
}

impl GuestPlatform {
    fn boot(side: Side, images: &GuestImages, directory: &Path) -> Result<Self> {
        let (netns, tap) = (Netns::new()?, interface(side));
        netns.ip(&format!("tuntap add dev {tap} mode tap\nlink set {tap} addrgenmode none up\n"))?;
        let mac = if side == Side::Left { "52:54:00:09:00:01" } else { "52:54:00:09:00:02" };
        let console = directory.join(format!("console-{}-{}", side.name(), netns.pid()));
        let guest = Guest::boot(images, GuestNetwork { netns: &netns, tap, mac }, &console)?;
        let machine = Rc::new(SharedGuest(RefCell::new(guest)));
        machine.check(&format!("ip -batch - <<'END'\n{}END\n", addresses(side, "eth0")), LIMIT)?;
        Ok(Self { machine, netns, side, before: RefCell::default() })
    }

    fn xfrm_report(&self) -> Result<XfrmReport> {
        let output = self.machine.check(XFRM, LIMIT)?;
        let (states, counters) = output.split_once(MARK).unwrap_or_default();
        Ok(XfrmReport { states: states.into(), counters: counters.into() })
    }
}

impl Platform for GuestPlatform {
    fn connect_to(&self, router: &Rc<Netns>) -> Result<()> {
        self.netns.ip(&format!("link set dev {} netns {}\n", interface(self.side), router.pid()))
    }

    fn bring_up(&self) -> Result<()> {
        self.machine.check("ip xfrm state flush; ip xfrm policy flush; ip route flush cache", LIMIT)?;
        *self.before.borrow_mut() = self.xfrm_report()?.counters;
        Ok(())
    }

    fn disconnect(&self, router: &Netns) {
        // If the tap device is lost here, the next case fails to find it and boots another guest.
        let _ = router.ip(&format!("link set dev {} netns {}\n", interface(self.side), self.netns.pid()));
    }

    fn probe(&self, arguments: &[&str]) -> Result<Output> {
        self.machine.run(&format!("probe {}", arguments.join(" ")))
    }

    fn start_flow(&self, from: &str, to: &str) -> Result<Box<dyn FlowProbe>> {
        // `probe flow` ends when its standard input ends, that is, when the `sleep` before it in the pipe
        // ends.
        let script = format!(
            "rm -f /tmp/flow.*\n({{ sleep 100 & echo $! >/tmp/flow.pid; wait; }} | probe flow {from} {to} >/tmp/flow.output\n\
             echo >/tmp/flow.ended) >/dev/null 2>&1 &\nuntil [ -s /tmp/flow.pid ]; do usleep 5000; done"
        );
        self.machine.check(&script, LIMIT)?;
        Ok(Box::new(GuestFlow { machine: self.machine.clone() }))
    }

    fn xfrm(&self) -> Result<Option<Xfrm>> {
        let report = self.xfrm_report()?;
        Ok(Some(Xfrm::parse(&report.states, &self.before.borrow(), &report.counters)))
    }
}

impl ProgramHost for GuestPlatform {
    fn copy_files(&self, directory: &Path) -> Result<()> {
        let mut script = String::new();
        add_files(directory, &mut script)?;
        self.machine.check(&script, LIMIT).map(drop)
    }

    fn read(&self, file: &Path) -> String {
        self.machine
            .run(&format!("cat {} 2>/dev/null", file.display()))
            .map_or(String::new(), |output| output.stdout)
    }

    fn run(&self, program: Program<'_>, arguments: &[&str]) -> Result<Output> {
        self.machine.run(&format!("{} {}", line(program), arguments.join(" ")))
    }

    fn start(&self, program: Program<'_>, output: &Path, socket: &Path) -> Result<Box<dyn Daemon>> {
        let directory = output.parent().unwrap_or(output).to_owned();
        // The shell that starts the daemon records its exit status. /proc/net/unix shows the socket with
        // this flag once the daemon listens.
        let script = format!(
            "cd {}; ({} >{} 2>&1 </dev/null & echo $! >pid; wait $!; echo $? >status) >/dev/null 2>&1 &\n\
             until grep -q ' 00010000 .* {}$' /proc/net/unix; do usleep 5000; done",
            directory.display(),
            line(program),
            output.display(),
            socket.display(),
        );
        let started = self.machine.0.borrow_mut().run(&script, START_LIMIT)?;
        if started.status != 0 {
            return Err(Error::new(format!(
                "{} does not start: {}",
                program.path.display(),
                self.read(output)
            )));
        }
        Ok(Box::new(GuestDaemon { machine: self.machine.clone(), directory, ended: false }))
    }
}

/// Guest that several owners use in turn.
struct SharedGuest(RefCell<Guest>);

impl SharedGuest {
    fn run(&self, script: &str) -> Result<Output> {
        self.0.borrow_mut().run(script, RUN_LIMIT)
    }

    fn check(&self, script: &str, limit: Duration) -> Result<String> {
        self.0.borrow_mut().check(script, limit)
    }
}

/// Daemon in a guest.
struct GuestDaemon {
    machine: Rc<SharedGuest>,
    directory: PathBuf,
    ended: bool,
}

impl GuestDaemon {
    /// Sends this signal, waits for the end of the daemon, and returns its exit status.
    fn end(&mut self, signal: &str) -> Result<String> {
        self.ended = true;
        let script = format!(
            "cd {} && kill -{signal} $(cat pid) 2>/dev/null; until [ -s status ]; do usleep 5000; done; cat status",
            self.directory.display()
        );
        self.machine.check(&script, STOP_LIMIT)
    }
}

impl Daemon for GuestDaemon {
    fn stop(mut self: Box<Self>) -> Result<()> {
        match self.end("TERM")?.trim_end() {
            "0" => Ok(()),
            status => Err(Error::new(format!("ended with status {status}"))),
        }
    }
}

impl Drop for GuestDaemon {
    fn drop(&mut self) {
        if !self.ended {
            // An error is ignored, because the guest ends together with the failed case, and the program
            // with it.
            let _ = self.end("KILL");
        }
    }
}

/// A `probe flow` in a guest.
struct GuestFlow {
    machine: Rc<SharedGuest>,
}

impl GuestFlow {
    fn end(&self) -> Result<String> {
        let script = "kill $(cat /tmp/flow.pid) 2>/dev/null; until [ -e /tmp/flow.ended ]; do usleep 5000; done; \
                      cat /tmp/flow.output";
        self.machine.check(script, LIMIT)
    }
}

impl FlowProbe for GuestFlow {
    fn stop(self: Box<Self>) -> Result<String> {
        self.end()
    }
}

impl Drop for GuestFlow {
    fn drop(&mut self) {
        // If the flow has already been stopped, this has no effect.
        let _ = self.end();
    }
}

/// Returns the command line of a program.
fn line(program: Program<'_>) -> String {
    let settings = program.environment.iter().map(|(name, file)| format!("{name}={} ", file.display()));
    settings.collect::<String>() + &program.path.display().to_string()
}

/// Adds commands that create a directory with all its files. The files must be text.
fn add_files(directory: &Path, script: &mut String) -> Result<()> {
    script.push_str(&format!("mkdir -p {}\n", directory.display()));
    for entry in fs::read_dir(directory).map_err(Error::context(directory.display()))?.flatten() {
        let path = entry.path();
        if path.is_dir() {
            add_files(&path, script)?;
        } else {
            let text = fs::read_to_string(&path).map_err(Error::context(path.display()))?;
            script.push_str(&format!("cat >{} <<'END OF FILE'\n{text}\nEND OF FILE\n", path.display()));
        }
    }
    Ok(())
}
