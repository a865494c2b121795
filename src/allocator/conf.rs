//! jemalloc's configuration, baked in: small before fast, for an agent allocates next to nothing in the steady state.
//!
//! | option | why |
//! |---|---|
//! | `narenas:1` | the default is four per processor: memory would follow the machine |
//! | `tcache:false` | a cache per thread, filled by every scrape and never given back |
//! | `dirty_decay_ms:0`, `muzzy_decay_ms:0` | freed pages go back at once: there is no later call that would do it |
//! | `abort_conf:true` | a misspelt option in the environment ends the start instead of being ignored |
//!
//! jemalloc reads this first and the environment last, so `_RJEM_MALLOC_CONF` (or `MALLOC_CONF`, where jemalloc comes
//! by way of the C shim) overrides it option by option. `KUBE_CANARY_NARENAS` sets the number of arenas at build time.

use crate::limits::NARENAS_MAX;

const NARENAS: &str = match option_env!("KUBE_CANARY_NARENAS") {
    Some(typed) => typed,
    None => "1",
};
const BEFORE: &str = "narenas:";
const AFTER: &str = ",tcache:false,dirty_decay_ms:0,muzzy_decay_ms:0,abort_conf:true\0";
const LENGTH: usize = BEFORE.len() + NARENAS.len() + AFTER.len();

const _: () = assert!(is_narenas(NARENAS), "KUBE_CANARY_NARENAS: a whole number from 1 to 1024 is accepted");
const _: () = assert!(NARENAS_MAX == 1_024, "the message above names the bound");

/// The configuration as jemalloc wants it: NUL-terminated.
pub(crate) static MALLOC_CONF: [u8; LENGTH] = {
    let mut conf = [0; LENGTH];
    append(&mut conf, 0, BEFORE);
    append(&mut conf, BEFORE.len(), NARENAS);
    append(&mut conf, BEFORE.len() + NARENAS.len(), AFTER);
    conf
};

/// What jemalloc, with the prefix that tikv-jemalloc-sys gives it, looks for: `const char *_rjem_malloc_conf`, which a
/// reference to an array is.
#[cfg(feature = "jemalloc")]
#[expect(unsafe_code, reason = "jemalloc finds its configuration by the symbol's name")]
// SAFETY: the name and the type are the ones that jemalloc declares, as a weak symbol.
#[unsafe(export_name = "_rjem_malloc_conf")]
pub static RJEM_MALLOC_CONF: &[u8; LENGTH] = &MALLOC_CONF;

const fn append(to: &mut [u8; LENGTH], at: usize, text: &str) {
    to.split_at_mut(at).1.split_at_mut(text.len()).0.copy_from_slice(text.as_bytes());
}

/// Whether `text` is a decimal number in the accepted range. No leading zero: jemalloc would read it as octal.
const fn is_narenas(text: &str) -> bool {
    match u32::from_str_radix(text, 10) {
        Ok(number) => 1 <= number && number <= NARENAS_MAX && matches!(text.as_bytes()[0], b'1'..=b'9'),
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_is_one_c_string() {
        let conf = std::ffi::CStr::from_bytes_with_nul(&MALLOC_CONF).expect("one NUL, at the end");
        assert!(conf.to_str().expect("text").starts_with(&format!("narenas:{NARENAS},tcache:false,")));
    }

    #[test]
    fn a_number_of_arenas_outside_the_range_is_refused() {
        for good in ["1", "8", "1024"] {
            assert!(is_narenas(good), "{good}");
        }
        for bad in ["", "0", "010", "-1", "+1", "1025", "4294967297", "1.5", "one", "1,tcache:true"] {
            assert!(!is_narenas(bad), "{bad}");
        }
    }
}
