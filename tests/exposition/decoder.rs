//! The decoder, a program in Go that knows nothing of our encoder:
//! `tests/exposition/tools/decoder`.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{ChildStdin, ChildStdout, Stdio};

use serde::Deserialize;

use crate::client::Answer;
use crate::common::process::Process;
use crate::namespace::{DIRECTORY, tool};
use crate::tools;

/// The `Accept` of a Prometheus that wants one format. It always accepts text as a last resort.
pub const PROTOBUF: &str = "Accept: application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;\
                            encoding=delimited;q=0.6,text/plain;version=0.0.4;q=0.5,*/*;q=0.1\r\n";
pub const TEXT: &str = "Accept: text/plain;version=0.0.4;q=0.6,*/*;q=0.1\r\n";
pub const OPEN_METRICS: &str =
    "Accept: application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.5,*/*;q=0.1\r\n";
/// The header that requests compression, for each of them.
pub const GZIP: &str = "Accept-Encoding: gzip\r\n";

/// The formats, by the decoder's names of them, and how to request them.
pub const FORMATS: [(&str, &str); 3] = [("protobuf", PROTOBUF), ("text", TEXT), ("openmetrics", OPEN_METRICS)];

/// The decoder process, which runs until this is dropped.
pub struct Decoder {
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    process: Process,
}

/// The decoder's result for a body.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Scrape {
    /// The faults that it found.
    pub faults: Option<Vec<String>>,
    pub format: String,
    pub bytes: usize,
    /// The number of series in classic form.
    pub series: usize,
    /// The number of series as Prometheus stores them.
    pub native_series: usize,
    pub links: usize,
    /// The types by family.
    pub types: BTreeMap<String, String>,
    /// The samples in classic form, by `name{label="value",…}`, with sorted labels.
    pub samples: BTreeMap<String, f64>,
    pub natives: BTreeMap<String, serde_json::Value>,
    pub created: BTreeMap<String, f64>,
}

impl Decoder {
    pub fn start() -> Self {
        let mut command = tool(tools::path("decoder"));
        command.arg("serve").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Process::start(&mut command, Path::new(DIRECTORY));
        let (input, output) = process.pipes();
        Self { input, output: BufReader::new(output), process }
    }

    /// Reads a body. The result lists all its faults.
    pub fn read(&mut self, answer: &Answer, values: bool) -> Scrape {
        let request = serde_json::json!({
            "length": answer.body.len(),
            "content_type": answer.header("content-type").unwrap_or_default(),
            "content_encoding": answer.header("content-encoding").unwrap_or_default(),
            "values": values,
        });
        let mut line = String::new();
        let told = writeln!(self.input, "{request}")
            .and_then(|()| self.input.write_all(&answer.body))
            .and_then(|()| self.input.flush())
            .and_then(|()| self.output.read_line(&mut line));
        told.unwrap_or_else(|error| panic!("the decoder: {error}: {}", self.process.log()));
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}: {}", self.process.log()))
    }

    /// Reads a body with all its values, which must have no fault.
    ///
    /// # Panics
    /// If there are faults, with all of them.
    pub fn whole(&mut self, answer: &Answer) -> Scrape {
        assert_eq!(answer.status, 200, "{answer:?}");
        let scrape = self.read(answer, true);
        if let Some(faults) = scrape.faults.as_ref().filter(|faults| !faults.is_empty()) {
            panic!("of {}:\n{}", scrape.format, faults.join("\n"));
        }
        scrape
    }
}
