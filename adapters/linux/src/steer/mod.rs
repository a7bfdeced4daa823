//! Lets the kernel sort packets into the queues of a TUN interface: one queue for each class.
//!
//! When we cannot keep up, it is the kernel that drops, and what it drops costs nothing; but a queue that all packets share loses voice
//! with the rest. So a program in the kernel asks the questions of a [`Classifier`] of each packet and answers with the queue of its
//! class. It is eBPF, assembled here (`assembler`, `program`), and no compiler and no file is needed. What it cannot see is mended
//! when the packet is read, for there the classifier looks once more. docs/decisions/0034-gateway-scheduler.md has the reasons.

mod assembler;
mod program;
#[cfg(test)]
mod tests;

pub(crate) use assembler::Instruction;

use crate::sys;
use casemate_sched::Classifier;
use std::io;
use std::os::fd::OwnedFd;

/// Loads the program of a classifier. Its answer is the [index](casemate_sched::Class::index) of a packet's class.
///
/// Fails where the process may not load programs (CAP_BPF), and if the classifier has thousands of rules, more than a program can hold.
pub(crate) fn load(classifier: &Classifier) -> io::Result<OwnedFd> {
    let program = program::of(classifier).ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidInput, "too many rules for a program of the kernel")
    })?;
    sys::bpf_load(&program)
}
