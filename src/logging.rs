//! The log of the program: records of the `log` crate, written to standard error by env_logger.

use log::LevelFilter;

/// Starts to write records up to `level`. Only the first call in a process has an effect.
pub fn start(level: LevelFilter) {
    let logger = env_logger::Builder::new().filter_level(level).build();
    #[cfg(feature = "leak-finder")]
    let logger = unfollowed::Unfollowed(logger);
    // This fails if a test has already set a logger.
    if log::set_boxed_logger(Box::new(logger)).is_ok() {
        log::set_max_level(level);
    }
}

/// env_logger keeps a buffer for each thread that has ever logged, as large as its longest line.
/// That is no leak.
#[cfg(feature = "leak-finder")]
mod unfollowed {
    use crate::allocator::finder;
    use log::{Log, Metadata, Record};

    #[derive(Debug)]
    pub(super) struct Unfollowed(pub(super) env_logger::Logger);

    impl Log for Unfollowed {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            self.0.enabled(metadata)
        }

        fn log(&self, record: &Record<'_>) {
            finder::unfollowed(|| self.0.log(record));
        }

        fn flush(&self) {
            self.0.flush();
        }
    }
}
