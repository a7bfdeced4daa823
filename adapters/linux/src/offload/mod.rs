//! Segmentation offload at the TUN interface: the kernel hands over and takes many TCP segments or UDP
//! datagrams as one packet, so one system call moves what would otherwise take dozens.
//!
//! `vnet_header` is the header in front of each packet at a TUN interface, `split` makes packets of a large
//! packet, `coalesce` makes a large packet of packets. docs/decisions/0033-offload.md has the reasons.

mod coalesce;
mod layout;
mod split;
#[cfg(test)]
mod tests;
mod vnet_header;

pub(crate) use coalesce::{GroBatch, PacketList, coalesce};
pub(crate) use split::SegmentSplitter;
pub(crate) use vnet_header::{HEADER_LEN, VnetHeader};
