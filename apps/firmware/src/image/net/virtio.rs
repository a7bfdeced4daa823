//! The transport of the virtio network card: platform functions of the driver, and discovery of the card on
//! the PCI bus or, as on QEMU's `microvm`, without a bus.
//!
//! Without ACPI, `microvm` passes the addresses of its devices on the command line, in the format of Linux:
//! `virtio_mmio.device=512@0xfeb00e00:12`. With ACPI the addresses are in tables that need an interpreter.
//! They are always the same, so each address is probed.

use super::NO_CARD;
use crate::BootError;
use crate::console::println;
use crate::cpu::{in32, out32};
use alloc::alloc::{alloc_zeroed, dealloc};
use core::alloc::Layout;
use core::ops::Range;
use core::ptr::NonNull;
use virtio_drivers::transport::mmio::{MmioTransport, VirtIOHeader};
use virtio_drivers::transport::pci::bus::{Command, ConfigurationAccess, DeviceFunction, PciRoot};
use virtio_drivers::transport::pci::{PciTransport, virtio_device_type};
use virtio_drivers::transport::{DeviceType, Transport};
use virtio_drivers::{BufferDirection, Hal, PAGE_SIZE, PhysAddr};

/// The machine as the virtio driver sees it.
pub(crate) struct Machine;

/// boot/entry.rs has mapped the addresses below this one.
const MAPPED: u64 = 4 << 30;

fn layout(pages: usize) -> Option<Layout> {
    Layout::from_size_align(pages.checked_mul(PAGE_SIZE)?, PAGE_SIZE).ok().filter(|layout| layout.size() > 0)
}

// SAFETY: memory comes from the heap, zeroed and aligned, and is not used otherwise until it is freed.
// Addresses are mapped one to one, so a pointer is the address that the device uses.
unsafe impl Hal for Machine {
    fn dma_alloc(pages: usize, _: BufferDirection) -> (PhysAddr, NonNull<u8>) {
        // SAFETY: the layout is not empty.
        let memory = layout(pages).and_then(|layout| NonNull::new(unsafe { alloc_zeroed(layout) }));
        // The driver treats address 0 as a failed allocation.
        memory.map_or((0, NonNull::dangling()), |memory| (memory.addr().get() as PhysAddr, memory))
    }

    unsafe fn dma_dealloc(_: PhysAddr, memory: NonNull<u8>, pages: usize) -> i32 {
        let Some(layout) = layout(pages) else { return -1 };
        // SAFETY: the caller passes memory from `dma_alloc` with the same number of pages.
        unsafe { dealloc(memory.as_ptr(), layout) };
        0
    }

    #[allow(
        clippy::panic,
        reason = "the driver has no other way to report the error, and it happens before any packet"
    )]
    unsafe fn mmio_phys_to_virt(address: PhysAddr, size: usize) -> NonNull<u8> {
        let end = address.saturating_add(size as u64);
        match NonNull::new(address as *mut u8) {
            Some(pointer) if end <= MAPPED => pointer,
            _ => panic!("the network card's registers at {address:#x} lie above 4 GiB"),
        }
    }

    unsafe fn share(buffer: NonNull<[u8]>, _: BufferDirection) -> PhysAddr {
        buffer.cast::<u8>().addr().get() as PhysAddr
    }

    unsafe fn unshare(_: PhysAddr, _: NonNull<[u8]>, _: BufferDirection) {}
}

const CONFIG_ADDRESS: u16 = 0xCF8;
const CONFIG_DATA: u16 = 0xCFC;
const ENABLE: u32 = 1 << 31;

/// PCI configuration access through I/O ports (PCI Local Bus Specification 3.0, section 3.2.2.3.2).
struct ConfigPorts;

fn select(function: DeviceFunction, register: u8) {
    let address =
        u32::from(function.bus) << 16 | u32::from(function.device) << 11 | u32::from(function.function) << 8;
    // SAFETY: selecting a register does not affect memory.
    unsafe { out32(CONFIG_ADDRESS, ENABLE | address | u32::from(register & !3)) }
}

