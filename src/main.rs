//! The plain binary. With the feature `c-shim`, `main` is that of c-shim/main.c.
#![cfg_attr(feature = "c-shim", no_main)]

/// Only C calls this function. Without a reference, the linker would not extract
/// it from the library.
#[cfg(feature = "c-shim")]
#[used]
static CALLED_BY_C: unsafe extern "C" fn(
    std::ffi::c_int,
    *const *mut std::ffi::c_char,
    *const kube_canary::shim::KubeCanaryLink,
) -> std::ffi::c_int = kube_canary::shim::kube_canary_main;

#[cfg(all(target_env = "musl", not(any(feature = "c-shim", feature = "jemalloc", feature = "leak-finder"))))]
#[global_allocator]
static GLOBAL: kube_canary::allocator::large::LargeApart = kube_canary::allocator::large::LargeApart;

#[cfg(not(feature = "c-shim"))]
fn main() -> std::process::ExitCode {
    let code = kube_canary::main_from(std::env::args_os().collect());
    std::process::ExitCode::from(u8::try_from(code).unwrap_or(1))
}
