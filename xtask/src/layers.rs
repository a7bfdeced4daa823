//! The layers: which crate may import which (ARCHITECTURE.md), read from `cargo metadata`.

use crate::cargo::{self, Package};
use crate::shell::{self, Failure, Result};
use crate::sources::{self, Source};
use std::path::Path;

pub(crate) const ABOUT: &str = "Check which crate imports which, and that core/ stays pure
apps -> lab -> adapters, socketd -> {cell, private-file} -> endpoint, strongswan -> {datapath, ike, sched} ->
{sa, pki, eap} -> rohc -> {wire, crypto}. A layer imports any layer below it and none at its own level. lab/papers and lab/advise are above the rest of lab,
apps/lab above the rest of apps.
socketd/protocol, store and private-file import nothing. sched imports sa and wire only, rohc wire only, eap and radius wire and crypto.
Only programs import radius. providers and pki import crypto only, and only adapters
and apps name providers. verify and xtask import anything. Tests in core/ may use a provider and test data
(dev-dependencies), and those in socketd/client start the program of
apps/casemate.
core/ has no std, no clock, no randomness and no unsafe code; each crate root declares that.";

/// A layer, by its directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Layer {
    Wire,
    Crypto,
    SocketProtocol,
    Sa,
    Pki,
    Eap,
    Radius,
    Rohc,
    Sched,
    Datapath,
    Ike,
    Endpoint,
    Strongswan,
    Store,
    Cell,
    PrivateFile,
    Provider,
    Adapter,
    SocketClient,
    Testbed,
    Lab,
    App,
    LabApp,
    Verify,
}

impl Layer {
    /// Returns the layer of a crate directory relative to the root. `None`: ARCHITECTURE.md does not list it.
    fn of(directory: &Path) -> Option<Self> {
        let mut parts = directory.iter().map(|part| part.to_string_lossy());
        let layer = match (parts.next()?.as_ref(), parts.next().as_deref()) {
            ("core", Some("wire")) => Self::Wire,
            ("core", Some("crypto")) => Self::Crypto,
            ("socketd", Some("protocol")) => Self::SocketProtocol,
            ("socketd", Some("client")) => Self::SocketClient,
            ("core", Some("sa")) => Self::Sa,
            ("core", Some("pki")) => Self::Pki,
            ("core", Some("eap")) => Self::Eap,
            ("core", Some("radius")) => Self::Radius,
            ("core", Some("rohc")) => Self::Rohc,
            ("core", Some("sched")) => Self::Sched,
            ("core", Some("datapath")) => Self::Datapath,
            ("core", Some("ike")) => Self::Ike,
            ("core", Some("endpoint")) => Self::Endpoint,
            ("core", Some("strongswan")) => Self::Strongswan,
            ("core", Some("store")) => Self::Store,
            ("core", Some("cell")) => Self::Cell,
            ("providers", _) => Self::Provider,
            ("adapters", Some("private-file")) => Self::PrivateFile,
            ("adapters" | "socketd", _) => Self::Adapter,
            ("lab", Some("papers" | "advise")) => Self::Lab,
            ("lab", _) => Self::Testbed,
            ("apps", Some("lab")) => Self::LabApp,
            ("apps", _) => Self::App,
            ("verify" | "xtask", _) => Self::Verify,
            _ => return None,
        };
        Some(layer)
    }

    /// Height of the layer. Layers of the same height do not import each other.
    fn level(self) -> u8 {
        match self {
            Self::Wire | Self::Crypto | Self::SocketProtocol | Self::Store => 0,
            Self::Rohc => 1,
            Self::Sa | Self::Pki | Self::Eap | Self::Radius | Self::Provider => 2,
            Self::Datapath | Self::Ike | Self::Sched => 3,
            Self::Endpoint | Self::Strongswan => 4,
            Self::Cell | Self::PrivateFile => 5,
            Self::Adapter | Self::SocketClient => 6,
            Self::Testbed => 7,
            Self::Lab => 8,
            Self::App => 9,
            Self::LabApp => 10,
            Self::Verify => 11,
        }
    }

