//! Builds the program from lwIP's sources, the C part of Casemate, the example of adapters/lwip, and the
//! library for devices.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::SystemTime;

/// Supported versions of lwIP.
pub const VERSIONS: [&str; 2] = ["2.1.3", "2.2.1"];

/// Sanitizer that observes the program. Any fault that it detects ends the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sanitizer {
    /// None: as users build the program.
    None,
    /// AddressSanitizer with leak detection, and UndefinedBehaviorSanitizer.
    Address,
    /// ThreadSanitizer.
    Thread,
}

/// A build configuration of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Build {
    /// Version of lwIP.
    pub version: &'static str,
    /// With lwIP's own threads (`NO_SYS` 0), or with one thread for everything.
    pub is_threaded: bool,
    /// Sanitizer.
    pub sanitizer: Sanitizer,
}

impl Build {
    /// The configuration with one thread and memory checks.
    pub const fn checked(version: &'static str) -> Self {
        Self { version, is_threaded: false, sanitizer: Sanitizer::Address }
    }

    /// Returns the compiler options.
    fn options(self) -> Vec<&'static str> {
        let mut options = vec!["-g"];
        options.extend(match self.sanitizer {
            Sanitizer::None => &["-O2"][..],
            // Received packets are pbuf chains in one version, and contiguous in the other.
            Sanitizer::Address if self.version == "2.1.3" => &[
                "-O1",
                "-fsanitize=address,undefined",
                "-fno-sanitize-recover=all",
                "-DPBUF_POOL_BUFSIZE=256",
                "-DEXAMPLE_VLAN",
            ],
            Sanitizer::Address => {
                &["-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-DEXAMPLE_VLAN"]
            }
            Sanitizer::Thread => &["-O1", "-fsanitize=thread"],
        });
        if self.is_threaded {
            // lwIP's socket functions have unused parameters.
            options.extend(["-DNO_SYS=0", "-pthread", "-Wno-unused-parameter"]);
        }
        options
    }

    fn name(self) -> String {
        let threads = if self.is_threaded { "-threads" } else { "" };
        let sanitizer = match self.sanitizer {
            Sanitizer::None => "",
            Sanitizer::Address => "-memory",
            Sanitizer::Thread => "-races",
        };
        format!("casemate-lwip-{}{threads}{sanitizer}", self.version)
    }
}

/// Builds the program unless it exists, and returns its path. Returns an error if it cannot be built on
/// this machine.
pub fn build(build: Build) -> Result<PathBuf, String> {
    // One build at a time: the tests of a program run in parallel.
    static BUILT: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());
    let lwip = lwip(build.version)?;
    let mut built = BUILT.lock().unwrap();
    let program = target().join("lwip").join(build.name());
    if !built.contains(&program) {
        if built.is_empty() {
            build_library();
        }
        let sources = sources(&lwip, build.is_threaded);
        if !is_fresh(&program, &sources) {
            compile(&lwip, build, &sources, &program);
        }
        built.push(program.clone());
    }
    Ok(program)
}

/// Compiles only the C part of Casemate with these lwIP options, such as `NO_SYS=0`. The inner error has
/// the compiler's messages; the outer error means that lwIP or a compiler is missing.
pub fn check_glue(version: &str, options: &[&str]) -> Result<Result<(), String>, String> {
    let mut command = compiler(&lwip(version)?, true);
    command.arg("-fsyntax-only").args(in_c(&root().join("adapters/lwip/c")));
    command.args(options.iter().map(|option| format!("-D{option}")));
    let output = command.output().unwrap();
    let says = String::from_utf8_lossy(&output.stderr).into_owned();
    Ok(if output.status.success() { Ok(()) } else { Err(says) })
}

/// Returns the source directory of this lwIP version. Returns an error if lwIP or a C compiler is missing.
fn lwip(version: &str) -> Result<PathBuf, String> {
    let lwip = target().join("lwip").join(version).join("src");
    if !lwip.is_dir() {
        return Err(format!("{} is missing; `cargo xtask lwip` fetches it", lwip.display()));
    }
    if Command::new("cc").arg("--version").output().is_err() {
        return Err("no C compiler (`cc`) was found".into());
    }
    Ok(lwip)
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("verify/lwip is two below").into()
}

