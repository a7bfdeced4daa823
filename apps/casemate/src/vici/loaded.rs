//! The part of the configuration that clients have loaded: connections, pools, authorities, shared keys,
//! certificates and private keys, each with a name.
//!
//! This part and the file make one configuration ([`Loaded::merge`]): a loaded section replaces the section
//! of the same name in the file, and an unloaded one is missing until the file is read again. Certificates
//! and keys have paths like files ([`object_path`]), so that everything that reads files reads them, too.

use super::message::Bytes;
use crate::swanctl::{Authority, Config, Environment, SharedKey, TokenSecret};
use casemate_ike::config::Pool;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use zeroize::Zeroizing;

/// Directory of the paths of loaded certificates and keys. No file is there.
const OBJECTS: &str = "/vici";

/// Path of a loaded certificate or key with this identifier.
pub(super) fn object_path(id: &str) -> PathBuf {
    Path::new(OBJECTS).join(id)
}

/// Certificates and keys by path.
pub(crate) type Objects = BTreeMap<PathBuf, Arc<Bytes>>;

/// Named items in the order of loading. Loading an item again keeps its place.
#[derive(Debug, Clone)]
pub(super) struct Ordered<T> {
    items: BTreeMap<u64, (Arc<str>, T)>,
    places: HashMap<Arc<str>, u64>,
    next: u64,
}

impl<T> Default for Ordered<T> {
    fn default() -> Self {
        Self { items: BTreeMap::new(), places: HashMap::new(), next: 0 }
    }
}

impl<T> Ordered<T> {
    pub(super) fn insert(&mut self, name: &str, item: T) {
        let name: Arc<str> = Arc::from(name);
        let next = self.next;
        let place = *self.places.entry(name.clone()).or_insert(next);
        if place == next {
            self.next = self.next.saturating_add(1);
        }
        self.items.insert(place, (name, item));
    }

    pub(super) fn remove(&mut self, name: &str) -> bool {
        self.places.remove(name).is_some_and(|place| self.items.remove(&place).is_some())
    }

    pub(super) fn contains(&self, name: &str) -> bool {
        self.places.contains_key(name)
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.items.values().map(|(name, _)| &**name)
    }

    fn values(&self) -> impl Iterator<Item = &T> {
        self.items.values().map(|(_, item)| item)
    }

    pub(super) fn clear(&mut self) {
        (self.items, self.places) = Default::default();
    }
}

/// Sections of one kind: those that were loaded, and those of the file that were unloaded.
#[derive(Debug, Clone)]
pub(super) struct Layer<T> {
    pub(super) loaded: Ordered<T>,
    hidden: BTreeSet<String>,
}

impl<T> Default for Layer<T> {
    fn default() -> Self {
        Self { loaded: Ordered::default(), hidden: BTreeSet::new() }
    }
}

impl<T> Layer<T> {
    /// Removes a section. Returns whether there was one; `is_in_file` tells whether the file has one.
    pub(super) fn unload(&mut self, name: &str, is_in_file: bool) -> bool {
        let was_visible = is_in_file && !self.hidden.contains(name);
        if was_visible {
            self.hidden.insert(name.to_owned());
        }
        self.loaded.remove(name) || was_visible
    }

    /// Whether a section of the file is part of the configuration.
    pub(super) fn shows(&self, name: &str) -> bool {
        !self.hidden.contains(name) && !self.loaded.contains(name)
    }
}

/// A connection with the certificates that its sections contain.
#[derive(Debug)]
pub(super) struct LoadedConnection {
    /// A configuration with this connection alone.
    pub(super) config: Config,
    pub(super) objects: Objects,
}

/// An authority with its certificate, if a client has sent it.
#[derive(Debug, Clone)]
pub(super) struct LoadedAuthority {
    pub(super) authority: Authority,
    pub(super) objects: Objects,
}

/// The use of a loaded certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CertificateUse {
    /// Of this host or a peer.
    EndEntity,
    /// Of a root that the client has not called a CA. It is no authority for others unless it has issued a
    /// certificate of this host ([`Folders::possible_roots`](crate::swanctl::Folders)).
    Root,
    /// Of a trusted certification authority.
    Authority,
    /// A certificate revocation list.
    Crl,
}

