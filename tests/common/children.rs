//! The processes that a process under test has started.

use std::fs;

use super::process::Process;

/// Returns the processes that this one has started and that run.
pub fn children(of: &Process) -> Vec<Seen> {
    let processes = fs::read_dir("/proc").expect("procfs").flatten();
    let ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    ids.filter_map(Seen::of).filter(|seen| seen.parent == of.id()).collect()
}

/// A process, identified by its id and start time, because an id alone may be used again.
#[derive(Debug, PartialEq)]
pub struct Seen {
    pub id: u32,
    parent: u32,
    start: u64,
}

impl Seen {
    /// Returns `None` if no such process runs. A dead process that waits for its parent
    /// counts as not running.
    fn of(id: u32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
        let runs = !["Z", "X"].contains(fields.first()?);
        runs.then_some(Self { id, parent: fields.get(1)?.parse().ok()?, start: fields.get(19)?.parse().ok()? })
    }

    pub fn is_gone(&self) -> bool {
        Self::of(self.id).is_none_or(|now| now.start != self.start)
    }
}
