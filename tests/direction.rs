//! Data flows one way, and files stay small. This test checks the paths that a stage may name in
//! the crate, and the length of files.
//!
//! It checks the text, not the types. A path behind `crate::` in code is enough to see a stage
//! import from its right, and costs no dependency. Comments are left out, because a link in
//! documentation moves no data. The trap is another path: `super::` from a stage's root reaches the
//! crate too, so it is checked as well.

#[path = "common/sources.rs"]
mod sources;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use sources::{read, root, rust_files};

/// Each stage, and the paths of the crate that it may name. A longer path allows only
/// what is below it. `kernel` is the crate of that name.
const STAGES: [(&str, &[&str]); 16] = [
    (
        "discovery",
        &[
            "discovery",
            "http::client",
            "http::lines",
            "http::path",
            "http::tls",
            "method",
            "sys::files",
            "units",
            "limits",
            "sys::clock",
            "kernel::region",
        ],
    ),
    ("peers", &["discovery", "method", "peers", "units", "limits", "kernel::region", "kernel::text"]),
    // `splitmix` is the tests' own.
    (
        "prober",
        &[
            "peers",
            "prober",
            "report::Stranger",
            "send_error",
            "units",
            "limits",
            "splitmix",
            "sys::clock",
            "sys::lacks",
            "kernel::batch",
            "kernel::control",
            "kernel::poll",
            "kernel::region",
            "kernel::socket",
            "kernel::tcp_info",
        ],
    ),
    (
        "checks",
        &[
            "checks",
            "discovery",
            "http::client",
            "http::tls",
            "peers",
            "prober",
            "units",
            "limits",
            "sys::clock",
            "sys::files",
            "sys::settle",
            "sys::wall",
        ],
    ),
    (
        "statistics",
        &[
            "checks",
            "peers",
            "prober",
            "statistics",
            "units",
            "limits",
            "sys::clock",
            "sys::proc",
            "kernel::atomic",
            "kernel::region",
        ],
    ),
    (
        "exposition",
        &[
            "discovery::kubernetes::traffic",
            "peers",
            "prober",
            "statistics",
            "exposition",
            "http",
            "allocator",
            "check",
            "memory",
            "report",
            "units",
            "limits",
            "sys::clock",
            "sys::descriptors",
            "sys::proc",
        ],
    ),
    ("sys", &["sys", "memory::pagemap", "memory::smaps", "limits", "units", "kernel::region", "kernel::scheduling"]),
    ("memory", &["memory", "limits", "sys::proc"]),
    (
        "mesh",
        &[
            "check",
            "exposition",
            "http",
            "peers",
            "mesh",
            "report",
            "verdict",
            "sys::files",
            "sys::settle",
            "sys::wall",
            "units",
            "limits",
            "sys::clock",
            "sys::console::printable",
        ],
    ),
    (
        "http",
        &[
            "http",
            "limits",
            "splitmix",
            "units",
            "sys::priority",
            "sys::descriptors",
            "sys::lacks",
            "sys::settle",
            "kernel::region",
            "kernel::stack",
        ],
    ),
    ("allocator", &["allocator", "limits", "units", "kernel::region"]),
    // The commands, which no stage above names.
    (
        "commands/footprint",
        &[
            "config::FootprintSettings",
            "config::FootprintSubject",
            "sys::console",
            "sys::error",
            "sys::table",
            "commands::footprint",
            "memory",
            "limits",
            "sys::proc",
        ],
    ),
    // It works from outside: it has what an agent says over HTTP, and nothing of an agent's own.
    (
        "commands/fleet",
        &[
            "check",
            "config::FleetSettings",
            "config::Column",
            "config::Form",
            "config::Agents",
            "config::AgentUrl",
            "config::Host",
            "discovery::dns",
            "http::client",
            "http::lines",
            "commands::fleet",
            "report",
            "sys",
            "allocator",
            "limits",
        ],
    ),
    (
        "commands/doctor",
        &[
            "check",
            "config::DoctorSettings",
            "config::Shows",
            "config::Verdicts",
            "config::RowsFile",
            "config::Agents",
            "config::AgentUrl",
            "config::Host",
            "discovery::dns",
            "commands::fleet",
            "commands::doctor",
            "mesh",
            "report",
            "http::client",
            "http::path",
            "sys::console",
            "sys::error",
            "sys::stop",
            "sys::terminal",
            "allocator",
            "sys::clock",
            "limits",
        ],
    ),
    // It has what agents say over HTTP, and writes to the API server.
    (
        "commands/act",
        &[
            "config::ActSettings",
            "config::AgentUrl",
            "config::Agents",
            "config::HttpUrl",
            "config::MaxNodes",
            "config::NodeConditions",
            "config::Receiver",
            "commands::act",
            "commands::doctor::act",
            "commands::doctor::judges",
            "commands::fleet",
            "discovery::KubernetesConfig",
            "discovery::dns",
            "discovery::kubernetes",
            "discovery::random",
            "exposition::FamilyWriter",
            "exposition::Format",
            "mesh",
            "report",
            "verdict",
            "http",
            "sys::clock",
            "sys::console",
            "sys::error",
            "sys::files",
            "sys::settle",
            "sys::stop",
            "allocator",
            "logging",
            "limits",
            "units",
        ],
    ),
    // A second wiring, of the prober alone: no statistics, no exposition.
    (
        "commands/ping",
        &[
            "checks",
            "config::PingCheck",
            "config::PingChecks",
            "config::PingSettings",
            "config::UdpPing",
            "config::Host",
            "discovery::dns",
            "commands::fleet::ask",
            "peers",
            "prober",
            "commands::ping",
            "sys",
            "allocator",
            "logging",
            "units",
            "limits",
        ],
    ),
];
/// The modules of discovery. Each may name those before it, so none imports from the dispatcher,
/// which is last. The root only lists and re-exports them.
const DISCOVERY: [&str; 18] = [
    "address",
    "hash",
    "random",
    "timer",
    "report",
    "ranks",
    "roster",
    "update",
    "holder",
    "members",
    "selection",
    "narrow",
    "static_list",
    "identity",
    "dns",
    "kubernetes",
    "underlay",
    "source",
];
/// Folders that wire the stages, like the files beside them. They may name anything.
const WIRING: [&str; 3] = ["agent", "config", "commands/demo"];
/// The modules of the kernel that `crates/verdicts` may name: it has no socket and no clock.
const KERNEL_OF_VERDICTS: [&str; 2] = ["kernel::region", "kernel::text"];
/// Where `unsafe` is let in: the crate for it, the allocator and the C boundary. Of the two other
/// files, the first calls zlib, and the second releases pages that `memory::smaps` has found.
const UNSAFE: [&str; 5] =
    ["crates/kernel/src/", "src/allocator/", "src/shim.rs", "src/http/gzip.rs", "src/sys/settle.rs"];
