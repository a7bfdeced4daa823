//! The network card: virtio-net, found on the PCI bus (QEMU's `pc` and `q35`) or where the command line says (`microvm`).

mod hal;
mod mmio;
mod nic;
mod pci;

pub(crate) use nic::Nic;

use crate::Trouble;
use virtio_drivers::transport::SomeTransport;

/// Finds the first network card, and starts it.
pub(crate) fn open(command_line: &str) -> Result<Nic, Trouble> {
    let transport: SomeTransport<'static> = match mmio::find(command_line) {
        Some(transport) => transport.into(),
        None => pci::find()?.ok_or("there is no virtio network card")?.into(),
    };
    Nic::new(transport)
}
