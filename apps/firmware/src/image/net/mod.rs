//! The network card: virtio-net on the PCI bus (QEMU's `pc` and `q35`) or without a bus (`microvm`).

mod nic;
mod ring;
mod virtio;

pub(crate) use nic::Nic;

use crate::BootError;
use virtio_drivers::transport::SomeTransport;

const NO_CARD: BootError = "there is no virtio network card";

/// Finds and initialises the first network card.
pub(crate) fn open(command_line: &str) -> Result<Nic, BootError> {
    let transport: SomeTransport<'static> = match virtio::from_command_line(command_line) {
        Some(transport) => transport.into(),
        None if virtio::has_pci() => virtio::find_on_pci()?.into(),
        None => virtio::probe_microvm().ok_or(NO_CARD)?.into(),
    };
    Nic::new(transport)
}
