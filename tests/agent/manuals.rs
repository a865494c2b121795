//! The scripts of `kube-canary completion` and the man pages follow from the definition that parses
//! the command line, and the script completes in a real bash.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use clap_complete::Shell;
use kube_canary::config::{COMMANDS, program};

use crate::fleet::Run;
use crate::golden;

const NAME: &str = "kube-canary";

#[test]
fn the_completions_are_those_of_the_table_of_flags() {
    let scripts = [(Shell::Bash, "kube-canary.bash"), (Shell::Zsh, "_kube-canary"), (Shell::Fish, "kube-canary.fish")];
    for (shell, file) in scripts {
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut program(), NAME, &mut script);
        // The generator for fish leaves out arguments that are no flags.
        for (command, words) in [("completion", "bash zsh fish"), ("help", &COMMANDS.join(" "))]
            .into_iter()
            .filter(|_| shell == Shell::Fish)
        {
            let condition = format!("__fish_kube_canary_using_subcommand {command}");
            writeln!(script, "complete -c {NAME} -n \"{condition}\" -f -a \"{words}\"").expect("memory takes it");
        }
        // The generator for bash (clap_complete 4.6.11) writes the dash of our name in two ways.
        let script = String::from_utf8(script).expect("text").replace("kube__subcmd__canary", "kube__canary");
        golden::hold(&format!("docs/completions/{file}"), &script);
    }
}

#[test]
fn the_man_pages_are_those_of_the_table_of_flags() {
    let mut program = program().subcommand_value_name("COMMAND").subcommand_help_heading("COMMANDS");
    program.build();
    let pages = std::iter::once((NAME.to_owned(), program.clone()))
        .chain(program.get_subcommands().map(|it| (format!("{NAME}-{}", it.get_name()), it.clone())));
    let mut names = Vec::new();
    for (name, command) in pages {
        let mut page = Vec::new();
        let man = clap_mangen::Man::new(command).title(&name).source("KubeCanary").manual("KubeCanary");
        man.render(&mut page).expect("memory takes it");
        // The page has no date of its own. An empty date must be quoted, or the next word is taken.
        let page = String::from_utf8(page).expect("text");
        let page = page.replacen(" 1  KubeCanary", " 1 \"\" KubeCanary", 1).replacen(".SH EXTRA", ".SH NOTES", 1);
        golden::hold(&format!("docs/man/{name}.1"), &page);
        names.push(format!("{name}.1"));
    }
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/man");
    for entry in fs::read_dir(directory).expect("our directory") {
        let file = entry.expect("an entry").file_name();
        assert!(names.iter().any(|name| file == name.as_str()), "{} is the page of no command", file.display());
    }
}

/// Returns what bash offers for the last word of a line.
fn completed(script: &str, line: &str) -> Vec<String> {
    let words: Vec<&str> = line.split(' ').collect();
    let quoted = words.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" ");
    let last = words.len() - 1;
    let registered = script.lines().find_map(|line| line.trim().strip_prefix("complete -F ")).expect("a function");
    let function = registered.split(' ').next().expect("its name");
    // bash calls the function as for a pressed key: command, current word, and the word before.
    let asked = format!(
        "{script}\nCOMP_WORDS=({quoted})\nCOMP_CWORD={last}\n{function} '{}' '{}' '{}'\n\
         printf '%s\\n' \"${{COMPREPLY[@]}}\"\n",
        words[0],
        words[last],
        words[last - 1]
    );
    let mut bash = Command::new("bash");
    bash.args(["--norc", "--noprofile"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut bash = bash.spawn().expect("bash");
    bash.stdin.take().expect("a pipe").write_all(asked.as_bytes()).expect("bash reads it");
    let output = bash.wait_with_output().expect("bash ends");
    // Without a terminal there is no line to edit, so `compopt` and its like complain.
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text").lines().map(str::to_owned).collect()
}

#[test]
fn bash_completes_commands_flags_values_and_files() {
    let (code, script, _) = Run::of(&["completion", "bash"]);
    assert_eq!(code, Some(0));
    for (line, expected) in [
        ("kube-canary fl", &["fleet"][..]),
        ("kube-canary fleet --so", &["--sort"]),
        ("kube-canary fleet --sort l", &["loss", "lag"]),
        ("kube-canary fleet -o ", &["wide", "json"]),
        ("kube-canary run --log-level w", &["warn"]),
        ("kube-canary completion z", &["zsh"]),
        ("kube-canary help doc", &["doctor"]),
        ("kube-canary doctor --rows Cargo.to", &["Cargo.toml"]),
        ("kube-canary fleet --grou", &["--group-by"]),
        ("kube-canary nothing-like-it", &[]),
    ] {
        let mut found: Vec<String> = completed(&script, line).into_iter().filter(|word| !word.is_empty()).collect();
        let mut expected = expected.to_vec();
        found.sort_unstable();
        expected.sort_unstable();
        assert_eq!(found, expected, "{line}");
    }
}
