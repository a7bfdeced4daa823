//! Commands that change the part of the configuration that clients have loaded.
//!
//! A section is checked when it is loaded, by the code that checks a file. A section with an error changes
//! nothing, and the response has the words that the error has in a file.

use super::success;
use crate::keyring::{self, Keyring};
use crate::log::level::Level;
use crate::swanctl::{Config, Known, SharedKey, TokenReference};
use crate::tokens::open_key;
use crate::vici::ViciContext;
use crate::vici::convert::{Converted, convert, hex, object_id};
use crate::vici::loaded::{
    CertificateUse, Contents, LoadedAuthority, LoadedConnection, LoadedEnvironment, Objects, object_path,
};
use crate::vici::message::{Bytes, Element, MessageWriter, Section};
use crate::vici::server::ViciServer;
use casemate_crypto::der::{Reader, SEQUENCE};
use casemate_crypto::{HashAlg, Providers, PublicKey};
use casemate_pki::{StoreLimits, TrustStore, is_authority, is_self_issued, subject};
use std::path::PathBuf;
use std::sync::Arc;
use zeroize::Zeroizing;

type Context<'c, 'a, 'h> = &'c mut ViciContext<'a, 'h>;

/// Maximum size of a file with a certificate, in bytes.
const MAX_FILE: u64 = 1 << 20;
/// Prefix of the names of shared keys that were loaded without a name, which clients do not see.
pub(super) const UNNAMED: &str = "?";

/// A command that changes the configuration. Returns the response, or why nothing has changed.
type Change = fn(&mut ViciServer, &Section, Context<'_, '_, '_>) -> Result<Vec<u8>, String>;

/// The command with this name that changes the configuration.
pub(super) fn change(name: &str) -> Option<Change> {
    Some(match name {
        "load-conn" => load_connection,
        "unload-conn" => unload_connection,
        "load-pool" => load_pool,
        "unload-pool" => unload_pool,
        "load-authority" => load_authority,
        "unload-authority" => unload_authority,
        "load-shared" => load_shared,
        "unload-shared" => unload_shared,
        "load-cert" => load_certificate,
        "load-key" => load_key,
        "load-token" => load_token,
        "unload-key" => unload_key,
        "clear-creds" => clear_credentials,
        _ => return None,
    })
}

fn load_connection(
    server: &mut ViciServer,
    message: &Section,
    context: Context<'_, '_, '_>,
) -> Result<Vec<u8>, String> {
    for (config, objects) in read_each("connections", server, message, context)? {
        let Some(name) = config.connections.first().map(|connection| connection.name.clone()) else {
            continue;
        };
        let loaded = LoadedConnection { config, objects };
        server.loaded.connections.loaded.insert(&name, Arc::new(loaded));
    }
    Ok(success())
}

fn load_pool(
    server: &mut ViciServer,
    message: &Section,
    context: Context<'_, '_, '_>,
) -> Result<Vec<u8>, String> {
    for (config, _) in read_each("pools", server, message, context)? {
        for pool in config.pools {
            server.loaded.pools.loaded.insert(&pool.name.clone(), Arc::new(pool));
        }
    }
    Ok(success())
}

fn load_authority(
    server: &mut ViciServer,
    message: &Section,
    context: Context<'_, '_, '_>,
) -> Result<Vec<u8>, String> {
    for (config, objects) in read_each("authorities", server, message, context)? {
        for authority in config.authorities {
            let name = authority.name.clone();
            if let Some(bytes) = objects.get(&authority.cacert) {
                check_authority(bytes).map_err(|why| format!("authorities.{name}.cacert: {why}"))?;
            }
            let loaded = LoadedAuthority { authority, objects: objects.clone() };
            server.loaded.authorities.loaded.insert(&name, Arc::new(loaded));
        }
    }
    Ok(success())
}

/// Reads each section of a message as a section of `kind`. Returns all of them, or why one is refused.
fn read_each(
    kind: &str,
    server: &ViciServer,
    message: &Section,
    context: Context<'_, '_, '_>,
) -> Result<Vec<(Config, Objects)>, String> {
    let mut read = Vec::new();
    for element in &message.0 {
        let alone = Section(vec![element.clone()]);
        read.push(read_one(&convert(kind, &alone, &server.providers)?, server, context)?);
    }
    if read.is_empty() { Err(format!("{kind}: a section was expected")) } else { Ok(read) }
}

/// Reads sections and checks their certificates as those of a file are checked. Certificates on tokens are
/// read when the change takes effect.
fn read_one(
    converted: &Converted,
    server: &ViciServer,
    context: Context<'_, '_, '_>,
) -> Result<(Config, Objects), String> {
    let (config, objects) = read_sections(converted, server, context)?;
    let none = Contents::new();
    let environment = LoadedEnvironment::of_objects(objects.clone(), &none);
    Keyring::load(&without_tokens(config.clone()), &server.providers, &environment)
        .map_err(|errors| errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))?;
    Ok((config, objects))
}

