//! Prints the figures as tables and as JSON.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::programs::{ProgramRow, Programs};
use crate::memory::{Amounts, Category, Footprint};
use crate::sys::console::{json_line, printable};
use crate::sys::table::{self, ColumnKind};

const CATEGORY_HEADS: [(&str, ColumnKind); 5] = [
    ("CATEGORY", ColumnKind::Text),
    ("CLEAN", ColumnKind::Number),
    ("DIRTY", ColumnKind::Number),
    ("RSS", ColumnKind::Number),
    ("SWAP", ColumnKind::Number),
];
const PROGRAM_HEADS: [(&str, ColumnKind); 6] = [
    ("PRIVATE", ColumnKind::Number),
    ("SHARED", ColumnKind::Number),
    ("RAM", ColumnKind::Number),
    ("SWAP", ColumnKind::Number),
    ("COUNT", ColumnKind::Number),
    ("PROGRAM (KB)", ColumnKind::Text),
];

/// A process, and the figures that are shown of it.
#[derive(Debug)]
pub struct Process {
    /// The id of the process.
    pub id: u32,
    /// The name of its program.
    pub name: String,
    /// Its memory by category.
    pub footprint: Footprint,
    /// Its private memory and its share of the memory that it has in common with others, in KB.
    pub pss: u64,
    /// Whether it runs the same file as this process. Its pages are then shared with
    /// us while we read.
    pub like_us: bool,
    /// The size of its page tables, in KB. They belong to the kernel, and are in none
    /// of the other figures.
    pub page_tables: Option<u64>,
}

fn process_json(process: &Process) -> Value {
    let footprint = &process.footprint;
    let category = |category: Category| {
        let Amounts { clean, dirty, swap } = footprint.amounts_in(category);
        json!({ "category": category.label(), "clean_bytes": bytes(clean), "dirty_bytes": bytes(dirty),
            "swap_bytes": bytes(swap) })
    };
    json!({
        "pid": process.id,
        "name": process.name,
        "rss_bytes": bytes(footprint.rss),
        "pss_bytes": bytes(process.pss),
        "private_bytes": bytes(footprint.private),
        "swap_bytes": bytes(footprint.swap),
        "hugetlb_bytes": bytes(footprint.hugetlb),
        "page_tables_bytes": process.page_tables.map(bytes),
        "categories": Category::ALL.map(category),
    })
}

fn row_json(row: &ProgramRow) -> Value {
    json!({ "count": row.count, "private_bytes": bytes(row.private), "shared_bytes": bytes(row.shared),
        "ram_bytes": bytes(row.ram()), "swap_bytes": bytes(row.swap) })
}

const fn bytes(kilobytes: u64) -> u64 {
    kilobytes.saturating_mul(1_024)
}

/// Appends processes by category: one table for each, or all as one object on one line.
pub fn processes(out: &mut Vec<u8>, processes: &[Process], json: bool) {
    if json {
        let answer = json!({ "processes": processes.iter().map(process_json).collect::<Vec<_>>() });
        return out.extend_from_slice(json_line(&answer).as_bytes());
    }
    for (index, process) in processes.iter().enumerate() {
        let gap = if index > 0 { "\n" } else { "" };
        out.extend_from_slice((gap.to_owned() + &by_category(process)).as_bytes());
    }
}

fn by_category(process: &Process) -> String {
    let footprint = &process.footprint;
    let cells = |name: &str, amounts: Amounts| {
        let Amounts { clean, dirty, swap } = amounts;
        let rss = clean.saturating_add(dirty);
        [name.to_owned(), clean.to_string(), dirty.to_string(), rss.to_string(), swap.to_string()]
    };
    let mut total = Amounts::default();
    let mut lines = Vec::new();
    for category in Category::ALL {
        let amounts = footprint.amounts_in(category);
        total.add(amounts);
        // These two are rare, and the agent never has them.
        let rare = matches!(category, Category::File | Category::Shared);
        if !rare || amounts != Amounts::default() {
            lines.push(cells(category.label(), amounts));
        }
    }
    lines.push(cells("total", total));
    let table = table::render(CATEGORY_HEADS, lines);
    let mut text = format!("{} (pid {}): KB\n\n{table}", printable(&process.name), process.id);
    let _ = write!(text, "\nPSS {}, private {}", process.pss, footprint.private);
    if let Some(tables) = process.page_tables {
        let _ = write!(text, "; page tables {tables}");
    }
    if footprint.hugetlb > 0 {
        let _ = write!(text, "; hugetlb pages {}", footprint.hugetlb);
    }
    text.push('\n');
    if process.like_us {
        text.push_str("(PSS and private are less for as long as this looks: both run the same file)\n");
    }
    text
}

