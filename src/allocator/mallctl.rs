//! jemalloc's `mallctl`, which reads its values and sets its options. Names and types are those of
//! its manual (jemalloc(3), "MALLCTL NAMESPACE").
#![expect(unsafe_code, reason = "jemalloc answers by a C function")]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;

/// The type of jemalloc's `mallctl` function.
pub(crate) type Mallctl = unsafe extern "C" fn(*const c_char, *mut c_void, *mut usize, *mut c_void, usize) -> c_int;

/// A type that values in jemalloc's namespace have.
///
/// # Safety
/// Any bytes are a value of it.
pub(super) unsafe trait Plain: Copy + Default {}
// SAFETY: an integer, as the next three.
unsafe impl Plain for u8 {}
// SAFETY: as above.
unsafe impl Plain for u32 {}
// SAFETY: as above.
unsafe impl Plain for u64 {}
// SAFETY: as above.
unsafe impl Plain for usize {}

/// Reads the value of `name`. Returns none if this jemalloc does not have it, or has
/// it in another size.
pub(super) fn read<T: Plain>(mallctl: Mallctl, name: &CStr) -> Option<T> {
    let mut value = T::default();
    (call(mallctl, name, Some(&mut value), None) == Ok(size_of::<T>())).then_some(value)
}

/// Reads a constant string.
pub(super) fn read_text(mallctl: Mallctl, name: &'static CStr) -> Option<String> {
    let address = read::<usize>(mallctl, name).filter(|&address| address != 0)?;
    // SAFETY: strings of the namespace are `const char *` to constants of jemalloc's.
    let text = unsafe { CStr::from_ptr(ptr::with_exposed_provenance(address)) };
    Some(text.to_string_lossy().into_owned())
}

/// Sets `name`. It must be of the type `T` there, and jemalloc must not keep what
/// `value` points to.
///
/// # Errors
/// The error number that jemalloc returns.
pub(super) fn write<T: Copy>(mallctl: Mallctl, name: &CStr, mut value: T) -> Result<(), c_int> {
    call(mallctl, name, None, Some(&mut value)).map(drop)
}

/// Reads into `old` and sets to `new`. Returns the size of the old value.
fn call<T: Copy>(mallctl: Mallctl, name: &CStr, old: Option<&mut T>, new: Option<&mut T>) -> Result<usize, c_int> {
    let mut bytes = size_of::<T>();
    let new_bytes = if new.is_some() { bytes } else { 0 };
    // An option that can only be set accepts no pointer to a size.
    let old_bytes = if old.is_some() { &raw mut bytes } else { ptr::null_mut() };
    let [old, new] = [old, new].map(|value| value.map_or(ptr::null_mut(), ptr::from_mut).cast());
    // SAFETY: `name` is a C string. Each value is null or has the stated size, with which jemalloc
    // compares what it expects. It writes only to `old`, a [`Plain`] value, and to `bytes`.
    let error = unsafe { mallctl(name.as_ptr(), old, old_bytes, new, new_bytes) };
    if error == 0 { Ok(bytes) } else { Err(error) }
}
