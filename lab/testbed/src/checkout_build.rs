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
/// Variables that cargo sets for a program that it starts. They belong to that program's package.
const PACKAGE_VARIABLES: [&str; 4] =
    ["CARGO_MANIFEST_DIR", "CARGO_MANIFEST_PATH", "CARGO_PKG_NAME", "CARGO_PKG_VERSION"];
/// Variables with directories that may belong to one user.
const USER_DIRECTORIES: [&str; 3] = ["CARGO_HOME", "RUSTUP_HOME", "TMPDIR"];

/// Returns the innermost checkout that contains a path.
pub fn find_checkout(path: &Path) -> Option<&Path> {
    path.ancestors().find(|root| CHECKOUT_FILES.iter().all(|file| root.join(file).is_file()))
}

/// Returns the program cargo, with which [`build_in_checkout`] builds.
pub fn find_cargo(checkout: &Path) -> Result<PathBuf> {
    Builder::of(checkout, PASSWD.as_ref())?.find_cargo()
}

/// Runs `cargo xtask` with the arguments `task` in a checkout, which builds an artifact unless it is up to
/// date. Returns the path that the task prints in its last line. `report` receives the lines that show the
/// progress.
///
/// Root builds as the owner of the checkout: the files in its target directory stay the owner's, and the code
/// of the checkout does not run as root if it belongs to another user.
pub fn build_in_checkout(checkout: &Path, task: &[&str], report: &dyn Fn(&str)) -> Result<PathBuf> {
    Builder::of(checkout, PASSWD.as_ref())?.build(checkout, task, report)
}

/// File with the home directories of users.
const PASSWD: &str = "/etc/passwd";

/// User that builds in a checkout.
#[derive(Debug)]
struct Builder {
    /// User and group of the owner, if this process must change to them.
    owner: Option<(u32, u32)>,
    /// Home directory, if it is known.
    home: Option<PathBuf>,
    /// Directories with programs.
    path: Vec<PathBuf>,
}

impl Builder {
    fn of(checkout: &Path, passwd: &Path) -> Result<Self> {
        let state = fs::metadata(checkout).map_err(Error::context(checkout.display()))?;
        let owner = (is_root() && state.uid() != 0).then(|| (state.uid(), state.gid()));
        let home = match owner {
            Some((uid, _)) => {
                let users = fs::read_to_string(passwd).map_err(Error::context(passwd.display()))?;
                parse_home(&users, uid)
            }
            None => env::var_os("HOME").map(PathBuf::from),
        };
        let system = env::var_os("PATH").unwrap_or_default();
        // An empty entry is the working directory.
        let mut path: Vec<PathBuf> = env::split_paths(&system).filter(|path| path.is_absolute()).collect();
        if let Some(home) = &home {
            // sudo removes rustup's directory from PATH. The owner prefers it to Debian's cargo.
            let place = if owner.is_some() { 0 } else { path.len() };
            path.insert(place, home.join(".cargo/bin"));
        }
        Ok(Self { owner, home, path })
    }

    fn find_cargo(&self) -> Result<PathBuf> {
        let mut programs = self.path.iter().map(|directory| directory.join("cargo"));
        programs.find(|program| program.is_file()).ok_or_else(|| {
            let path: Vec<String> = self.path.iter().map(|path| path.display().to_string()).collect();
            let path = path.join(":");
            Error::new(format!("no program cargo in {path}: install Rust (https://rustup.rs) or set PATH"))
        })
    }

