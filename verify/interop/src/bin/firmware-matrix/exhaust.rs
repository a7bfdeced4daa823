//! The firmware with exhausted or silent resources: it has to report the condition and continue to work
//! afterwards.

use crate::case::{Case, Family, Keys, Machine, Mode, Suite, With};
use crate::peer::{Casemate, Peer};
use crate::run::{Files, LIMIT, TAP, ask, explain};
use crate::wire::{asks_for_cookie, first_messages};
use casemate_interop::{Background, Error, FIRMWARE_MAC, Firmware, FirmwareSpec, Netns, Result, run};
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

/// Output of `probe` at the end of a flood.
const SENT: &str = " sent";

/// Resource exhaustion of the firmware.
#[derive(Clone, Copy)]
pub(crate) struct StressCase {
    name: &'static str,
    keys: Keys,
    /// Additional configuration, and additional options of QEMU.
    words: &'static str,
    options: &'static [&'static str],
    /// Exhausts the resource, and returns a description of the effect.
    scenario: fn(&mut Harness<'_>) -> Result<String>,
}

/// All exhaustion cases.
pub(crate) const ALL: [StressCase; 5] = [
    StressCase {
        name: "no-cable",
        keys: Keys::Ike { mode: Mode::Tunnel, firmware_begins: true },
        words: "",
        options: &[],
        scenario: no_cable,
    },
    StressCase {
        name: "slow-card",
        keys: Keys::Manual(Mode::Tunnel),
        words: "",
        // The card sends the frames in its ring 1.3 seconds after the first one, and suppresses
        // notifications before.
        options: &["-global", "virtio-net-pci.tx=timer", "-global", "virtio-net-pci.x-txtimer=1300000000"],
        scenario: slow_card,
    },
    StressCase {
        name: "half-open",
        keys: Keys::Ike { mode: Mode::Tunnel, firmware_begins: false },
        // Responses to spoofed addresses go to our gateway, and no further.
        words: "gateway=10.9.0.1\n",
        options: &[],
        scenario: half_open,
    },
    StressCase {
        name: "no-heap/ike",
        keys: Keys::Ike { mode: Mode::Tunnel, firmware_begins: false },
        // The gateway sends its request at once, and again after 1, 3 and 7 seconds.
        words: "hold-heap=2\n",
        options: &[],
        scenario: no_heap_for_ike,
    },
    StressCase {
        name: "no-heap/page",
        keys: Keys::Manual(Mode::Tunnel),
        words: "hold-heap=2\n",
        options: &[],
        scenario: no_heap_for_page,
    },
];

/// Firmware, its peer, and their files.
struct Harness<'p> {
    case: Case,
    peer: Casemate<'p>,
    firmware: Firmware,
    files: &'p Files,
    directory: PathBuf,
}

impl StressCase {
    pub(crate) fn name(&self) -> String {
        format!("pc/exhaust/{}", self.name)
    }

    /// Boots the firmware, lets it serve its page, and exhausts the resource.
    pub(crate) fn run(&self, files: &Files) -> Result<String> {
        let (peer, machine, family, suite) = (With::Casemate, Machine::Pc, Family::V4, Suite::AesGcm);
        let (keys, rohc, post_quantum, loss, measures) = (self.keys, false, None, None, false);
        let case = Case { peer, machine, family, keys, suite, rohc, post_quantum, loss, measures };
        let directory = files.directory.join(format!("exhaust-{}", self.name.replace('/', "-")));
        fs::create_dir_all(&directory).map_err(Error::context(directory.display()))?;
        let mut peer = Casemate::new(family, files)?;
        peer.start(&case, &directory)?;
        let words = case.firmware_file() + self.words;
        let (image, machine) = (&files.image, machine.name());
        let (mac, captures) = (FIRMWARE_MAC, true);
        let spec = FirmwareSpec {
            image,
            machine,
            tap: TAP,
            mac,
            capture: captures,
            config: &words,
            directory: &directory,
        };
        let firmware = Firmware::boot_with_options(peer.netns(), spec, self.options)?;
        let mut harness = Harness { case, peer, firmware, files, directory };
        let said = harness.run_scenario(self.scenario);
        let said = said.map_err(|error| explain(&error, &harness.firmware, &harness.directory))?;
        let directory = harness.directory.clone();
        drop(harness);
        fs::remove_dir_all(&directory).map_err(Error::context(directory.display()))?;
        Ok(said)
    }
}

