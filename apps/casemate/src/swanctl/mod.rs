//! strongSwan configurations: swanctl.conf and the folders beside it.
//!
//! An existing file works unchanged, or every line that asks for an unsupported feature is named with the
//! reason. [`Config::load`] returns either the whole configuration or all errors in it, so a
//! configuration is never applied in part. Syntax: strongswan.conf(5); keys: swanctl.conf(5);
//! docs/manual/swanctl.md lists the differences.
//!
//! `syntax` and `files` parse the text into a tree of sections, `resolved` adds what each section
//! inherits, `schema` checks the keys, and one module for each kind of section makes the types of
//! [`casemate_ike::config`].

mod address;
mod auth_round;
mod cell;
mod charon;
mod child;
mod connection;
mod credential_rules;
mod etcd;
mod files;
mod lifetime;
mod pool;
mod pool_warnings;
mod ppk;
mod problem;
mod radius;
mod resolved;
mod rohc;
mod rounds;
mod scheduler;
mod schema;
mod secret;
mod sections;
mod selector_warnings;
mod signature;
mod suggestion;
mod syntax;
#[cfg(test)]
mod tests;
mod token;
mod tree;
mod tunnel;
mod updown;
mod value;

pub(crate) use address::{gateway, is_host, look_up};
pub use cell::{CellAddress, CellConfig, MAX_CELL_ADDRESSES};
pub use charon::{Charon, Fetching};
pub use credential_rules::{OwnSignature, PeerConditions, Revocation};
pub use etcd::{EtcdServers, LoginFile, TlsFiles};
pub use files::{Environment, FilesRead, Folders, RecordingEnvironment, SystemEnvironment};
pub use pool::Authority;
use problem::Problems;
pub use problem::{ConfigError, Location, NamedFiles, Problem};
pub use radius::{Accounting, DynamicAuthorization, GroupSources, RadiusConfig};
pub use secret::{KeyPurpose, OperatorKey, Passphrase, SharedKey, Usim};
pub use sections::{SectionHandle, Sections};
pub use signature::SignatureRules;
pub use updown::{ScriptTable, UpdownScript, UpdownScripts};

use casemate_ike::config::{Connection, EapIdentity, Pool, RemoteMethod};
use casemate_linux::dns::DnsMode;
use casemate_linux::{Performance, Scheduling, TunnelSpec};
use connection::Context;
use files::TreeLoader;
pub(crate) use ppk::ppk_ids;
use resolved::{Resolved, Resolver};
use schema::{Keys, Rule, Schema};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use suggestion::unknown;
pub use token::{ModuleConfig, TokenModules, TokenReference, TokenSecret};
use tree::Tree;
pub use tunnel::InterfaceRequest;
pub(crate) use tunnel::{TUN_MTU, mark_of, unique_interface};
pub(crate) use value::base64;
use value::truth;

/// What the rest of a configuration defines, when a part of it is read.
#[derive(Debug, Clone, Copy)]
pub struct Known<'k> {
    /// Names of pools.
    pub pools: &'k [String],
    /// Whether there is a scheduler.
    pub has_scheduler: bool,
    /// Whether AAA servers name groups of peers.
    pub has_groups: bool,
    /// Whether the part contains all secrets.
    pub has_all_secrets: bool,
}

/// A whole configuration.
#[derive(Debug, Clone, Default)]
pub struct Config {
    /// Connections, in the order of the file.
    pub connections: Vec<Arc<Connection>>,
    /// Signatures that each connection makes, in each round of this host.
    pub own_signatures: Vec<OwnSignature>,
    /// Requirements of each connection on the certificates of its peers, in each round of the peer.
    pub peer_conditions: Vec<PeerConditions>,
    /// Scripts of the children of each connection, in the same order.
    pub scripts: Vec<UpdownScripts>,
    /// What each connection says about interfaces of tunnels, in the same order.
    pub interface_requests: Vec<Vec<InterfaceRequest>>,
    /// Pools of virtual addresses for peers.
    pub pools: Vec<Pool>,
    /// Pre-shared keys and passwords.
    pub shared_keys: Vec<SharedKey>,
    /// Passphrases of encrypted private keys.
    pub passphrases: Vec<Passphrase>,
    /// Private keys on tokens.
    pub tokens: Vec<TokenSecret>,
    /// Modules for tokens.
    pub token_modules: TokenModules,
    /// Certification authorities besides those in the folder `x509ca`.
    pub authorities: Vec<Authority>,
    /// The scheduler of outbound packets; `None` sends them in order of arrival.
    pub scheduling: Option<Scheduling>,
    /// Settings of IKE for all connections.
    pub charon: Charon,
    /// AAA servers, if there are any.
    pub radius: Option<RadiusConfig>,
    /// Ways to move packets.
    pub performance: Performance,
    /// How name servers of tunnels are used.
    pub name_servers: DnsMode,
    /// The cell of this gateway, if it is a node of one.
    pub cell: Option<CellConfig>,
    /// Files with certificates and keys.
    pub folders: Folders,
    /// Whether the private keys of certificates that connections name may be missing, because they are
    /// loaded later.
    pub allows_missing_keys: bool,
    /// Configuration files that contain secrets.
    pub secret_files: BTreeSet<PathBuf>,
    /// Files with certificates and keys that lines of the configuration name.
    pub named_files: NamedFiles,
    /// Warnings, in the order of files and lines.
    pub warnings: Vec<Problem>,
}

