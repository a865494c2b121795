//! What standard output can show: colours, and how long a line may be.
//!
//! Colours are four escape codes, and the conditions for them are three lines. The crates for this
//! (anstream, anstyle-query) also rewrite text for Windows, and detect the number of colours.
//! Nothing here needs that.

use std::io::{self, IsTerminal};

/// The length of a line if standard output is no terminal, or a narrower one.
pub const COLUMNS: usize = 100;

/// When colours are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Colours {
    /// On a terminal, unless `NO_COLOR` is set and not empty (<https://no-color.org>), or `TERM` is
    /// `dumb`.
    #[default]
    Auto,
    /// Always, also in a pipe. What the user has typed goes before `NO_COLOR`.
    Always,
    /// Colours are never shown.
    Never,
}

/// How a text stands out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tint {
    /// A fault: red.
    Bad,
    /// A fault that is only likely, or something to look at: yellow.
    Warning,
    /// No fault: green.
    Good,
}

/// How a text is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terminal {
    /// The number of characters that a line may have.
    pub columns: usize,
    /// Whether colours are shown.
    pub has_colours: bool,
}

impl Terminal {
    /// Shows lines of any length, without colours.
    pub const PLAIN: Self = Self { columns: usize::MAX, has_colours: false };

    /// Returns how standard output is shown.
    pub fn stdout(colours: Colours) -> Self {
        let variable = |name| std::env::var_os(name).unwrap_or_default();
        let has_colours = match colours {
            Colours::Auto => {
                io::stdout().is_terminal() && variable("NO_COLOR").is_empty() && variable("TERM") != "dumb"
            }
            Colours::Always => true,
            Colours::Never => false,
        };
        let columns = rustix::termios::tcgetwinsize(io::stdout()).map_or(0, |size| size.ws_col);
        // A table does not fit into a much narrower terminal. It is then left to the terminal to
        // break its lines, so that names stay long enough to be recognized.
        Self { columns: COLUMNS.max(columns.into()), has_colours }
    }

    /// Returns the same with lines of any length.
    #[must_use]
    pub const fn unlimited(self) -> Self {
        Self { columns: usize::MAX, ..self }
    }

    /// Returns `text` with the escape codes of a tint, if there are colours.
    pub fn paint(self, tint: impl Into<Option<Tint>>, text: &str) -> String {
        let code = match tint.into().filter(|_| self.has_colours) {
            None => return text.to_owned(),
            Some(Tint::Bad) => 31,
            Some(Tint::Warning) => 33,
            Some(Tint::Good) => 32,
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }

    /// Returns `text` with line breaks in place of some blanks, so that no line is too long, unless
    /// a word is. Further lines begin with `indent` blanks.
    pub fn wrap(self, text: &str, indent: usize) -> String {
        let (mut wrapped, mut length) = (String::with_capacity(text.len()), 0);
        for (place, word) in text.split(' ').enumerate() {
            let word_length = word.chars().count();
            if place > 0 && length + 1 + word_length > self.columns {
                wrapped.push('\n');
                wrapped.extend(std::iter::repeat_n(' ', indent));
                length = indent;
            } else if place > 0 {
                wrapped.push(' ');
                length += 1;
            }
            wrapped.push_str(word);
            length += word_length;
        }
        wrapped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_terminal_with_colours_is_sent_escape_codes() {
        let coloured = Terminal { has_colours: true, ..Terminal::PLAIN };
        assert_eq!(coloured.paint(Tint::Bad, "a"), "\x1b[31ma\x1b[0m");
        assert_eq!(coloured.paint(None, "a"), "a");
        assert_eq!(Terminal::PLAIN.paint(Tint::Bad, "a"), "a");
    }

    #[test]
    fn long_lines_are_broken_at_blanks_and_no_blank_is_lost() {
        let narrow = Terminal { columns: 9, ..Terminal::PLAIN };
        assert_eq!(narrow.wrap("one two three", 2), "one two\n  three");
        assert_eq!(narrow.wrap("  one two", 4), "  one two");
        assert_eq!(narrow.wrap("a much-longer-word b", 0), "a\nmuch-longer-word\nb");
        assert_eq!(Terminal::PLAIN.wrap("one two three", 2), "one two three");
    }
}
