//! Our STAMP beside implementations that are not ours.
//!
//! | ours | beside |
//! |---|---|
//! | the reflector of an agent | scapy as a sender, which checks every field; stamp-suite as a sender |
//! | an agent's probes | stamp-suite as a reflector |
//! | requests | scapy, which reads every field; stamp-suite as a reflector |
//! | the reader of answers | answers of scapy, and of stamp-suite |
//!
//! Run `tests/interop/tools/build` once, and then `cargo test --test interop`. All traffic stays on
//! loopback.

#![allow(dead_code, reason = "the helpers are those of tests/agent, which uses more of them")]

#[path = "../agent/agent.rs"]
mod agent;
#[path = "../common/mod.rs"]
mod common;
#[path = "../http_support/mod.rs"]
mod http_support;
mod reflector;
mod scapy;
#[path = "../common/shim.rs"]
mod shim;
mod stamp_suite;
mod tools;