/// The top-level sections.
const TOP_LEVEL_SECTIONS: [&str; 8] =
    ["connections", "secrets", "pools", "authorities", "charon", "scheduler", "performance", "cell"];

/// The section `performance`: ways to move packets that can be switched off. strongSwan does not know it.
const PERFORMANCE: Schema =
    Schema { keys: &[("batch_padding", Rule::Read), ("link_sending", Rule::Read)], sections: &[] };

impl Config {
    /// The interfaces of all route-based tunnels. An error if children contradict each other.
    pub(crate) fn interfaces(&self) -> Result<Vec<TunnelSpec>, String> {
        let children = self.connections.iter().flat_map(|connection| &connection.children);
        let requests = self.interface_requests.iter().flatten().cloned();
        tunnel::interfaces(children.map(|child| child.spds), requests)
    }

    /// Whether AAA servers name groups of peers.
    pub(crate) fn names_groups(&self) -> bool {
        self.radius.as_ref().is_some_and(|radius| radius.groups.is_any())
    }

    /// Reads the file at `path`, the files that it includes, and the folders beside it.
    pub fn load(path: &Path, environment: &dyn Environment) -> Result<Self, ConfigError> {
        let text = environment.read(path).map_err(|error| ConfigError::Read(path.to_owned(), error))?;
        Self::parse(path, &text, environment).map_err(ConfigError::Invalid)
    }

    /// Parses `text`, the content of the file at `path`. The error lists every problem in it and in the
    /// files that it includes.
    pub fn parse(path: &Path, text: &[u8], environment: &dyn Environment) -> Result<Self, Vec<Problem>> {
        let (tree, problems) = TreeLoader::read(path, text, environment);
        if !problems.is_empty() {
            return Err(sorted(problems));
        }
        let problems = Problems::default();
        let resolver = Resolver::new(&tree);
        let mut config = Self::read(path, &tree, &resolver.root(), environment, &problems);
        let mut errors = problems.take_errors();
        errors.append(&mut resolver.into_problems());
        if !errors.is_empty() {
            return Err(errors.into_iter().collect());
        }
        config.named_files = problems.take_files();
        config.warnings = problems.take_warnings().into_iter().collect();
        Ok(config)
    }

    fn read(
        path: &Path,
        tree: &Tree,
        root: &Resolved<'_, '_>,
        environment: &dyn Environment,
        problems: &Problems,
    ) -> Self {
        let directory = path.parent().unwrap_or(Path::new(""));
        let known = Known { pools: &[], has_scheduler: false, has_groups: false, has_all_secrets: true };
        let mut config = Self::read_sections(directory, tree, root, &known, problems);
        if let Some(start) = root.location() {
            config.folders = Folders::list(directory, environment, start, problems);
        }
        config
    }

    /// Reads everything but the folders beside the file. `known` is what other parts of the configuration
    /// define.
    fn read_sections(
        directory: &Path,
        tree: &Tree,
        root: &Resolved<'_, '_>,
        known: &Known<'_>,
        problems: &Problems,
    ) -> Self {
        check_top_level(tree, root, problems);
        let mut config = Self::default();
        let sections = root.sections();
        let named = |name: &str| sections.iter().find(|section| section.name() == name);
        config.scheduling = named("scheduler").and_then(|section| scheduler::read(section, problems));
        config.charon = named("charon").map(|section| charon::read(section, problems)).unwrap_or_default();
        for plugins in named("charon").iter().flat_map(|section| section.sections()) {
            config.radius = radius::read(&plugins, problems);
            config.secret_files = radius::secret_files(&plugins);
            config.name_servers = charon::name_servers(&plugins, problems);
            config.charon.fetching = charon::fetching(&plugins, problems);
            config.token_modules = token::modules(&plugins, problems);
        }
        config.performance =
            named("performance").map(|section| read_performance(section, problems)).unwrap_or_default();
        config.cell = named("cell").and_then(|section| cell::read(section, directory, problems));
        for section in subsections(root, "pools") {
            let pool = pool::read(&section, problems);
            pool.iter().for_each(|pool| pool_warnings::overlaps(pool, &config.pools, &section, problems));
            config.pools.extend(pool);
        }
        let mut places = Vec::new();
        for section in root.sections().iter().filter(|section| section.name() == "secrets") {
            let secrets = secret::read(section, directory, problems);
            (config.shared_keys, config.passphrases) = (secrets.shared_keys, secrets.passphrases);
            (config.tokens, places) = (secrets.tokens, secrets.places);
            config.secret_files.extend(secret::files(section));
        }
        // Includes pools with errors, so that a reference to one is not reported as a second error.
        let own = subsections(root, "pools").iter().map(|pool| pool.name().to_owned()).collect::<Vec<_>>();
        let pools: Vec<String> = own.into_iter().chain(known.pools.iter().cloned()).collect();
        let has_scheduler = config.scheduling.is_some() || known.has_scheduler;
        let has_groups = config.names_groups() || known.has_groups;
        let own_pools = &config.pools;
        let secrets = known.has_all_secrets.then_some(&*config.shared_keys);
        let context =
            Context { directory, pools: &pools, own_pools, has_scheduler, has_groups, secrets, problems };
        for section in subsections(root, "connections") {
            let read = connection::read(&section, &context);
            config.connections.push(Arc::new(read.connection));
            config.own_signatures.extend(read.own);
            config.peer_conditions.extend(read.conditions);
            config.scripts.push(read.scripts);
            config.interface_requests.push(read.interfaces);
        }
        warn_of_unnamed_passwords(&config, &places, problems);
        for section in subsections(root, "authorities") {
            config.authorities.extend(pool::authority(&section, directory, problems));
        }
        config
    }
}

