//! The targets of `fuzz/` over their committed corpora, and over mutations of these, which are the
//! same in every run.

#[path = "../common/splitmix.rs"]
mod splitmix;
#[path = "../../fuzz/targets.rs"]
mod targets;

use std::fs;
use std::path::Path;

use splitmix::Random;

/// Mutations of each input.
const MUTATIONS: u64 = 2_000;

/// The inputs of a corpus, in the order of their names.
fn corpus(name: &str) -> Vec<Vec<u8>> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(name);
    let entries = fs::read_dir(&directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    paths.iter().map(|path| fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))).collect()
}

fn below(random: &mut Random, end: u64) -> u64 {
    random.next() % end
}

/// Changes one to eight bytes, removes them, or doubles them with what follows.
fn mutated(input: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = input.to_vec();
    for _ in 0..=below(random, 8) {
        if bytes.is_empty() {
            return bytes;
        }
        let at = usize::try_from(below(random, bytes.len() as u64)).expect("an index");
        match below(random, 4) {
            0 => bytes[at] = u8::try_from(below(random, 256)).expect("a byte"),
            1 => bytes[at] ^= 1 << below(random, 8),
            2 => bytes.truncate(at),
            _ => {
                let tail = bytes[at..].to_vec();
                bytes.extend(&tail[..tail.len().min(64)]);
            }
        }
    }
    bytes
}

#[test]
fn every_target_accepts_its_corpus_and_mutations_of_it() {
    for (name, _) in targets::ALL {
        let corpus = corpus(name);
        assert!(!corpus.is_empty(), "{name} has no corpus");
        for (number, input) in (0..).zip(&corpus) {
            targets::run(name, input);
            let mut random = Random(number);
            for _ in 0..MUTATIONS {
                targets::run(name, &mutated(input, &mut random));
            }
        }
    }
}

#[test]
fn every_target_is_a_program_of_the_fuzz_package() {
    let manifest = include_str!("../../fuzz/Cargo.toml");
    for (name, _) in targets::ALL {
        assert!(manifest.contains(&format!("path = \"fuzz_targets/{name}.rs\"")), "{name}");
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("fuzz/fuzz_targets/{name}.rs"));
        assert!(fs::read_to_string(program).expect("a program").contains(&format!("\"{name}\"")), "{name}");
    }
    assert_eq!(manifest.matches("[[bin]]").count(), targets::ALL.len());
}
