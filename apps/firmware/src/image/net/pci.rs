//! The PCI bus, by the ports that every PC has (PCI Local Bus Specification 3.0, section 3.2.2.3.2).

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

/// The first virtio network card of the first bus; the firmware in front of us has given it addresses.
pub(super) fn find() -> Result<Option<PciTransport>, Trouble> {
    let mut root = PciRoot::new(Ports);
    let is_card = |info: &_| virtio_device_type(info) == Some(DeviceType::Network);
    let Some((function, _)) = root.enumerate_bus(0).find(|(_, info)| is_card(info)) else { return Ok(None) };
    root.set_command(function, Command::MEMORY_SPACE | Command::BUS_MASTER | Command::INTERRUPT_DISABLE);
    say!("network: virtio on PCI {function}");
    match PciTransport::new::<Machine, _>(&mut root, function) {
        Ok(transport) => Ok(Some(transport)),
        Err(error) => {
            say!("network: {error}");
            Err("the network card cannot be used")
        }
    }
}
