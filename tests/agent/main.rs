//! The real binary on loopback addresses, with a Linux, a Rust and a C compiler and nothing else. For an unprivileged
//! user on a machine that permits no ICMP, in a user and network namespace of its own (`common/icmp.rs`).

mod canary;
mod clients;
#[path = "../common/mod.rs"]
mod common;
mod demo;
mod doctor;
mod doctor_rows;
mod fleet;
mod golden;
#[cfg(feature = "jemalloc-profiling")]
mod heap_profile;
#[path = "../http_support/mod.rs"]
mod http_support;
#[path = "../common/icmp.rs"]
mod icmp;
mod lifecycle;
mod metrics;
mod peers_file;
mod ping;
#[path = "../common/protobuf.rs"]
mod protobuf;
mod reference;
mod scrapes;
#[path = "../common/shim.rs"]
mod shim;
mod threads;
mod usage;
