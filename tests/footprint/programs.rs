//! Output with one row per program.

use std::fs;

use crate::common::process::Process;
use crate::{Taker, copy, directory, footprint, json, number, one, program, wait_until_asleep};

#[test]
fn the_processes_of_a_program_are_one_row_and_every_one_of_them_is_listed() {
    // A program of this test alone: other tests start the common one at the same time.
    let copy = copy("row-of-many");
    let name = copy.file_name().expect("a name").to_string_lossy().into_owned();
    let takers: Vec<Process> = (0..5)
        .map(|_| {
            let mut command = std::process::Command::new(&copy);
            command.arg("/dev/null").stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
            let mut process = Process::start(&mut command, directory());
            let (input, mut output) = process.pipes();
            std::io::Read::read_exact(&mut output, &mut [0]).expect("it runs");
            wait_until_asleep(&process);
            // The program ends when its input is closed.
            std::mem::forget((input, output));
            process
        })
        .collect();
    // The filter accepts any part of a name.
    let answer = json(&["--filter", &name[1..name.len() - 2]]);
    let rows = answer["programs"].as_array().expect("a list");
    assert_eq!(
        (rows.len(), rows[0]["name"].as_str(), number(&rows[0], "count")),
        (1, Some(name.as_str()), 5),
        "{answer}"
    );
    let private: u64 = takers.iter().map(|taker| number(&one(&answer, taker.id()), "private_bytes")).sum();
    assert_eq!((number(&rows[0], "private_bytes"), number(&answer["total"], "private_bytes")), (private, private));
    let ram = number(&rows[0], "private_bytes") + number(&rows[0], "shared_bytes");
    assert_eq!((number(&rows[0], "ram_bytes"), number(&answer["total"], "ram_bytes")), (ram, ram));

    let output = footprint(&["--filter", &name]);
    let text = String::from_utf8(output.stdout).expect("text");
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    // Not the figures of the first reading: a page of a library is shared as soon as another process
    // maps it.
    assert_eq!((rows.len(), rows[1][4], rows[1][5]), (3, "5", name.as_str()), "{text}");
    assert_eq!((rows[2][5], &rows[1][..4]), ("total", &rows[2][..4]), "{text}");
    let _ = fs::remove_file(&copy);
}

#[test]
fn every_program_is_shown_for_a_name_that_is_empty() {
    let taker = Taker::start(true);
    let output = footprint(&["--filter", ""]);
    let text = String::from_utf8(output.stdout).expect("text");
    let own = program(true).file_name().expect("a name").to_string_lossy().into_owned();
    assert!(output.status.success() && text.lines().any(|line| line.ends_with(&own)), "{text}");
    assert!(text.lines().count() > 3 && !text.lines().any(|line| line.ends_with(" kube-canary (footprint)")));
    let ram: Vec<u64> =
        text.lines().skip(1).map(|line| line.split_whitespace().nth(2).unwrap().parse().unwrap()).collect();
    let (total, rows) = ram.split_last().expect("a total");
    assert!(rows.is_sorted() && rows.iter().sum::<u64>() == *total, "{text}");
    drop(taker);
}

#[test]
fn the_name_of_a_program_does_not_act_on_the_terminal() {
    let copy = copy("a\n\u{1b}[31mred\u{202e}\u{9b}1m");
    let mut command = std::process::Command::new(&copy);
    command.arg("/dev/null").stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let mut process = Process::start(&mut command, directory());
    let (_input, mut output) = process.pipes();
    std::io::Read::read_exact(&mut output, &mut [0]).expect("it runs");
    wait_until_asleep(&process);
    let name = copy.file_name().expect("a name").to_string_lossy().into_owned();
    let id = process.id().to_string();
    let of_id = footprint(&["--pid", &id]);
    let of_name = footprint(&["--filter", "[31mred"]);
    for text in [&of_id.stdout, &of_name.stdout] {
        let text = std::str::from_utf8(text).expect("text");
        assert!(text.contains("a??[31mred??1m"), "{text}");
        assert!(!text.contains(|c: char| c != '\n' && c.is_control() || c == '\u{202e}'), "{text:?}");
    }
    let first = String::from_utf8_lossy(&of_id.stdout).lines().next().map(str::to_owned);
    assert!(first.is_some_and(|line| line.ends_with(&format!("(pid {id}): KB"))));
    // JSON has the name itself, in escaped form.
    let text = footprint(&["--pid", &id, "--json"]).stdout;
    assert!(!text.iter().any(|byte| *byte != b'\n' && byte.is_ascii_control()) && text.is_ascii());
    let answer = json(&["--pid", &id]);
    assert_eq!(answer["processes"][0]["name"].as_str(), Some(name.as_str()));
    let _ = fs::remove_file(&copy);
}
