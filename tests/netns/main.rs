//! Three real canaries in network namespaces of their own, and real faults between them.
//!
//! `cargo test --test netns`; needs iproute2 and nftables, and root or user namespaces. Addresses are of 198.18.0.0/15
//! (RFC 2544, for tests) and fd00:198:18::/64. Nothing is measured by the clock: every test counts probes.

mod accuracy;
mod capture;
#[path = "../common/mod.rs"]
mod common;
mod echo;
mod emulated;
mod emulator;
mod faults;
#[path = "../http_support/mod.rs"]
mod http_support;
mod isolate;
mod links;
mod loss;
mod mesh;
mod namespace;
mod oracle;
mod peers_file;
mod ping;
mod pinging;
#[path = "../scenario/random.rs"]
mod random;
mod sockets;