/// The most lines of a file, so that a reader can remember it.
const LINES_MAX: usize = 600;

/// A line without its comment. `//` in a string counts as a comment, because no path follows there.
fn code(line: &str) -> &str {
    line.split_once("//").map_or(line, |(code, _)| code)
}

/// Every path behind `crate::` or the crate's name, with braces resolved and without that prefix.
/// Those of `crates/kernel` have the prefix `kernel`.
fn paths(source: &str) -> Vec<String> {
    let code: String = source.lines().map(code).collect::<Vec<_>>().join("\n");
    let mut found = Vec::new();
    for (root, prefix) in [("crate::", ""), ("kube_canary::", ""), ("kube_canary_kernel::", "kernel")] {
        for (at, _) in code.match_indices(root) {
            let joined = code[..at].chars().next_back().is_some_and(|c| c.is_alphanumeric() || c == '_');
            if !joined {
                expand(prefix, &code[at + root.len()..], &mut found);
            }
        }
    }
    found
}

/// Reads a path or a group in braces from the front of `rest`, and returns the rest behind it.
fn expand<'a>(prefix: &str, rest: &'a str, found: &mut Vec<String>) -> &'a str {
    let rest = rest.trim_start();
    if let Some(mut group) = rest.strip_prefix('{') {
        loop {
            group = group.trim_start().trim_start_matches(',').trim_start();
            if let Some(behind) = group.strip_prefix('}') {
                return behind;
            }
            if group.is_empty() {
                return group;
            }
            let behind = expand(prefix, group, found);
            // This is a renaming (`as x`), or no path at all. Continue behind the next comma.
            let next = behind.find([',', '}']).unwrap_or(behind.len());
            group = &behind[next..];
        }
    }
    let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == '*')).unwrap_or(rest.len());
    let path = if prefix.is_empty() { rest[..end].to_owned() } else { format!("{prefix}::{}", &rest[..end]) };
    if let Some(more) = rest[end..].strip_prefix("::")
        && end > 0
    {
        return expand(&path, more, found);
    }
    found.push(path.trim_end_matches("::self").to_owned());
    &rest[end..]
}

