//! Whether the kernel's own counters agree that a case went well.

use crate::case::{Case, Sa};
use crate::xfrm::{self, Side};
use casemate_interop::{Error, Result, moved_counters};

/// Checks the output of `ip -s xfrm state`: every SA carried every packet, and refused none.
pub(crate) fn states(case: &Case, listing: &str) -> Result<()> {
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
    // Each direction carries the requests of one side and the answers to the other's.
    let expected = case.echoes().saturating_mul(2);
    let current = state.split_once("lifetime current:").map_or("", |(_, current)| current);
    match number_before(current, "(packets)") {
        Some(packets) if packets >= expected => {}
        Some(packets) => return Some(format!("{packets} packets, expected at least {expected}")),
        None => return Some("it is gone".into()),
    }
    if !current.contains("replay-window 0 replay 0 failed 0") {
        return Some("it refused packets".into());
    }
    // The low half started just below its end, so the high half has to have moved.
    let stuck = sa.esn && sa.used > 0 && !state.contains("seq-hi 0x1");
    stuck.then(|| "its sequence number never reached 2^32".into())
}

/// Checks that no counter of `/proc/net/xfrm_stat` moved: each of them is a kind of error.
pub(crate) fn errors(before: &str, after: &str) -> Result<()> {
    let moved = moved_counters(before, after);
    if moved.is_empty() {
        return Ok(());
    }
    Err(Error::new(format!("the kernel counted errors (/proc/net/xfrm_stat): {}", moved.join(", "))))
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
    fn every_packet_has_to_be_counted_and_none_refused() {
        let case = case::all().into_iter().find(|case| case.name == "esp/aes128-sha1/transport/v4").unwrap();
        let enough = case.echoes() * 2;
        assert!(states(&case, &listing(enough, 0)).is_ok());
        assert!(states(&case, &listing(enough - 1, 0)).is_err());
        assert!(states(&case, &listing(enough, 1)).is_err());
        assert!(states(&case, "").is_err());
    }
}
