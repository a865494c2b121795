//! The scripts of `kube-canary completion`. A test generates them, and the man pages, from the
//! table of flags (`tests/agent/manuals.rs`).

use super::typed::Typed;
use super::{Command, UsageError};

/// The first line that `completion --help` shows.
pub const ABOUT: &str = "Prints a script with which a shell completes commands, flags and their values.";
/// The text that `completion --help` shows below the flags.
pub const AFTER: &str = "
SHELL is bash, zsh or fish. For the shell that is running:

  bash   source <(kube-canary completion bash)
  zsh    source <(kube-canary completion zsh)
  fish   kube-canary completion fish | source

For every new shell, write the script to the file that the shell loads:

  bash   /etc/bash_completion.d/kube-canary
  zsh    _kube-canary, in a directory of $fpath
  fish   ~/.config/fish/completions/kube-canary.fish
";

/// The shells that have a script, by name.
pub const SHELLS: [&str; 3] = ["bash", "zsh", "fish"];
// Arrays rather than texts: a static has a name, by which the linker keeps it apart from the
// constants of the agent, which are resident (layout/functions.ld).
static BASH: [u8; include_bytes!("../../docs/completions/kube-canary.bash").len()] =
    *include_bytes!("../../docs/completions/kube-canary.bash");
static ZSH: [u8; include_bytes!("../../docs/completions/_kube-canary").len()] =
    *include_bytes!("../../docs/completions/_kube-canary");
static FISH: [u8; include_bytes!("../../docs/completions/kube-canary.fish").len()] =
    *include_bytes!("../../docs/completions/kube-canary.fish");

/// Returns the command that prints the script of the shell.
pub(super) fn resolve(typed: &Typed) -> Result<Command, UsageError> {
    let [shell] = typed.positional() else {
        return Err(UsageError(format!("SHELL: expected one of {}", SHELLS.join(", "))));
    };
    let script: &[u8] = match shell.as_str() {
        "bash" => &BASH,
        "zsh" => &ZSH,
        "fish" => &FISH,
        _ => return Err(UsageError::expected("SHELL", shell, &format!("one of {}", SHELLS.join(", ")))),
    };
    Ok(Command::Print(String::from_utf8_lossy(script).into_owned()))
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;

    fn printed(line: &str) -> Result<String, String> {
        match parse(&line.split_whitespace().map(Into::into).collect::<Vec<_>>(), &|_| None) {
            Ok(Command::Print(text)) => Ok(text),
            Ok(other) => panic!("{other:?}"),
            Err(error) => Err(error.0),
        }
    }

    #[test]
    fn each_shell_has_a_script_of_its_own_and_others_have_none() {
        for (shell, part) in
            [("bash", "complete -F"), ("zsh", "#compdef kube-canary"), ("fish", "complete -c kube-canary")]
        {
            assert!(printed(&format!("completion {shell}")).unwrap().contains(part), "{shell}");
        }
        for line in ["completion", "completion bash zsh", "completion tcsh"] {
            let error = printed(line).unwrap_err();
            assert!(error.contains("SHELL") && error.contains("bash, zsh, fish"), "{error}");
        }
    }
}
