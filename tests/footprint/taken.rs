//! The tool shows all taken memory, to the kilobyte.

use std::fs;

use crate::common::until::until;
use crate::{PAGES, Taker, kilobytes, number};

const CATEGORIES: [&str; 10] =
    ["text", "rodata", "relro", "data", "heap", "anon", "stacks", "kernel", "file", "shared"];

/// Kilobytes of a page of this machine.
fn page() -> u64 {
    let smaps = fs::read_to_string("/proc/self/smaps").expect("/proc");
    let line = smaps.lines().find_map(|line| line.strip_prefix("KernelPageSize:")).expect("a size");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

fn each_step_grows_its_category_alone(fixed: bool) {
    let mut taker = Taker::start(fixed);
    let mut before = taker.look();
    for category in ["text", "rodata", "relro", "data", "stacks"] {
        assert!(kilobytes(&before, category) > 0, "no {category}: {before}");
    }
    let steps = [(b'b', "data"), (b'h', "heap"), (b'a', "anon"), (b's', "shared"), (b'f', "file"), (b't', "stacks")];
    for (step, grown) in steps {
        taker.step(step);
        let after = taker.look();
        for category in CATEGORIES {
            let (was, is) = (kilobytes(&before, category), kilobytes(&after, category));
            if category == grown {
                assert_eq!(is - was, PAGES * page(), "{category}: {before} {after}");
            } else if ["anon", "heap", "shared"].contains(&category) && step != b't' {
                assert_eq!(is, was, "{category} by the step of {grown}");
            }
        }
        before = after;
    }
}

#[test]
fn what_a_program_at_any_address_takes_is_shown_to_the_kilobyte() {
    each_step_grows_its_category_alone(false);
}

#[test]
fn what_a_program_at_fixed_addresses_takes_is_shown_to_the_kilobyte() {
    each_step_grows_its_category_alone(true);
}

#[test]
fn data_that_is_written_becomes_dirty_page_by_page() {
    let mut taker = Taker::start(false);
    let dirty = |process: &serde_json::Value| {
        let categories = process["categories"].as_array().expect("a list");
        let data = categories.iter().find(|category| category["category"] == "data").expect("data");
        (number(data, "dirty_bytes") + number(data, "swap_bytes")) / 1_024
    };
    let before = dirty(&taker.look());
    taker.step(b'd');
    assert_eq!(dirty(&taker.look()) - before, PAGES * page());
}

/// The value of `name` in `smaps_rollup`, in bytes.
fn rollup(id: u32, name: &str) -> u64 {
    let path = format!("/proc/{id}/smaps_rollup");
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).expect("every sum");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1_024
}

#[test]
fn a_process_that_stands_still_is_what_the_kernel_s_own_sums_say() {
    let mut taker = Taker::start(false);
    for step in *b"dbhasft" {
        taker.step(step);
    }
    let id = taker.process.id();
    taker.process.signal(libc::SIGSTOP);
    until("it stands still", || {
        let state = fs::read_to_string(format!("/proc/{id}/stat")).map_err(|error| error.to_string())?;
        if state.contains(") T ") { Ok(()) } else { Err(state) }
    });
    let shown = taker.look();
    assert_eq!(number(&shown, "rss_bytes"), rollup(id, "Rss"));
    assert_eq!(number(&shown, "swap_bytes"), rollup(id, "Swap"));
    // The command may share a library with the program, and get a part of its memory. A test beside
    // the code compares shares.
    assert!(number(&shown, "pss_bytes") <= rollup(id, "Rss") && number(&shown, "page_tables_bytes") > 0);
    taker.process.signal(libc::SIGCONT);
}

#[test]
fn a_program_whose_file_is_gone_is_still_distinguished() {
    let copy = crate::copy("deleted");
    let mut command = std::process::Command::new(&copy);
    command.arg("/dev/null").stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let mut process = crate::common::process::Process::start(&mut command, crate::directory());
    let (_input, mut output) = process.pipes();
    std::io::Read::read_exact(&mut output, &mut [0]).expect("it runs");
    fs::remove_file(&copy).expect("it is there");
    let shown = crate::one(&crate::json(&["--pid", &process.id().to_string()]), process.id());
    let name = copy.file_name().expect("a name").to_string_lossy().into_owned() + " [deleted]";
    assert_eq!(shown["name"], name.as_str());
    for category in ["text", "rodata", "relro", "data"] {
        assert!(kilobytes(&shown, category) > 0, "no {category}: {shown}");
    }
}
