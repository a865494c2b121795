//! Call stacks. They are recorded as bare addresses at the allocation, and get names only when
//! there is a leak to report.
//!
//! The call site is the first frame that belongs neither to the standard library nor to the finder.
//! If it is in another crate, the report adds the first frame of our code. Names and lines come
//! from the debug information, which the dev profile has.

use std::collections::HashMap;
use std::ffi::c_void;
use std::fmt;

use super::live::LiveAllocation;
use crate::allocator::stack::walk;

/// Frames that the leak finder keeps of a call stack. A debug build has about 20 of the finder and
/// of the standard library before ours.
const LEAK_STACK_FRAMES: usize = 48;
/// Call sites that the leak finder names, largest first.
const LEAK_LINES_MAX: usize = 40;

const NO_STACK: &str = "an unknown function: no call stacks were kept";

/// Return addresses, the innermost first, with 0 after the last.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallStack([usize; LEAK_STACK_FRAMES]);

impl CallStack {
    pub(super) fn here() -> Self {
        let mut frames = [0; LEAK_STACK_FRAMES];
        let mut places = frames.iter_mut();
        walk(|address| places.next().map(|place| *place = address.addr()).is_some());
        Self(frames)
    }
}

/// The live allocations of one call site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leak {
    /// The total size of the blocks, in bytes.
    pub bytes: usize,
    /// The number of blocks that are live.
    pub allocations: u64,
    /// `function file:line`. If that is in another crate, the caller in our code follows.
    pub site: String,
}

impl fmt::Display for Leak {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LEAK: {} bytes in {} allocations at {}", self.bytes, self.allocations, self.site)
    }
}

/// Adds allocations up by call site. Returns at most [`LEAK_LINES_MAX`] sites, the largest first.
/// The rest and the `missed` allocations follow.
pub(super) fn by_call_site(live: &[LiveAllocation], missed: u64) -> Vec<Leak> {
    let mut names = HashMap::new();
    let mut sites: HashMap<String, (usize, u64)> = HashMap::new();
    for live in live {
        let site = live.stack.as_ref().map_or_else(|| NO_STACK.to_owned(), |stack| call_site(stack, &mut names));
        let (bytes, allocations) = sites.entry(site).or_default();
        *bytes += live.bytes;
        *allocations += 1;
    }
    let leak = |(site, (bytes, allocations))| Leak { bytes, allocations, site };
    let mut leaks: Vec<Leak> = sites.into_iter().map(leak).collect();
    leaks.sort_unstable_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.site.cmp(&b.site)));
    let rest = leaks.split_off(leaks.len().min(LEAK_LINES_MAX));
    if !rest.is_empty() {
        let bytes = rest.iter().map(|leak| leak.bytes).sum();
        let allocations = rest.iter().map(|leak| leak.allocations).sum();
        leaks.push(Leak { bytes, allocations, site: format!("{} further call sites", rest.len()) });
    }
    if missed > 0 {
        let site = "call sites unknown: the table of live allocations was full, see LEAK_LIVE_MAX".to_owned();
        leaks.push(Leak { bytes: 0, allocations: missed, site });
    }
    leaks
}

#[derive(Clone, Debug)]
struct Frame {
    function: String,
    /// Empty without debug information.
    file: String,
    line: u32,
}

impl fmt::Display for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}:{}", self.function, shown(&self.file), self.line)
    }
}

impl Frame {
    fn is_hidden(&self) -> bool {
        const NAMES: [&str; 7] = ["std::", "core::", "alloc::", "hashbrown::", "backtrace::", "__rust", "_R"];
        let name = self.function.trim_start_matches(['<', '&', '[', '(', '*']);
        let finder = ["allocator::finder::", "allocator::stack::"].iter().any(|part| name.contains(part))
            && !name.contains("finder::tests");
        finder
            || NAMES.iter().any(|start| name.starts_with(start))
            || ["/library/alloc/src/", "/library/core/src/", "/library/std/src/", "/rust/deps/"]
                .iter()
                .any(|part| self.file.contains(part))
    }

    fn is_ours(&self) -> bool {
        !self.file.is_empty() && !shown(&self.file).contains("/.cargo/") && self.file.starts_with(OUR_DIRECTORY)
    }
}

const OUR_DIRECTORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/");

/// Shortens a path: ours to the part below this crate's directory, another crate's to the part that
/// begins with its name.
fn shown(file: &str) -> &str {
    let registry =
        || file.split_once("/registry/src/").and_then(|(_, rest)| rest.split_once('/')).map(|(_, rest)| rest);
    file.strip_prefix(OUR_DIRECTORY).or_else(registry).unwrap_or(file)
}

fn call_site(stack: &CallStack, names: &mut HashMap<usize, Vec<Frame>>) -> String {
    let addresses = stack.0.iter().take_while(|&&address| address != 0);
    let mut frames = addresses.flat_map(|&address| names.entry(address).or_insert_with(|| name(address)).clone());
    let Some(first) = frames.find(|frame| !frame.is_hidden()) else { return "an unknown function".to_owned() };
    if first.is_ours() {
        return first.to_string();
    }
    match frames.find(Frame::is_ours) {
        Some(ours) => format!("{first}, called by {ours}"),
        None => first.to_string(),
    }
}

/// Returns the frame of a return address, preceded by the frames that were inlined into it.
fn name(address: usize) -> Vec<Frame> {
    let mut frames = Vec::new();
    backtrace::resolve(std::ptr::without_provenance_mut::<c_void>(address), |symbol| {
        let function = symbol.name().map_or_else(|| format!("{address:#x}"), |name| format!("{name:#}"));
        let file = symbol.filename().map(|file| file.to_string_lossy().into_owned()).unwrap_or_default();
        frames.push(Frame { function, file, line: symbol.lineno().unwrap_or(0) });
    });
    if frames.is_empty() {
        frames.push(Frame { function: format!("{address:#x}"), file: String::new(), line: 0 });
    }
    frames
}
