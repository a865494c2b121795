//! The leak finder finds all leaks: bytes, function, file and line.

use std::process::Command;

const SOURCE: &str = include_str!("leaks/leaky.rs");

/// The number of the only line that ends in this comment.
fn line(comment: &str) -> usize {
    let comment = format!(" // {comment}");
    1 + SOURCE.lines().position(|line| line.ends_with(&comment)).expect("such a line")
}

#[test]
fn a_deliberate_leak_is_reported_with_bytes_function_file_and_line() {
    let output = Command::new(env!("CARGO_BIN_EXE_leaky")).output().expect("it starts");
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8(output.stderr).expect("text");
    let lines: Vec<&str> = said.lines().collect();
    let at = |function: &str, comment| format!("leaky::{function} tests/leaks/leaky.rs:{}", line(comment));
    let block = format!("LEAK: 3000 bytes in 3 allocations at {}", at("forget_a_block", "a block"));
    let grown = format!("LEAK: 516 bytes in 1 allocations at {}", at("forget_what_grew", "grown"));
    assert_eq!((lines.len(), lines.first(), lines.get(1)), (3, Some(&&*block), Some(&&*grown)), "{said}");
    let caller = format!(", called by {}", at("forget_what_another_crate_made", "another crate"));
    assert!(lines[2].contains(" in 1 allocations at serde_json::") && lines[2].ends_with(&caller), "{said}");
}