/// Whether some `super::` reaches beyond a stage, from a file `depth` modules below the crate.
fn climbs_out(source: &str, depth: usize) -> bool {
    source.lines().map(code).any(|line| {
        // An inline module adds a level, and its code is indented.
        let allowed = if line.starts_with(' ') { depth } else { depth.saturating_sub(1) };
        let mut rest = line;
        while let Some(at) = rest.find("super::") {
            rest = &rest[at..];
            let climbed = rest.split("super::").take_while(|between| between.is_empty()).count();
            let climbed = climbed.saturating_sub(usize::from(rest.replace("super::", "").is_empty()));
            if climbed > allowed {
                return true;
            }
            rest = &rest["super::".len() * climbed.max(1)..];
        }
        false
    })
}

/// Returns what a file of a stage names against the direction.
fn offences(allowed: &[&str], source: &str, depth: usize) -> Vec<String> {
    let fits = |path: &str| {
        allowed.iter().any(|allowed| path.strip_prefix(allowed).is_some_and(|r| r.is_empty() || r.starts_with("::")))
    };
    let mut offences: Vec<String> = paths(source).into_iter().filter(|path| !fits(path)).collect();
    if climbs_out(source, depth) {
        offences.push("super::… beyond the stage".into());
    }
    offences
}

#[test]
fn every_stage_names_its_left_neighbours_only() {
    let mut wrong = Vec::new();
    for (stage, allowed) in STAGES {
        let folder = root().join("src").join(stage);
        let files = rust_files(&folder);
        assert!(!files.is_empty(), "{stage}");
        for file in files {
            let below = file.strip_prefix(&folder).expect("below it");
            // stage/mod.rs is the stage; stage/a.rs and stage/a/mod.rs are one below it.
            let depth = 1 + below.components().count() - usize::from(below.ends_with("mod.rs"));
            let found = offences(allowed, &read(&file), depth);
            wrong.extend(found.into_iter().map(|path| format!("{}: {path}", file.display())));
        }
    }
    assert!(wrong.is_empty(), "against the direction of the data flow:\n{}", wrong.join("\n"));
}

/// The paths of the `use` statements of a file, outside of its tests and of those that only name
/// something to the crate's users, as modules of the crate: `["matrix", "cell"]`.
fn used(module: &[String], source: &str) -> Vec<Vec<String>> {
    let source = source.split("#[cfg(test)]").next().unwrap_or_default();
    let code: String = source.lines().map(code).collect::<Vec<_>>().join("\n");
    let mut paths = Vec::new();
    for statement in code.split(';').filter_map(|it| it.trim().strip_prefix("use ")) {
        expand("", statement, &mut paths);
    }
    let resolve = |path: &String| {
        let mut at = module.to_vec();
        for part in path.split("::") {
            match part {
                "crate" => at.clear(),
                "super" => _ = at.pop(),
                "self" => {}
                // A name without a prefix is a module of this one, or another crate.
                name => at.push(name.to_owned()),
            }
        }
        at
    };
    paths.iter().map(resolve).collect()
}

