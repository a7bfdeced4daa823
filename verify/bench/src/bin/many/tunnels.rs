//! The tunnels: manual keys, as lines for `casemate run --xfrm`.

use casemate_interop::ENCAP_PORT;
use casemate_stage::arena::{BEHIND, WIRE};
use std::fmt::Write;
use std::net::Ipv4Addr;

/// The addresses that the packets go to: as many as there are tunnels at most.
pub(crate) const NETWORK: &str = "10.128.0.0/16";

/// The n-th of them.
pub(crate) fn address(n: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(Ipv4Addr::new(10, 128, 0, 0).to_bits() + n)
}

/// SAs and policies of one end, with AES-GCM in UDP. One tunnel leads to all addresses, many to one each.
pub(crate) fn xfrm(end: usize, tunnels: u32) -> String {
    let mut lines = String::new();
    for n in 0..tunnels {
        let far = if tunnels == 1 { NETWORK.into() } else { format!("{}/32", address(n)) };
        let near = format!("{}/32", BEHIND[0]);
        for from in [0, 1] {
            let (src, dst) = (WIRE[from], WIRE[1 - from]);
            let (behind, other) = if from == 0 { (&near, &far) } else { (&far, &near) };
            let direction = if from == end { "out" } else { "in" };
            // A key for each SA. They protect nothing.
            let (spi, key) = (0x100 + n, 2 * n + from as u32);
            let _ = write!(
                lines,
                "xfrm state add src {src} dst {dst} proto esp spi {spi:#x} mode tunnel replay-window 1024 \
                 aead 'rfc4106(gcm(aes))' 0x{key:040x} 128 encap espinudp {ENCAP_PORT} {ENCAP_PORT} 0.0.0.0 \
                 reqid {reqid}\n\
                 xfrm policy add src {behind} dst {other} dir {direction} \
                 tmpl src {src} dst {dst} proto esp mode tunnel reqid {reqid}\n",
                reqid = n + 1
            );
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use casemate_app::xfrm::XfrmFile;

    #[test]
    fn every_tunnel_has_an_sa_and_a_policy_each_way() {
        let file = XfrmFile::parse(xfrm(0, 300).as_bytes()).unwrap();
        assert_eq!((file.states.len(), file.policies.len()), (600, 600));
        assert_eq!(address(299), Ipv4Addr::new(10, 128, 1, 43));
    }
}
