//! The machine when something is full or silent: it has to bear it, say so, and go on with its work afterwards.

use crate::case::{Case, Family, Keys, Machine, Mode, Suite, With};
use crate::peer::{Casemate, Peer};
use crate::run::{LIMIT, Places, TAP, ask, explain};
use crate::wire::{asks_for_cookie, first_messages};
use casemate_interop::{Background, Error, FIRMWARE_MAC, Firmware, FirmwareSpec, Netns, Result, run};
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

/// What `probe` says when a flood is over.
const SENT: &str = " sent";

/// What is done to the machine.
#[derive(Clone, Copy)]
pub(crate) struct Hardship {
    name: &'static str,
    keys: Keys,
    /// More words of its configuration, and more options of QEMU.
    words: &'static str,
    options: &'static [&'static str],
    /// Does it, and says what came of it.
    inflict: fn(&mut Bench<'_>) -> Result<String>,
}

/// Every hardship.
pub(crate) const ALL: [Hardship; 5] = [
    Hardship {
        name: "no-cable",
        keys: Keys::Ike { mode: Mode::Tunnel, firmware_begins: true },
        words: "",
        options: &[],
        inflict: no_cable,
    },
    Hardship {
        name: "slow-card",
        keys: Keys::Manual(Mode::Tunnel),
        words: "",
        // The card sends what is in its ring 1.3 seconds after the first frame, and does not want to be woken before.
        options: &["-global", "virtio-net-pci.tx=timer", "-global", "virtio-net-pci.x-txtimer=1300000000"],
        inflict: slow_card,
    },
    Hardship {
        name: "half-open",
        keys: Keys::Ike { mode: Mode::Tunnel, firmware_begins: false },
        // Answers to strangers go to us, and no further.
        words: "gateway=10.9.0.1\n",
        options: &[],
        inflict: half_open,
    },
    Hardship {
        name: "no-heap/ike",
        keys: Keys::Ike { mode: Mode::Tunnel, firmware_begins: false },
        // The gateway asks at once, and again after 1, 3 and 7 seconds.
        words: "hold-heap=2\n",
        options: &[],
        inflict: no_heap_for_ike,
    },
    Hardship {
        name: "no-heap/page",
        keys: Keys::Manual(Mode::Tunnel),
        words: "hold-heap=2\n",
        options: &[],
        inflict: no_heap_for_page,
    },
];

/// The machine, its peer, and where their files are.
struct Bench<'p> {
    case: Case,
    peer: Casemate<'p>,
    firmware: Firmware,
    places: &'p Places,
    directory: PathBuf,
}

impl Hardship {
    pub(crate) fn name(&self) -> String {
        format!("pc/exhaust/{}", self.name)
    }

    /// Boots the machine, lets it serve its page, and does it.
    pub(crate) fn run(&self, places: &Places) -> Result<String> {
        let (peer, machine, family, suite) = (With::Casemate, Machine::Pc, Family::V4, Suite::AesGcm);
        let case = Case { peer, machine, family, keys: self.keys, suite, measures: false };
        let directory = places.directory.join(format!("exhaust-{}", self.name.replace('/', "-")));
        fs::create_dir_all(&directory).map_err(Error::in_front(directory.display()))?;
        let mut peer = Casemate::new(family, places)?;
        peer.start(&case, &directory)?;
        let words = case.firmware_file() + self.words;
        let (image, machine) = (&places.image, machine.name());
        let (mac, captures) = (FIRMWARE_MAC, true);
        let spec =
            FirmwareSpec { image, machine, tap: TAP, mac, captures, words: &words, directory: &directory };
        let firmware = Firmware::boot_with(peer.netns(), spec, self.options)?;
        let mut bench = Bench { case, peer, firmware, places, directory };
        let said = bench.bear(self.inflict);
        let said = said.map_err(|error| explain(&error, &bench.firmware, &bench.directory))?;
        let directory = bench.directory.clone();
        drop(bench);
        fs::remove_dir_all(&directory).map_err(Error::in_front(directory.display()))?;
        Ok(said)
    }
}

