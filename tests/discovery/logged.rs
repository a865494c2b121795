//! The program's log lines, for tests to wait for and to count. A failure that the client survives
//! has no other sign.

use std::sync::{Mutex, Once};
use std::time::Duration;

use kube_canary::allocator::finder::unfollowed;
use tokio::sync::Notify;

static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());
static NEW: Notify = Notify::const_new();

struct Capture;

impl log::Log for Capture {
    fn enabled(&self, _: &log::Metadata) -> bool {
        true
    }
    fn log(&self, record: &log::Record) {
        if record.target().starts_with("kube_canary") {
            unfollowed(|| LINES.lock().unwrap().push(record.args().to_string()));
            NEW.notify_waiters();
        }
    }
    fn flush(&self) {}
}

/// Starts to record log lines, and keeps all of them, because other tests may wait for theirs.
pub fn start() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        log::set_logger(&Capture).unwrap();
        log::set_max_level(log::LevelFilter::Info);
    });
}

/// Counts the lines that contain all of these parts. Tests share the process, so one part must be
/// the test's own.
pub fn count(parts: &[&str]) -> usize {
    LINES.lock().unwrap().iter().filter(|line| parts.iter().all(|part| line.contains(part))).count()
}

/// Waits for a line that contains all of these parts.
pub async fn wait(parts: &[&str]) {
    let seen = async {
        loop {
            let new = NEW.notified();
            if count(parts) > 0 {
                return;
            }
            new.await;
        }
    };
    let in_time = tokio::time::timeout(Duration::from_secs(30), seen).await.is_ok();
    assert!(in_time, "nothing logged with {parts:?}, but {:#?}", LINES.lock().unwrap());
}
