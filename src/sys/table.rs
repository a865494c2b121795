//! Formats aligned columns for a terminal, and the figures in them.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use super::console::printable;
use super::terminal::{Terminal, Tint};

/// The kind of a column, which decides its alignment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnKind {
    /// Texts, aligned to the left.
    Text,
    /// Texts that are the same in every line of most tables. The column is then left out.
    Same,
    /// Numbers, aligned to the right.
    Number,
    /// Numbers, of which most tables have none but 0. The column is then left out.
    Rare,
}

/// The text that stands for an unknown value.
pub const UNKNOWN: &str = "-";
/// The blanks between two columns.
const GAP: &str = "  ";

/// One cell of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableCell {
    text: String,
    tint: Option<Tint>,
}

impl From<String> for TableCell {
    fn from(text: String) -> Self {
        Self { text, tint: None }
    }
}

impl TableCell {
    /// Returns a cell that stands out if the condition holds.
    pub fn tinted(text: String, tint: Tint, condition: bool) -> Self {
        Self { text, tint: condition.then_some(tint) }
    }

    fn length(&self) -> usize {
        self.text.chars().count()
    }
}

/// Formats lines of cells below their heads, of any length and without colours, as [`render_on`]
/// does.
pub fn render<const N: usize>(heads: [(&str, ColumnKind); N], lines: impl IntoIterator<Item = [String; N]>) -> String {
    render_on(Terminal::PLAIN, heads, lines.into_iter().map(|cells| cells.map(TableCell::from)))
}

