//! Builds the program: lwIP's sources, the glue and the host of `c/`, with sanitizers, and the library that devices get.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

/// The versions of lwIP that it is built with.
pub const VERSIONS: [&str; 2] = ["2.1.3", "2.2.1"];

/// Any fault that they see ends the program.
const SANITIZERS: [&str; 2] = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"];

/// Builds the program with this version of lwIP, and says where it is; or why it cannot be built here.
pub fn build(version: &str) -> Result<PathBuf, String> {
    // One at a time: tests of one program run at once.
    static BUILT: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());
    let lwip = lwip(version)?;
    let mut built = BUILT.lock().unwrap();
    let program = target().join("lwip").join(format!("host-{version}"));
    if !built.contains(&program) {
        if built.is_empty() {
            build_library();
        }
        compile(&lwip, &program);
        built.push(program.clone());
    }
    Ok(program)
}

/// Compiles the glue alone with these options of lwIP, such as `NO_SYS=0`: what the compiler has to say if it does not like it.
pub fn check_glue(version: &str, options: &[&str]) -> Result<Result<(), String>, String> {
    let mut command = compiler(&lwip(version)?);
    command.arg("-fsyntax-only").args(sources(&root().join("adapters/lwip/c")));
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

/// Cargo's target directory: tests are in `debug/deps` of it.
fn target() -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    test.ancestors().nth(3).expect("it is in target/debug/deps").into()
}

/// Without std and without unwinding, as devices get it.
fn build_library() {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(root()).args(["rustc", "--quiet", "--locked", "--package", "casemate-lwip", "--lib"]);
    command.args(["--crate-type", "staticlib", "--profile", "device", "--target-dir"]).arg(target());
    run(&mut command);
}

/// The compiler, told where headers are.
fn compiler(lwip: &Path) -> Command {
    let (own, adapter) = (root().join("verify/lwip/c"), root().join("adapters/lwip"));
    let mut command = Command::new("cc");
    command.args(["-std=c99", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror"]);
    for include in [own, adapter.join("include"), adapter.join("c"), lwip.join("include")] {
        command.arg("-I").arg(include);
    }
    command
}

fn compile(lwip: &Path, program: &Path) {
    let (own, adapter) = (root().join("verify/lwip/c"), root().join("adapters/lwip"));
    let mut command = compiler(lwip);
    command.args(["-g", "-O1"]).args(SANITIZERS);
    for directory in
        [&own, &adapter.join("c"), &lwip.join("core"), &lwip.join("core/ipv4"), &lwip.join("core/ipv6")]
    {
        command.args(sources(directory));
    }
    command.arg(lwip.join("netif/ethernet.c")).arg(lwip.join("api/err.c"));
    run(command.arg(target().join("device/libcasemate_lwip.a")).arg("-o").arg(program));
}

fn sources(directory: &Path) -> Vec<PathBuf> {
    let entries = directory.read_dir().unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == "c"))
        .collect()
}

fn run(command: &mut Command) {
    let status = command.status().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(status.success(), "{command:?}: {status}");
}
