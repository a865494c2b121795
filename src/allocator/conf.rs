//! jemalloc's configuration, baked in: small before fast, for an agent allocates next to nothing in the steady state.
//!
//! | option | why |
//! |---|---|
//! | `narenas:1` | the default is four per processor: memory would follow the machine |
//! | `tcache:false` | a cache per thread, filled by every scrape and never given back |
//! | `dirty_decay_ms:0`, `muzzy_decay_ms:0` | freed pages go back at once: there is no later call that would do it |
//! | `abort_conf:true` | a misspelt option in the environment ends the start instead of being ignored |
//!
//! With `jemalloc-profiling` there is more: `prof:true,prof_active:false` has it ready to note call stacks, which it begins
//! to do when [`super::HeapProfile`] says so, and `lg_prof_sample:0` has it note each: the default, one in 512 KiB, would
//! hardly see an agent whose whole heap is smaller than that.
//!
//! jemalloc reads this first and the environment last, so `_RJEM_MALLOC_CONF` (or `MALLOC_CONF`, where jemalloc comes
//! by way of the C shim) overrides it option by option. `KUBE_CANARY_NARENAS` sets the number of arenas at build time; built
//! with `KUBE_CANARY_NARENAS=default`, jemalloc keeps all of its own defaults, arenas per processor and caches per thread
//! included. That is for measuring what the above is worth (`bench/cores`), not for nodes.

use crate::limits::NARENAS_MAX;

const NARENAS: &str = match option_env!("KUBE_CANARY_NARENAS") {
    Some(typed) => typed,
    None => "1",
};
const SMALL: [&str; 3] = if is_default(NARENAS) {
    ["", "", ""]
} else {
    ["narenas:", NARENAS, ",tcache:false,dirty_decay_ms:0,muzzy_decay_ms:0,"]
};
const END: &str = "abort_conf:true\0";
const LENGTH: usize = length(&SMALL) + END.len();

/// The configuration as jemalloc wants it: NUL-terminated.
pub(crate) static MALLOC_CONF: [u8; LENGTH] = join(&[SMALL[0], SMALL[1], SMALL[2], END]);

/// Not for the shim, whose jemalloc may not know these words, and would end the start.
#[cfg(feature = "jemalloc")]
const PROFILING: &str =
    if cfg!(feature = "jemalloc-profiling") { "prof:true,prof_active:false,lg_prof_sample:0," } else { "" };
#[cfg(feature = "jemalloc")]
const LENGTH_RJEM: usize = LENGTH + PROFILING.len();

const VARIABLE: &str = "KUBE_CANARY_NARENAS=";
const ACCEPTED: &str = ": a whole number from 1 to 1024, or default, is accepted";
const REFUSAL: [u8; VARIABLE.len() + NARENAS.len() + ACCEPTED.len()] = join(&[VARIABLE, NARENAS, ACCEPTED]);

const _: () = match (is_narenas(NARENAS) || is_default(NARENAS), str::from_utf8(&REFUSAL)) {
    (true, _) => (),
    (false, Ok(refusal)) => panic!("{}", refusal),
    (false, Err(_)) => unreachable!(),
};
const _: () = assert!(NARENAS_MAX == 1_024, "the message above names the bound");

/// What jemalloc, with the prefix that tikv-jemalloc-sys gives it, looks for: `const char *_rjem_malloc_conf`, which a
/// reference to an array is.
#[cfg(feature = "jemalloc")]
#[expect(unsafe_code, reason = "jemalloc finds its configuration by the symbol's name")]
// SAFETY: the name and the type are the ones that jemalloc declares, as a weak symbol.
#[unsafe(export_name = "_rjem_malloc_conf")]
pub static RJEM_MALLOC_CONF: &[u8; LENGTH_RJEM] = &join(&[SMALL[0], SMALL[1], SMALL[2], PROFILING, END]);

/// The bytes of all parts.
const fn length(parts: &[&str]) -> usize {
    match parts {
        [] => 0,
        [first, rest @ ..] => first.len() + length(rest),
    }
}

/// The parts, one after the other; `N` is the sum of their lengths, or the build fails.
const fn join<const N: usize>(mut parts: &[&str]) -> [u8; N] {
    let mut joined = [0; N];
    let mut free = joined.as_mut_slice();
    while let [first, rest @ ..] = parts {
        let (here, behind) = free.split_at_mut(first.len());
        here.copy_from_slice(first.as_bytes());
        (free, parts) = (behind, rest);
    }
    assert!(free.is_empty());
    joined
}

/// Whether `text` is a decimal number in the accepted range. No leading zero: jemalloc would read it as octal.
const fn is_narenas(text: &str) -> bool {
    match u32::from_str_radix(text, 10) {
        Ok(number) => 1 <= number && number <= NARENAS_MAX && matches!(text.as_bytes()[0], b'1'..=b'9'),
        Err(_) => false,
    }
}

/// Whether jemalloc is to keep its own defaults.
const fn is_default(text: &str) -> bool {
    matches!(text.as_bytes(), b"default")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_is_one_c_string() {
        let conf = std::ffi::CStr::from_bytes_with_nul(&MALLOC_CONF).expect("one NUL, at the end");
        let start = if is_default(NARENAS) { "abort_conf:".into() } else { format!("narenas:{NARENAS},tcache:false,") };
        assert!(conf.to_str().expect("text").starts_with(&start), "{conf:?}");
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

    #[test]
    fn one_word_leaves_jemalloc_alone() {
        assert!(is_default("default"));
        for other in ["", "1", "defaults", "Default", "default "] {
            assert!(!is_default(other), "{other}");
        }
        assert!(!is_narenas("default"));
    }
}