/// Returns cargo's target directory: programs are in `debug`, tests in `debug/deps`.
fn target() -> PathBuf {
    let program = std::env::current_exe().expect("a program has a path");
    let above = if program.parent().is_some_and(|parent| parent.ends_with("deps")) { 3 } else { 2 };
    program.ancestors().nth(above).expect("it is in target/debug").into()
}

fn library() -> PathBuf {
    target().join("device/libcasemate_lwip.a")
}

/// Builds the library without std and without unwinding, as for devices.
fn build_library() {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(root()).args(["rustc", "--quiet", "--locked", "--package", "casemate-lwip", "--lib"]);
    command
        .args([
            "--features",
            "legacy,multiple-kex,ppk",
            "--crate-type",
            "staticlib",
            "--profile",
            "device",
            "--target-dir",
        ])
        .arg(target());
    run(&mut command);
}

/// Returns a compiler command with the include paths.
fn compiler(lwip: &Path, is_threaded: bool) -> Command {
    let adapter = root().join("adapters/lwip");
    let mut command = Command::new("cc");
    command.args(["-std=c99", "-D_GNU_SOURCE=", "-Wall", "-Wextra", "-Werror"]);
    for directory in ["example", "example/port", "include", "c"] {
        command.arg("-I").arg(adapter.join(directory));
    }
    command.arg("-I").arg(lwip.join("include"));
    if is_threaded {
        // A system header directory: its headers redefine symbols of lwIP, which would cause warnings.
        command.arg("-isystem").arg(threads().join("include"));
    }
    command
}

/// Returns the directory of lwIP's port for Unix threads, which only the newer archive contains.
fn threads() -> PathBuf {
    target().join("lwip/2.2.1/contrib/ports/unix/port")
}

/// Returns all files to compile.
fn sources(lwip: &Path, is_threaded: bool) -> Vec<PathBuf> {
    let adapter = root().join("adapters/lwip");
    let mut files = Vec::new();
    let own = [adapter.join("example"), adapter.join("c")];
    for directory in own.into_iter().chain(["core", "core/ipv4", "core/ipv6"].map(|part| lwip.join(part))) {
        files.extend(in_c(&directory));
    }
    files.extend(["netif/ethernet.c", "apps/http/httpd.c", "apps/http/fs.c"].map(|file| lwip.join(file)));
    files.push(lwip.join("apps/lwiperf/lwiperf.c"));
    if is_threaded {
        files.extend(in_c(&lwip.join("api")));
        files.push(threads().join("sys_arch.c"));
    } else {
        files.push(lwip.join("api/err.c"));
    }
    files
}

/// Returns whether the program is newer than its sources.
fn is_fresh(program: &Path, sources: &[PathBuf]) -> bool {
    let changed = |path: &Path| path.metadata().and_then(|about| about.modified()).ok();
    let adapter = root().join("adapters/lwip");
    let headers = ["example", "example/port", "example/port/arch", "include", "c"];
    let headers = headers.into_iter().flat_map(|directory| files(&adapter.join(directory), "h"));
    let newest: Option<SystemTime> =
        sources.iter().cloned().chain(headers).chain([library()]).filter_map(|path| changed(&path)).max();
    changed(program) > newest
}

fn compile(lwip: &Path, build: Build, sources: &[PathBuf], program: &Path) {
    let mut command = compiler(lwip, build.is_threaded);
    command.args(build.options()).args(sources).arg(library()).arg("-o").arg(program);
    run(&mut command);
}

fn in_c(directory: &Path) -> Vec<PathBuf> {
    files(directory, "c")
}

/// Returns the files of a directory with this extension.
fn files(directory: &Path, end: &str) -> Vec<PathBuf> {
    let entries = directory.read_dir().unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    let paths = entries.map(|entry| entry.unwrap().path());
    paths.filter(|path| path.extension().is_some_and(|found| found == end)).collect()
}

fn run(command: &mut Command) {
    let status = command.status().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(status.success(), "{command:?}: {status}");
}
