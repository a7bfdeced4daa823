//! Kernel of a guest as a peer, and its counters.

use crate::case::Peer;
use crate::case::{Case, Sa};
use crate::xfrm::{self, Side};
use casemate_interop::{Error, Guest, GuestImages, GuestNetwork, Netns, Output, Result, changed_counters};
use std::path::Path;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(30);
/// Separates two parts of a script's output.
const MARK: &str = "----";

/// Guest on one side of the link.
pub(crate) struct Kernel {
    guest: Guest,
    side: Side,
    /// `/proc/net/xfrm_stat` at the start of the case; the counters cannot be reset.
    before: String,
}

impl Kernel {
    /// Boots the guest and configures its addresses.
    pub(crate) fn boot(
        images: &GuestImages,
        netns: &Netns,
        tap: &str,
        side: Side,
        console: &Path,
    ) -> Result<Self> {
        let mut guest = Guest::boot(images, GuestNetwork { netns, tap, mac: side.mac() }, console)?;
        let script = format!("ip -batch - <<'END'\n{}END\n", crate::link::addresses("eth0", side));
        guest.check(&script, LIMIT)?;
        guest.check(&crate::link::routes(side), LIMIT)?;
        guest.check("probe encap", LIMIT)?;
        Ok(Self { guest, side, before: String::new() })
    }
}

impl Peer for Kernel {
    fn start(&mut self, case: &Case) -> Result<()> {
        let lines = xfrm::lines(case, self.side) + &xfrm::lines_for_kernel(case, self.side);
        let script = format!(
            "ip -batch - <<'END' || exit 1\nxfrm state flush\nxfrm policy flush\n{lines}END\ncat /proc/net/xfrm_stat\n"
        );
        self.before = self.guest.check(&script, LIMIT)?;
        Ok(())
    }

    fn probe(&mut self, arguments: &str) -> Result<Output> {
        self.guest.run(&format!("probe {arguments}"), LIMIT)
    }

    fn stop(&mut self, case: &Case) -> Result<()> {
        let script = format!(
            "cat /proc/net/xfrm_stat; echo {MARK}\n\
             ip -s -batch - <<'END'\nxfrm state list\nxfrm policy flush\nxfrm state flush\nEND\n"
        );
        let said = self.guest.check(&script, LIMIT)?;
        let (errors, states) = said.split_once(MARK).unwrap_or_default();
        check_states(case, states)?;
        check_errors(&self.before, errors)
    }
}

/// Checks the output of `ip -s xfrm state`: every SA has carried every packet, and rejected none.
pub(crate) fn check_states(case: &Case, listing: &str) -> Result<()> {
    for (layer, sa) in case.sas.iter().enumerate() {
        for from in [Side::Ours, Side::Guest] {
            let spi = format!("spi {:#010x}", xfrm::spi(layer, from));
            let state = listing.split("\nsrc ").find(|state| state.contains(&spi)).unwrap_or_default();
            if let Some(complaint) = complaint(case, sa, state) {
                return Err(Error::new(format!("the kernel's SA {spi}: {complaint}:\n{state}")));
            }
        }
    }
    Ok(())
}

fn complaint(case: &Case, sa: &Sa, state: &str) -> Option<String> {
    let expected = case.packets();
    let current = state.split_once("lifetime current:").map_or("", |(_, current)| current);
    match number_before(current, "(packets)") {
        Some(packets) if packets >= expected => {}
        Some(packets) => return Some(format!("{packets} packets, expected at least {expected}")),
        None => return Some("the SA does not exist any more".into()),
    }
    if !current.contains("replay-window 0 replay 0 failed 0") {
        return Some("the SA rejected packets".into());
    }
    // The low half started just below its end, so the high half has to be 1.
    let stuck = sa.esn && sa.used > 0 && !state.contains("seq-hi 0x1");
    stuck.then(|| "its sequence number never reached 2^32".into())
}

/// Checks that no counter of `/proc/net/xfrm_stat` changed: each of them counts errors.
pub(crate) fn check_errors(before: &str, after: &str) -> Result<()> {
    let changed = changed_counters(before, after);
    if changed.is_empty() {
        return Ok(());
    }
    Err(Error::new(format!("the kernel counted errors (/proc/net/xfrm_stat): {}", changed.join(", "))))
}

fn number_before(text: &str, unit: &str) -> Option<u64> {
    let (front, _) = text.split_once(unit)?;
    front.rsplit(|character: char| !character.is_ascii_digit()).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case;

    fn listing(packets: u64, failed: u32) -> String {
        [0x1001, 0x1002]
            .map(|spi| {
                format!(
                    "src 10.9.0.1 dst 10.9.0.2\n\tproto esp spi {spi:#010x}(4097) reqid 0(0x00000000) mode transport\n\
                     \tlifetime config:\n\t  limit: soft (INF)(packets)\n\tlifetime current:\n\t  1848(bytes), {packets}(packets)\n\
                     \tstats:\n\t  replay-window 0 replay 0 failed {failed}\n"
                )
            })
            .concat()
    }

    #[test]
    fn every_packet_has_to_be_counted_and_none_rejected() {
        let case = case::all().into_iter().find(|case| case.name == "esp/aes128-sha1/transport/v4").unwrap();
        let enough = case.packets();
        assert!(check_states(&case, &listing(enough, 0)).is_ok());
        assert!(check_states(&case, &listing(enough - 1, 0)).is_err());
        assert!(check_states(&case, &listing(enough, 1)).is_err());
        assert!(check_states(&case, "").is_err());
    }
}