/// Warns of passwords without `id`, where there are several users. `places` are the names and locations of
/// the sections of `config.shared_keys`.
fn warn_of_unnamed_passwords(config: &Config, places: &[(String, Location)], problems: &Problems) {
    let passwords =
        || config.shared_keys.iter().zip(places).filter(|(key, _)| key.purpose == KeyPurpose::Eap);
    let has_users =
        config.connections.iter().any(asks_for_users) || passwords().any(|(key, _)| !key.ids.is_empty());
    for (_, (name, location)) in passwords().filter(|(key, _)| has_users && key.ids.is_empty()) {
        let why = "without `id`, it is the password of every user name that no other section has: `id` with \
                   a user name was expected";
        problems.warn(location, format!("{name}: {why}"));
    }
}

/// Whether a round of the connection asks each peer for its user name, and verifies the password here.
fn asks_for_users(connection: &Arc<Connection>) -> bool {
    let remotes = std::iter::once(&connection.remote).chain(&connection.further_rounds.remote);
    remotes.map(|remote| &remote.method).any(|method| match method {
        RemoteMethod::Eap(eap) => eap.identity == EapIdentity::Asked && !eap.is_relayed(),
        _ => false,
    })
}

fn read_performance(resolved: &Resolved<'_, '_>, problems: &Problems) -> Performance {
    let keys = Keys::new(resolved, &PERFORMANCE, problems);
    let default = Performance::default();
    Performance {
        batch_padding: keys.get("batch_padding", percent).unwrap_or(default.batch_padding),
        link_sending: keys.get("link_sending", truth).unwrap_or(default.link_sending),
    }
}

/// Reads a percentage from 0 to 100. `no` is 0.
fn percent(text: &str) -> Result<u8, String> {
    let number = if text == "no" { Some(0) } else { text.parse().ok() };
    number.filter(|number| *number <= 100).ok_or_else(|| "`no` or a number from 0 to 100 was expected".into())
}

/// The sections inside the top-level section `name`.
fn subsections<'r, 't>(root: &Resolved<'r, 't>, name: &str) -> Vec<Resolved<'r, 't>> {
    root.sections()
        .into_iter()
        .filter(|section| section.name() == name)
        .flat_map(|section| section.sections())
        .collect()
}

/// Checks the top level, which holds the eight known sections, templates that other sections inherit from,
/// and no keys.
fn check_top_level(tree: &Tree, root: &Resolved<'_, '_>, problems: &Problems) {
    let templates = tree.templates();
    let wrong = |location: &Location, name: &str, why: &str| {
        problems.error(location, format!("{name}: {why}"));
    };
    for (name, value) in root.keys() {
        wrong(&value.location, name, "the key is outside of all sections: a section around it was expected");
    }
    for section in root.sections() {
        let name = section.name();
        let is_known = TOP_LEVEL_SECTIONS.contains(&name);
        if let (false, Some(location)) = (is_known || templates.contains(name), section.location()) {
            wrong(
                location,
                name,
                &format!(
                    "no section inherits from it, and it is {}",
                    unknown("section", name, &TOP_LEVEL_SECTIONS)
                ),
            );
        }
        if !matches!(name, "connections" | "pools" | "authorities") {
            continue;
        }
        for (key, value) in section.keys() {
            let text = "a section with a name of your choice was expected, not a key";
            wrong(&value.location, &section.path_of(key), text);
        }
    }
}

fn sorted(mut problems: Vec<Problem>) -> Vec<Problem> {
    problems.sort();
    problems
}
