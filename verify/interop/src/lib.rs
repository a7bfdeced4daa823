//! Other implementations of IPsec as peers for tests: a Linux kernel and strongSwan.
//!
//! [`Guest`] boots Debian's cloud kernel, whose files [`build_images`] prepares. [`Netns`] is a network
//! namespace that ends with its owner. The program `kernel-matrix` tests every suite against the guest;
//! `probe` is the agent inside the guest. `strongswan-matrix` runs both sides in namespaces, with programs
//! that [`run`] and [`Background`] start, and strongSwan in a guest if it needs ESP and AH of the kernel. A
//! [`Device`] may replace Casemate. Needs Linux on x86-64 and the Debian packages that `cargo xtask test`
//! installs (xtask/src/packages.rs).

mod charon;
mod device;

pub use casemate_testbed::{
    Background, Error, Firmware, FirmwareSpec, Guest, GuestImages, GuestNetwork, Netns, Output, Result,
    is_root, run,
};
pub use charon::{Charon, Listing};
pub use device::Device;

use casemate_testbed::{InitrdContent, obtain_kernel};
use std::path::Path;

/// Port of UDP-encapsulated ESP (RFC 3948 section 1). The guest decapsulates packets to this port after the
/// command `probe encap`.
pub const ENCAP_PORT: u16 = 4500;

/// Ethernet address of the firmware's network card.
pub const FIRMWARE_MAC: &str = "52:54:00:12:34:56";

/// Page that devices serve.
pub const PAGE: &[u8] = include_bytes!("../../../apps/firmware/src/page.html");

/// `probe` executes scripts of the host.
const AGENT: &str = "exec probe serve /dev/vport*p1\n";

/// Contents of a guest that executes scripts: iproute2, and the program `probe` of this crate.
pub fn with_probe(probe: &Path) -> Result<InitrdContent> {
    InitrdContent::new(AGENT, "bin/probe", probe)
}

/// Builds the images in `cache`, unless they are up to date. apt-get downloads the kernel once.
pub fn build_images(cache: &Path, content: &InitrdContent) -> Result<GuestImages> {
    GuestImages::build(&obtain_kernel(cache, &|_| {})?, cache, content)
}

/// Returns the error counters of `/proc/net/xfrm_stat` that differ between two readings, with their later
/// values. They cannot be reset.
pub fn changed_counters(before: &str, after: &str) -> Vec<String> {
    let changed = after.lines().filter(|line| !before.lines().any(|old| old == *line));
    changed.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_counters_are_listed() {
        let before = "XfrmInError   \t0\nXfrmInNoPols 2\n";
        assert_eq!(changed_counters(before, "XfrmInError   \t1\nXfrmInNoPols 2\n"), ["XfrmInError 1"]);
        assert!(changed_counters(before, before).is_empty());
    }
}
