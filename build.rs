//! Passes the order of functions to the linker, for release builds: see layout/README.md.

fn main() {
    println!("cargo::rerun-if-changed=layout/functions.ld");
    let variable = |name| std::env::var(name).unwrap_or_default();
    if variable("PROFILE") == "release" && variable("CARGO_CFG_TARGET_OS") == "linux" {
        println!("cargo::rustc-link-arg-bins=-Wl,-T,{}/layout/functions.ld", variable("CARGO_MANIFEST_DIR"));
    }
}
