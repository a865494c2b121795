//! jemalloc's built-in configuration. It prefers small to fast, because an agent allocates next to
//! nothing in the steady state.
//!
//! | option | why |
//! |---|---|
//! | `narenas:1` | the default is four per CPU: memory would grow with the machine |
//! | `tcache:false` | a thread cache would be filled by every scrape and never returned |
//! | `dirty_decay_ms:0`, `muzzy_decay_ms:0` | freed pages are returned at once: no later call would do it |
//! | `abort_conf:true` | a misspelt option in the environment ends the start instead of being ignored |
//!
//! The feature `jemalloc-profiling` adds options. `prof:true,prof_active:false` prepares jemalloc
//! to record call stacks. It starts to record when [`super::HeapProfile`] says so.
//! `lg_prof_sample:0` makes it record every allocation. The default of one in 512 KiB would hardly
//! see an agent whose whole heap is smaller than that.
//!
//! jemalloc reads this configuration first and the environment last. So `_RJEM_MALLOC_CONF`
//! overrides it option by option. If jemalloc comes through the C shim, the variable is
//! `MALLOC_CONF`. `KUBE_CANARY_NARENAS` sets the number of arenas at build time. With
//! `KUBE_CANARY_NARENAS=default`, jemalloc keeps all of its own defaults, including arenas per CPU
//! and caches per thread. That build measures the benefit of these options (`bench/cores`). It is
//! not for nodes.

/// Largest number of jemalloc arenas at build time: its own default, four per CPU, on 256 CPUs.
const NARENAS_MAX: u32 = 1_024;

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

/// The configuration in the form that jemalloc expects: NUL-terminated.
pub(crate) static MALLOC_CONF: [u8; LENGTH] = join(&[SMALL[0], SMALL[1], SMALL[2], END]);

/// Not for the shim: its jemalloc may not know these options, and would then end the start.
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

/// The symbol that jemalloc, with tikv-jemalloc-sys's prefix, looks for: `const char
/// *_rjem_malloc_conf`. A reference to an array has the same representation.
#[cfg(feature = "jemalloc")]
#[expect(unsafe_code, reason = "jemalloc finds its configuration by the symbol's name")]
// SAFETY: the name and the type are the ones that jemalloc declares, as a weak symbol.
#[unsafe(export_name = "_rjem_malloc_conf")]
pub static RJEM_MALLOC_CONF: &[u8; LENGTH_RJEM] = &join(&[SMALL[0], SMALL[1], SMALL[2], PROFILING, END]);

/// The total length of all parts in bytes.
const fn length(parts: &[&str]) -> usize {
    match parts {
        [] => 0,
        [first, rest @ ..] => first.len() + length(rest),
    }
}

/// Concatenates the parts. `N` must be the sum of their lengths, or the build fails.
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

/// Whether `text` is a decimal number in the accepted range. A leading zero is rejected, because
/// jemalloc would read the number as octal.
const fn is_narenas(text: &str) -> bool {
    match u32::from_str_radix(text, 10) {
        Ok(number) => 1 <= number && number <= NARENAS_MAX && matches!(text.as_bytes()[0], b'1'..=b'9'),
        Err(_) => false,
    }
}

/// Whether jemalloc keeps its own defaults.
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
    fn the_word_default_keeps_the_defaults_of_jemalloc() {
        assert!(is_default("default"));
        for other in ["", "1", "defaults", "Default", "default "] {
            assert!(!is_default(other), "{other}");
        }
        assert!(!is_narenas("default"));
    }
}
