//! The real binary on loopback addresses. These tests need Linux, a Rust compiler and a C compiler,
//! and nothing else. If the user is unprivileged and the machine permits no ICMP, they run in a
//! user and network namespace of their own (`common/icmp.rs`).

mod agent;
mod clients;
#[path = "../common/mod.rs"]
mod common;
mod demo;
mod doctor;
mod doctor_judges;
mod doctor_rows;
mod fleet;
mod golden;
#[cfg(feature = "jemalloc-profiling")]
mod heap_profile;
#[path = "../http_support/mod.rs"]
mod http_support;
#[path = "../common/icmp.rs"]
mod icmp;
mod lacks;
mod lifecycle;
mod manuals;
mod metrics;
mod outputs;
mod peers_file;
mod ping;
#[path = "../common/protobuf.rs"]
mod protobuf;
mod reference;
#[path = "../common/refusals.rs"]
mod refusals;
mod scrapes;
#[path = "../common/shim.rs"]
mod shim;
mod terminal;
mod threads;
mod usage;
