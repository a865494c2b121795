//! Our STAMP beside implementations that are not ours.
//!
//! | ours | beside |
//! |---|---|
//! | the reflector | scapy as a sender, which checks every field; stamp-suite as a sender |
//! | requests | scapy, which reads every field; stamp-suite as a reflector |
//! | the reader of answers | answers of scapy, and of stamp-suite |
//!
//! Run `tests/interop/tools/build` once, and then `cargo test --test interop`. All traffic stays on
//! loopback.

mod reflector;
mod scapy;
mod stamp_suite;
mod tools;
