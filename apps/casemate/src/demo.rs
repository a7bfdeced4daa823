//! `casemate demo`: two hosts, a cable and two Casemates in one go, with checks that can fail.
//!
//! The hosts are network namespaces with Linux's own IP stack, the traffic is real HTTP and ICMP, and all that is said of
//! the wire comes from a recording of it. The same traffic goes over it in clear first, so that the search for clear text
//! has been seen to find some. Leaves nothing behind: /run is private, and namespaces and programs end with this process.

mod casemate;
mod conf;
mod host;
mod keep;
mod report;
mod speed;
mod traffic;
mod wire;

use crate::cli::DemoArgs;
use crate::failure::Failure;
use casemate::{Casemate, PROGRAM};
use casemate_linux::netns::{self, Echo};
use casemate_linux::private::{self, Others};
use conf::{CONNECTIONS, Shared};
use host::{Host, Side, two_hosts};
use keep::Keep;
use report::Report;
use speed::Speed;
use std::fmt::Display;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use traffic::{SECRET, Servers, fetch_letter, why};
use wire::{Kind, Recorder, Recording, contains};

/// In memory, seen by nobody else: [`netns::isolate`] sees to that.
const SCRATCH: &str = "/run/casemate-demo";
/// An answer on this cable takes less than a millisecond.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long to wait where no answer is to come.
const SHORT_PATIENCE: Duration = Duration::from_millis(300);

/// Runs the command.
pub fn demo(args: &DemoArgs) -> Result<(), Failure> {
    // Opened first, for /run is another one afterwards.
    let keep = args.keep.as_deref().map(Keep::open).transpose()?;
    netns::isolate().map_err(|error| no_namespaces(&error))?;
    may_make_tun()?;
    let shared = Shared::fresh()?;
    write_files(&shared).map_err(|error| Failure::failed(format!("demo: {SCRATCH}: {error}")))?;

    println!("Casemate demo: two hosts, a wire between them, and what can be read on it.");
    let mut report = Report::new();
    let stage = Stage::build(&mut report)?;
    let (clear, plain) = stage.without_casemate(&mut report)?;
    let (left, right) = stage.start_both(&mut report)?;
    let protected = stage.with_casemate(&mut report)?;
    let tunnel = stage.measure()?;
    let right = stage.right_stops(&mut report, right)?;
    stage.left_stops(&mut report, left)?;
    right.stop()?;
    report.step("Speed");
    report.say(speed::table(&plain, &tunnel));
    report.end();
    match keep {
        Some(keep) => keep.fill(Path::new(SCRATCH), &clear, &protected),
        None => {
            println!("`casemate demo --keep DIR` keeps the recordings and the keys to look at.");
            Ok(())
        }
    }
}

fn no_namespaces(error: &casemate_linux::Error) -> Failure {
    Failure::failed(format!(
        "the demo needs network namespaces of its own, and the system refused them:\n  {error}\n\
         One of these helps:\n  \
         run it as root: `sudo casemate demo`\n  \
         in a container: `--cap-add SYS_ADMIN --cap-add NET_ADMIN --device /dev/net/tun`, or `--privileged`\n  \
         allow user namespaces: `sysctl -w user.max_user_namespaces=10000`; on Debian also\n    \
         `kernel.unprivileged_userns_clone=1`, on Ubuntu `kernel.apparmor_restrict_unprivileged_userns=0`"
    ))
}

/// Found out beforehand, since Casemate's own message would not say what helps a user who is root here only.
fn may_make_tun() -> Result<(), Failure> {
    const DEVICE: &str = "/dev/net/tun";
    let opened = fs::File::options().read(true).write(true).open(DEVICE);
    opened.map(drop).map_err(|error| {
        Failure::failed(format!(
            "the demo needs TUN interfaces, and the system refused them:\n  {DEVICE}: {error}\n\
             One of these helps:\n  \
             run it as root: `sudo casemate demo`\n  \
             let everybody open the device, as most systems do: `chmod 0666 {DEVICE}`\n  \
             in a container: `--device {DEVICE}`; on the host itself: `modprobe tun`"
        ))
    })
}

fn write_files(shared: &Shared) -> io::Result<()> {
    for side in [Side::Left, Side::Right] {
        let directory = Path::new(SCRATCH).join(side.to_string());
        fs::create_dir_all(&directory)?;
        let conf = directory.join("swanctl.conf");
        let mut conf = private::open(&conf, File::options().write(true).create_new(true), Others::None)?;
        conf.write_all(shared.conf_for(side).as_bytes())?;
    }
    Ok(())
}

