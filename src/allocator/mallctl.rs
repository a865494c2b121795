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
    let mut bytes = size_of::<T>();
    let to = (&raw mut value).cast();
    // SAFETY: `name` is a C string; `to` and `bytes` are a live value, of which any bytes are one,
    // and its size; nothing is written.
    let error = unsafe { mallctl(name.as_ptr(), to, &raw mut bytes, ptr::null_mut(), 0) };
    (error == 0 && bytes == size_of::<T>()).then_some(value)
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
pub(super) fn write<T: Copy>(mallctl: Mallctl, name: &CStr, value: T) -> Result<(), c_int> {
    let mut value = value;
    // SAFETY: `name` is a C string; jemalloc copies the value, and compares its size with what it
    // expects; nothing is read.
    let error =
        unsafe { mallctl(name.as_ptr(), ptr::null_mut(), ptr::null_mut(), (&raw mut value).cast(), size_of::<T>()) };
    if error == 0 { Ok(()) } else { Err(error) }
}
