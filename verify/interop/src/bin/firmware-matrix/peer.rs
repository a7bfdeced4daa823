//! Peer of the firmware: `casemate run` in the namespace of the TAP interface, or a Linux kernel in a
//! guest.

use crate::case::{Case, Family, GatewayFile};
use crate::run::{Files, LIMIT, TAP};
use casemate_interop::{
    Background, Error, Guest, GuestNetwork, Netns, Output, Result, build_images, changed_counters, run,
    with_probe,
};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// TAP interface of the guest, on a bridge with the firmware's.
const GUEST_TAP: &str = "tap1";
const GUEST_MAC: &str = "52:54:00:09:00:01";
const SETTLING: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(20);

/// Other end of the link.
pub(crate) trait Peer {
    /// Namespace with the firmware's TAP interface.
    fn netns(&self) -> &Netns;

    /// Starts the protection of the case.
    fn start(&mut self, case: &Case, directory: &Path) -> Result<()>;

    /// Waits for the Child SA. Initiates it if the peer has to.
    fn establish(&mut self, case: &Case) -> Result<()>;

    /// Runs `probe ARGUMENTS` from the peer's address.
    fn probe(&mut self, arguments: &[&str]) -> Result<Output>;

    /// Stops the protection.
    fn stop(&mut self) -> Result<()>;
}

/// Casemate as a peer.
pub(crate) struct Casemate<'p> {
    netns: Netns,
    files: &'p Files,
    running: Option<Gateway>,
}

impl<'p> Casemate<'p> {
    /// Peer in a namespace of its own, whose end of the link is the TAP interface.
    pub(crate) fn new(family: Family, files: &'p Files) -> Result<Self> {
        let netns = Netns::new()?;
        netns.ip(&format!(
            "tuntap add dev {TAP} mode tap\nlink set {TAP} addrgenmode none\nlink set {TAP} up\n{}",
            address(family, TAP)
        ))?;
        Ok(Self { netns, files, running: None })
    }
}

impl Peer for Casemate<'_> {
    fn netns(&self) -> &Netns {
        &self.netns
    }

    fn start(&mut self, case: &Case, directory: &Path) -> Result<()> {
        if let Some(loss) = case.loss {
            let rules = loss.rules(case.gateway_begins());
            nft(&self.netns, &format!("nft -f - <<'END'\n{rules}END\n"))?;
        }
        self.running = Gateway::start(&self.netns, case, &self.files.casemate, directory)?;
        Ok(())
    }

    fn establish(&mut self, case: &Case) -> Result<()> {
        let Self { netns, files, running } = self;
        running.as_mut().map_or(Ok(()), |gateway| gateway.establish(netns, case, &files.casemate))?;
        if case.loss.is_some() { expect_losses(netns) } else { Ok(()) }
    }

    fn probe(&mut self, arguments: &[&str]) -> Result<Output> {
        run(&self.netns, LIMIT, &self.files.probe, arguments)
    }

    fn stop(&mut self) -> Result<()> {
        self.running.take().map_or(Ok(()), Gateway::stop)
    }
}

/// Kernel of a guest with manual keys. It serves all cases, because its boot takes longer than any of them.
pub(crate) struct Kernel {
    netns: Netns,
    guest: Guest,
    /// `/proc/net/xfrm_stat` at the start of the case; the counters cannot be reset.
    before: String,
}

