//! Configurations of strongSwan: swanctl.conf and the folders beside it.
//!
//! An existing file works as it is, or each of its lines that asks for what does not exist here is named, with the reason.
//! [`Config::load`] gives all of it or every error in it, so nothing is ever applied by halves. Syntax: strongswan.conf(5);
//! keys: swanctl.conf(5); what differs is in docs/manual/swanctl.md.
//!
//! Text becomes a tree of sections (`syntax`, `files`), of which `view` shows each section with what it inherits;
//! `schema` holds it to the keys that exist, and the readers of sections make the types of [`casemate_ike::config`].

mod address;
mod child;
mod connection;
mod files;
mod folder;
mod pool;
mod problem;
mod round;
mod scheduler;
mod schema;
mod secret;
mod signature;
mod syntax;
#[cfg(test)]
mod tests;
mod tree;
mod value;
mod view;

pub use files::{FilesAlone, Host, ThisHost};
pub use folder::Folders;
pub use pool::Authority;
pub use problem::{LoadError, Place, Problem};
pub use round::{OwnSignature, PeerConditions, Revocation};
pub use secret::{Passphrase, SharedKey};
pub use signature::SignatureRules;

use casemate_ike::config::{Connection, Pool};
use casemate_linux::Scheduling;
use connection::Context;
use files::Loader;
use schema::{Problems, unknown};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use tree::Tree;
use view::{Resolver, View};
use zeroize::Zeroizing;

/// Everything that a configuration says.
#[derive(Debug, Default)]
pub struct Config {
    /// With whom, and how; in the order of the file.
    pub connections: Vec<Connection>,
    /// What each connection signs with; in the same order.
    pub own_signatures: Vec<OwnSignature>,
    /// What each connection asks of its peers' certificates; in the same order.
    pub peer_conditions: Vec<PeerConditions>,
    /// Virtual addresses for peers.
    pub pools: Vec<Pool>,
    /// Pre-shared keys.
    pub shared_keys: Vec<SharedKey>,
    /// What opens private keys.
    pub passphrases: Vec<Passphrase>,
    /// Certification authorities beside those in the folder.
    pub authorities: Vec<Authority>,
    /// The order of packets before the crypto engine; `None` is as they come.
    pub scheduling: Option<Scheduling>,
    /// Files of certificates and keys.
    pub folders: Folders,
    /// The files of the configuration that have secrets in them.
    pub secret_files: BTreeSet<PathBuf>,
    /// What is odd but no error, in the order of files and lines.
    pub warnings: Vec<Problem>,
}

/// Sections around all others.
const OUTERMOST: [&str; 5] = ["connections", "secrets", "pools", "authorities", "scheduler"];

impl Config {
    /// Reads the file at `path`, what it includes, and what lies in the folders beside it.
    pub fn load(path: &Path) -> Result<Self, LoadError> {
        Self::load_on(path, &ThisHost)
    }

    /// The same for another machine.
    pub fn load_on(path: &Path, host: &dyn Host) -> Result<Self, LoadError> {
        let text = std::fs::read(path).map_err(|error| LoadError::Read(path.to_owned(), error))?;
        Self::parse(path, &Zeroizing::new(text), host).map_err(LoadError::Wrong)
    }

    /// Reads the text of the file at `path`; else gives every error in it and in the files it includes.
    pub fn parse(path: &Path, text: &[u8], host: &dyn Host) -> Result<Self, Vec<Problem>> {
        let (tree, problems) = Loader::read(path, text, host);
        if !problems.is_empty() {
            return Err(sorted(problems));
        }
        let problems = Problems::default();
        let resolver = Resolver::new(&tree);
        let mut config = Self::read(path, &tree, &resolver.root(), host, &problems);
        let (mut errors, warnings) = problems.into_inner();
        errors.append(&mut resolver.into_problems());
        if !errors.is_empty() {
            return Err(errors.into_iter().collect());
        }
        config.warnings = warnings.into_iter().collect();
        Ok(config)
    }

    fn read(path: &Path, tree: &Tree, root: &View<'_, '_>, host: &dyn Host, problems: &Problems) -> Self {
        let directory = path.parent().unwrap_or(Path::new(""));
        check_outermost(tree, root, problems);
        let mut config = Self::default();
        let sections = root.sections();
        let section = sections.iter().find(|section| section.name() == "scheduler");
        config.scheduling = section.and_then(|section| scheduler::read(section, problems));
        for section in inside(root, "pools") {
            config.pools.extend(pool::read(&section, problems));
        }
        // Names of the broken ones too: they are wrong only once.
        let pools: Vec<String> = inside(root, "pools").iter().map(|pool| pool.name().to_owned()).collect();
        let packets_overtake = config.scheduling.is_some();
        let context = Context { host, directory, pools: &pools, packets_overtake, problems };
        for section in inside(root, "connections") {
            let read = connection::read(&section, &context);
            config.connections.push(read.connection);
            config.own_signatures.push(read.own);
            config.peer_conditions.push(read.conditions);
        }
        for section in inside(root, "authorities") {
            config.authorities.extend(pool::authority(&section, directory, problems));
        }
        for section in root.sections().iter().filter(|section| section.name() == "secrets") {
            (config.shared_keys, config.passphrases) = secret::read(section, directory, problems);
            config.secret_files = secret::files(section);
        }
        if let Some(start) = root.place() {
            config.folders = Folders::list(directory, host, start, problems);
        }
        config
    }
}

/// The sections inside of an outermost one.
fn inside<'r, 't>(root: &View<'r, 't>, name: &str) -> Vec<View<'r, 't>> {
    root.sections()
        .into_iter()
        .filter(|section| section.name() == name)
        .flat_map(|section| section.sections())
        .collect()
}

/// Outside there are five sections, others that lend to them, and no keys.
fn check_outermost(tree: &Tree, root: &View<'_, '_>, problems: &Problems) {
    let templates = tree.templates();
    let wrong = |place: &Place, name: &str, why: &str| {
        problems.wrong(place, format!("{name}: {why}"));
    };
    for (name, value) in root.keys() {
        wrong(
            &value.place,
            name,
            "a key outside of all sections; one of the sections was expected around it",
        );
    }
    for section in root.sections() {
        let name = section.name();
        let is_known = OUTERMOST.contains(&name);
        if let (false, Some(place)) = (is_known || templates.contains(name), section.place()) {
            wrong(
                place,
                name,
                &format!("{}, and no section inherits from it", unknown("section", name, &OUTERMOST)),
            );
        }
        if !matches!(name, "connections" | "pools" | "authorities") {
            continue;
        }
        for (key, value) in section.keys() {
            let text = "a section with a name of your choice was expected, not a key";
            wrong(&value.place, &section.path_of(key), text);
        }
    }
}

fn sorted(mut problems: Vec<Problem>) -> Vec<Problem> {
    problems.sort();
    problems
}
