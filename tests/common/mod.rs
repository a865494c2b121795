//! What the tests that drive the real binary share: processes, their HTTP, their metrics, and ICMP for everybody.
#![allow(dead_code, reason = "each test binary uses its own part")]

pub mod exposition;
pub mod process;
pub mod scrape;
pub mod until;