fn without_tokens(mut config: Config) -> Config {
    let is_file = |path: &PathBuf| TokenReference::of_path(path).is_none();
    config.own_signatures.iter_mut().for_each(|own| own.certs.retain(is_file));
    for conditions in &mut config.peer_conditions {
        conditions.certs.retain(is_file);
        conditions.cacerts.retain(is_file);
    }
    config.authorities.retain(|authority| is_file(&authority.cacert));
    config
}

fn read_sections(
    converted: &Converted,
    server: &ViciServer,
    context: Context<'_, '_, '_>,
) -> Result<(Config, Objects), String> {
    let pools: Vec<String> = server.pool_names();
    let base = server.base.config();
    let (has_scheduler, has_groups) = (base.scheduling.is_some(), base.names_groups());
    let known = Known { pools: &pools, has_scheduler, has_groups, has_all_secrets: false };
    let mut config = converted.sections.read(&known).map_err(|errors| errors.join("\n"))?;
    for warning in std::mem::take(&mut config.warnings) {
        context.log.program(Level::Warning, &format!("vici: {}", warning.text));
    }
    config.allows_missing_keys = true;
    let objects = with_files(&config, converted.objects.clone())?;
    Ok((config, objects))
}

/// Adds the files that the sections name by absolute paths to the objects. They are read now, as by charon.
fn with_files(config: &Config, mut objects: Objects) -> Result<Objects, String> {
    let of_peers = config.peer_conditions.iter();
    let of_peers = of_peers
        .flat_map(|conditions| conditions.certs.iter().chain(&conditions.cacerts).chain(&conditions.pubkey));
    let own = config.own_signatures.iter().flat_map(|own| own.certs.iter().chain(&own.pubkeys));
    let of_authorities = config.authorities.iter();
    let of_authorities = of_authorities.flat_map(|one| std::iter::once(&one.cacert).chain(&one.crls));
    for path in of_peers.chain(own).chain(of_authorities) {
        if !objects.contains_key(path) && TokenReference::of_path(path).is_none() {
            let failed = |error| format!("{}: {error}", path.display());
            let metadata = std::fs::metadata(path).map_err(failed)?;
            // Reading something else than a file could block.
            if !metadata.is_file() || metadata.len() > MAX_FILE {
                return Err(format!("{}: a file of at most {MAX_FILE} bytes was expected", path.display()));
            }
            let bytes = std::fs::read(path).map(Zeroizing::new).map_err(failed)?;
            objects.insert(path.clone(), Arc::new(bytes));
        }
    }
    Ok(objects)
}

/// The value of the key `name`.
fn required<'m>(message: &'m Section, name: &str) -> Result<&'m str, String> {
    let value = message.text(name).filter(|value| !value.is_empty());
    value.ok_or_else(|| format!("{name}: a value was expected"))
}

fn unload_connection(
    server: &mut ViciServer,
    message: &Section,
    _: Context<'_, '_, '_>,
) -> Result<Vec<u8>, String> {
    let name = required(message, "name")?;
    let is_in_file = server.base.config().connections.iter().any(|connection| connection.name == name);
    let is_unloaded = server.loaded.connections.unload(name, is_in_file);
    unloaded(is_unloaded, &format!("connection '{name}' not found for unloading"))
}

fn unload_pool(
    server: &mut ViciServer,
    message: &Section,
    _: Context<'_, '_, '_>,
) -> Result<Vec<u8>, String> {
    let name = required(message, "name")?;
    let is_in_file = server.base.config().pools.iter().any(|pool| pool.name == name);
    let is_unloaded = server.loaded.pools.unload(name, is_in_file);
    unloaded(is_unloaded, &format!("pool '{name}' not found"))
}

