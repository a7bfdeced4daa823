//! Virtio devices without a bus, as QEMU's `microvm` has them.
//!
//! Where the machine has no ACPI it names their places on the command line, as Linux reads it:
//! `virtio_mmio.device=512@0xfeb00e00:12`. Where it has, they are in tables that take an interpreter to read; the places are
//! always the same ones, and are asked one after the other.

use crate::console::say;
use core::ops::Range;
use core::ptr::NonNull;
use virtio_drivers::transport::mmio::{MmioTransport, VirtIOHeader};
use virtio_drivers::transport::{DeviceType, Transport};

const WORD: &str = "virtio_mmio.device=";
/// Below this there is memory; above 4 GiB nothing is mapped.
const DEVICES: Range<u64> = 0xC000_0000..0x1_0000_0000;
/// The places of `microvm`: 24 of 512 bytes.
const MICROVM: Range<u64> = 0xFEB0_0000..0xFEB0_3000;
const SIZE: u64 = 512;

/// The first network card that the command line names.
pub(super) fn named(command_line: &str) -> Option<MmioTransport<'static>> {
    command_line.split_whitespace().filter_map(|word| word.strip_prefix(WORD)).find_map(|place| {
        let (size, rest) = place.split_once('@')?;
        let address = rest.split(':').next()?.strip_prefix("0x")?;
        let address = u64::from_str_radix(address, 16).ok()?;
        if size == "512" { open(address) } else { None }
    })
}

/// The first network card in the places of `microvm`. For machines without a PCI bus: elsewhere something else may lie there.
pub(super) fn probed() -> Option<MmioTransport<'static>> {
    MICROVM.step_by(SIZE as usize).find_map(open)
}

/// The card whose registers are there, if there is one.
fn open(address: u64) -> Option<MmioTransport<'static>> {
    let end = address.checked_add(SIZE)?;
    if !DEVICES.contains(&address) || end > DEVICES.end || !address.is_multiple_of(SIZE) {
        return None;
    }
    let header = NonNull::new(address as *mut VirtIOHeader)?;
    // SAFETY: the machine has its devices there, and no memory; the place is aligned and mapped. The driver reads the magic
    // number first and does nothing where it is not that of virtio.
    let transport = unsafe { MmioTransport::new(header, SIZE as usize) }.ok()?;
    if transport.device_type() != DeviceType::Network {
        return None;
    }
    say!("network: virtio at {address:#x}");
    Some(transport)
}
