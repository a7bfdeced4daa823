//! Many packets as one, as the kernel has them: its TCP and UDP hand over and take segments in one piece, and one system call
//! moves what would be dozens.
//!
//! `header` is what stands in front of such a packet at a TUN interface, `cut` makes packets of it, and `join` makes it of packets.
//! docs/decisions/0033-offload.md has the reasons.

mod cut;
mod header;
mod join;
mod segment;
#[cfg(test)]
mod tests;

pub(crate) use cut::Cutter;
pub(crate) use header::{HEADER_LEN, VnetHeader};
pub(crate) use join::{Batch, Run, join};
