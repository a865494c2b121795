//! How the kernel schedules a thread: sched_setattr(2).
#![expect(unsafe_code, reason = "sched_setattr(2) has no safe wrapper")]

/// `struct sched_attr` of linux/sched/types.h, first version. The libc crate lacks it for musl.
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

/// Sets the nice value of the calling thread, and the length of its slices in nanoseconds. 0 is the
/// default length. If the kernel refuses, nothing changes.
pub fn set_attributes(nice: i32, slice_ns: u64) {
    #[expect(clippy::cast_possible_truncation, reason = "48")]
    let size = size_of::<Attributes>() as u32;
    // Policy 0 is SCHED_OTHER.
    let attributes = Attributes { size, nice, runtime: slice_ns, ..Attributes::default() };
    let (itself, flags): (libc::pid_t, libc::c_uint) = (0, 0);
    // SAFETY: `attributes` outlives the call and says its own size; the kernel only reads it.
    unsafe { libc::syscall(libc::SYS_sched_setattr, itself, &raw const attributes, flags) };
}
