//! The network card: virtio-net, found on the PCI bus (QEMU's `pc` and `q35`) or without a bus (`microvm`).

mod hal;
mod mmio;
mod nic;
mod pci;
mod ring;

pub(crate) use nic::Nic;

use crate::Trouble;
use virtio_drivers::transport::SomeTransport;

const NO_CARD: Trouble = "there is no virtio network card";

/// Finds the first network card, and starts it.
pub(crate) fn open(command_line: &str) -> Result<Nic, Trouble> {
    let transport: SomeTransport<'static> = match mmio::named(command_line) {
        Some(transport) => transport.into(),
        None if pci::is_there() => pci::find()?.into(),
        None => mmio::probed().ok_or(NO_CARD)?.into(),
    };
    Nic::new(transport)
}
