//! Builds an artifact in a checkout of Casemate with a task of `cargo xtask`, for example `firmware`.

use crate::process::run_reported;
use crate::{Error, Result, is_root};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// Files that every checkout contains.
const CHECKOUT_FILES: [&str; 3] = ["Cargo.lock", "xtask/Cargo.toml", "apps/firmware/Cargo.toml"];
/// Variables that cargo and rustup set for the programs that they start. A nested cargo must choose its own
/// toolchain and package.
const INHERITED: [&str; 4] =
    ["CARGO_MANIFEST_DIR", "CARGO_MANIFEST_PATH", "CARGO_PKG_NAME", "CARGO_PKG_VERSION"];

/// Returns the innermost checkout that contains a path.
pub fn find_checkout(path: &Path) -> Option<&Path> {
    path.ancestors().find(|root| CHECKOUT_FILES.iter().all(|file| root.join(file).is_file()))
}

/// Runs `cargo xtask` with the arguments `task` in a checkout, which builds an artifact unless it is up to date.
/// Returns the path that the task prints in its last line. `report` receives the lines that show the progress.
///
/// Root builds as the owner of the checkout: the files in its target directory stay the owner's, and the code
/// of the checkout does not run as root if it belongs to another user.
pub fn build_in_checkout(checkout: &Path, task: &[&str], report: &dyn Fn(&str)) -> Result<PathBuf> {
    let mut command = cargo(checkout)?;
    command.arg("xtask").args(task).current_dir(checkout);
    for variable in INHERITED {
        command.env_remove(variable);
    }
    let output = run_reported(&mut command, report)?;
    let printed = output.lines().last().unwrap_or_default();
    let artifact = checkout.join(printed);
    if printed.is_empty() || !artifact.is_file() {
        let task = task.join(" ");
        return Err(Error::new(format!(
            "cargo xtask {task}: no file `{printed}`, which the task printed last"
        )));
    }
    Ok(artifact)
}

/// Cargo, of the owner of the checkout if this process is root.
fn cargo(checkout: &Path) -> Result<Command> {
    let mut command = Command::new("cargo");
    let state = fs::metadata(checkout).map_err(Error::context(checkout.display()))?;
    let mut home = env::var_os("HOME").map(PathBuf::from);
    if is_root() && state.uid() != 0 {
        let users = fs::read_to_string("/etc/passwd").map_err(Error::context("/etc/passwd"))?;
        home = parse_home(&users, state.uid());
        // This also removes the supplementary groups of root.
        command.uid(state.uid()).gid(state.gid());
        if let Some(home) = &home {
            command.env("HOME", home);
        }
    }
    // sudo removes rustup's directory from the path.
    let own = home.map(|home| home.join(".cargo/bin"));
    let system = env::var_os("PATH").unwrap_or_default();
    let path = env::join_paths(env::split_paths(&system).chain(own)).map_err(Error::context("PATH"))?;
    command.env("PATH", path);
    Ok(command)
}

/// Home directory of a user in the text of `/etc/passwd`.
fn parse_home(users: &str, uid: u32) -> Option<PathBuf> {
    let fields = users.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let mut homes = fields.filter_map(|fields| match fields[..] {
        [_, _, user, _, _, home, ..] if user.parse() == Ok(uid) => Some(PathBuf::from(home)),
        _ => None,
    });
    homes.next()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TempDir;

    #[test]
    fn a_checkout_is_found_from_a_path_inside() {
        let inside = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/no-such-file");
        let root = find_checkout(&inside).unwrap();
        assert!(root.join("apps/firmware/src").is_dir(), "{}", root.display());
        assert_eq!(find_checkout(TempDir::new("no-checkout").unwrap().path()), None);
    }

    #[test]
    fn home_of_the_owner_is_read_from_passwd() {
        let users = "root:x:0:0:root:/root:/bin/bash\nann:x:1000:1000::/home/ann:/bin/sh\n";
        assert_eq!(parse_home(users, 1000).unwrap(), Path::new("/home/ann"));
        assert_eq!(parse_home(users, 1001), None);
    }

    #[test]
    fn a_failed_build_shows_the_error_of_cargo() {
        let checkout = TempDir::new("no-checkout").unwrap();
        let error = build_in_checkout(checkout.path(), &["firmware"], &|_| {}).unwrap_err().to_string();
        assert!(error.starts_with("cargo xtask firmware: "), "{error}");
        assert!(error.contains("xtask"), "{error}");
    }
}
