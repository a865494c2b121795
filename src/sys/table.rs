//! Formats aligned columns for a terminal, and the figures in them.

use std::fmt::Write as _;

use super::console::printable;

/// The kind of a column, which decides its alignment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Texts, aligned to the left.
    Text,
    /// Numbers, aligned to the right.
    Number,
    /// Numbers, of which most tables have none but 0. The column is then left out.
    Rare,
}

/// The text that stands for an unknown value.
pub const UNKNOWN: &str = "-";

/// Formats lines of cells below their heads. A column is as wide as its widest cell, with two
/// blanks between columns. Cells may come from an untrusted source: control characters are
/// replaced, so none of them moves the cursor.
pub fn render<const N: usize>(heads: [(&str, Kind); N], lines: impl IntoIterator<Item = [String; N]>) -> String {
    let lines: Vec<[String; N]> = lines.into_iter().map(|cells| cells.map(|cell| printable(&cell))).collect();
    let is_shown = |at: &usize| heads[*at].1 != Kind::Rare || lines.iter().any(|cells| cells[*at] != "0");
    let width = |at: usize| {
        let cells = lines.iter().map(|cells| cells[at].chars().count());
        (at, cells.chain([heads[at].0.chars().count()]).max().unwrap_or(0))
    };
    let columns: Vec<(usize, usize)> = (0..N).filter(is_shown).map(width).collect();
    let mut text = String::new();
    let mut line = |cells: [&str; N]| {
        let start = text.len();
        for &(at, width) in &columns {
            if text.len() > start {
                text.push_str("  ");
            }
            // Writing to memory cannot fail.
            let _ = match heads[at].1 {
                Kind::Text => write!(text, "{:<width$}", cells[at]),
                Kind::Number | Kind::Rare => write!(text, "{:>width$}", cells[at]),
            };
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    };
    line(heads.map(|(head, _)| head));
    for cells in &lines {
        line(cells.each_ref().map(String::as_str));
    }
    text
}

/// Formats a value, or returns [`UNKNOWN`].
pub fn known<T>(value: Option<T>, show: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| UNKNOWN.to_owned(), show)
}

/// Formats bytes in KB, with separated thousands.
pub fn kilobytes(bytes: u64) -> String {
    let digits = (bytes / 1_024).to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a share of 1 as a percentage.
pub fn percent(share: f64) -> String {
    format!("{:.1}%", share * 100.0)
}

/// Formats a time in a suitable unit.
pub fn time(seconds: f64) -> String {
    match seconds {
        s if s < 0.000_999_5 => format!("{:.0} µs", s * 1e6),
        s if s < 0.999_5 => format!("{:.1} ms", s * 1e3),
        s => format!("{s:.1} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell_without_control_characters() {
        let rows = [["a\x1b[2J".to_owned(), "1".to_owned()], ["µµ".to_owned(), "1,234".to_owned()]];
        let text = render([("NODE", Kind::Text), ("N", Kind::Number)], rows);
        assert_eq!(text, "NODE       N\na?[2J      1\nµµ     1,234\n");
    }

    #[test]
    fn a_rare_column_is_shown_only_if_it_has_another_value_than_0() {
        let heads = [("NODE", Kind::Text), ("LATE", Kind::Rare), ("LOST", Kind::Number)];
        let line = |late: &str| [["a", late, "0"].map(str::to_owned)];
        assert_eq!(render(heads, line("0")), "NODE  LOST\na        0\n");
        assert_eq!(render(heads, line("1")), "NODE  LATE  LOST\na        1     0\n");
    }

    #[test]
    fn figures_have_their_unit() {
        assert_eq!([0, 999 << 10, 1_000 << 10, 1_234_567 << 10].map(kilobytes), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([0.0, 0.004_2, 1.0].map(percent), ["0.0%", "0.4%", "100.0%"]);
        assert_eq!(
            [0.000_016, 0.000_999_6, 0.25, 0.999_6, 2.5].map(time),
            ["16 µs", "1.0 ms", "250.0 ms", "1.0 s", "2.5 s"]
        );
        assert_eq!(known(None::<u64>, kilobytes), "-");
    }
}
