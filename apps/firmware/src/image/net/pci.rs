//! The PCI bus, by the ports that every PC has (PCI Local Bus Specification 3.0, section 3.2.2.3.2).

use super::NO_CARD;
use super::hal::Machine;
use crate::Trouble;
use crate::console::say;
use crate::cpu::{in32, out32};
use virtio_drivers::transport::DeviceType;
use virtio_drivers::transport::pci::bus::{Command, ConfigurationAccess, DeviceFunction, PciRoot};
use virtio_drivers::transport::pci::{PciTransport, virtio_device_type};

const ADDRESS: u16 = 0xCF8;
const DATA: u16 = 0xCFC;
const ENABLE: u32 = 1 << 31;

struct Ports;

fn select(function: DeviceFunction, register: u8) {
    let place =
        u32::from(function.bus) << 16 | u32::from(function.device) << 11 | u32::from(function.function) << 8;
    // SAFETY: to choose a register does nothing to memory.
    unsafe { out32(ADDRESS, ENABLE | place | u32::from(register & !3)) }
}

impl ConfigurationAccess for Ports {
    fn read_word(&self, function: DeviceFunction, register: u8) -> u32 {
        select(function, register);
        // SAFETY: to read a register of the configuration does nothing to memory.
        unsafe { in32(DATA) }
    }

    fn write_word(&mut self, function: DeviceFunction, register: u8, data: u32) {
        select(function, register);
        // SAFETY: the driver writes commands and addresses of registers, not of memory.
        unsafe { out32(DATA, data) }
    }

    unsafe fn unsafe_clone(&self) -> Self {
        Self
    }
}

/// Whether there is a bus: its first device is the bridge to the processor, and without one all bits are 1.
pub(super) fn is_there() -> bool {
    let bridge = DeviceFunction { bus: 0, device: 0, function: 0 };
    Ports.read_word(bridge, 0) != u32::MAX
}

/// The first virtio network card of the first bus; the firmware in front of us has given it addresses.
pub(super) fn find() -> Result<PciTransport, Trouble> {
    let mut root = PciRoot::new(Ports);
    let is_card = |info: &_| virtio_device_type(info) == Some(DeviceType::Network);
    let (function, _) = root.enumerate_bus(0).find(|(_, info)| is_card(info)).ok_or(NO_CARD)?;
    root.set_command(function, Command::MEMORY_SPACE | Command::BUS_MASTER | Command::INTERRUPT_DISABLE);
    say!("network: virtio on PCI {function}");
    PciTransport::new::<Machine, _>(&mut root, function).map_err(|error| {
        say!("network: {error}");
        "the network card cannot be used"
    })
}