/// The modules of a crate that need each other in a circle by `use`.
fn circles(folder: &Path) -> Vec<String> {
    let files = rust_files(folder);
    let is_test = |file: &&PathBuf| file.iter().any(|part| part == "tests" || part == "tests.rs");
    let mut needs: BTreeMap<Vec<String>, BTreeSet<Vec<String>>> = BTreeMap::new();
    for file in files.iter().filter(|file| !is_test(file)) {
        let below = file.strip_prefix(folder).expect("below it").with_extension("");
        let parts = below.iter().map(|part| part.to_str().expect("text").to_owned());
        needs.insert(parts.filter(|part| part != "mod" && part != "lib").collect(), BTreeSet::new());
    }
    let modules: Vec<Vec<String>> = needs.keys().cloned().collect();
    for file in files.iter().filter(|file| !is_test(file)) {
        let below = file.strip_prefix(folder).expect("below it").with_extension("");
        let parts = below.iter().map(|part| part.to_str().expect("text").to_owned());
        let module: Vec<String> = parts.filter(|part| part != "mod" && part != "lib").collect();
        for path in used(&module, &read(file)) {
            let file_of = (0..=path.len()).rev().map(|len| path[..len].to_vec()).find(|it| modules.contains(it));
            needs.get_mut(&module).expect("each has an entry").extend(file_of.filter(|it| *it != module));
        }
    }
    // A module that needs none of those that are left is on no circle.
    while let Some(free) = needs.iter().find(|(_, of)| of.is_empty()).map(|(module, _)| module.clone()) {
        needs.remove(&free);
        for of in needs.values_mut() {
            of.remove(&free);
        }
    }
    needs.into_keys().map(|module| module.join("::")).collect()
}

#[test]
fn no_files_of_the_crates_need_each_other_in_a_circle() {
    for name in ["kernel", "model", "verdicts"] {
        let found = circles(&root().join("crates").join(name).join("src"));
        assert!(found.is_empty(), "crates/{name}: on a circle, or in need of one, are {found:?}");
    }
    let module = ["matrix", "cell"].map(str::to_owned);
    let source = "use super::{Row, node::{Said, Stay}};\nuse crate::score;\nuse super::super::pairs;\npub use super::bounds::Bounds;\n\
                  // use super::comment;\n#[cfg(test)]\nmod tests {\n    use super::test;\n}\n";
    let found: Vec<String> = used(&module, source).iter().map(|path| path.join(" ")).collect();
    assert_eq!(found, ["matrix Row", "matrix node Said", "matrix node Stay", "score", "pairs"]);
}

#[test]
fn verdicts_ask_the_kernel_for_memory_alone() {
    for file in rust_files(&root().join("crates/verdicts/src")) {
        let named = paths(&read(&file)).into_iter().filter(|path| path.starts_with("kernel"));
        let fits = |path: &String| KERNEL_OF_VERDICTS.iter().any(|allowed| path.starts_with(allowed));
        let wrong: Vec<String> = named.filter(|path| !fits(path)).collect();
        assert!(wrong.is_empty(), "{}: {wrong:?}", file.display());
    }
}

#[test]
fn unsafe_code_is_in_few_places() {
    for folder in ["src", "crates"] {
        for file in rust_files(&root().join(folder)) {
            let place = file.strip_prefix(root()).expect("below it").to_str().expect("text");
            let lets_in = read(&file).contains("(unsafe_code");
            assert!(!lets_in || UNSAFE.iter().any(|allowed| place.starts_with(allowed)), "{place}");
        }
    }
}

#[test]
fn modules_of_discovery_name_earlier_ones_only() {
    let folder = root().join("src/discovery");
    let outside: Vec<&str> = STAGES[0].1.iter().copied().filter(|allowed| *allowed != "discovery").collect();
    let paths: Vec<String> = DISCOVERY.iter().map(|module| format!("discovery::{module}")).collect();
    let mut wrong = Vec::new();
    for file in rust_files(&folder) {
        let below = file.strip_prefix(&folder).expect("below it");
        let components: Vec<&str> = below.iter().map(|part| part.to_str().expect("text")).collect();
        let module = components[0].trim_end_matches(".rs");
        if module == "mod" {
            continue;
        }
        let at = DISCOVERY.iter().position(|known| *known == module);
        let at = at.unwrap_or_else(|| panic!("src/discovery/{module}: say in this file what comes before it"));
        let allowed: Vec<&str> = paths[..=at].iter().map(String::as_str).chain(outside.iter().copied()).collect();
        let found = offences(&allowed, &read(&file), components.len() - usize::from(below.ends_with("mod.rs")));
        wrong.extend(found.into_iter().map(|path| format!("{}: {path}", file.display())));
    }
    assert!(wrong.is_empty(), "against the order of discovery's modules:\n{}", wrong.join("\n"));
}