/// Formats lines of cells below their heads. A column is as wide as its widest cell, with two
/// blanks between columns. If a line would be too long for the terminal, the widest cells are cut
/// in the middle. Cells may come from an untrusted source: control characters are replaced, so none
/// of them moves the cursor.
pub fn render_on<const N: usize>(
    terminal: Terminal,
    heads: [(&str, ColumnKind); N],
    lines: impl IntoIterator<Item = [TableCell; N]>,
) -> String {
    let printable = |cell: TableCell| TableCell { text: printable(&cell.text), ..cell };
    let mut lines: Vec<[TableCell; N]> = lines.into_iter().map(|cells| cells.map(printable)).collect();
    let is_shown = |at: &usize| match heads[*at].1 {
        ColumnKind::Text | ColumnKind::Number => true,
        ColumnKind::Rare => lines.iter().any(|cells| cells[*at].text != "0"),
        ColumnKind::Same => lines.iter().any(|cells| cells[*at].text != lines[0][*at].text),
    };
    let width = |at: usize| {
        let cells = lines.iter().map(|cells| cells[at].length());
        (at, cells.chain([heads[at].0.chars().count()]).max().unwrap_or(0))
    };
    let mut columns: Vec<(usize, usize)> = (0..N).filter(is_shown).map(width).collect();
    narrow(&mut columns, &heads, terminal.columns);
    for &(at, width) in &columns {
        cut(lines.iter_mut().map(|cells| &mut cells[at]).filter(|cell| cell.length() > width).collect(), width);
    }
    let mut text = String::new();
    let mut line = |cells: [(&str, Option<Tint>); N]| {
        let start = text.len();
        for &(at, width) in &columns {
            if text.len() > start {
                text.push_str(GAP);
            }
            let (cell, tint) = cells[at];
            let blanks = " ".repeat(width.saturating_sub(cell.chars().count()));
            // The width is that of the text alone. The terminal does not show the escape codes.
            let painted = terminal.paint(tint, cell);
            match heads[at].1 {
                ColumnKind::Text | ColumnKind::Same => text.extend([painted, blanks]),
                ColumnKind::Number | ColumnKind::Rare => text.extend([blanks, painted]),
            }
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    };
    line(heads.map(|(head, _)| (head, None)));
    for cells in &lines {
        line(cells.each_ref().map(|cell| (cell.text.as_str(), cell.tint)));
    }
    text
}

/// Makes columns narrower, the widest first, until a line fits. No column becomes narrower than its
/// head.
fn narrow(columns: &mut [(usize, usize)], heads: &[(&str, ColumnKind)], room: usize) {
    let gaps = GAP.len() * columns.len().saturating_sub(1);
    let mut excess = columns.iter().map(|(_, width)| width).sum::<usize>().saturating_add(gaps).saturating_sub(room);
    while excess > 0 {
        let wider = columns.iter_mut().filter(|(at, width)| *width > heads[*at].0.chars().count());
        let Some((_, width)) = wider.max_by_key(|(_, width)| *width) else { return };
        *width -= 1;
        excess -= 1;
    }
}

/// Cuts texts that are longer than `width`: `…` replaces the middle of each. All are cut at one
/// place. It is the place where the largest number of them still differ, near to the middle.
fn cut(cells: Vec<&mut TableCell>, width: usize) {
    let texts: Vec<Vec<char>> = cells.iter().map(|cell| cell.text.chars().collect()).collect();
    let rest = width.saturating_sub(1);
    let ends = |text: &'_ [char], begin: usize| -> [String; 2] {
        [&text[..begin], &text[text.len() - (rest - begin)..]].map(|end| end.iter().collect())
    };
    let differing = |begin: usize| texts.iter().map(|text| ends(text, begin)).collect::<BTreeSet<_>>().len();
    let best = (0..=rest).max_by_key(|begin| (differing(*begin), Reverse(begin.abs_diff(rest.div_ceil(2)))));
    for (cell, text) in cells.into_iter().zip(&texts) {
        cell.text = ends(text, best.unwrap_or(0)).join("…");
    }
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
        let text = render([("NODE", ColumnKind::Text), ("N", ColumnKind::Number)], rows);
        assert_eq!(text, "NODE       N\na?[2J      1\nµµ     1,234\n");
    }

    #[test]
    fn a_rare_column_is_shown_only_if_it_has_another_value_than_0() {
        let heads = [("NODE", ColumnKind::Text), ("LATE", ColumnKind::Rare), ("LOST", ColumnKind::Number)];
        let line = |late: &str| [["a", late, "0"].map(str::to_owned)];
        assert_eq!(render(heads, line("0")), "NODE  LOST\na        0\n");
        assert_eq!(render(heads, line("1")), "NODE  LATE  LOST\na        1     0\n");
    }

    #[test]
    fn a_column_that_is_the_same_in_every_line_is_left_out() {
        let heads = [("NODE", ColumnKind::Text), ("VERSION", ColumnKind::Same)];
        let of = |versions: &[&str]| render(heads, versions.iter().map(|version| ["a", version].map(str::to_owned)));
        assert_eq!(of(&["1", "1"]), "NODE\na\na\n");
        assert_eq!(of(&["1", "2"]), "NODE  VERSION\na     1\na     2\n");
        assert_eq!(of(&[]), "NODE\n");
    }

    #[test]
    fn colours_are_not_part_of_the_width() {
        let terminal = Terminal { has_colours: true, ..Terminal::PLAIN };
        let bad = |text: &str| TableCell::tinted(text.to_owned(), Tint::Bad, text == "9");
        let text = render_on(
            terminal,
            [("A", ColumnKind::Text), ("LOSS", ColumnKind::Number)],
            [["b", "9"], ["c", "0"]].map(|row| row.map(bad)),
        );
        assert_eq!(text, "A  LOSS\nb     \x1b[31m9\x1b[0m\nc     0\n");
    }

    #[test]
    fn the_widest_columns_are_cut_until_a_line_fits() {
        let terminal = Terminal { columns: 30, ..Terminal::PLAIN };
        let heads = [("NODE", ColumnKind::Text), ("RSS KB", ColumnKind::Number), ("WORST", ColumnKind::Text)];
        let line = |node: &str, worst: &str| [node, "1,192", worst].map(|text| TableCell::from(text.to_owned()));
        // 30 columns are 6 for the figure, 4 between the columns, and 20 for two names.
        let text = render_on(terminal, heads, [line("node-1", "a-node-with-a-long-name"), line("é", "b")]);
        assert_eq!(text, "NODE    RSS KB  WORST\nnode-1   1,192  a-node-…g-name\né        1,192  b\n");
        let long = "a-node-with-a-long-name";
        let text = render_on(terminal, heads, [line(long, long)]);
        assert_eq!(text.lines().nth(1), Some("a-nod…name   1,192  a-nod…name"));
        // Columns are never narrower than their heads.
        let narrow = Terminal { columns: 1, ..Terminal::PLAIN };
        assert_eq!(render_on(narrow, heads, [line(long, long)]).lines().nth(1), Some("a-…e   1,192  a-…me"));
    }

    #[test]
    fn names_are_cut_where_they_still_differ() {
        let cut = |names: [&str; 3], columns| {
            let terminal = Terminal { columns, ..Terminal::PLAIN };
            let text =
                render_on(terminal, [("N", ColumnKind::Text)], names.map(|name| [TableCell::from(name.to_owned())]));
            text.lines().skip(1).map(str::to_owned).collect::<Vec<_>>()
        };
        let amazon =
            ["ip-10-0-1-23", "ip-10-0-1-24", "ip-10-0-1-25"].map(|name| format!("{name}.eu-1.compute.internal"));
        let shown = cut(amazon.each_ref().map(String::as_str), 16);
        assert_eq!(shown, ["ip-10-0-1-23…nal", "ip-10-0-1-24…nal", "ip-10-0-1-25…nal"]);
        let google =
            ["gke-blue-default-pool-1a2b-x7zq", "gke-blue-default-pool-1a2b-b9kk", "gke-blue-default-pool-1a2b-c3pt"];
        assert_eq!(cut(google, 16), ["gke-blue…2b-x7zq", "gke-blue…2b-b9kk", "gke-blue…2b-c3pt"]);
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