    fn may_import(self, other: Self, dev: bool) -> bool {
        let is_core = self.level() < Self::Adapter.level() && self != Self::Provider;
        match (self, other) {
            (Self::Verify, _) => true,
            (_, Self::Verify) | (Self::SocketClient, Self::Adapter | Self::App) => dev,
            (Self::Provider, _) => other == Self::Crypto,
            (Self::PrivateFile, _) => false,
            (Self::Pki, Self::Wire | Self::Rohc)
            | (Self::Eap | Self::Radius, Self::Rohc)
            | (Self::Datapath | Self::Ike | Self::Sched | Self::Endpoint | Self::Strongswan, Self::Radius)
            | (Self::Rohc, Self::Crypto)
            | (Self::Sched | Self::Datapath, Self::Eap)
            | (Self::Sched, Self::Pki | Self::Crypto | Self::Rohc) => false,
            (_, Self::Provider) => dev || !is_core,
            _ => other.level() < self.level(),
        }
    }
}

/// Runs the check.
pub(crate) fn run(_: &[String]) -> Result {
    let root = shell::root();
    let members = cargo::members()?;
    let findings: Vec<String> = members.iter().flat_map(|package| examine(&root, package)).collect();
    Failure::unless_empty(&findings, "imports that the layers forbid (cargo xtask layers --help)")?;
    check_purity(&root)?;
    println!("{} crates, each in its layer; core/ is pure", members.len());
    Ok(())
}

fn examine(root: &Path, package: &Package) -> Vec<String> {
    let local = |directory: &Path| directory.strip_prefix(root).unwrap_or(directory).to_path_buf();
    let from = local(&package.directory);
    let Some(layer) = Layer::of(&from) else {
        return vec![format!("{}: ARCHITECTURE.md lists no such directory", from.display())];
    };
    let mut findings = Vec::new();
    for dependency in &package.dependencies {
        let Some(to) = dependency.directory.as_deref().map(local) else { continue };
        // A package may depend on itself to run its tests with other features.
        if to == from && dependency.dev {
            continue;
        }
        if !Layer::of(&to).is_some_and(|other| layer.may_import(other, dependency.dev)) {
            let kind = if dependency.dev { "dev-dependency" } else { "dependency" };
            findings.push(format!("{} must not import {} ({kind})", from.display(), to.display()));
        }
    }
    findings
}

/// Forbidden words, and the advice for each.
const FORBIDDEN: &[(&str, &str)] = &[
    ("std::", "core/ is no_std: use core:: or alloc::"),
    ("extern crate std", "core/ is no_std"),
    ("Instant::now", "take `now` as an argument"),
    ("SystemTime", "take `now` as an argument"),
    ("OsRng", "take a random source as an argument"),
    ("getrandom", "take a random source as an argument"),
];

/// Attributes that every crate root in core/ has to contain.
const REQUIRED: &[&str] = &["#![no_std]", "#![forbid(unsafe_code)]"];

/// Checks all crates of core/.
fn check_purity(root: &Path) -> Result {
    let findings: Vec<String> = sources::walk(&root.join("core"))?.iter().flat_map(impurities).collect();
    Failure::unless_empty(&findings, "core/ contains forbidden code")
}

fn impurities(source: &Source) -> Vec<String> {
    let mut findings = Vec::new();
    let path = source.path.display();
    for (number, line) in source.shipped.iter().enumerate() {
        let code = line.split("//").next().unwrap_or_default();
        for (word, advice) in FORBIDDEN.iter().filter(|(word, _)| contains_word(code, word)) {
            findings.push(format!("core/{path}:{}: `{word}`: {advice}", number.saturating_add(1)));
        }
    }
    if source.path.ends_with("src/lib.rs") {
        for attribute in REQUIRED {
            if !source.shipped.iter().any(|line| line.trim() == *attribute) {
                findings.push(format!("core/{path}: `{attribute}` is missing"));
            }
        }
    }
    findings
}

