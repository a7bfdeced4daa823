//! A guest, whose kernel has ESP and AH. It stays for many cases: to boot it takes longer than most of them.

use super::{Daemon, Flow, Host, Place, Program, RUN_LIMIT, START_LIMIT, STOP_LIMIT, addresses};
use crate::path::interface;
use crate::side::Side;
use crate::xfrm::Xfrm;
use casemate_interop::{Error, Guest, Images, Netns, NetworkSpec, Output, Result};
use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(10);
/// What the kernel says of its SAs. The counters of errors stand behind the mark.
const XFRM: &str = "ip -s xfrm state; echo ----; cat /proc/net/xfrm_stat";
const MARK: &str = "----\n";

/// The guests of a worker, each booted when a case first needs it.
#[derive(Default)]
pub(crate) struct Guests {
    booted: [Option<Rc<InGuest>>; 2],
}

impl Guests {
    /// The guest on a side.
    pub(crate) fn get(&mut self, side: Side, images: &Images, directory: &Path) -> Result<Rc<InGuest>> {
        let [left, right] = &mut self.booted;
        let place = if side == Side::Left { left } else { right };
        if let Some(guest) = place {
            return Ok(guest.clone());
        }
        let guest = Rc::new(InGuest::boot(side, images, directory)?);
        Ok(place.insert(guest).clone())
    }
}

/// A guest on one side of the path.
pub(crate) struct InGuest {
    machine: Rc<Machine>,
    /// QEMU's namespace. The tap is in the router while a case runs, and goes back here before that ends.
    home: Netns,
    side: Side,
    /// The counters of `/proc/net/xfrm_stat` when the case began: they cannot be set back.
    before: RefCell<String>,
}

impl InGuest {
    fn boot(side: Side, images: &Images, directory: &Path) -> Result<Self> {
        let (home, tap) = (Netns::new()?, interface(side));
        home.ip(&format!("tuntap add dev {tap} mode tap\nlink set {tap} addrgenmode none up\n"))?;
        let mac = if side == Side::Left { "52:54:00:09:00:01" } else { "52:54:00:09:00:02" };
        let console = directory.join(format!("console-{}-{}", side.name(), home.pid()));
        let guest = Guest::boot(images, NetworkSpec { netns: &home, tap, mac }, &console)?;
        let machine = Rc::new(Machine(RefCell::new(guest)));
        machine.check(&format!("ip -batch - <<'END'\n{}END\n", addresses(side, "eth0")), LIMIT)?;
        Ok(Self { machine, home, side, before: RefCell::default() })
    }

    fn report(&self) -> Result<(String, String)> {
        let said = self.machine.check(XFRM, LIMIT)?;
        let (states, counters) = said.split_once(MARK).unwrap_or_default();
        Ok((states.into(), counters.into()))
    }
}

impl Place for InGuest {
    fn plug_into(&self, router: &Netns) -> Result<()> {
        self.home.ip(&format!("link set dev {} netns {}\n", interface(self.side), router.pid()))
    }

    fn bring_up(&self) -> Result<()> {
        self.machine.check("ip xfrm state flush; ip xfrm policy flush; ip route flush cache", LIMIT)?;
        *self.before.borrow_mut() = self.report()?.1;
        Ok(())
    }

    fn unplug(&self, router: &Netns) {
        // A tap that is lost here is missed by the next case, which then boots another guest.
        let _ = router.ip(&format!("link set dev {} netns {}\n", interface(self.side), self.home.pid()));
    }

    fn probe(&self, arguments: &[&str]) -> Result<Output> {
        self.machine.run(&format!("probe {}", arguments.join(" ")))
    }

    fn start_flow(&self, from: &str, to: &str) -> Result<Box<dyn Flow>> {
        // `probe flow` ends when its standard input does: when the `sleep` in front of it ends.
        let script = format!(
            "rm -f /tmp/flow.*\n({{ sleep 100 & echo $! >/tmp/flow.pid; wait; }} | probe flow {from} {to} >/tmp/flow.said\n\
             echo >/tmp/flow.ended) >/dev/null 2>&1 &\nuntil [ -s /tmp/flow.pid ]; do usleep 5000; done"
        );
        self.machine.check(&script, LIMIT)?;
        Ok(Box::new(Pinging { machine: self.machine.clone() }))
    }

    fn xfrm(&self) -> Result<Option<Xfrm>> {
        let (states, counters) = self.report()?;
        Ok(Some(Xfrm::parse(&states, &self.before.borrow(), &counters)))
    }
}

