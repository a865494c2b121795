//! The plain binary. The other `main` is c-shim/main.c.

use std::process::ExitCode;

#[cfg(all(target_env = "musl", not(any(feature = "jemalloc", feature = "leak-finder"))))]
#[global_allocator]
static GLOBAL: kube_canary::allocator::large::LargeApart = kube_canary::allocator::large::LargeApart;

fn main() -> ExitCode {
    let code = kube_canary::main_from(std::env::args_os().collect());
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}
