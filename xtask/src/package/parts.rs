//! The crates that are compiled into the program: a software bill of materials (CycloneDX 1.5), and the
//! notices that their licences require.

use super::Release;
use crate::shell::{self, Failure, Result};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Name of the bill of materials.
pub(super) const SBOM: &str = "casemate.cdx.json";
/// The crate of the program.
const PROGRAM: &str = "casemate-app";

/// A crate in the program.
pub(super) struct Part {
    /// Package URL (purl), which identifies the crate everywhere.
    purl: String,
    name: String,
    version: String,
    licence: String,
    /// SHA-256 of the crate's archive; none for a crate of the workspace.
    checksum: Option<String>,
    directory: PathBuf,
    /// Package URLs of the crates that it uses.
    dependencies: BTreeSet<String>,
}

/// The crates of the program for this machine, without those that only its tests or its build use.
pub(super) fn of_program() -> Result<Vec<Part>> {
    let host = super::text(shell::command("rustc").args(["--version", "--verbose"]))?;
    let host = host.lines().find_map(|line| line.strip_prefix("host: ")).unwrap_or_default().to_owned();
    let arguments = ["metadata", "--format-version=1", "--locked", "--filter-platform", &host];
    let json = shell::output(shell::command(shell::cargo()).args(arguments))?;
    let metadata: Value =
        serde_json::from_slice(&json).map_err(|error| Failure::new(format!("cargo metadata: {error}")))?;
    let lock = fs::read_to_string(shell::root().join("Cargo.lock"))?;
    parts(&metadata, &checksums(&lock)).ok_or_else(|| Failure::new("unexpected output of cargo metadata"))
}

fn parts(metadata: &Value, checksums: &BTreeMap<(String, String), String>) -> Option<Vec<Part>> {
    let packages: BTreeMap<&str, &Value> = list(metadata, "packages")?
        .iter()
        .filter_map(|package| Some((package.get("id")?.as_str()?, package)))
        .collect();
    let nodes: BTreeMap<&str, &Value> = list(metadata.get("resolve")?, "nodes")?
        .iter()
        .filter_map(|node| Some((node.get("id")?.as_str()?, node)))
        .collect();
    let mut waiting: Vec<&str> = packages
        .iter()
        .filter(|(_, package)| package.get("name").and_then(Value::as_str) == Some(PROGRAM))
        .map(|(id, _)| *id)
        .collect();
    let mut found = BTreeMap::new();
    while let Some(id) = waiting.pop() {
        if found.contains_key(id) {
            continue;
        }
        let used = list(nodes.get(id)?, "deps")?.iter().filter_map(linked);
        let used: Vec<&str> =
            used.filter(|id| packages.get(id).is_some_and(|used| !is_macro(used))).collect();
        let mut part = part(packages.get(id)?, checksums)?;
        part.dependencies =
            used.iter().filter_map(|id| packages.get(id)).filter_map(|package| purl(package)).collect();
        found.insert(id, part);
        waiting.extend(used);
    }
    let mut parts: Vec<Part> = found.into_values().collect();
    parts.sort_by(|a, b| a.purl.cmp(&b.purl));
    Some(parts)
}

fn list<'v>(value: &'v Value, key: &str) -> Option<&'v Vec<Value>> {
    value.get(key)?.as_array()
}

fn text<'v>(value: &'v Value, key: &str) -> Option<&'v str> {
    value.get(key)?.as_str()
}

/// The identifier of a dependency that is linked into the program.
fn linked(dependency: &Value) -> Option<&str> {
    let is_linked =
        list(dependency, "dep_kinds")?.iter().any(|kind| kind.get("kind").is_some_and(Value::is_null));
    text(dependency, "pkg").filter(|_| is_linked)
}

/// Whether the crate runs in the compiler only.
fn is_macro(package: &Value) -> bool {
    let targets = list(package, "targets").into_iter().flatten();
    targets.filter_map(|target| list(target, "kind")).flatten().any(|kind| kind == "proc-macro")
}

fn purl(package: &Value) -> Option<String> {
    Some(format!("pkg:cargo/{}@{}", text(package, "name")?, text(package, "version")?))
}

fn part(package: &Value, checksums: &BTreeMap<(String, String), String>) -> Option<Part> {
    let (name, version) = (text(package, "name")?.to_owned(), text(package, "version")?.to_owned());
    Some(Part {
        purl: purl(package)?,
        licence: text(package, "license").unwrap_or("NOASSERTION").replace('/', " OR "),
        checksum: checksums.get(&(name.clone(), version.clone())).cloned(),
        directory: Path::new(text(package, "manifest_path")?).parent()?.to_owned(),
        dependencies: BTreeSet::new(),
        name,
        version,
    })
}

