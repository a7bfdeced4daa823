//! Servers, certificates, user and prefix of a store on etcd.

use crate::ThreadEntry;
use casemate_crypto::SecretBytes;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, RootCertStore};
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Maximum number of servers. etcd advises at most seven members.
pub const MAX_ENDPOINTS: usize = 9;
/// Longest prefix in bytes.
pub const MAX_PREFIX: usize = 128;
/// Shortest and longest time in which a request is completed.
const DEADLINES: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(60)];

/// What a store on etcd needs to know.
#[derive(Debug, Clone)]
pub struct Config {
    /// Servers of the cluster, 1 to [`MAX_ENDPOINTS`]. One of them is used until it fails.
    pub endpoints: Vec<Endpoint>,
    /// TLS; `None` for clear text, which suits only servers on the same host.
    pub tls: Option<Tls>,
    /// User of etcd; `None` if the cluster has no users.
    pub login: Option<Login>,
    /// First bytes of all keys of the cell, such as `casemate/cell-a/`: 1 to [`MAX_PREFIX`] printable ASCII
    /// characters. Two cells of a cluster have prefixes of which neither begins with the other.
    pub prefix: String,
    /// Time from the submission of a request to its completion, 100 ms to 60 s.
    pub deadline: Duration,
    /// What an earlier process has seen of the cluster. The store is damaged if the cluster is another one or
    /// its revision is lower.
    pub seen: Option<Seen>,
    /// Called by each thread at its start, for example to drop capabilities.
    pub thread_entry: ThreadEntry,
}

/// A server. It has an address and not a host name, because a resolver that does not respond would delay
/// requests beyond their deadline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// Address and port for clients.
    pub address: SocketAddr,
    /// Name in the certificate of the server; `None` if the certificate contains the address.
    pub server_name: Option<String>,
}

/// User and password of etcd.
///
/// etcd derives a user from the client certificate only for gRPC, not for its JSON gateway.
#[derive(Debug, Clone)]
pub struct Login {
    /// Name of the user.
    pub user: String,
    /// UTF-8.
    pub password: SecretBytes,
}

/// State of a cluster: a later state of this cluster has the same identifier and at least this revision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// Identifier of the cluster, which etcd chooses when the cluster is created or restored.
    pub cluster: u64,
    /// Revision of the cluster.
    pub revision: u64,
}

/// Certificates for TLS 1.2 and 1.3.
#[derive(Clone)]
pub struct Tls(Arc<ClientConfig>);

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls")
    }
}

impl Tls {
    /// Reads PEM files: certificates of the authorities that servers may have, and the chain and private key
    /// of this client. A changed file has an effect on the next store only.
    ///
    /// # Errors
    ///
    /// Returns an error if a file cannot be read, contains nothing of its kind, or if the key does not belong
    /// to the certificate.
    pub fn from_files(authorities: &Path, own: Option<(&Path, &Path)>) -> Result<Self, ConfigError> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(authorities)? {
            let added = roots.add(certificate);
            added.map_err(|error| ConfigError::file(authorities, "CA certificates", &error))?;
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_protocol_versions(&[&TLS13, &TLS12])
            .map_err(|error| ConfigError::Tls(error.to_string()))?
            .with_root_certificates(roots);
        let mut config = match own {
            None => builder.with_no_client_auth(),
            Some((chain, key)) => {
                let private = PrivateKeyDer::from_pem_file(key);
                let private = private.map_err(|error| ConfigError::file(key, "a private key", &error))?;
                let authenticated = builder.with_client_auth_cert(certificates(chain)?, private);
                authenticated.map_err(|error| {
                    ConfigError::file(key, &format!("the key of {}", chain.display()), &error)
                })?
            }
        };
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self(Arc::new(config)))
    }

    pub(crate) fn config(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.0)
    }
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, ConfigError> {
    const EXPECTED: &str = "certificates in PEM";
    let fault = |error| ConfigError::file(file, EXPECTED, &error);
    let read = CertificateDer::pem_file_iter(file).map_err(fault)?.collect::<Result<Vec<_>, _>>();
    let read = read.map_err(fault)?;
    if read.is_empty() {
        return Err(ConfigError::file(file, EXPECTED, &"the file contains none"));
    }
    Ok(read)
}