fn unload_authority(
    server: &mut ViciServer,
    message: &Section,
    _: Context<'_, '_, '_>,
) -> Result<Vec<u8>, String> {
    let name = required(message, "name")?;
    let is_in_file = server.base.config().authorities.iter().any(|authority| authority.name == name);
    let is_unloaded = server.loaded.authorities.unload(name, is_in_file);
    unloaded(is_unloaded, &format!("authority '{name}' not found for unloading"))
}

fn unloaded(is_unloaded: bool, otherwise: &str) -> Result<Vec<u8>, String> {
    if is_unloaded { Ok(success()) } else { Err(otherwise.to_owned()) }
}

/// Loads a shared key. `id` names it for unloading, `owners` are the identities that share it.
fn load_shared(
    server: &mut ViciServer,
    message: &Section,
    context: Context<'_, '_, '_>,
) -> Result<Vec<u8>, String> {
    let kind = required(message, "type")?;
    let kind = kind.to_ascii_lowercase();
    let data = message.value("data").ok_or("data: a value was expected")?;
    let id = message.text("id").unwrap_or("");
    // The name of a section of a file decides on the kind of a secret, too.
    let name = if id.starts_with(&kind) { id.to_owned() } else { kind };
    let mut section = vec![Element::Value("secret".into(), hex_secret(data))];
    for (number, owner) in message.list("owners").iter().enumerate() {
        section.push(Element::Value(format!("id-{number}"), owner.clone()));
    }
    let element = Element::Section(name, Section(section));
    let converted = convert("secrets", &Section(vec![element]), &server.providers)?;
    let (config, _) = read_one(&converted, server, context)?;
    let key: SharedKey = config.shared_keys.into_iter().next().ok_or("secrets: a shared key was expected")?;
    if id.is_empty() {
        let id = object_id(data, &Providers(&server.providers));
        server.loaded.shared_keys.insert(&format!("{UNNAMED}{id}"), Arc::new(key));
    } else {
        server.loaded.shared_keys.insert(id, Arc::new(key));
    }
    Ok(success())
}

/// The secret in the notation of a file, which can contain any byte.
fn hex_secret(data: &Bytes) -> Bytes {
    let mut text = Zeroizing::new(Vec::with_capacity(data.len().saturating_mul(2).saturating_add(2)));
    text.extend_from_slice(b"0x");
    for byte in data.iter() {
        let digit = |value: u8| char::from_digit(value.into(), 16).map_or(b'0', |digit| digit as u8);
        text.extend([digit(byte >> 4), digit(byte & 15)]);
    }
    text
}

fn unload_shared(
    server: &mut ViciServer,
    message: &Section,
    _: Context<'_, '_, '_>,
) -> Result<Vec<u8>, String> {
    let id = required(message, "id")?;
    let is_unloaded = server.loaded.shared_keys.remove(id);
    unloaded(is_unloaded, &format!("shared key '{id}' not found"))
}

/// Loads a certificate of this host or a peer, or with the flag CA a trusted one, or a CRL. A public key is
/// only checked: the connections that use one contain it.
fn load_certificate(
    server: &mut ViciServer,
    message: &Section,
    _: Context<'_, '_, '_>,
) -> Result<Vec<u8>, String> {
    let kind = required(message, "type")?.to_ascii_uppercase();
    let flag = message.text("flag").unwrap_or("NONE").to_ascii_uppercase();
    let data = message.value("data").ok_or("data: a value was expected")?;
    let purpose = match (kind.as_str(), flag.as_str()) {
        ("X509", "NONE") if is_root(data) => CertificateUse::Root,
        ("X509", "NONE") => CertificateUse::EndEntity,
        ("X509", "CA") => CertificateUse::Authority,
        ("X509", "AA" | "OCSP") | ("X509_AC", _) => {
            return Err("attribute certificates are not implemented".into());
        }
        ("X509_CRL", _) => CertificateUse::Crl,
        ("PUBKEY", _) => return keyring::public_key_of(data).map(|_| success()),
        _ => return Err(format!("type: {}: X509, X509_CRL or PUBKEY was expected", kind.escape_debug())),
    };
    match purpose {
        CertificateUse::EndEntity => check_certificate(data)?,
        CertificateUse::Root | CertificateUse::Authority => check_authority(data)?,
        CertificateUse::Crl => check_crl(data)?,
    }
    let path = object_path(&object_id(data, &Providers(&server.providers)));
    server.loaded.certificates.insert(path, (purpose, Arc::new(data.clone())));
    Ok(success())
}

