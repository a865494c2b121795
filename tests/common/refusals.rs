//! Makes the kernel refuse system calls of a child process, as older kernels and sandboxes do, by a
//! seccomp filter.
#![expect(unsafe_code, reason = "prctl(2) has no safe wrapper in std")]

use std::ffi::{c_int, c_long};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// A call that is refused.
#[derive(Clone, Copy, Debug)]
pub struct Refusal {
    pub call: c_long,
    /// Arguments that the call must have: their index and value.
    pub arguments: &'static [(u32, c_int)],
    pub error: c_int,
}

/// Makes the kernel refuse these calls once the child has started its program.
pub fn refuse(command: &mut Command, refusals: &[Refusal]) {
    let mut filter = program(refusals);
    let set_up = move || {
        let length = u16::try_from(filter.len()).map_err(io::Error::other)?;
        let program = libc::sock_fprog { len: length, filter: filter.as_mut_ptr() };
        // SAFETY: prctl is async-signal-safe and reads the program, which outlives the call.
        let done = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
                && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) == 0
        };
        if done { Ok(()) } else { Err(io::Error::last_os_error()) }
    };
    // SAFETY: the closure only calls prctl, and touches no memory of the parent.
    unsafe { command.pre_exec(set_up) };
}

/// Returns the filter: of each refusal a comparison of the number and of each argument, which jump
/// to the next refusal, and the error.
fn program(refusals: &[Refusal]) -> Vec<libc::sock_filter> {
    // linux/bpf_common.h: load a word at an offset, jump if it is equal, return.
    const LOAD: u16 = 0x20;
    const JUMP_EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    // `struct seccomp_data`: the number of the call, and the arguments of eight bytes each.
    const NUMBER_AT: u32 = 0;
    const ARGUMENTS_AT: u32 = 16;
    const ALLOW: u32 = 0x7fff_0000;
    const ERROR: u32 = 0x0005_0000;
    let step = |code, k, jf| libc::sock_filter { code, jt: 0, jf, k };
    let number = |value: c_long| u32::try_from(value).expect("a small number");
    let mut program = Vec::new();
    for Refusal { call, arguments, error } in refusals {
        let compared = (arguments.iter()).map(|&(index, value)| (ARGUMENTS_AT + 8 * index, number(value.into())));
        let compared: Vec<(u32, u32)> = [(NUMBER_AT, number(*call))].into_iter().chain(compared).collect();
        for (place, &(offset, value)) in compared.iter().enumerate() {
            let rest = u8::try_from(2 * (compared.len() - place) - 1).expect("a short program");
            program.extend([step(LOAD, offset, 0), step(JUMP_EQUAL, value, rest)]);
        }
        program.push(step(RETURN, ERROR | number((*error).into()), 0));
    }
    program.push(step(RETURN, ALLOW, 0));
    program
}
