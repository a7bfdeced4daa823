//! Virtio devices without a bus. The machine names their places on the command line, as Linux reads it:
//! `virtio_mmio.device=512@0xfeb00e00:12`.

use crate::console::say;
use core::ptr::NonNull;
use virtio_drivers::transport::mmio::{MmioTransport, VirtIOHeader};
use virtio_drivers::transport::{DeviceType, Transport};

const WORD: &str = "virtio_mmio.device=";
/// Below this there is memory; above 4 GiB nothing is mapped.
const DEVICES: core::ops::Range<u64> = 0xC000_0000..0x1_0000_0000;

/// The first network card.
pub(super) fn find(command_line: &str) -> Option<MmioTransport<'static>> {
    command_line.split_whitespace().filter_map(|word| word.strip_prefix(WORD)).find_map(open)
}

/// The card at a place such as `512@0xfeb00e00:12`, if it is one.
fn open(place: &str) -> Option<MmioTransport<'static>> {
    let (size, rest) = place.split_once('@')?;
    let address = rest.split(':').next()?.strip_prefix("0x")?;
    let (size, address) = (size.parse::<usize>().ok()?, u64::from_str_radix(address, 16).ok()?);
    let end = address.checked_add(size as u64)?;
    if !DEVICES.contains(&address) || end > DEVICES.end || address % 4096 % 512 != 0 {
        return None;
    }
    let header = NonNull::new(address as *mut VirtIOHeader)?;
    // SAFETY: the machine says that a virtio device has its registers there; the place is aligned, mapped, and no memory.
    let transport = unsafe { MmioTransport::new(header, size) }.ok()?;
    if transport.device_type() != DeviceType::Network {
        return None;
    }
    say!("network: virtio at {address:#x}");
    Some(transport)
}
