//! Experiment `embedded`: cost of IPsec in a small TCP/IP stack that is part of an application (Hamad and
//! Prevelakis, lwIP on Genode).
//!
//! A device communicates with a host that uses the stack of the kernel. The device is an application with
//! smoltcp, the program of adapters/lwip with lwIP, or an application over `casemate stack`. The host uses a
//! Casemate gateway. The device of the paper, a Raspberry Pi, is emulated, and its instructions are counted.

pub mod device;
mod figures;
mod findings;
mod flow;
mod handshake;
mod losses;
mod pi;
mod placements;
mod protection;
mod stack_server;
mod sweep;
mod testbed;

use crate::{Artifact, Experiment, Requirement, Step};
use casemate_measure::report::Paper;

/// The experiment.
pub static EMBEDDED: Experiment = Experiment {
    name: "embedded",
    paper: about,
    summary: "A device whose TCP/IP stack is a library of its application exchanges requests and streams \
         with a host, for different message sizes: without IPsec, with IPsec compiled in but unused, with \
         the paper's AH and ESP, and with modern suites. The stack of the device is smoltcp or lwIP; \
         the host uses the kernel's stack and a Casemate gateway. Further \
         parts: the emulated device of the paper, measured in instructions; one stack server for all \
         applications; a link that loses packets; and the overhead of IKE.",
    short_form_limits: &[
        "The short form has five of the eight rows and four sizes of messages. It compares neither AES-CBC nor \
         ChaCha20-Poly1305 with the paper's algorithms.",
        "The short form transfers nothing while keys are renewed, loses no packets, and does not compare the \
         placements of IPsec in lwIP.",
    ],
    artifacts: &[Artifact::Lwip, Artifact::Pi],
    steps: &[
        Step {
            title: "figures 5 to 8 with smoltcp",
            requirements: DEVICES,
            share: 8,
            run: figures::with_smoltcp,
        },
        Step { title: "figures 5 to 8 with lwIP", requirements: LWIP, share: 8, run: figures::with_lwip },
        Step {
            title: "figures 5 to 8 on an emulated Raspberry Pi",
            requirements: pi::NEEDS,
            share: 3,
            run: pi::run,
        },
        Step { title: "placements in lwIP", requirements: LWIP, share: 3, run: placements::run },
        Step {
            title: "one stack server for applications",
            requirements: DEVICES,
            share: 4,
            run: stack_server::run,
        },
        Step { title: "lost packets", requirements: DEVICES, share: 6, run: losses::run },
        Step { title: "IKE", requirements: DEVICES, share: 3, run: handshake::run },
    ],
};

const DEVICES: &[Requirement] = &[Requirement::Namespaces, Requirement::Tun];
const LWIP: &[Requirement] =
    &[Requirement::Namespaces, Requirement::Tun, Requirement::Artifact(Artifact::Lwip)];

fn about() -> Paper {
    Paper {
        authors: "M. Hamad, V. Prevelakis".into(),
        title: "Implementation and Performance Evaluation of Embedded IPsec in Microkernel OS".into(),
        venue: "World Symposium on Computer Networks and Information Security".into(),
        year: 2015,
    }
}