impl Harness<'_> {
    fn run_scenario(&mut self, scenario: fn(&mut Self) -> Result<String>) -> Result<String> {
        self.firmware.wait_until_ready()?;
        self.peer.establish(&self.case)?;
        let said = scenario(self)?;
        self.page()?;
        // The firmware still responds on its console and has not rebooted.
        self.firmware.status()?;
        let console = self.firmware.console_output();
        let is_unharmed = console.matches("\nready").count() == 1
            && ["panic", "exception", "error:"].iter().all(|word| !console.contains(word));
        if is_unharmed { Ok(said) } else { Err(Error::new("the firmware reported an error or rebooted")) }
    }

    fn page(&mut self) -> Result<()> {
        ask(&self.case, &mut self.peer, "page", "1").map(drop)
    }

    fn capture(&self) -> Result<Vec<u8>> {
        let file = self.directory.join("wire.pcap");
        fs::read(&file).map_err(Error::context(file.display()))
    }

    /// Allocated heap in KiB.
    fn heap(&mut self) -> Result<u64> {
        let status = self.firmware.status()?;
        let number =
            status.lines().find_map(|line| line.strip_prefix("heap: ")?.split(' ').next()?.parse().ok());
        number.ok_or_else(|| {
            Error::new(format!("the status on the console has no line about the heap: {status}"))
        })
    }
}

/// Runs `probe WORDS` in the namespace, in parallel to other programs.
fn probe(netns: &Netns, probe: &Path, words: &[&str]) -> Result<String> {
    let output = run(netns, LIMIT, probe, words)?;
    let said = output.stdout.trim_end().to_owned();
    if output.status == 0 { Ok(said) } else { Err(Error::new(format!("{}: {said}", words.join(" ")))) }
}

/// Disconnects and reconnects the cable while the page is fetched.
fn no_cable(harness: &mut Harness<'_>) -> Result<String> {
    const A_WHILE: Duration = Duration::from_millis(500);
    const OUT: Duration = Duration::from_millis(1_500);
    let (netns, probes) = (harness.peer.netns(), &harness.files.probe);
    let words = ["rate", Family::V4.ours(), Family::V4.firmware(), "4"];
    let (rate, passed) = thread::scope(|scope| {
        let fetching = scope.spawn(|| probe(netns, probes, &words));
        thread::sleep(A_WHILE);
        harness.firmware.set_link(false)?;
        // Packets in flight have arrived by then.
        thread::sleep(A_WHILE);
        let before = harness.capture()?.len();
        thread::sleep(OUT);
        let passed = harness.capture()?.len().saturating_sub(before);
        harness.firmware.set_link(true)?;
        let fetched = fetching.join().unwrap_or_else(|_| Err(Error::new("the client panicked")));
        fetched.map(|rate| (rate, passed))
    })?;
    if passed > 0 {
        return Err(Error::new(format!("{passed} bytes were captured while the cable was disconnected")));
    }
    for line in ["network: the cable is disconnected", "network: the cable is connected"] {
        if !harness.firmware.console_output().contains(line) {
            return Err(Error::new(format!("the firmware did not print `{line}`")));
        }
    }
    let rate = rate.parse::<f64>().map_err(Error::context(rate))?;
    Ok(format!("connections continued after 2 s without a cable, {rate:.0} pages per second on average"))
}

/// Requires more responses than the card sends for a while.
fn slow_card(harness: &mut Harness<'_>) -> Result<String> {
    const DATAGRAMS: &str = "400";
    const LOOKS: u32 = 30;
    const PAUSE: Duration = Duration::from_millis(100);
    let words = ["burst", Family::V4.ours(), Family::V4.firmware(), DATAGRAMS];
    probe(harness.peer.netns(), &harness.files.probe, &words)?;
    harness
        .firmware
        .wait_until(LIMIT, |said| said.contains("the card has accepted no frame for a second"))?;
    // The kernel first resolves the firmware's address, and that response is delayed too.
    let mut status = String::new();
    for _ in 0..LOOKS {
        status = harness.firmware.status()?;
        let dropped =
            status.lines().find(|line| line.starts_with("dropped: ") && line.ends_with(" send-failed"));
        if let Some(dropped) = dropped {
            return Ok(dropped.into());
        }
        thread::sleep(PAUSE);
    }
    Err(Error::new(format!("no frame was dropped: {status}")))
}