impl Bench<'_> {
    fn bear(&mut self, inflict: fn(&mut Self) -> Result<String>) -> Result<String> {
        self.firmware.wait_until_ready()?;
        self.peer.establish(&self.case)?;
        let said = inflict(self)?;
        self.page()?;
        // It still answers on its console, and has not started anew in the meantime.
        self.firmware.status()?;
        let console = self.firmware.said();
        let is_unharmed = console.matches("\nready").count() == 1
            && ["panic", "exception", "error:"].iter().all(|word| !console.contains(word));
        if is_unharmed { Ok(said) } else { Err(Error::new("the machine did not bear it")) }
    }

    fn page(&mut self) -> Result<()> {
        ask(&self.case, &mut self.peer, "page", "1").map(drop)
    }

    fn capture(&self) -> Result<Vec<u8>> {
        let file = self.directory.join("wire.pcap");
        fs::read(&file).map_err(Error::in_front(file.display()))
    }

    /// The KiB of heap that are taken.
    fn heap(&mut self) -> Result<u64> {
        let status = self.firmware.status()?;
        let number =
            status.lines().find_map(|line| line.strip_prefix("heap: ")?.split(' ').next()?.parse().ok());
        number.ok_or_else(|| Error::new(format!("the console says nothing of the heap: {status}")))
    }
}

/// `probe WORDS` in the namespace, beside everything else.
fn probe(netns: &Netns, probe: &Path, words: &[&str]) -> Result<String> {
    let output = run(netns, LIMIT, probe, words)?;
    let said = output.stdout.trim_end().to_owned();
    if output.status == 0 { Ok(said) } else { Err(Error::new(format!("{}: {said}", words.join(" ")))) }
}

/// While the page is fetched, the cable is pulled out and plugged in again.
fn no_cable(bench: &mut Bench<'_>) -> Result<String> {
    const A_WHILE: Duration = Duration::from_millis(500);
    const OUT: Duration = Duration::from_millis(1_500);
    let (netns, probes) = (bench.peer.netns(), &bench.places.probe);
    let words = ["rate", Family::V4.ours(), Family::V4.firmware(), "4"];
    let (rate, passed) = thread::scope(|scope| {
        let fetching = scope.spawn(|| probe(netns, probes, &words));
        thread::sleep(A_WHILE);
        bench.firmware.set_link(false)?;
        // What was under way has arrived then.
        thread::sleep(A_WHILE);
        let before = bench.capture()?.len();
        thread::sleep(OUT);
        let passed = bench.capture()?.len().saturating_sub(before);
        bench.firmware.set_link(true)?;
        let fetched = fetching.join().unwrap_or_else(|_| Err(Error::new("the client panicked")));
        fetched.map(|rate| (rate, passed))
    })?;
    if passed > 0 {
        return Err(Error::new(format!("{passed} bytes passed without a cable")));
    }
    for line in ["network: the cable is out", "network: the cable is in"] {
        if !bench.firmware.said().contains(line) {
            return Err(Error::new(format!("the machine does not say `{line}`")));
        }
    }
    let rate = rate.parse::<f64>().map_err(Error::in_front(rate))?;
    Ok(format!("connections went on after 2 s without a cable, {rate:.0} pages a second in all"))
}

/// More answers than the card takes for a while.
fn slow_card(bench: &mut Bench<'_>) -> Result<String> {
    const DATAGRAMS: &str = "400";
    const LOOKS: u32 = 30;
    const PAUSE: Duration = Duration::from_millis(100);
    let words = ["burst", Family::V4.ours(), Family::V4.firmware(), DATAGRAMS];
    probe(bench.peer.netns(), &bench.places.probe, &words)?;
    bench.firmware.wait_until(LIMIT, |said| said.contains("the card took no frame for a second"))?;
    // Before the first one the kernel asks for the machine's address, and that answer takes its time too.
    let mut status = String::new();
    for _ in 0..LOOKS {
        status = bench.firmware.status()?;
        let dropped =
            status.lines().find(|line| line.starts_with("dropped: ") && line.ends_with(" send-failed"));
        if let Some(dropped) = dropped {
            return Ok(dropped.into());
        }
        thread::sleep(PAUSE);
    }
    Err(Error::new(format!("no frame was dropped: {status}")))
}