/// The hosts and their servers.
struct Stage {
    left: Host,
    right: Host,
    servers: Servers,
}

impl Stage {
    fn build(report: &mut Report) -> Result<Self, Failure> {
        report.step("Two hosts");
        let (left, right) = two_hosts()?;
        for host in [Side::Left, Side::Right] {
            let [inner4, inner6] = [true, false].map(|v4| host.inner(v4).to_string());
            report.say(format!(
                "{:<6} {inner4} and {inner6:<8} behind {} and {}",
                host.to_string(),
                host.outer(true),
                host.outer(false)
            ));
        }
        report.say(
            "Each is a network namespace with Linux's own TCP/IP. A virtual Ethernet cable joins\n\
             them. The left one will fetch a letter from the right one over HTTP, and ping it.",
        );
        let servers = right.run(Servers::start)?;
        let servers = servers.map_err(|error| Failure::failed(format!("demo: servers: {error}")))?;
        Ok(Self { left, right, servers })
    }

    /// The control: what the checks look for is there to be found as long as nothing protects it.
    fn without_casemate(&self, report: &mut Report) -> Result<(Recording, Speed), Failure> {
        report.step("Without Casemate: whoever holds the wire reads along");
        let recorder = Recorder::start(&self.left)?;
        self.all_answers(report)?;
        let recording = recorder.finish()?;
        report.say(format!("On the wire: {}.", recording.summary()));
        let holding = recording.holding(SECRET);
        report.check(holding > 0, format!("the letter can be read in {holding} of the packets"))?;
        Ok((recording, self.measure()?))
    }

    fn start_both(&self, report: &mut Report) -> Result<(Casemate, Casemate), Failure> {
        report.step("With Casemate on both hosts");
        report.say(
            "Both have a swanctl.conf with the same pre-shared key. They negotiate all other keys with\n\
             IKEv2: X25519, then ESP in tunnel mode with AES-256-GCM, extended sequence numbers and replay\n\
             protection; one connection over IPv4 and one over IPv6.",
        );
        let start = Instant::now();
        let left = Casemate::start(&self.left, Path::new(SCRATCH))?;
        let right = Casemate::start(&self.right, Path::new(SCRATCH))?;
        report.check(
            true,
            format!("`casemate run` is ready on both after {} ms", start.elapsed().as_millis()),
        )?;
        self.agree(report)?;
        for warning in left.warnings() {
            report.say(format!("note  {warning}"));
        }
        Ok((left, right))
    }

    /// Waits until both sides have agreed on keys.
    fn agree(&self, report: &Report) -> Result<(), Failure> {
        let start = Instant::now();
        for name in CONNECTIONS {
            Casemate::initiate(&self.left, name)?;
        }
        let what = "IKEv2 has made an IKE SA and a Child SA over each IP version";
        report.check(true, format!("{what}, {} ms later", start.elapsed().as_millis()))
    }

    fn with_casemate(&self, report: &mut Report) -> Result<Recording, Failure> {
        let recorder = Recorder::start(&self.left)?;
        self.all_answers(report)?;
        let recording = recorder.finish()?;
        report.say(format!("On the wire: {}.", recording.summary()));
        report.check(recording.lost == 0, "the recording is complete")?;
        let esp = recording.count(Kind::Esp);
        let clear = recording.count(Kind::Clear);
        report.check(esp > 0 && clear == 0, format!("{esp} packets of ESP, {clear} in clear"))?;
        for text in [SECRET, "HTTP/1.1", "GET /letter"] {
            let holding = recording.holding(text);
            report.check(holding == 0, format!("\"{text}\" can be read in {holding} of them"))?;
        }
        open_with_keys(report, &recording)?;
        Ok(recording)
    }

    /// The left host goes on protecting when nobody answers it any more.
    fn right_stops(&self, report: &mut Report, casemate: Casemate) -> Result<Casemate, Failure> {
        report.step("The right host's Casemate stops: the left one must not fall back to clear text");
        casemate.stop()?;
        let recorder = Recorder::start(&self.left)?;
        self.no_answers(report)?;
        let recording = recorder.finish()?;
        report.say(format!("On the wire: {}.", recording.summary()));
        let (ike, clear, secret) =
            (recording.count(Kind::Ike), recording.count(Kind::Clear), recording.holding(SECRET));
        report.check(
            recording.lost == 0 && ike > 0 && clear == 0 && secret == 0,
            format!("{ike} messages of IKEv2 asked in vain for new keys, {clear} packets left in clear"),
        )?;
        report.say("It comes back, and they negotiate anew:");
        let casemate = Casemate::start(&self.right, Path::new(SCRATCH))?;
        self.agree(report)?;
        self.all_answers(report)?;
        Ok(casemate)
    }

