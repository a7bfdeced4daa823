//! The floors of the house: which crate may import which (ARCHITECTURE.md), read from `cargo metadata`.

use crate::failure::{Failure, Result};
use crate::metadata::{self, Package};
use crate::{purity, shell};
use std::path::Path;

pub(crate) const ABOUT: &str = "Check which crate imports which, and that core/ stays pure
apps -> lab -> adapters -> endpoint -> {datapath, ike, sched} -> {sa, pki} -> {wire, crypto}; a floor may import any floor
below it, never one beside it. lab/papers and lab/advise stand above the rest of lab. rings and tables stand at the bottom and import nothing. sched -> sa, wire only. providers,
pki -> crypto only, and only adapters and apps name providers. verify and xtask import anything. Tests in core/ may use a
provider and test data (dev-dependencies).
core/ has no std, no clock, no randomness and no unsafe code, and says so at each crate root.";

/// A floor, by its place in the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Floor {
    Wire,
    Crypto,
    Rings,
    Tables,
    Sa,
    Pki,
    Sched,
    Datapath,
    Ike,
    Endpoint,
    Provider,
    Adapter,
    Workshop,
    Lab,
    App,
    Verify,
}

impl Floor {
    /// The floor of a crate directory relative to the root; none where ARCHITECTURE.md knows no such place.
    fn of(directory: &Path) -> Option<Self> {
        let mut parts = directory.iter().map(|part| part.to_string_lossy());
        let floor = match (parts.next()?.as_ref(), parts.next().as_deref()) {
            ("core", Some("wire")) => Self::Wire,
            ("core", Some("crypto")) => Self::Crypto,
            ("core", Some("rings")) => Self::Rings,
            ("core", Some("tables")) => Self::Tables,
            ("core", Some("sa")) => Self::Sa,
            ("core", Some("pki")) => Self::Pki,
            ("core", Some("sched")) => Self::Sched,
            ("core", Some("datapath")) => Self::Datapath,
            ("core", Some("ike")) => Self::Ike,
            ("core", Some("endpoint")) => Self::Endpoint,
            ("providers", _) => Self::Provider,
            ("adapters", _) => Self::Adapter,
            ("lab", Some("papers" | "advise")) => Self::Lab,
            ("lab", _) => Self::Workshop,
            ("apps", _) => Self::App,
            ("verify" | "xtask", _) => Self::Verify,
            _ => return None,
        };
        Some(floor)
    }

    /// How high it stands. Floors of one height do not import each other.
    fn height(self) -> u8 {
        match self {
            Self::Wire | Self::Crypto | Self::Rings | Self::Tables => 0,
            Self::Sa | Self::Pki | Self::Provider => 1,
            Self::Datapath | Self::Ike | Self::Sched => 2,
            Self::Endpoint => 3,
            Self::Adapter => 4,
            Self::Workshop => 5,
            Self::Lab => 6,
            Self::App => 7,
            Self::Verify => 8,
        }
    }

    fn may_import(self, other: Self, dev: bool) -> bool {
        let is_core = self.height() < Self::Adapter.height() && self != Self::Provider;
        match (self, other) {
            (Self::Verify, _) => true,
            (_, Self::Verify) => dev,
            (Self::Provider, _) => other == Self::Crypto,
            (Self::Pki, Self::Wire) | (Self::Sched, Self::Pki | Self::Crypto) => false,
            (_, Self::Provider) => dev || !is_core,
            _ => other.height() < self.height(),
        }
    }
}

/// Runs the check.
pub(crate) fn run(_: &[String]) -> Result {
    let root = shell::root();
    let members = metadata::members()?;
    let findings: Vec<String> = members.iter().flat_map(|package| examine(&root, package)).collect();
    Failure::unless_empty(&findings, "imports that the floors forbid (cargo xtask layers --help)")?;
    purity::check(&root)?;
    println!("{} crates, each on its floor; core/ is pure", members.len());
    Ok(())
}

fn examine(root: &Path, package: &Package) -> Vec<String> {
    let local = |directory: &Path| directory.strip_prefix(root).unwrap_or(directory).to_path_buf();
    let from = local(&package.directory);
    let Some(floor) = Floor::of(&from) else {
        return vec![format!("{}: ARCHITECTURE.md knows no such place", from.display())];
    };
    let mut findings = Vec::new();
    for dependency in &package.dependencies {
        let Some(to) = dependency.directory.as_deref().map(local) else { continue };
        if !Floor::of(&to).is_some_and(|other| floor.may_import(other, dependency.dev)) {
            let kind = if dependency.dev { "dev-dependency" } else { "dependency" };
            findings.push(format!("{} must not import {} ({kind})", from.display(), to.display()));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn may(from: &str, to: &str, dev: bool) -> bool {
        Floor::of(Path::new(from)).unwrap().may_import(Floor::of(Path::new(to)).unwrap(), dev)
    }

    #[test]
    fn a_floor_imports_the_floors_below() {
        assert!(may("core/sa", "core/wire", false));
        assert!(may("core/datapath", "core/crypto", false));
        assert!(may("core/endpoint", "core/ike", false));
        assert!(may("apps/casemate", "adapters/linux", false));
        assert!(may("apps/casemate", "core/wire", false));
        assert!(may("verify/interop", "apps/casemate", false));
        assert!(may("core/pki", "core/crypto", false));
        assert!(may("core/ike", "core/pki", false));
        assert!(may("adapters/stack", "core/rings", false));
        assert!(may("core/sched", "core/sa", false));
        assert!(may("core/sched", "core/wire", false));
        assert!(may("lab/papers", "lab/calls", false));
        assert!(may("lab/advise", "lab/measure", false));
        assert!(may("apps/casemate", "lab/papers", false));
        assert!(may("verify/bench", "lab/measure", false));
    }

    #[test]
    fn no_floor_imports_beside_or_above_itself() {
        for (from, to) in [
            ("core/wire", "core/crypto"),
            ("core/sa", "core/datapath"),
            ("core/datapath", "core/ike"),
            ("core/ike", "core/datapath"),
            ("core/pki", "core/sa"),
            ("core/pki", "core/wire"),
            ("core/sa", "core/pki"),
            ("core/sched", "core/datapath"),
            ("core/datapath", "core/sched"),
            ("core/sched", "core/crypto"),
            ("core/sched", "core/pki"),
            ("adapters/linux", "adapters/lwip"),
            ("adapters/linux", "apps/casemate"),
            ("adapters/linux", "lab/stage"),
            ("lab/report", "lab/papers"),
            ("lab/report", "lab/measure"),
            ("lab/papers", "lab/advise"),
            ("lab/papers", "apps/casemate"),
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
}
