//! Links the image with its own linker script and without any part of an operating system.

fn main() {
    let script = "src/image/link.ld";
    println!("cargo::rerun-if-changed={script}");
    let directory = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    let script = format!("-Wl,-T,{directory}/{script}");
    let arguments = [
        "-nostartfiles",
        "-nostdlib",
        "-static",
        "-no-pie",
        "-Wl,--gc-sections",
        "-Wl,--build-id=none",
        "-Wl,-z,max-page-size=4096",
        "-Wl,-z,noexecstack",
        &script,
    ];
    for argument in arguments {
        println!("cargo::rustc-link-arg-bin=casemate-firmware={argument}");
    }
}
