//! `embedded`: what IPsec costs a small TCP/IP stack that is a part of an application (Hamad and Prevelakis, lwIP on Genode).
//!
//! A device speaks with a host whose stack is the kernel's. The device is a program with an application and smoltcp in it, the program of
//! adapters/lwip with lwIP, or an application over `casemate stack`. The host protects with this program's gateway. The paper's own device, a Raspberry Pi, is emulated, and its instructions are counted.

pub mod device;
mod figures;
mod findings;
mod flow;
mod ground;
mod handshake;
mod lwip;
mod negotiation;
mod order;
mod pi;
mod protection;
mod server;
mod sweep;

use crate::{Experiment, Need, Step};
use casemate_report::Paper;

/// The experiment.
pub static EMBEDDED: Experiment = Experiment {
    name: "embedded",
    paper: about,
    summary: "A device whose TCP/IP stack is a library of its application asks and answers, sends and receives, against the size of messages: \
              without IPsec, with IPsec compiled in and unused, with the paper's AH and ESP, and with today's. The device's stack is smoltcp, \
              and lwIP where the program with it is installed; the other end is the kernel's stack, with this program's gateway. Then the \
              paper's device, emulated, in instructions; one \
              stack server for all applications, and what IKE adds.",
    steps: &[
        Step { title: "figures 5 to 8 with smoltcp", needs: DEVICES, share: 8, run: figures::with_smoltcp },
        Step { title: "figures 5 to 8 with lwIP", needs: DEVICES, share: 8, run: figures::with_lwip },
        Step {
            title: "figures 5 to 8 on an emulated Raspberry Pi",
            needs: pi::NEEDS,
            share: 3,
            run: pi::run,
        },
        Step { title: "one stack server for applications", needs: DEVICES, share: 4, run: server::run },
        Step { title: "IKE", needs: DEVICES, share: 3, run: handshake::run },
    ],
};

const DEVICES: &[Need] = &[Need::Namespaces, Need::Tun];

fn about() -> Paper {
    Paper {
        authors: "M. Hamad, V. Prevelakis".into(),
        title: "Implementation and Performance Evaluation of Embedded IPsec in Microkernel OS".into(),
        venue: "World Symposium on Computer Networks and Information Security".into(),
        year: 2015,
    }
}