/// Half-open IKE_SA_INIT requests from the peer's address and from spoofed addresses, while the peer
/// connects again.
fn half_open(harness: &mut Harness<'_>) -> Result<String> {
    const REQUESTS: usize = 4_000;
    /// One request becomes a half-open IKE SA. From half of the quota of an address on, each request gets a
    /// COOKIE notification.
    const AS_PEER: usize = 1_000;
    /// Half-open IKE SAs, one IKE SA with its Child SA, and the growth of tables.
    const GROWTH_KIB: u64 = 64;
    harness.page()?;
    let (before, capture) = (harness.heap()?, harness.capture()?);
    let request = first_messages(&capture)
        .next()
        .ok_or_else(|| Error::new("the capture contains no IKE_SA_INIT message"))?;
    let request: String = request.iter().map(|byte| format!("{byte:02x}")).collect();
    let flood = |harness: &Harness<'_>, from, count: usize, addresses| {
        let mut command = harness.peer.netns().command(&harness.files.probe);
        command.args(["flood", from, Family::V4.firmware(), &request, &count.to_string(), addresses]);
        Background::start("flood", command, &harness.directory.join("flood.log"))
    };
    harness.peer.stop()?;
    // The firmware creates no half-open IKE SAs for unknown addresses. For the peer's address it does, for
    // any sender.
    wait_for(&mut flood(harness, Family::V4.ours(), AS_PEER, "1")?)?;
    let mut unknown_peers = flood(harness, "198.18.0.0", REQUESTS, "65536")?;
    harness.peer.start(&harness.case, &harness.directory)?;
    harness.peer.establish(&harness.case)?;
    harness.page()?;
    if unknown_peers.output().contains(SENT) {
        return Err(Error::new("the flood ended before the peer connected"));
    }
    wait_for(&mut unknown_peers)?;
    let growth = harness.heap()?.saturating_sub(before);
    let cookies = first_messages(&harness.capture()?).filter(|message| asks_for_cookie(message)).count();
    let said = format!("{cookies} cookies were requested, the heap grew by {growth} KiB");
    // A full queue in front of the firmware may drop some requests.
    if growth > GROWTH_KIB || cookies < AS_PEER / 2 { Err(Error::new(said)) } else { Ok(said) }
}

/// Waits until a flood has ended.
fn wait_for(flood: &mut Background) -> Result<()> {
    let waited = flood.wait_until(LIMIT, |said| said.contains(SENT));
    // The flood may have ended between two checks.
    if flood.output().contains(SENT) { Ok(()) } else { waited }
}

/// Allocated heap, in KiB, from which on nearly all of it is in use.
const NEARLY_ALL: u64 = 16_000;

/// Handshake without free memory: the firmware rejects its messages. The handshake succeeds when memory is
/// available again.
fn no_heap_for_ike(harness: &mut Harness<'_>) -> Result<String> {
    let console = harness.firmware.console_output();
    let refused = console.lines().find(|line| line.starts_with("ike: no memory, "));
    let refused = refused.ok_or_else(|| Error::new("the firmware rejected no message"))?;
    if console.find(refused) > console.find("ike: established") {
        return Err(Error::new("the firmware rejected a message after the handshake had succeeded"));
    }
    let status = harness.firmware.status()?;
    let count = status.lines().find(|line| line.starts_with("ike: no memory, "));
    count.map(String::from).ok_or_else(|| Error::new(format!("the status does not count it: {status}")))
}

/// Connections, pages and packets need no free memory.
fn no_heap_for_page(harness: &mut Harness<'_>) -> Result<String> {
    ask(&harness.case, &mut harness.peer, "page", "20")?;
    let taken = harness.heap()?;
    if taken < NEARLY_ALL {
        return Err(Error::new(format!("the heap was not exhausted: only {taken} KiB were allocated")));
    }
    Ok(format!("20 pages with {taken} KiB of heap allocated"))
}