    fn build(&self, checkout: &Path, task: &[&str], report: &dyn Fn(&str)) -> Result<PathBuf> {
        self.find_cargo()?;
        let mut command = self.cargo()?;
        command.arg("xtask").args(task).current_dir(checkout);
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

    /// Cargo with the environment of the user.
    fn cargo(&self) -> Result<Command> {
        let mut command = Command::new("cargo");
        for variable in PACKAGE_VARIABLES {
            command.env_remove(variable);
        }
        command.env("PATH", env::join_paths(&self.path).map_err(Error::context("PATH"))?);
        let Some((uid, gid)) = self.owner else { return Ok(command) };
        // This also removes the supplementary groups of root.
        command.uid(uid).gid(gid);
        // Without HOME, cargo looks in the database of users.
        let former_home = env::var_os("HOME").map(PathBuf::from);
        match &self.home {
            Some(home) => command.env("HOME", home),
            None => command.env_remove("HOME"),
        };
        for variable in USER_DIRECTORIES {
            let value = env::var_os(variable).map(PathBuf::from);
            if value.is_some_and(|value| !is_shared(&value, former_home.as_deref())) {
                command.env_remove(variable);
            }
        }
        Ok(command)
    }
}

/// Returns whether other users can enter a directory that root uses: it has the permission, and it is not in
/// root's home directory, which they cannot enter.
fn is_shared(directory: &Path, home: Option<&Path>) -> bool {
    let others = fs::metadata(directory).is_ok_and(|state| state.mode() & 0o001 != 0);
    others && !home.is_some_and(|home| directory.starts_with(home))
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
    use std::os::unix::fs::PermissionsExt as _;

    /// User of this process.
    fn own_uid() -> u32 {
        fs::metadata("/proc/self").unwrap().uid()
    }

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

    /// Checkout with a replacement of cargo, in the home directory of its owner.
    fn checkout(owner: u32, cargo: &str) -> (TempDir, Builder) {
        let checkout = TempDir::new("fake-checkout").unwrap();
        let home = checkout.file("home");
        fs::create_dir_all(home.join(".cargo/bin")).unwrap();
        crate::write_script(&home.join(".cargo/bin/cargo"), cargo);
        std::os::unix::fs::chown(checkout.path(), Some(owner), Some(owner)).unwrap();
        let passwd = checkout.file("passwd");
        fs::write(&passwd, format!("ann:x:{owner}:{owner}::{}:/bin/sh\n", home.display())).unwrap();
        let mut builder = Builder::of(checkout.path(), &passwd).unwrap();
        // Hides the cargo of this machine.
        builder.path = vec![home.join(".cargo/bin"), "/usr/bin".into(), "/bin".into()];
        (checkout, builder)
    }

    #[test]
    fn root_builds_as_the_owner_of_the_checkout() {
        if !is_root() {
            casemate_test_support::skip("only root can change to another user");
            return;
        }
        let script = "echo \"$(id -u) $(id -g) $(id -G) $HOME $*\" > state; echo built; echo \"$PWD/state\"";
        let (checkout, builder) = checkout(12_345, script);
        let built = builder.build(checkout.path(), &["lwip", "--example"], &|_| {}).unwrap();
        assert_eq!(built, checkout.file("state"));
        let home = checkout.file("home");
        let expected = format!("12345 12345 12345 {} xtask lwip --example\n", home.display());
        assert_eq!(fs::read_to_string(&built).unwrap(), expected);
        assert_eq!(fs::metadata(built).unwrap().uid(), 12_345);
    }

    #[test]
    fn a_task_must_print_the_path_of_a_file() {
        for (script, printed) in [("echo done", "`done`"), (":", "``")] {
            let (checkout, builder) = checkout(own_uid(), script);
            let error = builder.build(checkout.path(), &["pi"], &|_| {}).unwrap_err().to_string();
            assert!(error.starts_with(&format!("cargo xtask pi: no file {printed}")), "{error}");
        }
    }

    #[test]
    fn a_machine_without_cargo_is_reported() {
        let (_checkout, mut builder) = checkout(own_uid(), ":");
        builder.path = vec!["/no/such/directory".into()];
        let error = builder.find_cargo().unwrap_err().to_string();
        assert!(error.starts_with("no program cargo in /no/such/directory: install Rust"), "{error}");
    }

    #[test]
    fn directories_of_root_are_not_given_to_the_owner() {
        let directory = TempDir::new("shared").unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
        assert!(is_shared(directory.path(), Some("/root".as_ref())));
        assert!(!is_shared(directory.path(), Some(directory.path())));
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o700)).unwrap();
        assert!(!is_shared(directory.path(), None));
    }

    #[test]
    fn a_failed_build_shows_the_error_of_cargo() {
        let checkout = TempDir::new("no-checkout").unwrap();
        let error = build_in_checkout(checkout.path(), &["firmware"], &|_| {}).unwrap_err().to_string();
        assert!(error.starts_with("cargo xtask firmware: "), "{error}");
        assert!(error.contains("xtask"), "{error}");
    }
}