/// Appends one row for each program, and the total.
pub fn programs(out: &mut Vec<u8>, programs: &Programs) {
    let total = programs.total();
    let rows = programs.rows.iter().map(|row| (row, row.name.as_str())).chain([(&total, "total")]);
    let cells = |(row, name): (&ProgramRow, &str)| {
        let numbers = [row.private, row.shared, row.ram(), row.swap, row.count].map(|number| number.to_string());
        let [private, shared, ram, swap, count] = numbers;
        [private, shared, ram, swap, count, name.to_owned()]
    };
    out.extend_from_slice(table::render(PROGRAM_HEADS, rows.map(cells)).as_bytes());
}

/// Appends programs, and their processes by category, as one object on one line.
pub fn programs_json(out: &mut Vec<u8>, programs: &Programs, processes: &[Process]) {
    let program = |row: &ProgramRow| {
        let mut json = row_json(row);
        json["name"] = row.name.as_str().into();
        json
    };
    let answer = json!({
        "processes": processes.iter().map(process_json).collect::<Vec<_>>(),
        "programs": programs.rows.iter().map(program).collect::<Vec<_>>(),
        "total": row_json(&programs.total()),
        "unreadable": programs.unreadable.1,
    });
    out.extend_from_slice(json_line(&answer).as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process() -> Process {
        let mut footprint = Footprint { rss: 16, private: 12, swap: 4, ..Footprint::default() };
        footprint.amounts[Category::Text as usize] = Amounts { clean: 8, dirty: 0, swap: 0 };
        footprint.amounts[Category::Heap as usize] = Amounts { clean: 0, dirty: 8, swap: 4 };
        Process { id: 42, name: "agent".into(), footprint, pss: 14, like_us: true, page_tables: Some(20) }
    }

    #[test]
    fn a_process_is_a_table_with_a_total() {
        let mut out = Vec::new();
        processes(&mut out, &[process(), process()], false);
        let text = String::from_utf8(out).unwrap();
        let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert!(rows.contains(&vec!["heap", "0", "8", "8", "4"]) && rows.contains(&vec!["total", "8", "8", "16", "4"]));
        assert!(text.contains("agent (pid 42)") && text.contains("PSS 14, private 12; page tables 20"));
        assert!(
            text.contains("both run the same file") && !text.contains("shared") && text.matches("total").count() == 2,
            "{text}"
        );
    }

    #[test]
    fn json_is_one_object_in_bytes() {
        let mut out = Vec::new();
        processes(&mut out, &[process()], true);
        let json: Value = serde_json::from_slice(&out).unwrap();
        let first = &json["processes"][0];
        assert_eq!((first["pid"].as_u64(), first["rss_bytes"].as_u64()), (Some(42), Some(16_384)));
        assert_eq!((first["pss_bytes"].as_u64(), first["page_tables_bytes"].as_u64()), (Some(14_336), Some(20_480)));
        let categories = first["categories"].as_array().unwrap();
        assert_eq!(categories.len(), Category::ALL.len());
        assert_eq!(categories[4]["category"], "heap");
        assert_eq!(
            (categories[4]["dirty_bytes"].as_u64(), categories[4]["swap_bytes"].as_u64()),
            (Some(8_192), Some(4_096))
        );
        assert!(json.get("programs").is_none() && out.ends_with(b"}\n") && !out[..out.len() - 1].contains(&b'\n'));
    }

    #[test]
    fn each_program_is_a_row_and_the_last_row_is_the_total() {
        let row = |name: &str, private| ProgramRow { name: name.into(), count: 1, private, shared: 5, swap: 1 };
        let found = Programs { rows: vec![row("a", 10), row("b\nc", 20)], ids: vec![42], unreadable: (Vec::new(), 3) };
        let mut out = Vec::new();
        programs(&mut out, &found);
        let text = String::from_utf8(out).unwrap();
        let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[2], ["20", "5", "25", "1", "1", "b?c"]);
        assert_eq!(rows[3], ["30", "10", "40", "2", "2", "total"]);
        let mut out = Vec::new();
        programs_json(&mut out, &found, &[process()]);
        let json: Value = serde_json::from_slice(&out).unwrap();
        assert_eq!((json["total"]["ram_bytes"].as_u64(), json["unreadable"].as_u64()), (Some(40_960), Some(3)));
        assert_eq!(
            (json["programs"][1]["name"].as_str(), json["processes"][0]["pid"].as_u64()),
            (Some("b\nc"), Some(42))
        );
    }
}