impl Config {
    /// Returns a configuration with a deadline of two seconds, without TLS and user.
    pub fn new(endpoints: Vec<Endpoint>, prefix: &str) -> Self {
        Self {
            endpoints,
            tls: None,
            login: None,
            prefix: prefix.into(),
            deadline: Duration::from_secs(2),
            seen: None,
            thread_entry: || Ok(()),
        }
    }

    /// Checks all values, as [`EtcdStore::open`](crate::EtcdStore::open) does.
    ///
    /// # Errors
    ///
    /// Returns the first value that is invalid.
    pub fn check(&self) -> Result<(), ConfigError> {
        let [shortest, longest] = DEADLINES;
        if self.endpoints.is_empty() || self.endpoints.len() > MAX_ENDPOINTS {
            return Err(ConfigError::Endpoints(self.endpoints.len()));
        }
        if let Some(endpoint) = self.endpoints.iter().find(|endpoint| endpoint.tls_name().is_none()) {
            return Err(ConfigError::ServerName(endpoint.clone()));
        }
        let is_text = self.prefix.bytes().all(|byte| byte.is_ascii_graphic());
        if !is_text || !(1..=MAX_PREFIX).contains(&self.prefix.len()) {
            return Err(ConfigError::Prefix(self.prefix.clone()));
        }
        if !(shortest..=longest).contains(&self.deadline) {
            return Err(ConfigError::Deadline(self.deadline));
        }
        if self.login.as_ref().is_some_and(|login| std::str::from_utf8(login.password.expose()).is_err()) {
            return Err(ConfigError::Password);
        }
        Ok(())
    }
}

impl Endpoint {
    /// The server at an address, which its certificate contains.
    pub const fn new(address: SocketAddr) -> Self {
        Self { address, server_name: None }
    }

    /// What the certificate has to contain; `None` if the name is invalid.
    pub(crate) fn tls_name(&self) -> Option<ServerName<'static>> {
        match &self.server_name {
            None => Some(self.address.ip().into()),
            Some(name) => ServerName::try_from(name.clone()).ok(),
        }
    }
}

/// Why a store on etcd cannot be opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConfigError {
    /// Number of endpoints that are too few or too many.
    Endpoints(usize),
    /// The name is neither a DNS name nor an address.
    ServerName(Endpoint),
    /// The prefix is empty, too long, or has other characters than printable ASCII.
    Prefix(String),
    /// The deadline is too short or too long.
    Deadline(Duration),
    /// The password is not UTF-8.
    Password,
    /// A file with keys or certificates cannot be used.
    File {
        /// The file.
        path: PathBuf,
        /// What the file has to contain.
        expected: String,
        /// What is wrong.
        cause: String,
    },
    /// The TLS library refuses its settings.
    Tls(String),
    /// A thread cannot be started.
    Thread(String),
}

impl ConfigError {
    fn file(path: &Path, expected: &str, cause: &dyn fmt::Display) -> Self {
        Self::File { path: path.into(), expected: expected.into(), cause: cause.to_string() }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Endpoints(found) => {
                write!(f, "etcd: {found} endpoints: 1 to {MAX_ENDPOINTS} were expected")
            }
            Self::ServerName(endpoint) => {
                let name = endpoint.server_name.as_deref().unwrap_or_default();
                let address = endpoint.address;
                write!(f, "etcd: endpoint {address}: server name `{name}`: a DNS name was expected")
            }
            Self::Prefix(prefix) => {
                write!(
                    f,
                    "etcd: prefix `{}`: 1 to {MAX_PREFIX} printable ASCII characters were expected",
                    prefix.escape_default()
                )
            }
            Self::Deadline(found) => {
                let [shortest, longest] = DEADLINES;
                write!(f, "etcd: deadline {found:?}: {shortest:?} to {longest:?} were expected")
            }
            Self::Password => f.write_str("etcd: the password is not UTF-8, which was expected"),
            Self::File { path, expected, cause } => {
                write!(f, "etcd: {}: {cause}; {expected} were expected", path.display())
            }
            Self::Tls(cause) => write!(f, "etcd: TLS: {cause}"),
            Self::Thread(cause) => write!(f, "etcd: a thread cannot be started: {cause}"),
        }
    }
}

impl std::error::Error for ConfigError {}
