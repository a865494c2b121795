//! What commands print on a terminal: colours, unless they are declined, and whole lines.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::process::Command;
use std::thread;

use rustix::fs::{Mode, OFlags, open};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use serde_json::json;

use crate::agent::directory;
use crate::common::process::Process;
use crate::doctor::{NODES, into_n4, mesh, none, serve};
use crate::fleet::{agent, closed_url, url};
use crate::shim::PLAIN;

/// Runs a command on a terminal of this many columns, and returns what the terminal is sent.
fn shown(arguments: &[&str], variables: &[(&str, &str)], columns: u16) -> String {
    let ours: OwnedFd =
        openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).expect("a pseudoterminal");
    grantpt(&ours).and_then(|()| unlockpt(&ours)).expect("it is ours");
    let path = ptsname(&ours, Vec::new()).expect("it has a name");
    let theirs = open(path, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty()).expect("the other end");
    tcsetwinsize(&theirs, Winsize { ws_row: 50, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }).expect("a size");
    let mut command = Command::new(PLAIN);
    command.args(arguments).env("TERM", "xterm").env_remove("NO_COLOR").envs(variables.iter().copied());
    command.stdout(File::from(theirs));
    let mut process = Process::start(&mut command, directory());
    // The command holds the other end until it is dropped. Then the reader gets an error, EIO.
    drop(command);
    let reader = thread::spawn(move || {
        let mut text = Vec::new();
        let _ = File::from(ours).read_to_end(&mut text);
        String::from_utf8(text).expect("text")
    });
    process.end();
    reader.join().expect("the terminal was read").replace("\r\n", "\n")
}

#[test]
fn verdicts_are_red_or_yellow_and_a_mesh_without_faults_green_unless_colours_are_declined() {
    let (_well, well) = serve(&mesh(&NODES, none, &json!([])));
    let (_likely, likely) = serve(&mesh(&NODES, into_n4, &json!([])));
    let of_n4 = |source: &str, peer: &str| if [source, peer].contains(&"n4") { 20 } else { 0 };
    let (_bad, bad) = serve(&mesh(&NODES, of_n4, &json!([])));
    let doctor = |url: &str, variables: &[(&str, &str)]| shown(&["doctor", "--url", url], variables, 80);
    assert!(doctor(&well, &[]).starts_with("\x1b[32mall well\x1b[0m\n"));
    // Only one side of the links to n4 has lost anything.
    let text = doctor(&likely, &[]);
    assert!(text.starts_with("\x1b[33mn4 ") && text.contains("\n\x1b[33mnode n4"), "{text:?}");
    let text = doctor(&bad, &[]);
    assert!(text.starts_with("\x1b[31mn4 ") && text.contains("\n\x1b[31mnode n4"), "{text:?}");
    // An empty NO_COLOR counts as unset.
    assert_eq!(doctor(&bad, &[("NO_COLOR", "")]), text);
    for declined in [("NO_COLOR", "0"), ("TERM", "dumb")] {
        let plain = doctor(&bad, &[declined]);
        assert!(!plain.contains('\x1b'), "{declined:?}: {plain:?}");
        assert_eq!(plain, text.replace("\x1b[31m", "").replace("\x1b[0m", ""), "{declined:?}");
    }
    assert!(!shown(&["doctor", "--json", "--url", &bad], &[], 80).contains('\x1b'));
    // What is typed goes before the variable, and before what standard output is.
    let typed = |when| ["doctor", "--url", bad.as_str(), "--color", when];
    assert_eq!(shown(&typed("always"), &[("NO_COLOR", "1")], 80), text);
    let plain = text.replace("\x1b[31m", "").replace("\x1b[0m", "");
    assert_eq!(shown(&typed("never"), &[], 80), plain);
    assert_eq!(shown(&typed("auto"), &[], 80), text);
    for (when, expected) in [("always", &text), ("auto", &plain)] {
        let done = Command::new(PLAIN).args(typed(when)).output().expect("it runs");
        assert_eq!(String::from_utf8_lossy(&done.stdout), expected.as_str(), "{when}, in a pipe");
    }
}

#[test]
fn fleet_cuts_long_names_to_100_columns_and_a_wider_terminal_shows_them_whole() {
    let name = format!("ip-10-0-123-45.{}.internal", "compute".repeat(6));
    let (one, closed) = (agent(&name), closed_url());
    let fleet = |columns, more: &[&str]| {
        shown(&[&["fleet", "--url", &url(&one), "--url", &closed], more].concat(), &[], columns)
    };
    let row = |text: &str| text.lines().find(|line| line.starts_with("ip-10-0")).expect(text).to_owned();
    for columns in [40, 100] {
        let text = fleet(columns, &[]);
        assert!(text.contains("\n\x1b[31m    http://127.0.0.1:"), "{text}");
        // The names of the peers, a and b, are short.
        assert!(row(&text).contains('…') && ["  a  ", "  b  "].iter().any(|it| row(&text).contains(it)), "{text}");
        assert!(text.lines().filter(|line| !line.contains('\x1b')).all(|line| line.chars().count() <= 100), "{text}");
    }
    for text in [fleet(250, &[]), fleet(100, &["-o", "wide"])] {
        assert!(row(&text).starts_with(&format!("{name} ")), "{text}");
    }
}