/// Everything that clients have loaded. Cloning copies references.
#[derive(Debug, Clone, Default)]
pub(crate) struct Loaded {
    pub(super) connections: Layer<Arc<LoadedConnection>>,
    pub(super) pools: Layer<Arc<Pool>>,
    pub(super) authorities: Layer<Arc<LoadedAuthority>>,
    pub(super) shared_keys: Ordered<Arc<SharedKey>>,
    /// By path.
    pub(super) certificates: BTreeMap<PathBuf, (CertificateUse, Arc<Bytes>)>,
    /// By key identifier.
    pub(super) private_keys: BTreeMap<String, Arc<Bytes>>,
    /// Private keys on tokens, by key identifier.
    pub(super) tokens: BTreeMap<String, Arc<TokenSecret>>,
}

impl Loaded {
    /// Forgets which sections of the file were unloaded, because the file is read again.
    pub(crate) fn show_file(&mut self) {
        self.connections.hidden.clear();
        self.pools.hidden.clear();
        self.authorities.hidden.clear();
    }

    /// Forgets all certificates and keys.
    pub(super) fn clear_credentials(&mut self) {
        self.shared_keys.clear();
        self.certificates.clear();
        self.private_keys.clear();
        self.tokens.clear();
    }

    /// The whole configuration: that of the file, and what was loaded.
    pub(crate) fn merge(&self, file: &Config) -> Config {
        let mut merged = Config {
            scheduling: file.scheduling.clone(),
            charon: file.charon,
            radius: file.radius.clone(),
            performance: file.performance,
            cell: file.cell.clone(),
            name_servers: file.name_servers,
            folders: file.folders.clone(),
            passphrases: file.passphrases.clone(),
            shared_keys: file.shared_keys.clone(),
            tokens: file.tokens.clone(),
            token_modules: file.token_modules.clone(),
            allows_missing_keys: true,
            ..Config::default()
        };
        let shows = |name: &String| self.connections.shows(name);
        let (own, conditions) = (file.own_signatures.iter(), file.peer_conditions.iter());
        merged.own_signatures.extend(own.filter(|one| shows(&one.connection)).cloned());
        merged.peer_conditions.extend(conditions.filter(|one| shows(&one.connection)).cloned());
        let of_file = file.connections.iter().zip(&file.scripts);
        for ((connection, scripts), interfaces) in of_file.zip(&file.interface_requests) {
            if shows(&connection.name) {
                merged.connections.push(connection.clone());
                merged.scripts.push(scripts.clone());
                merged.interface_requests.push(interfaces.clone());
            }
        }
        for loaded in self.connections.loaded.values() {
            merged.connections.extend_from_slice(&loaded.config.connections);
            merged.own_signatures.extend_from_slice(&loaded.config.own_signatures);
            merged.peer_conditions.extend_from_slice(&loaded.config.peer_conditions);
            merged.scripts.extend_from_slice(&loaded.config.scripts);
            merged.interface_requests.extend_from_slice(&loaded.config.interface_requests);
        }
        let pools = file.pools.iter().filter(|pool| self.pools.shows(&pool.name));
        merged.pools = pools.chain(self.pools.loaded.values().map(|pool| &**pool)).cloned().collect();
        let authorities = file.authorities.iter().filter(|authority| self.authorities.shows(&authority.name));
        let loaded = self.authorities.loaded.values().map(|loaded| &loaded.authority);
        merged.authorities = authorities.chain(loaded).cloned().collect();
        merged.shared_keys.extend(self.shared_keys.values().map(|key| SharedKey::clone(key)));
        merged.tokens.extend(self.tokens.values().map(|token| TokenSecret::clone(token)));
        for (path, (purpose, _)) in &self.certificates {
            if *purpose == CertificateUse::Root {
                merged.folders.possible_roots.push(path.clone());
            }
            let folder = match purpose {
                CertificateUse::EndEntity | CertificateUse::Root => &mut merged.folders.certs,
                CertificateUse::Authority => &mut merged.folders.cacerts,
                CertificateUse::Crl => &mut merged.folders.crls,
            };
            folder.push(path.clone());
        }
        merged.folders.private_keys.extend(self.private_keys.keys().map(|id| object_path(id)));
        merged
    }

