//! The vocabulary that all parts of KubeCanary share: how a link is probed, why a probe could not
//! be sent, and what an agent reports. No I/O, no clock.

pub mod check;
pub mod limits;
pub mod method;
pub mod report;
pub mod send_error;
pub mod units;
pub mod verdict;
