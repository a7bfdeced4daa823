//! `cargo metadata`, as much of it as the checks need.

use crate::failure::{Failure, Result};
use crate::shell;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// One package, of the workspace or from elsewhere.
pub(crate) struct Package {
    /// Name.
    pub(crate) name: String,
    /// Version.
    pub(crate) version: String,
    /// SPDX expression, if its author gave one.
    pub(crate) licence: Option<String>,
    /// Registry or repository; none for a package of the workspace.
    pub(crate) source: Option<String>,
    /// Directory of its manifest.
    pub(crate) directory: PathBuf,
    /// Declared dependencies.
    pub(crate) dependencies: Vec<Dependency>,
}

/// A declared dependency.
pub(crate) struct Dependency {
    /// Directory, when it is a package of this checkout.
    pub(crate) directory: Option<PathBuf>,
    /// Only for tests and benches.
    pub(crate) dev: bool,
}

/// Every package that the workspace can build, for any target.
pub(crate) fn packages() -> Result<Vec<Package>> {
    packages_of(&read(&["metadata", "--format-version=1", "--locked"])?)
}

/// The packages of the workspace only.
pub(crate) fn members() -> Result<Vec<Package>> {
    packages_of(&read(&["metadata", "--format-version=1", "--no-deps"])?)
}

/// Where cargo puts what it builds.
pub(crate) fn target_directory() -> Result<PathBuf> {
    let value = read(&["metadata", "--format-version=1", "--no-deps"])?;
    let directory = value.get("target_directory").and_then(Value::as_str);
    directory.map(PathBuf::from).ok_or_else(|| Failure::new("cargo metadata names no target directory"))
}

fn packages_of(value: &Value) -> Result<Vec<Package>> {
    let packages = value.get("packages").and_then(Value::as_array);
    let packages = packages.and_then(|packages| packages.iter().map(package).collect());
    packages.ok_or_else(|| Failure::new("cargo metadata printed something else than packages"))
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