    /// All certificates and keys.
    fn objects(&self) -> Objects {
        let certificates = self.certificates.iter().map(|(path, (_, bytes))| (path.clone(), bytes.clone()));
        let keys = self.private_keys.iter().map(|(id, bytes)| (object_path(id), bytes.clone()));
        let connections = self.connections.loaded.values().map(|loaded| &loaded.objects);
        let authorities = self.authorities.loaded.values().map(|loaded| &loaded.objects);
        let of_sections = connections.chain(authorities).flatten();
        let of_sections = of_sections.map(|(path, bytes)| (path.clone(), bytes.clone()));
        certificates.chain(keys).chain(of_sections).collect()
    }
}

/// The contents of the files that a configuration was read from, by path.
pub(crate) type Contents = BTreeMap<PathBuf, Zeroizing<Vec<u8>>>;

/// The loaded objects and the files of the configuration as an environment. Nothing else is read, because
/// the instance may not have the privilege any more.
pub(crate) struct LoadedEnvironment<'l> {
    objects: Objects,
    files: &'l Contents,
}

impl<'l> LoadedEnvironment<'l> {
    /// The objects that were loaded, and `files`.
    pub(crate) fn new(loaded: &Loaded, files: &'l Contents) -> Self {
        Self { objects: loaded.objects(), files }
    }

    /// These objects alone.
    pub(super) fn of_objects(objects: Objects, files: &'l Contents) -> Self {
        Self { objects, files }
    }

    fn get(&self, path: &Path) -> io::Result<&Zeroizing<Vec<u8>>> {
        let object = self.objects.get(path).map(|bytes| &**bytes);
        object.or_else(|| self.files.get(path)).ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl Environment for LoadedEnvironment<'_> {
    fn read(&self, path: &Path) -> io::Result<Zeroizing<Vec<u8>>> {
        self.get(path).cloned()
    }

    fn len(&self, path: &Path) -> io::Result<u64> {
        self.get(path).map(|bytes| bytes.len() as u64)
    }

    fn matching(&self, _: &Path, _: &str) -> io::Result<Vec<PathBuf>> {
        Ok(Vec::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::swanctl::SystemEnvironment;

    fn config(text: &str) -> Config {
        Config::parse(Path::new("/nowhere/x.conf"), text.as_bytes(), &SystemEnvironment).unwrap()
    }

    fn connection(name: &str, port: u16) -> String {
        format!(
            "connections {{\n{name} {{\nremote_addrs = 192.0.2.1\nremote_port = {port}\nremote {{\nauth = psk\n}}\nlocal {{\nauth = psk\n}}\n}}\n}}\n"
        )
    }

    fn names(loaded: &Loaded, file: &Config) -> Vec<(String, u16)> {
        let merged = loaded.merge(file);
        merged.connections.iter().map(|one| (one.name.clone(), one.remote_port)).collect()
    }

    #[test]
    fn loaded_sections_replace_those_of_the_file_until_they_are_unloaded() {
        let file = config(&format!("{}{}", connection("a", 1), connection("b", 2)));
        let mut loaded = Loaded::default();
        let pair = |name: &str, port| (name.to_owned(), port);
        let load = |loaded: &mut Loaded, name: &str, port| {
            let config = config(&connection(name, port));
            let item = Arc::new(LoadedConnection { config, objects: Objects::new() });
            loaded.connections.loaded.insert(name, item);
        };
        load(&mut loaded, "c", 3);
        load(&mut loaded, "b", 4);
        load(&mut loaded, "c", 5);
        assert_eq!(names(&loaded, &file), [pair("a", 1), pair("c", 5), pair("b", 4)]);
        assert!(loaded.connections.unload("b", true));
        assert_eq!(names(&loaded, &file), [pair("a", 1), pair("c", 5)], "b of the file does not return");
        assert!(!loaded.connections.unload("b", true));
        assert!(loaded.connections.unload("c", false) && !loaded.connections.unload("c", false));
        loaded.show_file();
        assert_eq!(names(&loaded, &file), [pair("a", 1), pair("b", 2)]);
        let merged = loaded.merge(&file);
        let lens = (merged.own_signatures.len(), merged.peer_conditions.len(), merged.scripts.len());
        assert_eq!(lens, (2, 2, 2));
    }
}
