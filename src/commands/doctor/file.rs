//! Reads reports from a file or from standard input: answers of `/api/v1/mesh/NODES`, or one report
//! per line.
//!
//! The first line that is not blank decides which of three forms it is:
//!
//! | the line is | then |
//! |---|---|
//! | `{"rows":[` | the mesh as an agent writes it, one report per line |
//! | the beginning of a mesh, or `{` alone | a mesh or reports, formatted by another tool: read as a whole |
//! | anything else | one report per line |
//!
//! If the input is read by lines, an invalid line does not prevent the others from being judged. It
//! is reported with its number, and the outcome is then never that all is well.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::sync::Arc;

use serde::Deserialize;

use super::lines::{HEAD, MeshError, MeshLines};
use super::output::{Examination, Unread};
use super::reading::{FieldsError, MeshFields, MeshReading, ReportError};
use crate::check::{CHECKS_MAX, Check};
use crate::config::RowsFile;
use crate::limits::{MESH_DOCUMENT_BYTES_MAX, OFFLINE_BYTES_MAX, REPORT_BYTES_MAX};
use crate::mesh::domains::Domains;
use crate::report::{Missing, Peer, Report, Source, at_most};

/// All reports of a file belong to one document.
const DOCUMENT: usize = 0;
/// Parts without a report that are named. The others are counted.
const UNREAD_NAMED_MAX: usize = 16;
const UTF8_MARK: &[u8] = b"\xef\xbb\xbf";
/// The first bytes of other encodings and compressed files, and what to do about them.
const FOREIGN: [(&[u8], &str); 6] = [
    (b"\xff\xfe", "UTF-16: convert it to UTF-8"),
    (b"\xfe\xff", "UTF-16: convert it to UTF-8"),
    (b"\x1f\x8b", "compressed by gzip: decompress it"),
    (b"\x28\xb5\x2f\xfd", "compressed by zstd: decompress it"),
    (b"\xfd7zXZ", "compressed by xz: decompress it"),
    (b"BZh", "compressed by bzip2: decompress it"),
];

/// The reason why a file has no report.
#[derive(Debug, thiserror::Error)]
#[error("--rows {file}: {reason}")]
pub struct FileError {
    file: String,
    reason: FileReason,
}