/// Whether the first certificate is that of a root CA.
fn is_root(bytes: &Bytes) -> bool {
    let certs = keyring::certificates_of(bytes).unwrap_or_default();
    certs.first().is_some_and(|der| is_authority(der) && is_self_issued(der))
}

fn check_certificate(bytes: &Bytes) -> Result<(), String> {
    let all = keyring::certificates_of(bytes)?;
    let first = all.first().and_then(|der| subject(der));
    first.map(|_| ()).ok_or_else(|| "a certificate in PEM or DER was expected".into())
}

fn check_authority(bytes: &Bytes) -> Result<(), String> {
    let mut store = TrustStore::new(StoreLimits::default());
    let all = keyring::certificates_of(bytes)?;
    all.iter().try_for_each(|der| store.add_root(der)).map_err(|fault| fault.to_string())
}

fn check_crl(bytes: &Bytes) -> Result<(), String> {
    let mut store = TrustStore::new(StoreLimits::default());
    for der in keyring::crls_of(bytes)? {
        match store.add_crl(&der) {
            Ok(true) => {}
            Ok(false) => return Err("this kind of CRL is not supported".into()),
            Err(fault) => return Err(fault.to_string()),
        }
    }
    Ok(())
}

/// Loads a private key. The response contains its identifier.
fn load_key(server: &mut ViciServer, message: &Section, _: Context<'_, '_, '_>) -> Result<Vec<u8>, String> {
    let data = message.value("data").ok_or("data: a value was expected")?;
    let providers = Providers(&server.providers);
    let key = keyring::private_key_of(data, None, &providers)?;
    let key = providers.signing_key(&key).map_err(|error| error.to_string())?;
    let id = key_id(key.public_key(), &providers)?;
    server.loaded.private_keys.insert(id.clone(), Arc::new(data.clone()));
    Ok(MessageWriter::message(|message| {
        message.value("success", "yes");
        message.value("id", id);
    }))
}

/// Loads a private key on a token. The response contains its identifier. The token is used at once, which a
/// slow one makes the instance wait for: a wrong PIN must not become part of the configuration.
fn load_token(
    server: &mut ViciServer,
    message: &Section,
    context: Context<'_, '_, '_>,
) -> Result<Vec<u8>, String> {
    required(message, "handle")?;
    let element = Element::Section("token".into(), message.clone());
    let converted = convert("secrets", &Section(vec![element]), &server.providers)?;
    let (config, _) = read_sections(&converted, server, context)?;
    let secret = config.tokens.into_iter().next().ok_or("secrets: a key on a token was expected")?;
    let modules = &server.base.config().token_modules;
    let opened = open_key(&secret, modules, &server.providers)
        .map_err(|why| format!("{}: {why}", secret.key.to_path().display()))?;
    let id = key_id(opened.key.public_key(), &Providers(&server.providers))?;
    server.loaded.tokens.insert(id.clone(), Arc::new(secret));
    Ok(MessageWriter::message(|message| {
        message.value("success", "yes");
        message.value("id", id);
    }))
}

/// The SHA-1 digest of the subjectPublicKey (RFC 5280 section 4.2.1.2, method 1), as strongSwan identifies
/// keys.
fn key_id(key: &PublicKey, providers: &Providers<'_>) -> Result<String, String> {
    let bits = || {
        let mut reader = Reader::only(SEQUENCE, key.spki()).ok()?;
        reader.read(SEQUENCE).ok()?;
        reader.read_bit_string().ok()
    };
    let digest = bits().and_then(|bits| providers.hash(HashAlg::Sha1, &[bits]));
    digest.map(|digest| hex(digest.as_slice())).ok_or_else(|| "no provider supports SHA-1".into())
}

fn unload_key(server: &mut ViciServer, message: &Section, _: Context<'_, '_, '_>) -> Result<Vec<u8>, String> {
    let id = required(message, "id")?.to_ascii_lowercase();
    let loaded = &mut server.loaded;
    let is_unloaded = loaded.private_keys.remove(&id).is_some() | loaded.tokens.remove(&id).is_some();
    unloaded(is_unloaded, &format!("private key '{id}' not found"))
}

fn clear_credentials(
    server: &mut ViciServer,
    _: &Section,
    _: Context<'_, '_, '_>,
) -> Result<Vec<u8>, String> {
    server.loaded.clear_credentials();
    Ok(success())
}