/// Whether `code` contains `word`, not preceded by another part of an identifier.
fn contains_word(code: &str, word: &str) -> bool {
    code.match_indices(word).any(|(at, _)| {
        let before = code.get(..at).and_then(|text| text.chars().next_back());
        !before.is_some_and(|character| character.is_alphanumeric() || character == '_')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn may(from: &str, to: &str, dev: bool) -> bool {
        Layer::of(Path::new(from)).unwrap().may_import(Layer::of(Path::new(to)).unwrap(), dev)
    }

    #[test]
    fn a_layer_imports_lower_layers() {
        assert!(may("core/sa", "core/wire", false));
        assert!(may("core/datapath", "core/crypto", false));
        assert!(may("core/endpoint", "core/ike", false));
        assert!(may("adapters/file-store", "adapters/private-file", false));
        assert!(may("apps/casemate", "adapters/linux", false));
        assert!(may("apps/casemate", "core/wire", false));
        assert!(may("verify/interop", "apps/casemate", false));
        assert!(may("core/pki", "core/crypto", false));
        assert!(may("core/ike", "core/pki", false));
        assert!(may("core/ike", "core/eap", false));
        assert!(may("core/eap", "core/wire", false));
        assert!(may("core/radius", "core/crypto", false));
        assert!(may("apps/casemate", "core/radius", false));
        assert!(may("socketd/server", "socketd/protocol", false));
        assert!(may("core/strongswan", "core/ike", false));
        assert!(may("core/strongswan", "core/pki", false));
        assert!(may("core/sched", "core/sa", false));
        assert!(may("core/sched", "core/wire", false));
        assert!(may("core/rohc", "core/wire", false));
        assert!(may("core/sa", "core/rohc", false));
        assert!(may("lab/papers", "lab/calls", false));
        assert!(may("lab/advise", "lab/measure", false));
        assert!(may("apps/casemate", "lab/papers", false));
        assert!(may("verify/bench", "lab/measure", false));
        assert!(may("socketd/client", "apps/casemate", true));
        assert!(!may("socketd/client", "apps/casemate", false));
    }

    #[test]
    fn no_layer_imports_its_own_level_or_above() {
        for (from, to) in [
            ("core/wire", "core/crypto"),
            ("core/sa", "core/datapath"),
            ("core/datapath", "core/ike"),
            ("core/ike", "core/datapath"),
            ("core/pki", "core/sa"),
            ("core/pki", "core/wire"),
            ("core/eap", "core/rohc"),
            ("core/radius", "core/eap"),
            ("core/ike", "core/radius"),
            ("core/radius", "core/sa"),
            ("core/datapath", "core/eap"),
            ("core/sa", "core/pki"),
            ("core/sched", "core/datapath"),
            ("core/datapath", "core/sched"),
            ("core/sched", "core/crypto"),
            ("core/sched", "core/pki"),
            ("core/rohc", "core/crypto"),
            ("core/rohc", "core/sa"),
            ("core/pki", "core/rohc"),
            ("core/sched", "core/rohc"),
            ("core/ike", "core/strongswan"),
            ("core/endpoint", "core/strongswan"),
            ("core/strongswan", "core/endpoint"),
            ("socketd/server", "socketd/client"),
            ("adapters/linux", "adapters/lwip"),
            ("adapters/private-file", "core/wire"),
            ("core/cell", "adapters/private-file"),
            ("adapters/linux", "apps/casemate"),
            ("adapters/linux", "lab/testbed"),
            ("lab/measure", "lab/papers"),
            ("lab/measure", "lab/calls"),
            ("lab/papers", "lab/advise"),
            ("lab/papers", "apps/casemate"),
            ("socketd/server", "apps/casemate"),
        ] {
            assert!(!may(from, to, false), "{from} -> {to}");
            assert!(!may(from, to, true), "{from} -> {to} in tests");
        }
    }

    #[test]
    fn providers_know_crypto_only_and_core_names_them_in_tests_only() {
        assert!(may("providers/aws-lc", "core/crypto", false));
        assert!(!may("providers/aws-lc", "core/sa", false));
        assert!(!may("providers/aws-lc", "providers/legacy", false));
        assert!(!may("core/datapath", "providers/rustcrypto", false));
        assert!(may("core/datapath", "providers/rustcrypto", true));
        assert!(may("core/pki", "providers/aws-lc", true));
        assert!(!may("core/pki", "providers/aws-lc", false));
        assert!(may("apps/casemate", "providers/rustcrypto", false));
        assert!(may("providers/aws-lc", "verify/vectors", true));
        assert!(!may("providers/aws-lc", "verify/vectors", false));
    }

    fn findings(path: &str, lines: &[&str]) -> usize {
        impurities(&Source {
            path: path.into(),
            lines: Vec::new(),
            shipped: lines.iter().map(|&line| line.into()).collect(),
        })
        .len()
    }

    #[test]
    fn forbidden_words_are_found_only_in_code() {
        assert_eq!(findings("wire/src/a.rs", &["use std::fmt;"]), 1);
        assert_eq!(findings("wire/src/a.rs", &["let t = Instant::now();"]), 1);
        assert_eq!(findings("wire/src/a.rs", &["// std::fmt", "use core::fmt;", "use my_std::fmt;"]), 0);
    }

    #[test]
    fn crate_roots_need_both_attributes() {
        assert_eq!(findings("wire/src/lib.rs", &["#![no_std]"]), 1);
        assert_eq!(findings("wire/src/lib.rs", &["#![no_std]", "#![forbid(unsafe_code)]"]), 0);
    }
}
