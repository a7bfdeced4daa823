//! The files of the package as they are installed, in a directory.

use super::parts::{self, Part};
use super::{Release, renew, text};
use crate::shell::{self, Failure, Result};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// Directory of the documentation.
const DOC: &str = "usr/share/doc/casemate";
/// Pages of the manual about the program; the others are about the lab and about other adapters.
const MANUAL: [&str; 20] = [
    "calls.md",
    "certificates.md",
    "cloud.md",
    "counters.md",
    "firewall.md",
    "guard.md",
    "ike.md",
    "ike-vulns.md",
    "inspect.md",
    "install.md",
    "ipsec-vulns.md",
    "metrics.md",
    "migration.md",
    "run.md",
    "stack.md",
    "swanctl.md",
    "trace.md",
    "troubleshooting.md",
    "vici.md",
    "xfrm.md",
];
/// Schemas of JSON output, which pages of the manual name.
const SCHEMAS: [&str; 3] = ["calls.json", "status.json", "why.json"];
/// Templates for cloud gateways.
const CLOUD: [&str; 4] = ["aws.conf", "azure.conf", "cloudflare.conf", "google.conf"];
/// Directories of configurations, which the installation closes to other users
/// (packaging/systemd/casemate.tmpfiles).
const CONFIGURATION: [&str; 5] = ["conf.d", "private", "x509", "x509ca", "x509crl"];
/// Completion scripts: the shell, and the file that it looks for.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "usr/share/bash-completion/completions/casemate"),
    ("zsh", "usr/share/zsh/vendor-completions/_casemate"),
    ("fish", "usr/share/fish/vendor_completions.d/casemate.fish"),
];

/// The installed files, and the debug symbols.
pub(super) struct Tree {
    root: PathBuf,
    /// The program with its debug symbols.
    unstripped: PathBuf,
}

impl Tree {
    /// Makes the files in a subdirectory.
    pub(super) fn make(directory: &Path, built: &Path, parts: &[Part], release: &Release) -> Result<Self> {
        let root = directory.join("root");
        renew(&root)?;
        let tree = Self { root, unstripped: built.to_owned() };
        tree.add_program()?;
        tree.add_service()?;
        tree.add_documentation(release)?;
        tree.write(&format!("{DOC}/{}", parts::SBOM), &parts::sbom(parts, release)?)?;
        tree.write_compressed(&format!("{DOC}/third-party-notices.txt"), &parts::notices(parts)?)?;
        Ok(tree)
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    pub(super) fn program(&self) -> PathBuf {
        self.root.join("usr/bin/casemate")
    }

    pub(super) fn unstripped(&self) -> &Path {
        &self.unstripped
    }

    /// The program without symbols, its manual pages and its completions.
    fn add_program(&self) -> Result {
        let program = self.program();
        fs::create_dir_all(program.parent().unwrap_or(&program))?;
        shell::run(
            shell::command("strip").arg("--strip-unneeded").arg("-o").arg(&program).arg(&self.unstripped),
        )?;
        set_mode(&program, 0o755)?;
        let pages = self.root.join("usr/share/man/man1");
        fs::create_dir_all(&pages)?;
        shell::run(shell::command(&program).arg("man").arg(&pages))?;
        for page in fs::read_dir(&pages)? {
            compress(&page?.path())?;
        }
        for (name, path) in COMPLETIONS {
            let script = shell::output(shell::command(&program).args(["completions", name]))?;
            self.write(path, &String::from_utf8_lossy(&script))?;
        }
        Ok(())
    }

    /// The unit with its user, and the configuration.
    fn add_service(&self) -> Result {
        for (from, to) in [
            ("systemd/casemate.service", "usr/lib/systemd/system/casemate.service"),
            ("systemd/casemate.sysusers", "usr/lib/sysusers.d/casemate.conf"),
            ("systemd/casemate.tmpfiles", "usr/lib/tmpfiles.d/casemate.conf"),
            ("polkit/casemate.rules", "usr/share/polkit-1/rules.d/casemate.rules"),
            ("etc/swanctl.conf", "etc/casemate/swanctl.conf"),
            ("debian/lintian-overrides", "usr/share/lintian/overrides/casemate"),
        ] {
            self.write(to, &source(from)?)?;
        }
        for name in CONFIGURATION {
            fs::create_dir_all(self.root.join("etc/casemate").join(name))?;
        }
        Ok(())
    }

    fn add_documentation(&self, release: &Release) -> Result {
        let docs = shell::root().join("docs/manual");
        for page in MANUAL {
            self.write(&format!("{DOC}/manual/{page}"), &fs::read_to_string(docs.join(page))?)?;
        }
        for (directory, files) in [("schema", &SCHEMAS[..]), ("cloud", &CLOUD[..])] {
            for file in files {
                let text = fs::read_to_string(docs.join(directory).join(file))?;
                self.write(&format!("{DOC}/manual/{directory}/{file}"), &text)?;
            }
        }
        let readme = fs::read_to_string(shell::root().join("README.md"))?;
        for (name, example) in examples(&readme) {
            self.write(&format!("{DOC}/examples/{name}.conf"), &example)?;
        }
        for name in ["grafana-dashboard.json", "prometheus-rules.yml"] {
            self.write(&format!("{DOC}/examples/{name}"), &source(&format!("monitoring/{name}"))?)?;
        }
        let changes = fs::read_to_string(shell::root().join("CHANGELOG.md"))?;
        self.write_compressed(&format!("{DOC}/changelog"), &changes)?;
        self.write_compressed(&format!("{DOC}/changelog.Debian"), &debian_changelog(release)?)?;
        let licence = fs::read_to_string(shell::root().join("LICENSE-MIT"))?;
        self.write(&format!("{DOC}/copyright"), &copyright(&source("debian/copyright")?, &licence))
    }

    /// Writes a file that everyone may read.
    fn write(&self, path: &str, content: &str) -> Result {
        let path = self.root.join(path);
        let directory = path.parent().unwrap_or(&path);
        fs::create_dir_all(directory)?;
        fs::write(&path, content)?;
        set_mode(&path, 0o644)
    }

    fn write_compressed(&self, path: &str, content: &str) -> Result {
        self.write(path, content)?;
        compress(&self.root.join(path))
    }
}

/// A file of `packaging/`.
pub(super) fn source(path: &str) -> Result<String> {
    let path = shell::root().join("packaging").join(path);
    fs::read_to_string(&path).map_err(|error| Failure::new(format!("{}: {error}", path.display())))
}

pub(super) fn set_mode(path: &Path, mode: u32) -> Result {
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(mode))?)
}

