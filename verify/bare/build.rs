//! Links bare-metal programs with the linker script of their board.

fn main() {
    println!("cargo::rerun-if-changed=link");
    let directory = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    let target = std::env::var("TARGET").unwrap_or_default();
    let board = match target.split('-').next() {
        Some("thumbv7em") => "mps2",
        Some("armv6") => "raspi1",
        Some("aarch64") => "virt",
        Some("x86_64") => "none",
        _ => return,
    };
    if target.ends_with("linux-gnu") {
        return;
    }
    println!("cargo::rustc-link-arg-bins=-L{directory}/link");
    println!("cargo::rustc-link-arg-bins=-T{directory}/link/{board}.ld");
    println!("cargo::rustc-link-arg-bins=--gc-sections");
}
