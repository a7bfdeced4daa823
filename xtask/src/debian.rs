//! Debian packages that are unpacked and not installed: source packages, and packages of other releases.
//! apt-get downloads them with package lists of its own, from the mirrors of this machine.

use crate::shell::{self, Failure, Result};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// Directories of a release in which `/bin` and others are links to those in `/usr`.
const LINKS: [&str; 4] = ["bin", "sbin", "lib", "lib64"];
/// Directories in which programs find devices, processes and temporary files of this machine.
const MOUNT_POINTS: [&str; 5] = ["dev", "proc", "run", "sys", "tmp"];

/// Returns the source tree of a package in `directory`, after downloading it if it is not there. The tree
/// contains the directory `part`.
pub(crate) fn source_tree(package: &str, part: &str, directory: &Path) -> Result<PathBuf> {
    let unpacked = || entries(directory).into_iter().find(|tree| tree.join(part).is_dir());
    if let Some(tree) = unpacked() {
        return Ok(tree);
    }
    println!("Downloading Debian's source package of {package}");
    let lists = Lists::new(directory, source_packages)?;
    lists.apt(&["source", "--download-only", "--tar-only", package])?;
    let is_archive = |path: &PathBuf| {
        let name = path.to_string_lossy();
        name.contains(".orig.tar") && !name.ends_with(".asc")
    };
    let archive = entries(directory).into_iter().find(is_archive);
    let archive =
        archive.ok_or_else(|| Failure::new(format!("apt-get source has not downloaded {package}")))?;
    shell::run(shell::command("tar").arg("--extract").arg("--file").arg(&archive).current_dir(directory))?;
    unpacked().ok_or_else(|| Failure::new(format!("{} contains no directory `{part}`", archive.display())))
}

/// Returns a root directory with packages of another release and all that they depend on, in `directory`,
/// after downloading them if it is not there.
pub(crate) fn root_with(packages: &[&str], release: &str, directory: &Path) -> Result<PathBuf> {
    let root = directory.join("root");
    let complete = directory.join("complete");
    if complete.is_file() {
        return Ok(root);
    }
    println!("Downloading packages of Debian {release}: {}", packages.join(" "));
    let own = own_release()?;
    let lists = Lists::new(directory, |text| text.replace(&own, release))?;
    let install = ["install", "--yes", "--no-install-recommends", "--download-only"];
    lists.apt(&[&install, packages].concat())?;
    for folder in LINKS {
        fs::create_dir_all(root.join("usr").join(folder))?;
        // Exists after an earlier attempt.
        let _ = symlink(Path::new("usr").join(folder), root.join(folder));
    }
    for package in entries(&directory.join("cache/archives")) {
        if package.extension().is_some_and(|extension| extension == "deb") {
            shell::run(shell::command("dpkg-deb").arg("--extract").arg(&package).arg(&root))?;
        }
    }
    for folder in MOUNT_POINTS {
        fs::create_dir_all(root.join(folder))?;
    }
    fs::write(root.join("etc/hosts"), "")?;
    fs::write(complete, "")?;
    Ok(root)
}

/// Unpacks packages of another release in `directory`, without what they depend on, after downloading them.
pub(crate) fn unpack_from(packages: &[&str], release: &str, directory: &Path) -> Result {
    println!("Unpacking packages of Debian {release}: {}", packages.join(" "));
    let download = directory.join("download");
    let own = own_release()?;
    let lists = Lists::new(&download, |text| text.replace(&own, release))?;
    // apt-get(8): a package is downloaded to the current directory.
    lists.apt(&[&["download"], packages].concat())?;
    for package in entries(&download) {
        if package.extension().is_some_and(|extension| extension == "deb") {
            shell::run(shell::command("dpkg-deb").arg("--extract").arg(&package).arg(directory))?;
        }
    }
    Ok(fs::remove_dir_all(download)?)
}

/// Package lists in a directory of their own.
struct Lists<'d>(&'d Path);

impl<'d> Lists<'d> {
    /// Downloads package lists to `directory`, from the package sources of this machine after `change`.
    fn new(directory: &'d Path, change: impl Fn(&str) -> String) -> Result<Self> {
        let parts = directory.join("parts");
        for folder in ["parts", "lists/partial", "cache/archives/partial"] {
            fs::create_dir_all(directory.join(folder))?;
        }
        // No package is installed there.
        fs::write(directory.join("status"), "")?;
        let mut sources = entries(Path::new("/etc/apt/sources.list.d"));
        sources.push("/etc/apt/sources.list".into());
        for source in sources.iter().filter(|source| source.is_file()) {
            let name = source.file_name().unwrap_or_default();
            fs::write(parts.join(name), change(&fs::read_to_string(source)?))?;
        }
        let lists = Self(directory);
        if let Err(failure) = lists.apt(&["update"]) {
            // Other package sources of this machine may have no such list.
            println!("{failure}");
        }
        Ok(lists)
    }

    fn apt(&self, arguments: &[&str]) -> Result {
        let mut command = shell::command("apt-get");
        for (option, value) in [
            ("Dir::Etc::sourcelist", PathBuf::from("/dev/null")),
            ("Dir::Etc::sourceparts", self.0.join("parts")),
            ("Dir::State::lists", self.0.join("lists")),
            ("Dir::State::status", self.0.join("status")),
            ("Dir::Cache", self.0.join("cache")),
            ("APT::Sandbox::User", "root".into()),
        ] {
            command.arg("-o").arg(format!("{option}={}", value.display()));
        }
        shell::run(command.arg("-q").args(arguments).current_dir(self.0))
    }
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

/// Turns package sources, in either format of sources.list(5), into those of source packages.
fn source_packages(text: &str) -> String {
    let line = |line: &str| match line.strip_prefix("deb ") {
        Some(rest) => format!("deb-src {rest}\n"),
        None if line.starts_with("Types:") => "Types: deb-src\n".into(),
        None => format!("{line}\n"),
    };
    text.lines().map(line).collect()
}

/// Code name of the release of this machine (os-release(5)).
fn own_release() -> Result<String> {
    let text = fs::read_to_string("/etc/os-release")?;
    let name = text.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    name.map(Into::into).ok_or_else(|| Failure::new("/etc/os-release has no VERSION_CODENAME"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_become_those_of_source_packages() {
        let lines = "# deb x\ndeb [signed-by=/k] http://a stable main\n";
        assert_eq!(source_packages(lines), "# deb x\ndeb-src [signed-by=/k] http://a stable main\n");
        let sections = "Types: deb\nURIs: http://a\n\nTypes: deb deb-src\nURIs: http://b";
        assert_eq!(
            source_packages(sections),
            "Types: deb-src\nURIs: http://a\n\nTypes: deb-src\nURIs: http://b\n"
        );
    }
}