/// The checksums in Cargo.lock, by name and version. Each package is a paragraph of lines such as
/// `name = "x"`.
fn checksums(lock: &str) -> BTreeMap<(String, String), String> {
    let value = |paragraph: &str, key: &str| {
        let line = paragraph.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = \""))?;
        line.strip_suffix('"').map(str::to_owned)
    };
    lock.split("[[package]]")
        .filter_map(|paragraph| {
            let key = (value(paragraph, "name")?, value(paragraph, "version")?);
            Some((key, value(paragraph, "checksum")?))
        })
        .collect()
}

/// The bill of materials in CycloneDX's JSON.
pub(super) fn sbom(parts: &[Part], release: &Release) -> Result<String> {
    let program = parts.iter().find(|part| part.name == PROGRAM);
    let program = program.ok_or_else(|| Failure::new(format!("{PROGRAM} is not among its own parts")))?;
    let time = ["--utc", "--date", &format!("@{}", release.timestamp), "+%Y-%m-%dT%H:%M:%SZ"];
    let components: Vec<Value> = parts.iter().filter(|part| part.name != PROGRAM).map(component).collect();
    let dependencies: Vec<Value> =
        parts.iter().map(|part| json!({ "ref": part.purl, "dependsOn": part.dependencies })).collect();
    let document = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": super::text(shell::command("date").args(time))?,
            "component": {
                "type": "application",
                "bom-ref": program.purl,
                "name": "casemate",
                "version": release.version,
                "licenses": [{ "expression": program.licence }],
            },
        },
        "components": components,
        "dependencies": dependencies,
    });
    Ok(format!("{document:#}\n"))
}

fn component(part: &Part) -> Value {
    let mut component = json!({
        "type": "library",
        "bom-ref": part.purl,
        "name": part.name,
        "version": part.version,
        "purl": part.purl,
        "licenses": [{ "expression": part.licence }],
    });
    if let (Some(checksum), Some(fields)) = (&part.checksum, component.as_object_mut()) {
        fields.insert("hashes".into(), json!([{ "alg": "SHA-256", "content": checksum }]));
    }
    component
}

/// The licence files of all crates of other authors, each text once.
pub(super) fn notices(parts: &[Part]) -> Result<String> {
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut without = Vec::new();
    for part in parts.iter().filter(|part| part.checksum.is_some()) {
        let files = licence_files(&part.directory)?;
        let name = format!("{} {} ({})", part.name, part.version, part.licence);
        if files.is_empty() {
            without.push(name.clone());
        }
        for file in files {
            let text = String::from_utf8_lossy(&fs::read(file)?).trim().to_owned();
            texts.entry(text).or_default().push(name.clone());
        }
    }
    let mut sections: Vec<String> =
        texts.into_iter().map(|(text, names)| format!("{}\n\n{text}\n", names.join("\n"))).collect();
    sections.sort();
    if !without.is_empty() {
        sections.push(format!("Without a licence file in their archive:\n\n{}\n", without.join("\n")));
    }
    Ok(sections.join(&format!("\n{}\n\n", "=".repeat(80))))
}

/// Files with licences and notices, in the order of their names.
fn licence_files(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().to_uppercase();
        let is_licence = ["LICENSE", "LICENCE", "COPYING", "NOTICE", "COPYRIGHT"]
            .iter()
            .any(|word| name.starts_with(word));
        if is_licence && entry.path().is_file() {
            files.push(entry.path());
        }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_consists_of_its_linked_crates() {
        let parts = of_program().unwrap();
        let names: Vec<&str> = parts.iter().map(|part| part.name.as_str()).collect();
        for expected in [PROGRAM, "casemate-datapath", "clap", "aws-lc-sys"] {
            assert!(names.contains(&expected), "{names:?}");
        }
        for other in ["proptest", "xtask", "casemate-testbed", "syn"] {
            assert!(!names.contains(&other), "{other}");
        }
        for part in &parts {
            assert_eq!(part.checksum.is_none(), part.name.starts_with("casemate"), "{}", part.name);
            assert!(part.dependencies.iter().all(|used| parts.iter().any(|part| part.purl == *used)));
        }
    }

    #[test]
    fn checksums_are_found_by_name_and_version() {
        let lock = "[[package]]\nname = \"a\"\nversion = \"1\"\n\n[[package]]\nname = \"b\"\nversion = \"2\"\n\
                    source = \"x\"\nchecksum = \"0a\"\n";
        let expected = [(("b".to_owned(), "2".to_owned()), "0a".to_owned())];
        assert_eq!(checksums(lock), BTreeMap::from(expected));
    }
}
