//! strongSwan's test suite, which is read from its source tree at run time: configurations, and the script
//! that creates certificates and keys.
//!
//! The script writes into the tree, so the suite is copied first. It runs once; its results stay in the
//! directory of the copy.

use crate::web::Content;
use casemate_interop::{Error, Result};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// `pki` for the script, which ends at the first failure. Debian's pki signs nothing with SHA-3, so these
/// certificates are signed with SHA-256, and has no BLISS, so that those files are missing.
const SHIM: &str = "#!/bin/sh\n\
    unset PKI_PLUGINS\n\
    for word do\n\
    shift\n\
    case \"$word\" in sha3_*) word=sha256;; esac\n\
    set -- \"$@\" \"$word\"\n\
    done\n\
    /usr/bin/pki \"$@\" 2>>\"$0.log\" || echo \"pki $*\" >>\"$0.failed\"\n\
    exit 0\n";

/// The copy of the test suite, with credentials.
pub(crate) struct Source {
    directory: PathBuf,
    /// Directory of the replacement of `pki`.
    programs: PathBuf,
}

impl Source {
    /// Copies the test suite of the source tree `tree` to `directory` and creates the credentials, unless
    /// an earlier run has done so.
    pub(crate) fn prepare(tree: &Path, directory: &Path) -> Result<Self> {
        let source = Self { directory: directory.join("testing"), programs: directory.join("programs") };
        let complete = directory.join("complete");
        if complete.is_file() {
            return Ok(source);
        }
        let testing = tree.join("testing");
        if !testing.join("scripts/build-certs-chroot").is_file() {
            return Err(Error::new(format!("{}: not a source tree of strongSwan 5.9", tree.display())));
        }
        eprintln!("Creating the certificates of strongSwan's test suite (two minutes, once)");
        // Files of an earlier run that was interrupted.
        let _ = fs::remove_dir_all(directory);
        fs::create_dir_all(directory).map_err(Error::context(directory.display()))?;
        copy_all(&testing, &source.directory)?;
        source.create_credentials()?;
        fs::write(&complete, "").map_err(Error::context(complete.display()))?;
        Ok(source)
    }

    fn create_credentials(&self) -> Result<()> {
        let programs = &self.programs;
        let shim = programs.join("pki");
        fs::create_dir_all(programs).map_err(Error::context(programs.display()))?;
        fs::write(&shim, SHIM).map_err(Error::context(shim.display()))?;
        fs::set_permissions(&shim, fs::Permissions::from_mode(0o755))
            .map_err(Error::context(shim.display()))?;
        let script = self.directory.join("scripts/build-certs-chroot").display().to_string();
        self.run_script(&[&script], "build-certs-chroot")?;
        ["hosts", "tests"].into_iter().try_for_each(|part| remove_empty_files(&self.directory.join(part)))
    }

    /// Runs a script of the test suite in bash, with the replacement of `pki`.
    fn run_script(&self, arguments: &[&str], name: &str) -> Result<()> {
        let mut command = Command::new("timeout");
        command.args(["900", "bash"]).args(arguments);
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}:/usr/sbin:/sbin:{path}", self.programs.display()));
        let output = command.stdin(Stdio::null()).output().map_err(Error::context("bash"))?;
        if output.status.success() {
            return Ok(());
        }
        let errors = String::from_utf8_lossy(&output.stderr);
        Err(Error::new(format!("{name}: {}: {}", output.status, errors.lines().last().unwrap_or_default())))
    }

    /// Signs the CRLs, which are valid for some days only, and collects the files of the web server.
    pub(crate) fn sign_crls(&self) -> Result<()> {
        let www = self.web_directory();
        for folder in ["certs/research", "certs/sales"] {
            fs::create_dir_all(www.join(folder)).map_err(Error::context(www.display()))?;
        }
        let authority = self.authority();
        let file = authority.join("generate-crl");
        let script = fs::read_to_string(&file).map_err(Error::context(file.display()))?;
        let script = script
            .replace("/etc/ca", &authority.display().to_string())
            .replace("/var/www", &www.display().to_string());
        self.run_script(&["-c", &script], "generate-crl")
    }

    fn authority(&self) -> PathBuf {
        self.directory.join("hosts/winnetou/etc/ca")
    }

    fn web_directory(&self) -> PathBuf {
        self.directory.join("www")
    }

    /// What the host winnetou serves in a scenario, by port: files, and an OCSP responder for each of three
    /// authorities.
    pub(crate) fn web_contents(&self, full_name: &str) -> Vec<(u16, Content)> {
        let mut contents = vec![(80, Content::Files(self.web_directory()))];
        let authority = self.authority();
        let changed = self.scenario(full_name).join("hosts/winnetou/etc/ca");
        for (port, file) in [(8880, "ocsp"), (8881, "research/ocsp"), (8882, "sales/ocsp")] {
            let read = |directory: &Path| fs::read_to_string(directory.join(file).join("ocsp.cgi"));
            if let Ok(script) = read(&changed).or_else(|_| read(&authority)) {
                let script = script.replace("/etc/ca", &authority.display().to_string());
                contents.push((port, Content::Script(script)));
            }
        }
        contents
    }

    /// Directory of a scenario.
    pub(crate) fn scenario(&self, full_name: &str) -> PathBuf {
        self.directory.join("tests").join(full_name)
    }

    /// Directory of swanctl that a host has in every scenario.
    pub(crate) fn host_defaults(&self, host: &str) -> PathBuf {
        self.directory.join("hosts").join(host).join("etc/swanctl")
    }

    /// Directories of a host, such as `etc/raddb`, that exist: that of every scenario, and that of this
    /// scenario, whose files replace those of the first.
    pub(crate) fn host_directories(&self, full_name: &str, host: &str, path: &str) -> Vec<PathBuf> {
        let hosts = [self.directory.join("hosts"), self.scenario(full_name).join("hosts")];
        hosts.iter().map(|hosts| hosts.join(host).join(path)).filter(|path| path.is_dir()).collect()
    }
}

/// Copies the files of a directory, which may exist, and its subdirectories. Later files replace earlier
/// ones.
pub(crate) fn copy_all(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).map_err(Error::context(to.display()))?;
    for entry in fs::read_dir(from).map_err(Error::context(from.display()))?.flatten() {
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        if source.is_dir() {
            copy_all(&source, &target)?;
        } else if source.is_file() {
            fs::copy(&source, &target).map_err(Error::context(source.display()))?;
        }
    }
    Ok(())
}

/// Removes the files that `pki` left empty.
fn remove_empty_files(directory: &Path) -> Result<()> {
    for entry in fs::read_dir(directory).map_err(Error::context(directory.display()))?.flatten() {
        let path = entry.path();
        if path.is_dir() {
            remove_empty_files(&path)?;
        } else if entry.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.len() == 0) {
            fs::remove_file(&path).map_err(Error::context(path.display()))?;
        }
    }
    Ok(())
}
