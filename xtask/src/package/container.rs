//! The root file system of a container image: the program, `nft`, and the libraries of both, with their
//! copyright files.

use super::tree::{Tree, set_mode, source};
use super::{Release, deb, renew, text};
use crate::shell::{self, Failure, Result};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The other program of the image.
const NFT: &str = "/usr/sbin/nft";
/// Entries of the root that are not needed in a container.
const SURPLUS: [&str; 9] = [
    "usr/lib/systemd",
    "usr/lib/sysusers.d",
    "usr/lib/tmpfiles.d",
    "usr/share/bash-completion",
    "usr/share/fish",
    "usr/share/lintian",
    "usr/share/man",
    "usr/share/polkit-1",
    "usr/share/zsh",
];
/// Directories with links to them in `/`, as Debian has them.
const MERGED: [&str; 4] = ["bin", "sbin", "lib", "lib64"];

/// Makes the archive and copies the build file. Returns the directory with the root.
pub(super) fn pack(directory: &Path, tree: &Tree, release: &Release) -> Result<PathBuf> {
    let root = directory.join("rootfs");
    renew(&root)?;
    deb::copy(tree.root(), &root)?;
    for path in SURPLUS {
        fs::remove_dir_all(root.join(path))?;
    }
    for name in MERGED {
        fs::create_dir_all(root.join("usr").join(name))?;
        std::os::unix::fs::symlink(format!("usr/{name}"), root.join(name))?;
    }
    for name in ["dev", "proc", "run", "sys", "tmp", "var/lib/casemate"] {
        fs::create_dir_all(root.join(name))?;
    }
    set_mode(&root.join("tmp"), 0o1777)?;
    fs::write(root.join("etc/passwd"), "root:x:0:0:root:/:/usr/sbin/nologin\n")?;
    fs::write(root.join("etc/group"), "root:x:0:\n")?;
    // Without it, the C library asks only the name server.
    fs::write(root.join("etc/nsswitch.conf"), "hosts: files dns\n")?;
    add_files(&root, &needed(&tree.program())?)?;
    let archive = directory.join("casemate-rootfs.tar");
    let time = format!("--mtime=@{}", release.timestamp);
    let mut command = shell::command("tar");
    command.args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--format=gnu", &time]);
    shell::run(command.arg("--create").arg("--file").arg(archive).arg("--directory").arg(&root).arg("."))?;
    fs::write(directory.join("Containerfile"), source("container/Containerfile")?)?;
    Ok(root)
}

/// `nft`, and the libraries of both programs with the loader, by their paths on this machine.
fn needed(program: &Path) -> Result<BTreeSet<PathBuf>> {
    let mut files = BTreeSet::from([PathBuf::from(NFT)]);
    for program in [program, Path::new(NFT)] {
        let listed = text(shell::command("ldd").arg(program))?;
        files.extend(libraries(&listed));
    }
    Ok(files)
}

/// The files in the output of ldd(1). Lines are `name => path (address)` or `path (address)`.
fn libraries(listed: &str) -> Vec<PathBuf> {
    let paths = listed.lines().filter_map(|line| {
        let file = line.split_once("=>").map_or(line, |(_, file)| file).trim();
        file.split_whitespace().next().filter(|file| file.starts_with('/'))
    });
    paths.map(PathBuf::from).collect()
}

/// Copies files to the same path, and the copyright files of the packages that they belong to.
fn add_files(root: &Path, files: &BTreeSet<PathBuf>) -> Result {
    for file in files {
        let target = in_usr(root, file);
        fs::create_dir_all(target.parent().unwrap_or(&target))?;
        fs::copy(file, &target).map_err(|error| Failure::new(format!("{}: {error}", file.display())))?;
        let package = owner(file)?;
        let copyright = Path::new("usr/share/doc").join(&package).join("copyright");
        fs::create_dir_all(root.join(&copyright).parent().unwrap_or(root))?;
        fs::copy(Path::new("/").join(&copyright), root.join(&copyright))
            .map_err(|error| Failure::new(format!("copyright of {package}: {error}")))?;
    }
    Ok(())
}

/// The place of a file in the root, where `/lib` is a link to `/usr/lib`.
fn in_usr(root: &Path, file: &Path) -> PathBuf {
    let path = file.strip_prefix("/").unwrap_or(file);
    let is_merged = MERGED.iter().any(|name| path.starts_with(name));
    if is_merged { root.join("usr").join(path) } else { root.join(path) }
}

/// The Debian package that a file belongs to. The package may list it without the leading `/usr`.
fn owner(file: &Path) -> Result<String> {
    let file = file.canonicalize()?;
    let names = [file.clone(), Path::new("/").join(file.strip_prefix("/usr").unwrap_or(&file))];
    let found =
        names.iter().find_map(|name| text(shell::command("dpkg-query").arg("--search").arg(name)).ok());
    let package = found.as_deref().and_then(|line| line.split([':', ',']).next());
    package
        .map(str::to_owned)
        .ok_or_else(|| Failure::new(format!("{}: no package has this file", file.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_found_in_the_output_of_ldd() {
        let listed = "\tlinux-vdso.so.1 (0x00007ffd)\n\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f4a)\n\
                      \t/lib64/ld-linux-x86-64.so.2 (0x00007f4b)\n";
        let expected = ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"].map(PathBuf::from);
        assert_eq!(libraries(listed), expected);
        let root = Path::new("/r");
        assert_eq!(in_usr(root, &expected[1]), Path::new("/r/usr/lib64/ld-linux-x86-64.so.2"));
        assert_eq!(in_usr(root, Path::new("/usr/sbin/nft")), Path::new("/r/usr/sbin/nft"));
    }
}
