//! Builds the program: lwIP's sources, Casemate's part in C, the example of adapters/lwip, and the library that devices get.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::SystemTime;

/// The versions of lwIP that it is built with.
pub const VERSIONS: [&str; 2] = ["2.1.3", "2.2.1"];

/// What looks on while the program runs. Any fault that it sees ends the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Watch {
    /// Nothing: as users build it.
    Nobody,
    /// Addresses, leaks and undefined behaviour.
    Memory,
    /// Races between threads.
    Races,
}

/// One way to build the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Build {
    /// Of lwIP.
    pub version: &'static str,
    /// With threads of lwIP's own (`NO_SYS` 0), or one that does all.
    pub is_threaded: bool,
    /// What looks on.
    pub watch: Watch,
}

impl Build {
    /// With one thread, and a look at memory.
    pub const fn checked(version: &'static str) -> Self {
        Self { version, is_threaded: false, watch: Watch::Memory }
    }

    /// The options of the compiler.
    fn options(self) -> Vec<&'static str> {
        let mut options = vec!["-g"];
        options.extend(match self.watch {
            Watch::Nobody => &["-O2"][..],
            // Received packets are chains in one of the versions, and in one piece in the other.
            Watch::Memory if self.version == "2.1.3" => &[
                "-O1",
                "-fsanitize=address,undefined",
                "-fno-sanitize-recover=all",
                "-DPBUF_POOL_BUFSIZE=256",
                "-DEXAMPLE_VLAN",
            ],
            Watch::Memory => {
                &["-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-DEXAMPLE_VLAN"]
            }
            Watch::Races => &["-O1", "-fsanitize=thread"],
        });
        if self.is_threaded {
            // lwIP's sockets have parameters that they do not use.
            options.extend(["-DNO_SYS=0", "-pthread", "-Wno-unused-parameter"]);
        }
        options
    }

    fn name(self) -> String {
        let threads = if self.is_threaded { "-threads" } else { "" };
        let watch = match self.watch {
            Watch::Nobody => "",
            Watch::Memory => "-memory",
            Watch::Races => "-races",
        };
        format!("casemate-lwip-{}{threads}{watch}", self.version)
    }
}

/// Builds the program, if it is not there already, and says where it is; or why it cannot be built here.
pub fn build(build: Build) -> Result<PathBuf, String> {
    // One at a time: tests of one program run at once.
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

/// Compiles Casemate's part alone with these options of lwIP, such as `NO_SYS=0`: what the compiler has to say if it does not
/// like it.
pub fn check_glue(version: &str, options: &[&str]) -> Result<Result<(), String>, String> {
    let mut command = compiler(&lwip(version)?, true);
    command.arg("-fsyntax-only").args(in_c(&root().join("adapters/lwip/c")));
    command.args(options.iter().map(|option| format!("-D{option}")));
    let output = command.output().unwrap();
    let says = String::from_utf8_lossy(&output.stderr).into_owned();
    Ok(if output.status.success() { Ok(()) } else { Err(says) })
}

/// The directory of this version's sources, if they can be built here.
fn lwip(version: &str) -> Result<PathBuf, String> {
    let lwip = target().join("lwip").join(version).join("src");
    if !lwip.is_dir() {
        return Err(format!("{} is missing; `cargo xtask lwip` fetches it", lwip.display()));
    }
    if Command::new("cc").arg("--version").output().is_err() {
        return Err("there is no C compiler".into());
    }
    Ok(lwip)
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("verify/lwip is two below").into()
}

/// Cargo's target directory: programs are in `debug` of it, tests in `debug/deps`.
fn target() -> PathBuf {
    let program = std::env::current_exe().expect("a program has a path");
    let above = if program.parent().is_some_and(|parent| parent.ends_with("deps")) { 3 } else { 2 };
    program.ancestors().nth(above).expect("it is in target/debug").into()
}

fn library() -> PathBuf {
    target().join("device/libcasemate_lwip.a")
}

/// Without std and without unwinding, as devices get it.
fn build_library() {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(root()).args(["rustc", "--quiet", "--locked", "--package", "casemate-lwip", "--lib"]);
    command
        .args(["--features", "legacy", "--crate-type", "staticlib", "--profile", "device", "--target-dir"])
        .arg(target());
    run(&mut command);
}

/// The compiler, told where headers are.
fn compiler(lwip: &Path, is_threaded: bool) -> Command {
    let adapter = root().join("adapters/lwip");
    let mut command = Command::new("cc");
    command.args(["-std=c99", "-D_GNU_SOURCE=", "-Wall", "-Wextra", "-Werror"]);
    for directory in ["example", "example/port", "include", "c"] {
        command.arg("-I").arg(adapter.join(directory));
    }
    command.arg("-I").arg(lwip.join("include"));
    if is_threaded {
        // Not ours: it defines again what lwIP has.
        command.arg("-isystem").arg(threads().join("include"));
    }
    command
}

/// lwIP's own threads for Unix, which only the newer of the archives has.
fn threads() -> PathBuf {
    target().join("lwip/2.2.1/contrib/ports/unix/port")
}

/// Every file to compile.
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

/// Whether a program is newer than what it is made of.
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

/// The files of a directory that end so.
fn files(directory: &Path, end: &str) -> Vec<PathBuf> {
    let entries = directory.read_dir().unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    let paths = entries.map(|entry| entry.unwrap().path());
    paths.filter(|path| path.extension().is_some_and(|found| found == end)).collect()
}

fn run(command: &mut Command) {
    let status = command.status().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(status.success(), "{command:?}: {status}");
}