impl ConfigurationAccess for ConfigPorts {
    fn read_word(&self, function: DeviceFunction, register: u8) -> u32 {
        select(function, register);
        // SAFETY: reading a configuration register does not affect memory.
        unsafe { in32(CONFIG_DATA) }
    }

    fn write_word(&mut self, function: DeviceFunction, register: u8, data: u32) {
        select(function, register);
        // SAFETY: the driver writes commands and register addresses, no memory addresses.
        unsafe { out32(CONFIG_DATA, data) }
    }

    unsafe fn unsafe_clone(&self) -> Self {
        Self
    }
}

/// Returns whether the machine has a PCI bus. The first device is the host bridge; without it all bits
/// read as 1.
pub(super) fn has_pci() -> bool {
    let bridge = DeviceFunction { bus: 0, device: 0, function: 0 };
    ConfigPorts.read_word(bridge, 0) != u32::MAX
}

/// Returns the first virtio network card of the first bus. The machine's firmware has assigned its addresses.
pub(super) fn find_on_pci() -> Result<PciTransport, BootError> {
    let mut root = PciRoot::new(ConfigPorts);
    let is_card = |info: &_| virtio_device_type(info) == Some(DeviceType::Network);
    let (function, _) = root.enumerate_bus(0).find(|(_, info)| is_card(info)).ok_or(NO_CARD)?;
    root.set_command(function, Command::MEMORY_SPACE | Command::BUS_MASTER | Command::INTERRUPT_DISABLE);
    println!("network: virtio on PCI {function}");
    PciTransport::new::<Machine, _>(&mut root, function).map_err(|error| {
        println!("network: {error}");
        "the network card cannot be initialised"
    })
}

const MMIO_OPTION: &str = "virtio_mmio.device=";
/// Addresses of devices: below is memory, and above 4 GiB nothing is mapped.
const MMIO_RANGE: Range<u64> = 0xC000_0000..0x1_0000_0000;
/// Device addresses of `microvm`: 24 of 512 bytes each.
const MICROVM_DEVICES: Range<u64> = 0xFEB0_0000..0xFEB0_3000;
const MMIO_SIZE: u64 = 512;

/// Returns the first network card on the command line.
pub(super) fn from_command_line(command_line: &str) -> Option<MmioTransport<'static>> {
    command_line.split_whitespace().filter_map(|word| word.strip_prefix(MMIO_OPTION)).find_map(|device| {
        let (size, rest) = device.split_once('@')?;
        let address = rest.split(':').next()?.strip_prefix("0x")?;
        let address = u64::from_str_radix(address, 16).ok()?;
        if size == "512" { open_mmio(address) } else { None }
    })
}

/// Returns the first network card at the addresses of `microvm`. Only for machines without a PCI bus: on
/// others these addresses may belong to other devices.
pub(super) fn probe_microvm() -> Option<MmioTransport<'static>> {
    MICROVM_DEVICES.step_by(MMIO_SIZE as usize).find_map(open_mmio)
}

/// Opens the network card with registers at this address, if there is one.
fn open_mmio(address: u64) -> Option<MmioTransport<'static>> {
    let end = address.checked_add(MMIO_SIZE)?;
    if !MMIO_RANGE.contains(&address) || end > MMIO_RANGE.end || !address.is_multiple_of(MMIO_SIZE) {
        return None;
    }
    let header = NonNull::new(address as *mut VirtIOHeader)?;
    // SAFETY: the address is in the range for devices, not memory; it is aligned and mapped. The driver
    // first reads the magic number and stops if it is not that of virtio.
    let transport = unsafe { MmioTransport::new(header, MMIO_SIZE as usize) }.ok()?;
    if transport.device_type() != DeviceType::Network {
        return None;
    }
    println!("network: virtio at {address:#x}");
    Some(transport)
}
