//! Shared code of the tests that run the real binary: processes, their HTTP, their metrics, and
//! permission for ICMP.
#![allow(dead_code, reason = "each test binary uses its own part")]

pub mod children;
pub mod exposition;
pub mod process;
pub mod scrape;
pub mod until;
