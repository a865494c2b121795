//! The plain binary.

use std::process::ExitCode;

fn main() -> ExitCode {
    let code = kube_canary::main_from(std::env::args_os().collect());
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}