#[test]
fn every_folder_is_held_to_a_rule() {
    for folder in ["src", "src/commands"] {
        for entry in fs::read_dir(root().join(folder)).expect("a folder") {
            let path = entry.expect("an entry").path();
            let below = path.strip_prefix(root().join("src")).expect("below it").to_str().expect("a name").to_owned();
            let known = STAGES.iter().any(|(stage, _)| *stage == below) || WIRING.contains(&&*below);
            assert!(path.is_file() || known || below == "commands", "src/{below}: say in this file what it may import");
        }
    }
}

/// The stages of the agent are held to what they may name. This is about the rest of it.
#[test]
fn the_agent_imports_no_command() {
    let wiring = ["src/agent", "src/config"].iter().flat_map(|folder| rust_files(&root().join(folder)));
    for file in wiring.chain([root().join("src/agent.rs")]) {
        let wrong: Vec<String> = paths(&read(&file)).into_iter().filter(|path| path.starts_with("commands")).collect();
        assert!(wrong.is_empty(), "{}: {wrong:?}", file.display());
    }
}

#[test]
fn the_way_of_a_loss_leads_through_files_that_exist_and_through_none_twice() {
    let text = read(&root().join("docs/architecture.md"));
    let (_, way) = text.split_once("## The way of a loss").expect("the section");
    let (way, _) = way.split_once("\n## ").expect("another section behind it");
    let files: Vec<&str> = way.split('`').skip(1).step_by(2).collect();
    assert!(files.len() >= 20, "{files:?}");
    for (place, file) in files.iter().enumerate() {
        assert!(root().join(file).is_file() && !files[..place].contains(file), "{file}");
    }
}

#[test]
fn no_source_file_is_longer_than_600_lines() {
    let folders = ["src", "crates", "tests", "bench"].map(|folder| root().join(folder));
    for file in folders.iter().filter(|folder| folder.is_dir()).flat_map(|folder| rust_files(folder)) {
        let lines = read(&file).lines().count();
        assert!(lines <= LINES_MAX, "{}: {lines} lines", file.display());
    }
}

#[test]
fn the_check_finds_what_is_against_the_direction() {
    let allowed = ["peers", "http::client", "units", "kernel::region"];
    for (source, expected) in [
        ("use crate::statistics::Bounds;\n", "statistics::Bounds"),
        ("    let x = crate::exposition::render();\n", "exposition::render"),
        ("use crate::{units::Nanos, statistics};\n", "statistics"),
        ("use crate::{\n    units::{self, Nanos},\n    // as well\n    agent::{run as go, Stop},\n};\n", "agent::run"),
        ("use crate::http::{Reply, client};\n", "http::Reply"),
        ("use crate::http;\n", "http"),
        ("use crate::*;\n", "*"),
        ("use crate::peersonal;\n", "peersonal"),
        ("use ::kube_canary::prober;\n", "prober"),
        ("use kube_canary_kernel::{region::List, socket::watch};\n", "kernel::socket::watch"),
        ("use super::super::prober;\n", "super::… beyond the stage"),
        ("    pub use super::super::super::prober;\n", "super::… beyond the stage"),
    ] {
        assert!(offences(&allowed, source, 2).iter().any(|path| path == expected), "{source}");
    }
    assert_eq!(offences(&allowed, "use super::prober;\n", 1), ["super::… beyond the stage"]);
}

#[test]
fn the_check_lets_pass_what_is_not() {
    let allowed = ["peers", "http::client", "units"];
    for source in [
        "//! See [`crate::statistics`].\nuse crate::peers::{Change, SlotId};\n",
        "use crate::units; // not crate::exposition\n",
        "use crate::http::client::{self, get};\n",
        "use crate::{peers, units::{Nanos, parse_duration as parse}};\n",
        "use super::Nanos;\n",
        "mod tests {\n    use super::*;\n    use super::super::Nanos;\n}\n",
        "use pnet::other_crate::statistics;\n",
    ] {
        assert_eq!(offences(&allowed, source, 2), Vec::<String>::new(), "{source}");
    }
}
