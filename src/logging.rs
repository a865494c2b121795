//! What the program says of itself: a line of standard error per record, in one write, so that lines of several threads or
//! processes do not mix.
//!
//! Not env_logger, which keeps a buffer for each thread that has ever logged, as large as its longest line.

use std::io::{self, Write as _};

use log::{LevelFilter, Log, Metadata, Record};

struct Lines;

/// Records up to `level` are written from now on. Once in a process: later calls change the level only.
pub fn start(level: LevelFilter) {
    // Refused where there is one already, which is this one or a test's.
    let _ = log::set_logger(&Lines);
    log::set_max_level(level);
}

impl Log for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= log::max_level()
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            // Where standard error takes nothing, nobody can be told.
            let _ = io::stderr().write_all(line(record).as_bytes());
        }
    }

    fn flush(&self) {}
}

fn line(record: &Record<'_>) -> String {
    format!("[{:<5} {}] {}\n", record.level(), record.target(), record.args())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_how_grave_it_is_and_who_says_it() {
        let record = |level| line(&Record::builder().level(level).target("kube_canary::agent").build());
        assert_eq!(record(log::Level::Info), "[INFO  kube_canary::agent] \n");
        assert_eq!(record(log::Level::Error), "[ERROR kube_canary::agent] \n");
    }
}
