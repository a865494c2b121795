//! The real binary in network namespaces of its own: a mesh of three agents with real faults
//! between them. Its reports are compared with the truth.
//!
//! `cargo test --test netns`; needs iproute2, nftables, mount and `/dev/net/tun`, and root or user
//! namespaces. Addresses are of 198.18.0.0/15 (RFC 2544, for tests) and fd00:198:18::/64. No test
//! asserts a time by itself. Tests count probes, and compare times with those that another tool
//! took of the same packets.
//!
//! | truth | where from | judged |
//! |---|---|---|
//! | the counts of nftables | [`faults`] | loss and duplicates in a mesh, and their direction in [`udp`] |
//! | the 5-tuples that nftables saw on a cable | [`fabric`] | the flows that lose |
//! | the wire's times, by the kernel | [`capture`] | every reported time, in [`accuracy`] and [`accuracy_udp`] |
//! | the kernel's refusals, by routes and firewalls of the test | what could not be sent, in [`unsent`] |
//! | the log of an emulated link | [`emulator`], [`oracle`] | the fate and the time of every probe, in [`emulated`] |
//!
//! The figures are printed with `-- --nocapture`. `KUBE_CANARY_TEST_SEED=N` uses the random links
//! of one seed.

mod accuracy;
mod accuracy_udp;
mod capture;
mod checks;
mod checksums;
#[path = "../common/mod.rs"]
mod common;
mod demo;
mod echo;
mod emulated;
mod emulator;
mod fabric;
mod faults;
#[path = "../http_support/mod.rs"]
mod http_support;
mod isolate;
mod judges;
mod lacks;
mod links;
mod loss;
mod mesh;
mod mtu;
mod namespace;
mod networks;
mod oracle;
mod outside;
mod peers_file;
mod ping;
mod pinging;
mod probing;
mod protocols;
#[path = "../scenario/random.rs"]
mod random;
#[path = "../common/refusals.rs"]
mod refusals;
mod rewritten;
#[path = "../common/rows.rs"]
mod rows;
mod service;
mod sockets;
mod stamp;
mod stop;
mod strangers;
mod traces;
mod udp;
mod unsent;
mod verdicts;