    /// The right host takes nothing in clear that its policies want protected.
    fn left_stops(&self, report: &mut Report, casemate: Casemate) -> Result<(), Failure> {
        report.step("The left host's Casemate stops: the right one must not answer clear text");
        casemate.stop()?;
        let recorder = Recorder::start(&self.left)?;
        self.no_answers(report)?;
        let recording = recorder.finish()?;
        report.say(format!("On the wire: {}.", recording.summary()));
        let asked: usize = [true, false].map(|v4| recording.clear_from(Side::Left.inner(v4))).iter().sum();
        let answered: usize =
            [true, false].map(|v4| recording.clear_from(Side::Right.inner(v4))).iter().sum();
        report.check(
            recording.lost == 0 && asked > 0 && answered == 0,
            format!("{asked} packets asked in clear, {answered} answered in clear"),
        )
    }

    /// Letter and echo, over both IP versions, right to the last byte.
    fn all_answers(&self, report: &Report) -> Result<(), Failure> {
        for v4 in [true, false] {
            let dst = Side::Right.inner(v4);
            match self.left.run(|| fetch_letter(dst, PATIENCE))? {
                Ok(len) => {
                    report.check(true, format!("HTTP from {dst:<8}  {len} bytes, each of them right"))?
                }
                Err(error) => report.check(false, format!("HTTP from {dst}: {}", why(&error)))?,
            }
            match self.ping(v4, PATIENCE)? {
                Ok((time, reply)) => report.check(
                    reply == SECRET.as_bytes(),
                    format!(
                        "ping to   {dst:<8}  {} bytes came back as sent, after {} µs",
                        reply.len(),
                        time.as_micros()
                    ),
                )?,
                Err(error) => report.check(false, format!("ping to {dst}: {}", why(&error)))?,
            }
        }
        Ok(())
    }

    /// The same requests, none of which may get through.
    fn no_answers(&self, report: &Report) -> Result<(), Failure> {
        let before = self.servers.requests();
        let outcome = |report: &Report, what: String, error: Option<io::Error>| match error {
            Some(error) => report.check(true, format!("{what}  {}", why(&error))),
            None => report.check(false, format!("{what}  there was an answer, but none was to come")),
        };
        for v4 in [true, false] {
            let dst = Side::Right.inner(v4);
            let http = self.left.run(|| fetch_letter(dst, SHORT_PATIENCE))?;
            outcome(report, format!("HTTP from {dst:<8}"), http.err())?;
            outcome(report, format!("ping to   {dst:<8}"), self.ping(v4, SHORT_PATIENCE)?.err())?;
        }
        let heard = self.servers.requests().saturating_sub(before);
        report.check(heard == 0, format!("the right host's server heard {heard} requests"))
    }

    fn ping(&self, v4: bool, patience: Duration) -> Result<io::Result<(Duration, Vec<u8>)>, Failure> {
        let mut echo = self.left.run(|| Echo::open(Side::Right.inner(v4)))?.map_err(Failure::failed)?;
        Ok(echo.ask(SECRET.as_bytes(), patience))
    }

    fn measure(&self) -> Result<Speed, Failure> {
        let failed = |error: &dyn Display| Failure::failed(format!("demo: measurement: {error}"));
        self.left.run(Speed::measure)?.map_err(|error| failed(&error))
    }
}

/// The other side of the proof: whoever has the keys finds the letter in what was recorded.
fn open_with_keys(report: &Report, recording: &Recording) -> Result<(), Failure> {
    let [capture, opened, keys] =
        ["wire.pcapng", "opened.pcapng", "right/keys/states.xfrm"].map(|name| Path::new(SCRATCH).join(name));
    let failed = |error: io::Error| Failure::failed(format!("demo: inspection: {error}"));
    fs::File::create(&capture).and_then(|file| recording.write(file)).map_err(failed)?;
    let mut command = Command::new(PROGRAM);
    command.arg("inspect").arg(&capture).arg("--xfrm").arg(keys).arg("--write").arg(&opened);
    let output = command.stdin(Stdio::null()).output().map_err(failed)?;
    let said = String::from_utf8_lossy(&output.stderr);
    let summary = said.lines().last().unwrap_or_default();
    let verdict = format!("{} ok", recording.count(Kind::Esp));
    let whole = output.status.success() && summary.contains(&verdict) && !summary.contains("drop");
    report.check(whole, format!("`casemate inspect` opens them with the keys: {verdict}"))?;
    let found = contains(&fs::read(&opened).map_err(failed)?, SECRET);
    report.check(found, "and there the letter can be read")
}
