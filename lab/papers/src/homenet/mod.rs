//! `homenet`: which settings of IPsec cost what on small devices (Migault and others, 2015).
//!
//! A file is downloaded between two hosts, and elapsed time and CPU time are compared: modes of AES against packet sizes, with and without
//! instructions for AES, on one core and several, and what NULL, tunnels, UDP and the processor's frequency make of it.

mod cores;
mod governor;
mod ground;
mod modes;
mod overhead;
mod plot;
mod setting;
mod sweep;

use crate::{Experiment, Need, Step};
use casemate_report::Paper;

/// The experiment.
pub static HOMENET: Experiment = Experiment {
    name: "homenet",
    paper,
    summary: "A file is downloaded over TCP from one host to another, each with this program's gateway and manual keys. Elapsed time and CPU \
              time are compared: four modes of AES and ChaCha20-Poly1305 against the size of packets, with and without the processor's \
              instructions for AES, one thread against several, no encryption, tunnel and transport mode, UDP encapsulation, and the \
              processor's frequency. Hosts are network namespaces with a virtual cable between them.",
    steps: &[
        Step {
            title: "modes of AES against packet sizes, with and without AES instructions",
            needs: GATEWAYS,
            share: 9,
            run: modes::run,
        },
        Step { title: "one core and several", needs: GATEWAYS, share: 3, run: cores::run },
        Step {
            title: "NULL, tunnel mode and UDP encapsulation",
            needs: GATEWAYS,
            share: 7,
            run: overhead::run,
        },
        Step {
            title: "frequency governors",
            needs: &[Need::Namespaces, Need::Tun, Need::Governor],
            share: 1,
            run: governor::run,
        },
    ],
};

const GATEWAYS: &[Need] = &[Need::Namespaces, Need::Tun];

fn paper() -> Paper {
    Paper {
        authors: "D. Migault, T. Guggemos, D. Palomares, A. Wailly, M. Laurent, J. P. Wary".into(),
        title: "Recommendations for IPsec Configuration on Homenet and M2M devices".into(),
        venue: "ACM Q2SWinet".into(),
        year: 2015,
    }
}
