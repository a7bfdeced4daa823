//! Other implementations of IPsec as peers for tests: a Linux kernel and strongSwan.
//!
//! [`Guest`] boots Debian's cloud kernel, for which [`build_images`] gets the files. [`Netns`] is a network namespace of the host that
//! ends with its owner. The program `kernel-matrix` runs every suite against the guest; `probe` is the part of it that runs inside.
//! `strongswan-matrix` runs both sides in namespaces, with the programs that [`run`] and [`Background`] start there, and
//! strongSwan in a guest where it is to have the kernel's ESP and AH. A [`Device`] may stand in Casemate's place.
//! Needs Linux on x86-64 and the Debian packages that `cargo xtask test` installs (xtask/src/packages.rs).

mod charon;
mod counters;
mod device;
mod kernel;

pub use casemate_stage::{
    Background, Error, Firmware, FirmwareSpec, Guest, Images, Netns, NetworkSpec, Output, Result, is_root,
    run,
};
pub use charon::Charon;
pub use counters::moved_counters;
pub use device::Device;
pub use kernel::{build_images, with_probe};

/// Port of UDP-encapsulated ESP (RFC 3948 section 1). The guest decapsulates what arrives on it once it was told
/// `probe encap`.
pub const ENCAP_PORT: u16 = 4500;

/// Ethernet address of the firmware's network card.
pub const FIRMWARE_MAC: &str = "52:54:00:12:34:56";

/// The page that devices serve, byte for byte.
pub const PAGE: &[u8] = include_bytes!("../../../apps/firmware/src/page.html");
