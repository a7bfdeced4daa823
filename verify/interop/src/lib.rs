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
mod kernel;

pub use casemate_testbed::{
    Background, Error, Firmware, FirmwareSpec, Guest, GuestImages, GuestNetwork, Netns, Output, Result,
    is_root, run,
};
pub use charon::Charon;
pub use device::Device;
pub use kernel::{build_images, changed_counters, with_probe};

/// Port of UDP-encapsulated ESP (RFC 3948 section 1). The guest decapsulates packets to this port after the
/// command `probe encap`.
pub const ENCAP_PORT: u16 = 4500;

/// Ethernet address of the firmware's network card.
pub const FIRMWARE_MAC: &str = "52:54:00:12:34:56";

/// Page that devices serve.
pub const PAGE: &[u8] = include_bytes!("../../../apps/firmware/src/page.html");
