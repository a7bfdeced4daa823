//! lwIP as a peer: the example of adapters/lwip, which takes a connection as a line of its configuration and says little of its
//! SAs.

use crate::conf::Conf;
use crate::peer::{IkeSa, Peer, Target};
use crate::pki::Pki;
use crate::place::OnTap;
use crate::plan::{CHILD, CONNECTION, SidePlan};
use casemate_interop::{Error, Result};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// IKE in lwIP, and its files.
pub(crate) struct InLwip {
    place: Rc<OnTap>,
    pki: Arc<Pki>,
    directory: PathBuf,
    begins: bool,
}

impl InLwip {
    /// In the program at `place`, with all files in `directory`. If it `begins`, it does so as soon as it has its connection.
    pub(crate) fn new(place: Rc<OnTap>, pki: Arc<Pki>, (directory, begins): (PathBuf, bool)) -> Self {
        Self { place, pki, directory, begins }
    }

    /// Gives an order that has to succeed.
    fn demand(&self, order: &str) -> Result<()> {
        let said = self.place.order(order)?;
        if said.status == 0 { Ok(()) } else { Err(Error::new(format!("{order}: {}", said.stdout))) }
    }
}

/// The connection as a line of the example's configuration: the parts of `swanctl.conf` that it knows.
fn connection(conf: &Conf, directory: &Path, begins: bool) -> String {
    let of = |path: &str| conf.get(&format!("connections.{CONNECTION}.{path}"));
    let child = |path: &str| of(&format!("children.{CHILD}.{path}"));
    let file = |folder: &str, name: &str| directory.join(folder).join(name).display().to_string();
    let (certificate, public) = (of("local.certs"), of("local.pubkeys"));
    let proof = match (certificate, public) {
        ("", "") => format!("psk secret {}", conf.get("secrets.ike-t.secret").trim_matches('"')),
        ("", own) => {
            let peer = file("pubkey", of("remote.pubkeys"));
            format!("raw key {} peer-key {peer}", file("private", own))
        }
        (own, _) => {
            let (key, certs) = (file("private", own), file("x509", own));
            format!("cert key {key} certs {certs} cas {}", file("x509ca", AUTHORITY))
        }
    };
    let start = if begins { "now traffic" } else { "" };
    format!(
        "ike {CONNECTION} local {} remote {} local-id {} remote-id {} proposals {} {proof} {} esp {} {start}",
        of("local_addrs"),
        of("remote_addrs"),
        of("local.id"),
        of("remote.id"),
        of("proposals"),
        child("mode"),
        child("esp_proposals"),
    )
}

/// The one that the certificates of its cases lead to.
const AUTHORITY: &str = "ca-ecdsa.pem";

fn mute<T>() -> Result<T> {
    Err(Error::new("lwIP is not asked for that"))
}

impl Peer for InLwip {
    fn start(&mut self, plan: &SidePlan) -> Result<()> {
        plan.write(&self.directory, &self.pki)?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_err(Error::in_front("clock"))?;
        self.demand(&format!("clock {}", now.as_secs()))?;
        self.demand(&connection(&plan.conf, &self.directory, self.begins))
    }

    fn reload(&mut self, _: &SidePlan) -> Result<()> {
        mute()
    }

    fn initiate(&mut self, _: Target<'_>) -> Result<()> {
        mute()
    }

    fn terminate(&mut self, _: Target<'_>) -> Result<()> {
        mute()
    }

    fn rekey(&mut self, _: Target<'_>) -> Result<()> {
        mute()
    }

    fn status(&self) -> Result<Vec<IkeSa>> {
        mute()
    }

    fn dns(&self) -> Result<Vec<IpAddr>> {
        mute()
    }

    fn patience(&self) -> Duration {
        // The delay itself, and 1, 2, 4, 8, 16, 32 and 60 seconds between repetitions.
        Duration::from_secs(160)
    }

    fn cookie_threshold(&self) -> usize {
        // `Settings::DEVICE`.
        2
    }

    fn keys(&self) -> Result<PathBuf> {
        mute()
    }

    fn log(&self) -> String {
        let told = self.place.log();
        let orders = ["events", "counts", "faults", "drops"];
        let said = orders.map(|order| match self.place.order(order) {
            Ok(said) => format!("{order}: {}\n", said.stdout),
            Err(error) => format!("{order}: {error}\n"),
        });
        told + &said.concat()
    }

    fn stop(&mut self) -> Result<()> {
        // It ends with the router. Until then it has to obey, so no sanitizer has ended it.
        self.demand("drops")
    }
}
