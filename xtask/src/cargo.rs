//! Output of `cargo metadata`, as far as the checks need it.

use crate::shell::{self, Failure, Result};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Package of the workspace or of a registry.
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) version: String,
    /// SPDX expression, if the package declares one.
    pub(crate) licence: Option<String>,
    /// Registry or repository; none for a package of the workspace.
    pub(crate) source: Option<String>,
    /// Directory of the manifest.
    pub(crate) directory: PathBuf,
    /// Declared dependencies.
    pub(crate) dependencies: Vec<Dependency>,
}

/// Declared dependency.
pub(crate) struct Dependency {
    /// Directory, for a package of this checkout.
    pub(crate) directory: Option<PathBuf>,
    /// Whether it is a dev-dependency.
    pub(crate) dev: bool,
}

/// Packages of the workspace and all their dependencies, for all targets.
pub(crate) fn packages() -> Result<Vec<Package>> {
    packages_of(&read(&["metadata", "--format-version=1", "--locked"])?)
}

/// Packages of the workspace.
pub(crate) fn members() -> Result<Vec<Package>> {
    packages_of(&read(&["metadata", "--format-version=1", "--no-deps"])?)
}

/// Cargo's target directory.
pub(crate) fn target_directory() -> Result<PathBuf> {
    let value = read(&["metadata", "--format-version=1", "--no-deps"])?;
    let directory = value.get("target_directory").and_then(Value::as_str);
    directory.map(PathBuf::from).ok_or_else(|| Failure::new("cargo metadata reports no target directory"))
}

fn packages_of(value: &Value) -> Result<Vec<Package>> {
    let packages = value.get("packages").and_then(Value::as_array);
    let packages = packages.and_then(|packages| packages.iter().map(package).collect());
    packages.ok_or_else(|| Failure::new("unexpected output of cargo metadata: no valid list of packages"))
}

fn read(arguments: &[&str]) -> Result<Value> {
    let json = shell::output(shell::command(shell::cargo()).args(arguments))?;
    serde_json::from_slice(&json).map_err(|error| Failure::new(format!("cargo metadata: {error}")))
}

fn package(value: &Value) -> Option<Package> {
    let text = |key: &str| value.get(key).and_then(Value::as_str).map(String::from);
    let dependencies = value.get("dependencies")?.as_array()?.iter();
    Some(Package {
        name: text("name")?,
        version: text("version")?,
        licence: text("license"),
        source: text("source"),
        directory: Path::new(&text("manifest_path")?).parent()?.to_path_buf(),
        dependencies: dependencies.map(dependency).collect(),
    })
}

fn dependency(value: &Value) -> Dependency {
    Dependency {
        directory: value.get("path").and_then(Value::as_str).map(PathBuf::from),
        dev: value.get("kind").and_then(Value::as_str) == Some("dev"),
    }
}

/// Option that skips the build.
pub(crate) const BUILT: &str = "--built";

/// Origin of the programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Programs {
    /// The task builds them.
    Build,
    /// A build of the whole workspace has built them.
    Prebuilt,
}

impl Programs {
    /// Origin that the arguments select, and the remaining arguments.
    pub(crate) fn parse(arguments: &[String]) -> (Self, &[String]) {
        match arguments.split_first() {
            Some((first, rest)) if first == BUILT => (Self::Prebuilt, rest),
            _ => (Self::Build, arguments),
        }
    }

    /// Builds the programs of these packages, unless they are prebuilt, and returns their directory.
    pub(crate) fn directory(self, packages: &[&str]) -> Result<PathBuf> {
        if self == Self::Build {
            let mut arguments = vec!["build", "--locked", "--bins"];
            arguments.extend(packages.iter().flat_map(|package| ["--package", package]));
            shell::run_cargo(&arguments)?;
        }
        Ok(target_directory()?.join("debug"))
    }
}

/// Builds all programs and all tests.
pub(crate) fn build_all() -> Result {
    shell::run_cargo(&["build", "--workspace", "--all-targets", "--locked"])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a registry shows of a crate, and what it needs to accept it.
    #[test]
    fn public_crates_have_metadata() {
        let metadata = read(&["metadata", "--format-version=1", "--no-deps"]).unwrap();
        let packages = metadata["packages"].as_array().unwrap();
        let is_public = |package: &&Value| package["publish"].is_null();
        let public: Vec<&Value> = packages.iter().filter(is_public).collect();
        let names: Vec<&str> = public.iter().map(|package| package["name"].as_str().unwrap()).collect();
        assert!(names.len() >= 17 && names.contains(&"casemate"), "{names:?}");
        for (package, name) in public.iter().zip(&names) {
            for field in ["description", "license", "readme", "rust_version"] {
                assert!(package[field].is_string(), "{name}: {field}");
            }
            assert!(package["description"].as_str().unwrap().len() < 120, "{name}");
            for field in ["keywords", "categories"] {
                assert!(
                    package[field].as_array().is_some_and(|words| (1..=5).contains(&words.len())),
                    "{name}: {field}"
                );
            }
            assert!(package["metadata"]["docs"]["rs"].is_object(), "{name}: docs.rs");
            // A crate of the workspace that only tests use has no version, and is not part of the archive.
            for dependency in package["dependencies"].as_array().unwrap() {
                let (used, kind) = (dependency["name"].as_str().unwrap(), &dependency["kind"]);
                let is_local = dependency["path"].is_string();
                assert!(!is_local || *kind == "dev" || names.contains(&used), "{name} needs {used}");
            }
        }
    }

    #[test]
    fn first_argument_selects_prebuilt_programs() {
        let words = |words: &[&str]| words.iter().map(ToString::to_string).collect::<Vec<_>>();
        let given = words(&[BUILT, "rekey"]);
        assert_eq!(Programs::parse(&given), (Programs::Prebuilt, &given[1..]));
        let given = words(&["rekey", BUILT]);
        assert_eq!(Programs::parse(&given), (Programs::Build, &given[..]));
        assert_eq!(Programs::parse(&[]), (Programs::Build, &[][..]));
    }
}
