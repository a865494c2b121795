//! Decides which threads get a CPU first. The probe thread comes first, because it needs one
//! briefly and at once. The threads that serve HTTP come next.
//!
//! This needs no privilege: a thread may always request shorter slices, and less than its share. If
//! the kernel refuses (a seccomp profile, a sandbox), only this advantage is lost.

use kube_canary_kernel::scheduling::set_attributes;
use rustix::process::getpriority_process;

/// The shortest slice that the kernel grants. The kernel considers it when a thread wakes: a thread
/// that requests little CPU time gets it soon.
const PROBE_SLICE_NS: u64 = 100_000;
/// The nice value of HTTP threads. It gives a third of the weight of the probe thread, and of any
/// other process at its default.
const HTTP_NICE: i32 = 5;
/// The highest nice value, which gives the least weight.
const NICE_MAX: i32 = 19;

/// Marks the calling thread as the probe thread. It requests short slices, which Linux considers
/// from 6.12 on (EEVDF).
pub fn mark_probe_thread() {
    set_attributes(nice(), PROBE_SLICE_NS);
}

/// Marks the calling thread as one that serves HTTP. A scrape of thousands of peers
/// takes milliseconds, and may wait for a probe. Resets the slice that was inherited
/// from the creating thread.
pub fn mark_http_thread() {
    const DEFAULT_SLICE: u64 = 0;
    set_attributes((nice() + HTTP_NICE).min(NICE_MAX), DEFAULT_SLICE);
}

/// The nice value of the calling thread: on Linux these calls concern threads (setpriority(2), C
/// library/kernel differences).
fn nice() -> i32 {
    getpriority_process(None).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn http_threads_get_less_weight_and_the_probe_thread_no_less() {
        let before = nice();
        mark_probe_thread();
        assert_eq!(nice(), before);
        let of_worker = std::thread::spawn(|| {
            mark_http_thread();
            nice()
        });
        assert_eq!(of_worker.join().unwrap(), (before + HTTP_NICE).min(NICE_MAX));
        assert_eq!(nice(), before, "of that thread alone");
    }
}