/// Replaces a file by a compressed one, without its name and time.
fn compress(path: &Path) -> Result {
    shell::output(shell::command("gzip").args(["-9", "--no-name"]).arg(path)).map(drop)
}

/// The configurations in a page: those of code blocks, each with a name from the heading above.
fn examples(page: &str) -> Vec<(String, String)> {
    let (mut heading, mut block, mut found) = (String::new(), None::<String>, Vec::new());
    for line in page.lines() {
        match (&mut block, line) {
            (None, "```text") => block = Some(String::new()),
            (None, line) => {
                if let Some(title) = line.strip_prefix("## ") {
                    heading = title.to_lowercase().replace(' ', "-");
                }
            }
            (Some(text), "```") => {
                if text.starts_with("connections {") {
                    let number =
                        found.iter().filter(|(name, _): &&(String, _)| name.starts_with(&heading)).count();
                    let suffix =
                        if number == 0 { String::new() } else { format!("-{}", number.saturating_add(1)) };
                    found.push((format!("{heading}{suffix}"), std::mem::take(text)));
                }
                block = None;
            }
            (Some(text), line) => {
                text.push_str(line);
                text.push('\n');
            }
        }
    }
    found
}

/// Debian's change log: the upstream one has the changes.
fn debian_changelog(release: &Release) -> Result<String> {
    let Release { version, maintainer, timestamp, .. } = release;
    let date =
        text(shell::command("date").args(["--utc", "--rfc-email", "--date", &format!("@{timestamp}")]))?;
    Ok(format!(
        "casemate ({version}) unstable; urgency=medium\n\n  * Package of the upstream version; changelog.gz has the \
         changes.\n\n -- {maintainer}  {date}\n"
    ))
}

/// The copyright file with the text of the licence.
fn copyright(beginning: &str, licence: &str) -> String {
    let body = licence.split_once("Permission is").map_or(licence, |(head, _)| &licence[head.len()..]);
    let lines = body.lines().map(|line| if line.is_empty() { " .\n".into() } else { format!(" {line}\n") });
    let apache = "License: Apache-2.0\n On Debian systems, the text of the licence is in\n \
                  /usr/share/common-licenses/Apache-2.0.\n";
    format!("{beginning}License: Expat\n{}\n{apache}", lines.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_have_the_names_of_their_headings() {
        let page = "## Site to site\n```text\nconnections {\n}\n```\n```sh\nls\n```\n```text\nconnections {\n a\n}\n```\n";
        let expected = [("site-to-site", "connections {\n}\n"), ("site-to-site-2", "connections {\n a\n}\n")];
        assert_eq!(examples(page), expected.map(|(name, text)| (name.to_owned(), text.to_owned())));
        let readme = fs::read_to_string(shell::root().join("README.md")).unwrap();
        assert_eq!(examples(&readme).len(), 3);
    }

    #[test]
    fn sources_exist() {
        for page in MANUAL {
            assert!(shell::root().join("docs/manual").join(page).is_file(), "{page}");
        }
        let made =
            copyright(&source("debian/copyright").unwrap(), "Copyright\n\nPermission is granted\n\nto all\n");
        assert!(made.ends_with(
            "License: Expat\n Permission is granted\n .\n to all\n\nLicense: Apache-2.0\n On Debian systems, the text \
             of the licence is in\n /usr/share/common-licenses/Apache-2.0.\n"
        ));
    }
}