#[derive(Debug, thiserror::Error)]
enum FileReason {
    #[error("cannot be read: {0}")]
    Read(#[from] io::Error),
    #[error("is {0} first")]
    Foreign(&'static str),
    #[error("is empty: expected an answer of /api/v1/mesh/NODES, or a report of /api/v1/peers per line")]
    Empty,
    #[error("is a pipe or a device: --watch expects a file, because it reads it again each time")]
    Once,
    #[error("no report: {0}")]
    NoReport(String),
}

/// The reason why a line, or the rest of the file, was not judged.
#[derive(Debug, thiserror::Error)]
enum LineError {
    #[error(transparent)]
    Report(#[from] ReportError),
    #[error(transparent)]
    Mesh(#[from] MeshError),
    #[error(transparent)]
    Fields(#[from] FieldsError),
    #[error(transparent)]
    Parse(#[from] serde_json::Error),
    #[error("neither a mesh (rows, missing) nor a report (source, peers)")]
    Neither,
    #[error("a line of more than {REPORT_BYTES_MAX} bytes; what is behind it is not read")]
    Long,
    #[error("more than {OFFLINE_BYTES_MAX} bytes; the rest is not read")]
    Bytes,
    #[error("more than {MESH_DOCUMENT_BYTES_MAX} bytes that are not in lines")]
    WholeBytes,
}

/// Judges the reports of a file.
///
/// # Errors
/// [`FileError`]: no report could be read.
pub fn examine(file: &RowsFile, domains: Option<Arc<Domains>>) -> Result<Examination, FileError> {
    let failed = |reason: FileReason| FileError { file: file.to_string(), reason };
    let read = match file {
        RowsFile::StandardInput => read(&mut io::stdin().lock()),
        RowsFile::Path(path) => File::open(path).and_then(|file| read(&mut BufReader::with_capacity(1 << 16, file))),
    };
    let (reading, unread) = read.map_err(Into::into).and_then(|read| read).map_err(failed)?;
    let examination = Examination::judged(reading.with_domains(domains));
    let unread = unread.into_iter().chain(examination.is_cut().then(Unread::too_much)).collect();
    let examination = examination.with_unread(unread);
    if examination.rows() == 0 {
        let first = examination.unread.first().map_or_else(|| "a mesh without reports".into(), ToString::to_string);
        return Err(failed(FileReason::NoReport(first)));
    }
    Ok(examination)
}

/// Checks that the file can be read repeatedly. A pipe cannot, and may block its reader forever. A
/// file that does not exist yet is accepted, because it may appear later.
///
/// # Errors
/// [`FileError`]: it cannot be read repeatedly.
pub fn expect_lasting(file: &RowsFile) -> Result<(), FileError> {
    let is_once = match file {
        RowsFile::StandardInput => true,
        RowsFile::Path(path) => path.metadata().is_ok_and(|metadata| !metadata.is_file() && !metadata.is_dir()),
    };
    if is_once { Err(FileError { file: file.to_string(), reason: FileReason::Once }) } else { Ok(()) }
}

/// The parts that were not read. The first few are named by their lines.
#[derive(Debug, Default)]
struct UnreadParts {
    named: Vec<Unread>,
    further: usize,
}

impl UnreadParts {
    fn add(&mut self, line: Option<usize>, error: impl Into<LineError>) {
        if self.named.len() == UNREAD_NAMED_MAX {
            self.further += 1;
            return;
        }
        // The parser sees each line as a separate text.
        let error = error.into().to_string();
        let error = if line.is_some() { error.replace(" at line 1 column ", " at column ") } else { error };
        self.named.push(Unread { line, error });
    }

    /// Adds a part that is not one line, if it could not be read.
    fn add_if(&mut self, read: Result<(), impl Into<LineError>>) {
        if let Err(error) = read {
            self.add(None, error);
        }
    }

    fn all(mut self) -> Vec<Unread> {
        if self.further > 0 {
            let error = format!("{} further lines could not be read either", self.further);
            self.named.push(Unread { line: None, error });
        }
        self.named
    }
}

/// A text that is read line by line. Each line and the whole text are limited.
struct LimitedText<'a, R> {
    from: &'a mut R,
    bytes_left: u64,
    line: Vec<u8>,
    number: usize,
}

impl<R: BufRead> LimitedText<'_, R> {
    /// Reads the next line that is not blank. The last line may lack its newline. Returns false if
    /// there is no more line.
    fn next(&mut self) -> io::Result<Result<bool, LineError>> {
        loop {
            self.line.clear();
            let mark = if self.number == 0 { UTF8_MARK.len() } else { 0 };
            let most = self.bytes_left.min((REPORT_BYTES_MAX + mark) as u64 + 1);
            let read = (&mut *self.from).take(most).read_until(b'\n', &mut self.line)?;
            self.number += 1;
            self.bytes_left -= read as u64;
            if self.number == 1 && self.line.starts_with(UTF8_MARK) {
                self.line.drain(..mark);
            }
            if self.line.len() > REPORT_BYTES_MAX {
                return Ok(Err(LineError::Long));
            }
            if self.bytes_left == 0 {
                return Ok(Err(LineError::Bytes));
            }
            if read == 0 {
                return Ok(Ok(false));
            }
            if !self.line.trim_ascii().is_empty() {
                return Ok(Ok(true));
            }
        }
    }
}

/// Reads all reports. The outer error is the system's.
fn read(from: &mut impl BufRead) -> io::Result<Result<(MeshReading, Vec<Unread>), FileReason>> {
    if let Some((_, what)) = FOREIGN.iter().find(|(begin, _)| from.fill_buf().is_ok_and(|text| text.starts_with(begin)))
    {
        return Ok(Err(FileReason::Foreign(what)));
    }
    let mut text = LimitedText { from, bytes_left: OFFLINE_BYTES_MAX, line: Vec::new(), number: 0 };
    let (mut reading, mut unread) = (MeshReading::off_line(), UnreadParts::default());
    match text.next()? {
        Ok(false) => return Ok(Err(FileReason::Empty)),
        Err(error) if !begins_document(text.line.trim_ascii_start()) => {
            return Ok(Err(FileReason::NoReport(error.to_string())));
        }
        // A line of a report, or a mesh in one line that may be longer than other lines.
        Ok(true) | Err(_) => {}
    }
    let first = text.line.trim_ascii();
    if first == HEAD {
        read_mesh(&mut text, &mut reading, &mut unread)?;
    } else if begins_document(first) {
        read_whole(&mut text, &mut reading, &mut unread)?;
    } else {
        read_lines(&mut text, &mut reading, &mut unread)?;
    }
    Ok(Ok((reading, unread.all())))
}

/// Whether a text begins like a mesh, or like JSON that was formatted with indents.
fn begins_document(line: &[u8]) -> bool {
    let Some(rest) = line.strip_prefix(b"{") else { return false };
    let rest = rest.trim_ascii();
    rest.is_empty() || rest.starts_with(b"\"rows\"")
}

/// Passes each line to `take`, from the first one on, until `take` fails. `take` returns the reason
/// if only this line cannot be used. Returns whether the text was read to its end.
fn each_line(
    text: &mut LimitedText<'_, impl BufRead>,
    unread: &mut UnreadParts,
    mut take: impl FnMut(&[u8]) -> Result<Option<ReportError>, LineError>,
) -> io::Result<bool> {
    loop {
        let step = match take(text.line.trim_ascii()) {
            Ok(invalid) => {
                if let Some(error) = invalid {
                    unread.add(Some(text.number), error);
                }
                text.next()?
            }
            Err(error) => Err(error),
        };
        match step {
            Ok(true) => {}
            Ok(false) => return Ok(true),
            Err(error) => {
                unread.add(Some(text.number), error);
                return Ok(false);
            }
        }
    }
}

/// Reads the mesh as an agent writes it, from its first line on.
fn read_mesh(
    text: &mut LimitedText<'_, impl BufRead>,
    reading: &mut MeshReading,
    unread: &mut UnreadParts,
) -> io::Result<()> {
    let mut lines = MeshLines::default();
    let is_read = each_line(text, unread, |line| Ok(lines.take(DOCUMENT, line, reading)?))?;
    if is_read && let Err(error) = lines.end() {
        unread.add(None, error);
    }
    Ok(())
}

/// Reads one report per line, from the first line on.
fn read_lines(
    text: &mut LimitedText<'_, impl BufRead>,
    reading: &mut MeshReading,
    unread: &mut UnreadParts,
) -> io::Result<()> {
    let mut reports = 0;
    each_line(text, unread, |line| {
        reports += 1;
        if reports > reading.reports_max() {
            return Err(ReportError::TooMany(reading.reports_max()).into());
        }
        Ok(reading.report(DOCUMENT, line).err())
    })
    .map(drop)
}

/// A mesh, or a single report.
#[derive(Deserialize)]
struct InputDocument<'a> {
    #[serde(borrow)]
    rows: Option<Vec<Report<'a>>>,
    missing: Option<Vec<Missing>>,
    #[serde(borrow)]
    source: Option<Source<'a>>,
    #[serde(borrow, default, deserialize_with = "at_most::<_, CHECKS_MAX, _>")]
    checks: Vec<Check<'a>>,
    #[serde(borrow)]
    peers: Option<Vec<Peer<'a>>>,
}

/// Reads a sequence of meshes and reports in any format, from the first line on.
fn read_whole(
    text: &mut LimitedText<'_, impl BufRead>,
    reading: &mut MeshReading,
    unread: &mut UnreadParts,
) -> io::Result<()> {
    // The parser counts lines, so the blank ones are added.
    let mut whole = vec![b'\n'; text.number - 1];
    whole.append(&mut text.line);
    let most = (MESH_DOCUMENT_BYTES_MAX as u64 + 1).saturating_sub(whole.len() as u64);
    (&mut *text.from).take(most).read_to_end(&mut whole)?;
    if whole.len() > MESH_DOCUMENT_BYTES_MAX {
        unread.add(None, LineError::WholeBytes);
        return Ok(());
    }
    for document in serde_json::Deserializer::from_slice(&whole).into_iter::<InputDocument<'_>>() {
        match document {
            Ok(InputDocument { rows: Some(reports), missing: Some(missing), .. }) => {
                for report in &reports {
                    unread.add_if(reading.whole_report(DOCUMENT, report));
                }
                unread.add_if(reading.whole_fields(DOCUMENT, MeshFields { missing }));
            }
            Ok(InputDocument { rows: None, source: Some(source), checks, peers: Some(peers), .. }) => {
                unread.add_if(reading.whole_report(DOCUMENT, &Report { source, checks, peers }));
            }
            Ok(_) => unread.add(None, LineError::Neither),
            // The parser cannot go on behind an error.
            Err(error) => {
                unread.add(None, error);
                break;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::sys::terminal::{Colours, Terminal};

    const NODES: usize = 6;

    /// Returns numbers that are each at an end of their range, in a fixed order.
    struct Extremes(u64);

    impl Extremes {
        fn pick(&mut self, most: u64) -> u64 {
            // The multiplier of L'Ecuyer's table for 64 bits; the upper bits are the random ones.
            self.0 = self.0.wrapping_mul(3_935_559_000_370_003_845).wrapping_add(1);
            let kinds = [0, 1, 60, most / 2 + 1, most - 1, most];
            kinds[usize::try_from((self.0 >> 33) % 6).expect("below 6")].min(most)
        }

        fn real(&mut self) -> Value {
            [json!(0.0), json!(-1e300), json!(1e300), json!(1e-300), json!(60.0), Value::Null]
                [usize::try_from(self.pick(5)).expect("below 6")]
            .clone()
        }

        fn number(&mut self) -> f64 {
            self.real().as_f64().unwrap_or(u64::MAX as f64)
        }

        fn one_of<'a>(&mut self, of: &[&'a str]) -> &'a str {
            of[usize::try_from(self.pick(of.len() as u64 - 1)).expect("a place")]
        }

        fn peer(&mut self, node: usize, protocol: &str) -> Value {
            let [long, int, short, byte] = [u64::MAX, u32::MAX.into(), u16::MAX.into(), u8::MAX.into()];
            let state = self.one_of(&["ready", "ready", "ready", "left", "ready", "unready"]);
            let way = self.one_of(&["in", "out", "unknown"]);
            let mut peer = json!({"node": format!("n{node}"), "zone": format!("z{}", node % 2), "network": "pod",
                "protocol": protocol, "state": state, "address": format!("10.0.0.{node}"),
                "rtt_p50_seconds": self.real(), "rtt_p99_seconds": self.real(),
                "usual_rtt_p50_seconds": self.real(), "delay_there_seconds": self.real(),
                "ten_minutes": {"seconds": self.number(), "sent": self.pick(int), "lost": self.pick(int)}});
            for name in ["sent", "received", "lost", "late", "since_unix_seconds", "syn_retransmissions"] {
                peer[name] = self.pick(long).into();
            }
            peer["recent"] =
                json!({"seconds": self.number(), "rtt_p50_seconds": self.real(), "refused": self.pick(1) > 0});
            for name in [
                "sent",
                "received",
                "lost",
                "lost_in_row",
                "answered_since",
                "answered_before",
                "answered_seconds",
                "lost_there",
                "lost_back",
            ] {
                peer["recent"][name] = self.pick(int).into();
            }
            if protocol == "udp" {
                let flow = json!({"source_port": self.pick(short), "lost": self.pick(byte),
                    "probes": self.pick(byte), "direction": way});
                peer["heard"] = self.pick(int).into();
                peer["flows"] = json!({"probed": self.pick(16), "losing_count": self.pick(byte), "losing": [flow],
                    "answered": self.pick(byte), "answered_seconds": self.pick(byte)});
                peer["mtu_hole"] = json!({"passes_bytes": self.pick(short), "direction": way, "said": "silent"});
            }
            peer
        }

        fn report(&mut self, node: usize) -> String {
            let most = u64::MAX;
            let mut source = json!({"node": format!("n{node}"), "zone": format!("z{}", node % 2)});
            for name in ["rss_bytes", "members", "watchers", "watchers_missing", "echo_requests_received"] {
                source[name] = self.pick(most).into();
            }
            for name in ["cpu_seconds", "interval_seconds", "listening_seconds", "peer_list_age_seconds"] {
                source[name] = self.real();
            }
            source["recent"] = json!({"seconds": self.real(), "echo_requests_received": self.pick(most),
                "send_lag_p99_seconds": self.real(), "probes_skipped": self.pick(most),
                "receive_queue_drops": self.pick(most), "run_delay_seconds": self.real(),
                "rtt_p99_seconds": self.real()});
            let peers: Vec<Value> = (0..NODES)
                .filter(|peer| *peer != node)
                .flat_map(|peer| ["icmp", "icmpv6", "udp", "tcp"].map(|protocol| self.peer(peer, protocol)))
                .collect();
            format!("{{\"source\":{source},\"peers\":{}}}", Value::from(peers))
        }
    }

    #[test]
    fn numbers_at_the_ends_of_their_ranges_are_judged() {
        let terminal = Terminal::stdout(Colours::Never);
        for seed in 0..400 {
            let mut extremes = Extremes(seed);
            // In some meshes, the last report is missing.
            let reports = NODES - usize::try_from(seed % 2).expect("a bit");
            let text: String = (0..reports).map(|node| extremes.report(node) + "\n").collect();
            let (reading, unread) = read(&mut text.as_bytes()).expect("a text").expect("reports");
            assert!(unread.is_empty(), "{unread:?}");
            let examination = Examination::judged(reading);
            assert!(!examination.text(terminal).is_empty() && examination.json().starts_with('{'));
            let _ = examination.outcome();
        }
    }
}
