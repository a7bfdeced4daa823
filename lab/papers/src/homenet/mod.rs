//! Experiment `homenet`: cost of IPsec settings on small devices (Migault and others, 2015).
//!
//! A file is downloaded between two hosts. Elapsed time and CPU time are compared for modes of AES and packet
//! sizes, with and without AES instructions, on one core and several, and with NULL encryption, tunnel mode,
//! UDP encapsulation, frequency governors and TLS.

mod cores;
mod governor;
mod modes;
mod openssl;
mod overhead;
mod scenario;
mod small_file;
mod sweep;
mod testbed;
mod tls;

use crate::{Experiment, Requirement, Step};
use casemate_measure::report::Paper;

/// The experiment.
pub static HOMENET: Experiment = Experiment {
    name: "homenet",
    paper,
    summary: "A file is downloaded over TCP between two hosts, each with a Casemate gateway and manual \
         keys. Elapsed time and CPU time are compared: four modes of AES and ChaCha20-Poly1305 against \
         packet size, with and without AES instructions, one thread against several, no encryption, \
         tunnel and transport mode, UDP encapsulation, frequency governors, and TLS instead of IPsec, also \
         for small files. The hosts are network namespaces joined by a veth pair.",
    short_form_limits: &[
        "The short form has three MTUs, and two for cores, tunnels and TLS: at which size one mode overtakes \
         another is not determined.",
        "Differences of less than a tenth are usually not decided: each download lasts a part of a second.",
    ],
    artifacts: &[],
    steps: &[
        Step {
            title: "modes of AES against packet sizes, with and without AES instructions",
            requirements: GATEWAYS,
            share: 14,
            run: modes::run,
        },
        Step { title: "one core and several", requirements: GATEWAYS, share: 5, run: cores::run },
        Step {
            title: "NULL, tunnel mode and UDP encapsulation",
            requirements: GATEWAYS,
            share: 9,
            run: overhead::run,
        },
        Step {
            title: "frequency governors",
            requirements: &[Requirement::Namespaces, Requirement::Tun, Requirement::Governor],
            share: 1,
            run: governor::run,
        },
        Step {
            title: "TLS against IPsec",
            requirements: &[
                Requirement::Namespaces,
                Requirement::Tun,
                Requirement::Program("openssl", "openssl"),
            ],
            share: 10,
            run: tls::run,
        },
    ],
};

const GATEWAYS: &[Requirement] = &[Requirement::Namespaces, Requirement::Tun];

fn paper() -> Paper {
    Paper {
        authors: "D. Migault, T. Guggemos, D. Palomares, A. Wailly, M. Laurent, J. P. Wary".into(),
        title: "Recommendations for IPsec Configuration on Homenet and M2M devices".into(),
        venue: "ACM Q2SWinet".into(),
        year: 2015,
    }
}