/// Requests of IKE_SA_INIT that nobody follows up, from the peer's address and from strangers', while the peer comes anew.
fn half_open(bench: &mut Bench<'_>) -> Result<String> {
    const REQUESTS: usize = 4_000;
    /// One becomes a half-open IKE SA. From half of the quota of an address on, each request is asked for a cookie.
    const AS_PEER: usize = 1_000;
    /// Half-open IKE SAs, an IKE SA with its Child SA, and what tables grow by.
    const GROWTH_KIB: u64 = 64;
    bench.page()?;
    let (before, capture) = (bench.heap()?, bench.capture()?);
    let request = first_messages(&capture).next().ok_or_else(|| Error::new("no IKE_SA_INIT was seen"))?;
    let request: String = request.iter().map(|byte| format!("{byte:02x}")).collect();
    let flood = |bench: &Bench<'_>, from, count: usize, addresses| {
        let mut command = bench.peer.netns().command(&bench.places.probe);
        command.args(["flood", from, Family::V4.firmware(), &request, &count.to_string(), addresses]);
        Background::start("flood", command, &bench.directory.join("flood.log"))
    };
    bench.peer.stop()?;
    // The machine makes no half-open IKE SAs with strangers. From the peer's address it does, whoever sends.
    wait_for(&mut flood(bench, Family::V4.ours(), AS_PEER, "1")?)?;
    let mut strangers = flood(bench, "198.18.0.0", REQUESTS, "65536")?;
    bench.peer.start(&bench.case, &bench.directory)?;
    bench.peer.establish(&bench.case)?;
    bench.page()?;
    if strangers.said().contains(SENT) {
        return Err(Error::new("the flood was over before the peer came"));
    }
    wait_for(&mut strangers)?;
    let growth = bench.heap()?.saturating_sub(before);
    let cookies = first_messages(&bench.capture()?).filter(|message| asks_for_cookie(message)).count();
    let said = format!("cookies were asked for {cookies} times, the heap has grown by {growth} KiB");
    // A full queue in front of the machine may take some.
    if growth > GROWTH_KIB || cookies < AS_PEER / 2 { Err(Error::new(said)) } else { Ok(said) }
}

/// Waits until a flood is over.
fn wait_for(flood: &mut Background) -> Result<()> {
    let waited = flood.wait_until(LIMIT, |said| said.contains(SENT));
    // It may have ended between two looks, and has said everything then.
    if flood.said().contains(SENT) { Ok(()) } else { waited }
}

/// KiB of heap that are more than nearly all.
const NEARLY_ALL: u64 = 16_000;

/// A handshake without memory: its messages are refused. When there is memory again it succeeds.
fn no_heap_for_ike(bench: &mut Bench<'_>) -> Result<String> {
    let console = bench.firmware.said();
    let refused = console.lines().find(|line| line.starts_with("ike: no memory, "));
    let refused = refused.ok_or_else(|| Error::new("nothing was refused"))?;
    if console.find(refused) > console.find("ike: established") {
        return Err(Error::new("it was refused after it had succeeded"));
    }
    let status = bench.firmware.status()?;
    let count = status.lines().find(|line| line.starts_with("ike: no memory, "));
    count.map(String::from).ok_or_else(|| Error::new(format!("the status does not count it: {status}")))
}

/// Connections, pages and packets take no memory.
fn no_heap_for_page(bench: &mut Bench<'_>) -> Result<String> {
    ask(&bench.case, &mut bench.peer, "page", "20")?;
    let taken = bench.heap()?;
    if taken < NEARLY_ALL {
        return Err(Error::new(format!("there was memory: {taken} KiB were taken")));
    }
    Ok(format!("20 pages with {taken} KiB of heap taken"))
}
