//! `kube-canary doctor --rows` and `--watch`: its verdicts over reports in a file, and over changes
//! of the file.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use kube_canary::limits::REPORT_BYTES_MAX;
use kube_canary::sys::clock;
use serde_json::{Value, json};

use crate::agent::directory;
use crate::common::process::{Process, unique};
use crate::common::until::until_so;
use crate::doctor::{NODES, into_n4, mesh, none, row, serve};
use crate::fleet::{Run, closed_url};
use crate::shim::PLAIN;

/// A file that is removed at the end of the test.
struct Reports(PathBuf);

impl Reports {
    fn of(bytes: impl AsRef<[u8]>) -> Self {
        let file = Self(unique(directory(), "reports"));
        file.become_(bytes);
        file
    }

    /// Replaces the file in one step, so that no reader sees half of it.
    fn become_(&self, bytes: impl AsRef<[u8]>) {
        let new = self.0.with_extension("new");
        fs::write(&new, bytes).and_then(|()| fs::rename(&new, &self.0)).expect("our directory is writable");
    }

    fn path(&self) -> &str {
        self.0.to_str().expect("a path in UTF-8")
    }
}

impl Drop for Reports {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Judges a file with these bytes. Returns exit code, standard output and standard error.
fn judge(bytes: impl AsRef<[u8]>, flags: &[&str]) -> (Option<i32>, String, String) {
    let reports = Reports::of(bytes);
    Run::of(&[&["doctor", "--rows", reports.path()], flags].concat())
}

fn judge_json(bytes: impl AsRef<[u8]>) -> (Option<i32>, Value) {
    let (code, text, log) = judge(bytes, &["--json"]);
    (code, serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}{log}")))
}

/// Returns the reports, one per line.
fn lines(lost: impl Fn(&str, &str) -> u64 + Copy) -> String {
    NODES.iter().map(|source| row(source, lost) + "\n").collect()
}

fn laid_out(text: &str) -> String {
    let value: Value = serde_json::from_str(text).expect("JSON");
    format!("{value:#}\n")
}

#[test]
fn a_mesh_and_reports_in_lines_are_judged_alike_however_they_are_laid_out() {
    let no_one = json!([]);
    let forms = |lost: fn(&str, &str) -> u64| {
        let (mesh, reports) = (mesh(&NODES, lost, &no_one), lines(lost));
        let marked = |text: &str| format!("\u{feff}{text}");
        [
            mesh.clone(),
            reports.clone(),
            // Without the last end of line, with the line ends of another system, with blank lines,
            // and with a byte order mark.
            mesh.trim_end().to_owned(),
            reports.trim_end().to_owned(),
            mesh.replace('\n', "\r\n"),
            reports.replace('\n', "\r\n"),
            format!("\n \n{}", reports.replace('\n', "\n\n")),
            format!("\n{mesh}\n\n"),
            marked(&mesh),
            marked(&reports),
            // As other tools write it: in one line, and over many. A value orders its fields, so
            // sources come last.
            mesh.replace('\n', "") + "\n",
            mesh.replace('\n', "").replacen("{\"rows\":[", "{ \"rows\" : [ ", 1),
            laid_out(&mesh),
            marked(&laid_out(&mesh)).replace('\n', "\r\n"),
            reports.lines().map(laid_out).collect(),
        ]
    };
    for (place, text) in forms(none).iter().enumerate() {
        let (code, report) = judge_json(text);
        assert_eq!((code, &report["rows"], &report["links"]), (Some(0), &json!(5), &json!(20)), "{place}: {report}");
        assert_eq!((&report["headline"], &report["unread"]), (&json!("all well"), &json!([])), "{place}");
    }
    let (_server, url) = serve(&mesh(&NODES, into_n4, &no_one));
    let (_, asked, _) = Run::of(&["doctor", "--json", "--url", &url]);
    let asked: Value = serde_json::from_str(&asked).expect("JSON");
    for (place, text) in forms(into_n4).iter().enumerate() {
        let (code, report) = judge_json(text);
        assert_eq!((code, &report), (Some(1), &asked), "{place}");
    }
}

#[test]
fn standard_input_is_judged_like_a_file() {
    for (lost, expected) in [(none as fn(&str, &str) -> u64, 0), (into_n4, 1)] {
        let mut command = Command::new(PLAIN);
        command.args(["doctor", "--rows", "-", "--json"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Process::start(&mut command, directory());
        let (mut input, output) = process.pipes();
        input.write_all(lines(lost).as_bytes()).expect("it reads");
        drop(input);
        let said = std::io::read_to_string(output).expect("text");
        assert_eq!((process.end().code(), process.log().as_str()), (Some(expected), ""), "{said}");
        let report: Value = serde_json::from_str(&said).expect("JSON");
        assert_eq!(report["rows"], 5, "{report}");
    }
}

#[test]
fn an_invalid_line_is_named_by_its_number_and_the_exit_code_is_3() {
    let good = lines(none);
    let whole = mesh(&NODES, none, &json!([]));
    let line = |number: usize| good.lines().nth(number - 1).expect("a line");
    let replaced = |number: usize, by: &str| good.replace(line(number), by);
    let half = &line(3)[..line(3).len() / 2];
    let twice = line(2).replacen("\"n3\"", "\"n1\"", 1);
    for (what, text, said) in [
        ("no JSON", replaced(3, "n3 is down"), "line 3: not a report"),
        ("half a line", replaced(3, half), "line 3: broke off"),
        ("the file ends within a line", good[..good.len() - 40].to_owned(), "line 5: broke off"),
        ("no report", replaced(1, "{\"node\":\"n1\"}"), "line 1: not a report"),
        ("the first line", replaced(1, "x"), "line 1: not a report"),
        ("a list", replaced(3, "[]"), "line 3: not a report"),
        ("two in a line", replaced(3, &format!("{0}{0}", line(3))), "line 3: not a report"),
        ("a figure that is none", replaced(4, &line(4).replacen("60", "x", 1)), "line 4: expected value at column"),
        ("a number that is negative", replaced(4, &line(4).replace("\"received\":60", "\"received\":-60")), "line 4: "),
        (
            "half of a surrogate pair",
            replaced(4, &line(4).replacen("\"zone\":\"z\"", "\"zone\":\"\\ud800\"", 1)),
            "line 4: ",
        ),
        ("a node twice", replaced(2, &twice), "line 2: it names n1 twice"),
        ("a report twice", format!("{good}{}\n", line(1)), "line 6: a second report of n1"),
        ("a mesh behind reports", format!("{good}{whole}"), "line 6: "),
        ("a mesh behind a mesh", format!("{whole}{whole}"), "line 9: a second report of n1"),
        ("a report behind a mesh", format!("{whole}{}", line(1)), "line 8: no reports in lines of their own"),
        ("no end", whole[..whole.rfind("],\"missing\"").expect("fields")].to_owned(), "--rows: it breaks off"),
        ("half of the end", whole[..whole.len() - 8].to_owned(), "line 7: EOF"),
        ("a bad row of a mesh", whole.replacen("\"peers\":[{", "\"peers\":[[{", 1), "line 2: broke off"),
        ("what is laid out over many lines breaks off", laid_out(line(1)) + "{\n", "EOF"),
        ("a mesh without its end", laid_out(&whole).replace("\"missing\"", "\"x\""), "neither a mesh"),
    ] {
        let (code, said_text, log) = judge(&text, &[]);
        assert!(log.contains(said), "{what}: {log}{said_text}");
        assert_eq!(code, Some(3), "{what}: {log}{said_text}");
        assert!(!said_text.contains("all well"), "{what}: {said_text}");
    }
    // A fault that is found counts more than a line that cannot be read.
    let faulty = lines(into_n4);
    let (code, report) = judge_json(faulty.replacen("{\"source\"", "{\"sauce\"", 1));
    assert_eq!((code, &report["verdicts"][0]["subject"]), (Some(1), &json!("n4")), "{report}");
    assert_eq!((&report["unread"][0]["line"], &report["rows"]), (&json!(1), &json!(4)), "{report}");
}

#[test]
fn a_file_without_a_report_is_one_line_that_says_why_and_3() {
    let whole = mesh(&NODES, none, &json!([]));
    let utf16: Vec<u8> = [0xff, 0xfe].into_iter().chain(whole.encode_utf16().flat_map(u16::to_le_bytes)).collect();
    for (what, bytes, said) in [
        ("empty", Vec::new(), "is empty: expected an answer of /api/v1/mesh/NODES"),
        ("blank", b"\n \r\n".to_vec(), "is empty"),
        ("only a mark", "\u{feff}".into(), "is empty"),
        ("another text", b"<html>\n".to_vec(), "line 1: not a report"),
        ("compressed", b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03".to_vec(), "compressed by gzip: decompress it first"),
        ("UTF-16", utf16, "UTF-16: convert it to UTF-8 first"),
        ("half of a mesh's head", b"{\"rows\":".to_vec(), "EOF"),
        ("a mesh without rows", mesh(&[], none, &json!([])).into_bytes(), "a mesh without reports"),
        ("a line without an end", vec![b'x'; REPORT_BYTES_MAX + 2], "a line of more than 20971520 bytes"),
    ] {
        let (code, text, log) = judge(bytes, &[]);
        assert_eq!((code, text.as_str(), log.lines().count()), (Some(3), "", 1), "{what}: {log}");
        assert!(log.starts_with("kube-canary: --rows ") && log.contains(said), "{what}: {log}");
    }
    for (path, said) in [("/nonexistent/reports", "No such file"), ("/", "Is a directory")] {
        let (code, _, log) = Run::of(&["doctor", "--rows", path]);
        assert_eq!(code, Some(3), "{log}");
        assert!(log.contains(path) && log.contains("cannot be read") && log.contains(said), "{log}");
    }
}

#[test]
fn many_bad_lines_are_counted_and_not_all_named() {
    let (code, report) = judge_json(lines(none) + &"x\n".repeat(1_000));
    let unread = report["unread"].as_array().expect("a list");
    assert_eq!((code, unread.len(), &unread[0]["line"]), (Some(3), 17, &json!(6)));
    assert_eq!(unread[16], json!({"line": null, "error": "984 further lines could not be read either"}));
}

#[test]
fn more_reports_than_an_agent_may_keep_are_judged_and_a_limit_is_named() {
    // Reports of nodes that each probe two others. None of these is one of `NODES`.
    let report = |n: usize, of: usize| {
        let peer = |n: usize| {
            format!(
                r#"{{"node":"m{n}","zone":"z","network":"pod","protocol":"icmp","state":"ready","address":"10.0.0.1","recent":{{"seconds":60,"sent":60,"received":60,"lost":0}}}}"#
            )
        };
        format!(
            "{{\"source\":{{\"node\":\"m{n}\",\"zone\":\"z\"}},\"peers\":[{},{}]}}\n",
            peer((n + 1) % of),
            peer((n + 2) % of)
        )
    };
    let (code, judged) = judge_json((0..6_000).map(|n| report(n, 6_000)).collect::<String>());
    assert_eq!((code, &judged["rows"], &judged["links"]), (Some(0), &json!(6_000), &json!(12_000)), "{judged}");
    let (code, judged) = judge_json((0..50_002).map(|n| report(n, 50_002)).collect::<String>());
    assert_eq!((code, &judged["rows"]), (Some(3), &json!(50_000)), "{}", judged["headline"]);
    assert!(judged["unread"].to_string().contains("more than 50000"), "{}", judged["unread"]);
}

/// The losses of n1 and n2 to all others.
fn cut_off(source: &str, peer: &str) -> u64 {
    let in_rack = |node: &str| node < "n3";
    if in_rack(source) == in_rack(peer) { 0 } else { 30 }
}

#[test]
fn a_domain_of_the_operator_s_file_is_named_and_a_bad_line_is_2() {
    let reports = Reports::of(lines(cut_off));
    let domains = Reports::of("# racks\nn1 rack-a\nn2* rack-a # a pattern\nn9 rack-b\n");
    let flags = ["doctor", "--rows", reports.path(), "--json"];
    let judged = |(code, text, log): (Option<i32>, String, String)| {
        let report: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}{log}"));
        let found = report["verdicts"].as_array().expect("a list").iter();
        let found = found.map(|it| format!("{} {}", it["kind"], it["subject"]).replace('"', ""));
        (code, found.collect::<Vec<_>>(), log)
    };
    let named = judged(Run::of(&[&flags[..], &["--domains-file", domains.path()]].concat()));
    assert_eq!(named, (Some(1), vec!["domain rack-a".into()], String::new()));
    let (_, unnamed, _) = judged(Run::of(&flags));
    assert!(!unnamed.iter().any(|verdict| verdict.starts_with("domain")), "{unnamed:?}");
    let mut command = Command::new(PLAIN);
    command.args(&flags[..3]).env("KUBE_CANARY_DOMAINS_FILE", domains.path());
    let mut process = Process::start(command.stdin(Stdio::piped()).stdout(Stdio::piped()), directory());
    let (_input, output) = process.pipes();
    let text = std::io::read_to_string(output).expect("text");
    assert_eq!(process.end().code(), Some(1), "{text}");
    assert!(text.contains("\ndomain rack-a, pod network, since 20"), "{text}");

    domains.become_("n1 rack-a\n\nn2 rack a\n");
    let (code, text, log) = Run::of(&[&flags[..], &["--domains-file", domains.path()]].concat());
    assert_eq!((code, text.as_str(), log.lines().count()), (Some(2), "", 1), "{log}");
    let expected = format!("--domains-file {}:3: \"n2 rack a\" is not a pattern and a domain", domains.path());
    assert!(log.contains(&expected) && log.contains("NODE-NAME-PATTERN DOMAIN"), "{log}");
}

#[test]
fn a_watch_reads_the_domains_again_and_keeps_them_while_the_file_is_bad() {
    let (reports, domains) = (Reports::of(lines(cut_off)), Reports::of("n1 rack-a\nn2 rack-a\n"));
    let mut watching = watch(&reports, &["--domains-file", domains.path()]);
    until_so("it names the rack", || watching.text().contains("  + domain rack-a, pod network"));
    domains.become_("n1\n");
    until_so("it says what is wrong", || watching.process.log().contains("the domains read last stay"));
    domains.become_("n1 rack-b\nn2 rack-b\n");
    until_so("it names the rack anew", || watching.text().contains("  + domain rack-b, pod network"));
    watching.process.signal(libc::SIGTERM);
    assert_eq!(watching.process.end().code(), Some(1));
    assert_eq!(watching.process.log().lines().count(), 1, "{}", watching.process.log());
    assert_eq!(watching.text().matches("  - domain rack-a").count(), 1, "{}", watching.text());
}

/// Watches a file, and collects the output in another file.
fn watch(reports: &Reports, flags: &[&str]) -> Run {
    Run::start(&[&["doctor", "--rows", reports.path(), "--watch", "--interval", "1s"], flags].concat())
}

#[test]
fn a_watch_prints_changes_alone_and_ends_at_a_signal_with_the_last_outcome() {
    let reports = Reports::of(lines(none));
    let mut watching = watch(&reports, &[]);
    until_so("it begins", || watching.text().contains("Judged: 5 of 5 nodes, 20 links."));
    reports.become_(lines(into_n4));
    until_so("it names the node", || watching.text().contains("  + node n4, pod network, since 20"));
    // Removing the file ends no verdict.
    fs::remove_file(reports.path()).expect("our own");
    until_so("it says that it cannot judge", || watching.text().contains("cannot judge: --rows "));
    reports.become_(lines(none).replacen("{\"source\"", "{\"sauce\"", 1));
    until_so("it ends the verdict, and is not well", || watching.text().contains("  - node n4, pod network\n"));
    assert!(watching.text().contains("  + line 1: not judged\n"), "{}", watching.text());
    reports.become_(lines(into_n4));
    until_so("it names the node again", || watching.text().matches("  + node n4").count() == 2);
    watching.process.signal(libc::SIGINT);
    assert_eq!((watching.process.end().code(), watching.process.log().as_str()), (Some(1), ""));
    let text = watching.text();
    let heads: Vec<&str> = text.lines().filter(|line| line.starts_with("20")).collect();
    assert!(heads.iter().all(|line| line[..25].ends_with(" UTC: ")), "{text}");
    let said: Vec<&str> = heads.iter().map(|line| line[25..].split([' ', ',']).next().unwrap_or_default()).collect();
    assert!(said == ["all", "n4", "cannot", "nothing", "n4"], "{text}");
}

#[test]
fn a_watch_in_json_is_an_object_per_change() {
    let (reports, begun) = (Reports::of(lines(into_n4)), clock::realtime().as_secs());
    let mut watching = watch(&reports, &["--json"]);
    until_so("it begins", || watching.text().lines().count() == 1);
    reports.become_(lines(none));
    until_so("the node is well", || watching.text().lines().count() == 2);
    watching.process.signal(libc::SIGTERM);
    assert_eq!((watching.process.end().code(), watching.process.log().as_str()), (Some(0), ""));
    let lines: Vec<Value> = watching.text().lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let [first, last] = &lines[..] else { panic!("{lines:?}") };
    assert_eq!((&first["new"][0]["subject"], &first["over"]), (&json!("n4"), &json!([])), "{first}");
    assert_eq!((&last["new"], &last["over"][0]["subject"]), (&json!([]), &json!("n4")), "{last}");
    assert_eq!((&last["headline"], &last["error"]), (&json!("all well"), &Value::Null), "{last}");
    // Times are whole seconds. If a check is delayed, the next one may come less than a second
    // later.
    let times = [first, last].map(|line| line["time_unix_seconds"].as_u64().expect("a time"));
    assert!(begun <= times[0] && times[0] <= times[1] && times[1] <= clock::realtime().as_secs(), "{lines:?}");
}

#[test]
fn a_watch_ends_without_a_reader_or_by_a_signal_before_its_first_output() {
    let reports = Reports::of(lines(into_n4));
    let mut command = Command::new(PLAIN);
    command.args(["doctor", "--rows", reports.path(), "--watch", "--interval", "300s"]);
    let mut process = Process::start(command.stdin(Stdio::piped()).stdout(Stdio::piped()), directory());
    let (_input, mut output) = process.pipes();
    let mut first = [0];
    std::io::Read::read_exact(&mut output, &mut first).expect("a first byte");
    drop(output);
    assert_eq!((process.end().code(), process.log().as_str()), (Some(1), ""));

    let mut watching = Run::start(&["doctor", "--watch", "--url", &closed_url()]);
    let said = "cannot judge: none of 1 agents answers: http://";
    until_so("it has asked", || watching.text().contains(said));
    watching.process.signal(libc::SIGTERM);
    assert_eq!((watching.process.end().code(), watching.process.log().as_str()), (Some(3), ""));
}

#[test]
fn a_watch_of_a_pipe_is_refused_and_one_whose_reader_is_busy_ends_at_a_signal() {
    let pipe = unique(directory(), "pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("coreutils").success());
    let (code, _, log) = Run::of(&["doctor", "--watch", "--rows", pipe.to_str().expect("UTF-8")]);
    let _ = fs::remove_file(pipe);
    assert_eq!((code, log.contains("is a pipe or a device: --watch expects a file")), (Some(3), true), "{log}");

    // The output is more than the pipe holds, and it is not read.
    let missing = json!([{"node": "n9", "error": "y".repeat(100_000)}]);
    let reports = Reports::of(mesh(&NODES, none, &missing));
    let mut command = Command::new(PLAIN);
    command.args(["doctor", "--rows", reports.path(), "--watch", "--json"]);
    let mut process = Process::start(command.stdin(Stdio::piped()).stdout(Stdio::piped()), directory());
    let (_input, mut output) = process.pipes();
    std::io::Read::read_exact(&mut output, &mut [0]).expect("a first byte");
    process.signal(libc::SIGTERM);
    assert_eq!((process.end().code(), process.log().as_str()), (Some(1), ""));
}
