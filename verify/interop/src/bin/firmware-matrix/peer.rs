//! The firmware's peer: `casemate run` in the namespace of the tap, or a Linux kernel in a guest.

use crate::case::{Case, Family};
use crate::gateway::Gateway;
use crate::run::{LIMIT, Places, TAP};
use casemate_interop::{
    Error, Guest, Netns, NetworkSpec, Output, Result, build_images, moved_counters, run, with_probe,
};
use std::path::Path;
use std::time::{Duration, Instant};

/// The tap of the guest, on a bridge with the firmware's.
const GUEST_TAP: &str = "tap1";
const GUEST_MAC: &str = "52:54:00:09:00:01";
const SETTLING: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(20);

/// What stands at the other end of the link.
pub(crate) trait Peer {
    /// The namespace with the firmware's tap.
    fn netns(&self) -> &Netns;

    /// Protects packets as the case says.
    fn start(&mut self, case: &Case, directory: &Path) -> Result<()>;

    /// Waits until there is a Child SA, beginning it if that is the peer's part.
    fn establish(&mut self, case: &Case) -> Result<()>;

    /// `probe ARGUMENTS` from its address.
    fn probe(&mut self, arguments: &[&str]) -> Result<Output>;

    /// Ends protection, in good order.
    fn stop(&mut self) -> Result<()>;
}

/// Casemate.
pub(crate) struct Casemate<'p> {
    netns: Netns,
    places: &'p Places,
    running: Option<Gateway>,
}

impl<'p> Casemate<'p> {
    /// In a namespace of its own, whose end of the link is the tap.
    pub(crate) fn new(family: Family, places: &'p Places) -> Result<Self> {
        let netns = Netns::new()?;
        netns.ip(&format!(
            "tuntap add dev {TAP} mode tap\nlink set {TAP} addrgenmode none\nlink set {TAP} up\n{}",
            address(family, TAP)
        ))?;
        Ok(Self { netns, places, running: None })
    }
}

impl Peer for Casemate<'_> {
    fn netns(&self) -> &Netns {
        &self.netns
    }

    fn start(&mut self, case: &Case, directory: &Path) -> Result<()> {
        self.running = Gateway::start(&self.netns, case, &self.places.casemate, directory)?;
        Ok(())
    }

    fn establish(&mut self, case: &Case) -> Result<()> {
        let Self { netns, places, running } = self;
        running.as_mut().map_or(Ok(()), |gateway| gateway.establish(netns, case, &places.casemate))
    }

    fn probe(&mut self, arguments: &[&str]) -> Result<Output> {
        run(&self.netns, LIMIT, &self.places.probe, arguments)
    }

    fn stop(&mut self) -> Result<()> {
        self.running.take().map_or(Ok(()), Gateway::stop)
    }
}

/// The kernel of a guest, with manual keys. It stays for all cases: to boot it takes longer than any of them.
pub(crate) struct Kernel {
    netns: Netns,
    guest: Guest,
    /// `/proc/net/xfrm_stat` when the case began: it cannot be set back.
    before: String,
}

impl Kernel {
    /// Boots the guest, on a bridge with the firmware's tap.
    pub(crate) fn boot(places: &Places) -> Result<Self> {
        let netns = Netns::new()?;
        let mut lines = String::from("link add br0 type bridge\nlink set br0 addrgenmode none up\n");
        for tap in [TAP, GUEST_TAP] {
            lines.push_str(&format!(
                "tuntap add dev {tap} mode tap\nlink set {tap} master br0 addrgenmode none up\n"
            ));
        }
        netns.ip(&lines)?;
        let images = build_images(&places.images, &with_probe(&places.probe)?)?;
        let network = NetworkSpec { netns: &netns, tap: GUEST_TAP, mac: GUEST_MAC };
        let mut guest = Guest::boot(&images, network, &places.directory.join("guest"))?;
        let addresses = address(Family::V4, "eth0") + &address(Family::V6, "eth0");
        guest.check(&format!("ip -batch - <<'END'\n{addresses}END\n"), LIMIT)?;
        Ok(Self { netns, guest, before: String::new() })
    }
}

impl Peer for Kernel {
    fn netns(&self) -> &Netns {
        &self.netns
    }

    fn start(&mut self, case: &Case, _: &Path) -> Result<()> {
        let lines = case.xfrm_lines() + NEIGHBOURS;
        let script = format!(
            "ip -batch - <<'END' || exit 1\n{lines}END\nip neigh flush dev eth0\ncat /proc/net/xfrm_stat\n"
        );
        self.before = self.guest.check(&script, LIMIT)?;
        Ok(())
    }

    /// A bridge passes frames when it has noticed that its port has a carrier again.
    fn establish(&mut self, _: &Case) -> Result<()> {
        let start = Instant::now();
        while start.elapsed() < SETTLING {
            let port = run(&self.netns, LIMIT, "ip", &["-details", "link", "show", "dev", TAP])?;
            if port.stdout.contains("state forwarding") {
                return Ok(());
            }
            std::thread::sleep(PAUSE);
        }
        Err(Error::new("the bridge does not take the firmware's tap"))
    }

    fn probe(&mut self, arguments: &[&str]) -> Result<Output> {
        self.guest.run(&format!("probe {}", arguments.join(" ")), LIMIT)
    }

    fn stop(&mut self) -> Result<()> {
        let counters = self.guest.check("cat /proc/net/xfrm_stat", LIMIT)?;
        let states =
            self.guest.check("ip -s xfrm state; ip xfrm state flush; ip xfrm policy flush", LIMIT)?;
        // Every counter there is one of errors; and the SAs of both directions say that they refused nothing.
        let errors = moved_counters(&self.before, &counters);
        let content = states.matches("replay-window 0 replay 0 failed 0").count();
        if errors.is_empty() && content == 2 {
            return Ok(());
        }
        Err(Error::new(format!("the kernel counted errors: {}; its SAs:\n{states}", errors.join(", "))))
    }
}

/// Neighbour discovery in clear, as the firmware has it (RFC 4861 sections 4.3 and 4.4).
const NEIGHBOURS: &str = "\
xfrm policy add src ::/0 dst ::/0 proto 58 type 135 dir out priority 1
xfrm policy add src ::/0 dst ::/0 proto 58 type 136 dir out priority 1
xfrm policy add src ::/0 dst ::/0 proto 58 type 135 dir in priority 1
xfrm policy add src ::/0 dst ::/0 proto 58 type 136 dir in priority 1
";

/// The line of `ip -batch` that gives an interface our address.
fn address(family: Family, interface: &str) -> String {
    let nodad = if family == Family::V6 { " nodad" } else { "" };
    format!("addr add {}/{} dev {interface}{nodad}\n", family.ours(), family.prefix())
}