impl Host for InGuest {
    fn publish(&self, directory: &Path) -> Result<()> {
        let mut script = String::new();
        add_files(directory, &mut script)?;
        self.machine.check(&script, LIMIT).map(drop)
    }

    fn read(&self, file: &Path) -> String {
        self.machine
            .run(&format!("cat {} 2>/dev/null", file.display()))
            .map_or(String::new(), |said| said.stdout)
    }

    fn run(&self, program: Program<'_>, arguments: &[&str]) -> Result<Output> {
        self.machine.run(&format!("{} {}", line(program), arguments.join(" ")))
    }

    fn start(&self, program: Program<'_>, output: &Path, socket: &Path) -> Result<Box<dyn Daemon>> {
        let directory = output.parent().unwrap_or(output).to_owned();
        // The shell around the daemon notes how it ended. /proc/net/unix shows the socket with this flag once it listens.
        let script = format!(
            "cd {}; ({} >{} 2>&1 </dev/null & echo $! >pid; wait $!; echo $? >status) >/dev/null 2>&1 &\n\
             until grep -q ' 00010000 .* {}$' /proc/net/unix; do usleep 5000; done",
            directory.display(),
            line(program),
            output.display(),
            socket.display(),
        );
        let said = self.machine.0.borrow_mut().run(&script, START_LIMIT)?;
        if said.status != 0 {
            return Err(Error::new(format!(
                "{} does not start: {}",
                program.path.display(),
                self.read(output)
            )));
        }
        Ok(Box::new(Serving { machine: self.machine.clone(), directory, ended: false }))
    }
}

/// A guest that several take turns to speak with.
struct Machine(RefCell<Guest>);

impl Machine {
    fn run(&self, script: &str) -> Result<Output> {
        self.0.borrow_mut().run(script, RUN_LIMIT)
    }

    fn check(&self, script: &str, limit: Duration) -> Result<String> {
        self.0.borrow_mut().check(script, limit)
    }
}

/// A program in a guest.
struct Serving {
    machine: Rc<Machine>,
    directory: PathBuf,
    ended: bool,
}

impl Serving {
    /// Ends it by this signal, and returns its status.
    fn end(&mut self, signal: &str) -> Result<String> {
        self.ended = true;
        let script = format!(
            "cd {} && kill -{signal} $(cat pid) 2>/dev/null; until [ -s status ]; do usleep 5000; done; cat status",
            self.directory.display()
        );
        self.machine.check(&script, STOP_LIMIT)
    }
}

impl Daemon for Serving {
    fn stop(mut self: Box<Self>) -> Result<()> {
        match self.end("TERM")?.trim_end() {
            "0" => Ok(()),
            status => Err(Error::new(format!("ended with status {status}"))),
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        if !self.ended {
            // The guest goes with the case that failed so, and the program with it.
            let _ = self.end("KILL");
        }
    }
}

/// A `probe flow` in a guest.
struct Pinging {
    machine: Rc<Machine>,
}

impl Pinging {
    fn end(&self) -> Result<String> {
        let script = "kill $(cat /tmp/flow.pid) 2>/dev/null; until [ -e /tmp/flow.ended ]; do usleep 5000; done; \
                      cat /tmp/flow.said";
        self.machine.check(script, LIMIT)
    }
}

impl Flow for Pinging {
    fn stop(self: Box<Self>) -> Result<String> {
        self.end()
    }
}

impl Drop for Pinging {
    fn drop(&mut self) {
        // Already ended when it was stopped; then this finds it so.
        let _ = self.end();
    }
}

/// The command line of a program.
fn line(program: Program<'_>) -> String {
    let settings = program.environment.iter().map(|(name, file)| format!("{name}={} ", file.display()));
    settings.collect::<String>() + &program.path.display().to_string()
}

/// Adds lines that make a directory with all its files, which are text.
fn add_files(directory: &Path, script: &mut String) -> Result<()> {
    script.push_str(&format!("mkdir -p {}\n", directory.display()));
    for entry in fs::read_dir(directory).map_err(Error::in_front(directory.display()))?.flatten() {
        let path = entry.path();
        if path.is_dir() {
            add_files(&path, script)?;
        } else {
            let text = fs::read_to_string(&path).map_err(Error::in_front(path.display()))?;
            script.push_str(&format!("cat >{} <<'END OF FILE'\n{text}\nEND OF FILE\n", path.display()));
        }
    }
    Ok(())
}