impl Kernel {
    /// Boots the guest, on a bridge with the firmware's TAP interface.
    pub(crate) fn boot(files: &Files) -> Result<Self> {
        let netns = Netns::new()?;
        let mut lines = String::from("link add br0 type bridge\nlink set br0 addrgenmode none up\n");
        for tap in [TAP, GUEST_TAP] {
            lines.push_str(&format!(
                "tuntap add dev {tap} mode tap\nlink set {tap} master br0 addrgenmode none up\n"
            ));
        }
        netns.ip(&lines)?;
        let images = build_images(&files.images, &with_probe(&files.probe)?)?;
        let network = GuestNetwork { netns: &netns, tap: GUEST_TAP, mac: GUEST_MAC };
        let mut guest = Guest::boot(&images, network, &files.directory.join("guest"))?;
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

    /// Waits until the bridge forwards frames, after it has noticed the carrier of its port.
    fn establish(&mut self, _: &Case) -> Result<()> {
        let start = Instant::now();
        while start.elapsed() < SETTLING {
            let port = run(&self.netns, LIMIT, "ip", &["-details", "link", "show", "dev", TAP])?;
            if port.stdout.contains("state forwarding") {
                return Ok(());
            }
            std::thread::sleep(PAUSE);
        }
        Err(Error::new("the bridge does not forward frames of the firmware's TAP interface"))
    }

    fn probe(&mut self, arguments: &[&str]) -> Result<Output> {
        self.guest.run(&format!("probe {}", arguments.join(" ")), LIMIT)
    }

    fn stop(&mut self) -> Result<()> {
        let counters = self.guest.check("cat /proc/net/xfrm_stat", LIMIT)?;
        let states =
            self.guest.check("ip -s xfrm state; ip xfrm state flush; ip xfrm policy flush", LIMIT)?;
        // All counters count errors, and the SAs of both directions count rejected packets.
        let errors = changed_counters(&self.before, &counters);
        let content = states.matches("replay-window 0 replay 0 failed 0").count();
        if errors.is_empty() && content == 2 {
            return Ok(());
        }
        Err(Error::new(format!("the kernel counted errors: {}; its SAs:\n{states}", errors.join(", "))))
    }
}

/// Checks that messages were lost.
fn expect_losses(netns: &Netns) -> Result<()> {
    let rules = nft(netns, "nft list chain inet loss lose")?;
    if rules.contains("packets 0 ") {
        return Err(Error::new(format!("no message was lost: {rules}")));
    }
    Ok(())
}

/// Runs `nft` commands in a namespace.
fn nft(netns: &Netns, script: &str) -> Result<String> {
    let output = run(netns, LIMIT, "sh", &["-c", script])?;
    if output.status == 0 { Ok(output.stdout) } else { Err(Error::new(format!("nft: {}", output.stdout))) }
}

/// Neighbour discovery in clear, as in the firmware (RFC 4861 sections 4.3 and 4.4).
const NEIGHBOURS: &str = "\
xfrm policy add src ::/0 dst ::/0 proto 58 type 135 dir out priority 1
xfrm policy add src ::/0 dst ::/0 proto 58 type 136 dir out priority 1
xfrm policy add src ::/0 dst ::/0 proto 58 type 135 dir in priority 1
xfrm policy add src ::/0 dst ::/0 proto 58 type 136 dir in priority 1
";

/// `ip -batch` command that adds our address to an interface.
fn address(family: Family, interface: &str) -> String {
    let nodad = if family == Family::V6 { " nodad" } else { "" };
    format!("addr add {}/{} dev {interface}{nodad}\n", family.ours(), family.prefix())
}

const GATEWAY_LIMIT: Duration = Duration::from_secs(5);
/// Time until the SAs are established if messages are lost: up to three transmissions of each request, after
/// one and two seconds.
const LOSS_LIMIT: Duration = Duration::from_secs(60);

/// Running gateway.
pub(crate) struct Gateway(Background);

impl Gateway {
    /// Starts the gateway with the configuration of the case; none if the case needs none.
    pub(crate) fn start(
        netns: &Netns,
        case: &Case,
        casemate: &Path,
        directory: &Path,
    ) -> Result<Option<Self>> {
        let Some(GatewayFile { option, text }) = case.gateway_file() else { return Ok(None) };
        let file = directory.join("gateway.conf");
        fs::write(&file, text).map_err(Error::context(file.display()))?;
        let mut command = netns.command(casemate);
        command.args(["run", option]).arg(&file);
        let mut running = Background::start("casemate", command, &directory.join("gateway.log"))?;
        running.wait_until(GATEWAY_LIMIT, |said| said.lines().any(|line| line.trim_end() == "ready"))?;
        Ok(Some(Self(running)))
    }

    /// Waits for the Child SA. Initiates it if the gateway has to.
    pub(crate) fn establish(&mut self, netns: &Netns, case: &Case, casemate: &Path) -> Result<()> {
        let limit = if case.loss.is_some() { LOSS_LIMIT } else { GATEWAY_LIMIT };
        if case.gateway_begins() {
            let done = run(netns, limit, casemate, &["initiate", "all"])?;
            if done.status != 0 {
                return Err(Error::new(format!("casemate initiate: {}", done.stdout.trim_end())));
            }
        }
        if case.uses_ike() {
            self.0.wait_until(limit, |said| said.contains("established with firmware"))?;
        }
        let Some(proposal) = case.proposal() else { return Ok(()) };
        let status = run(netns, GATEWAY_LIMIT, casemate, &["status", "--json"])?.stdout;
        // The whole proposal, not the start of a longer one.
        if status.contains(&format!("\"{proposal}\"")) {
            Ok(())
        } else {
            Err(Error::new(format!("the proposal of the IKE SA is not {proposal}: {status}")))
        }
    }

    /// Stops the gateway with a signal.
    pub(crate) fn stop(self) -> Result<()> {
        let said = self.0.output();
        let status = self.0.stop(GATEWAY_LIMIT)?;
        if status.success() {
            Ok(())
        } else {
            Err(Error::new(format!("casemate exited with {status}: {said}")))
        }
    }
}
