//! Who gets a processor first: the probe thread, which needs one for a moment and at once, then whoever serves HTTP.
//!
//! Without any privilege: a thread may always ask for shorter slices, and for less than its share. Where the kernel does
//! not grant it (a seccomp profile, a sandbox), nothing is lost but the favour.
#![expect(unsafe_code, reason = "sched_setattr(2) and getpriority(2) have no safe wrapper in std")]

/// The shortest slice that the kernel grants. It looks at it when a thread wakes: who asks for little is served soon.
const PROBE_SLICE_NS: u64 = 100_000;
/// A third of the weight of the probe thread, and of any other process at its default.
const HTTP_NICE: libc::c_int = 5;
/// The least that can be asked for.
const NICE_MAX: libc::c_int = 19;

/// `struct sched_attr` of linux/sched/types.h, first version; the libc crate lacks it for musl.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// The calling thread probes: it asks for short slices, which Linux takes into account from 6.12 on (EEVDF).
pub fn of_probes() {
    ask(nice(), PROBE_SLICE_NS);
}

/// The calling thread serves HTTP: a scrape of thousands of peers is work for milliseconds, and may wait for a probe.
/// Takes back what the thread that made it had asked for.
pub fn of_http() {
    const DEFAULT_SLICE: u64 = 0;
    ask((nice() + HTTP_NICE).min(NICE_MAX), DEFAULT_SLICE);
}

/// Of the calling thread: on Linux these calls concern threads (setpriority(2), C library/kernel differences).
fn nice() -> libc::c_int {
    // SAFETY: takes no pointer; an error gives -1, a valid answer too.
    unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) }
}

fn ask(nice: i32, runtime: u64) {
    #[expect(clippy::cast_possible_truncation, reason = "48")]
    let size = size_of::<Attributes>() as u32;
    // Policy 0 is SCHED_OTHER.
    let attributes = Attributes { size, nice, runtime, ..Attributes::default() };
    let (itself, flags): (libc::pid_t, libc::c_uint) = (0, 0);
    // SAFETY: `attributes` outlives the call and says its own size; the kernel only reads it.
    unsafe { libc::syscall(libc::SYS_sched_setattr, itself, &raw const attributes, flags) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn http_gets_less_and_the_probes_no_less_than_before() {
        let before = nice();
        of_probes();
        assert_eq!(nice(), before);
        let of_worker = std::thread::spawn(|| {
            of_http();
            nice()
        });
        assert_eq!(of_worker.join().unwrap(), (before + HTTP_NICE).min(NICE_MAX));
        assert_eq!(nice(), before, "of that thread alone");
    }
}
