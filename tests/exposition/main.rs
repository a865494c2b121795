//! What agents expose, judged from outside: by a decoder that is not ours, by a real Prometheus,
//! and by what was on the wire.
//!
//! | judged | by | in |
//! |---|---|---|
//! | every message and line | client_model, expfmt and Prometheus' own parsers, in Go | [`decoder`] |
//! | quantiles of a link | a wire tap with kernel times, through Debian's Prometheus and a 3.x | [`quantiles`] |
//! | types and series of a growing mesh | the decoder, scrape after scrape | [`growth`] |
//! | what is sent for any `Accept` | the decoder, and a small oracle | [`accept`] |
//!
//! Run `tests/exposition/tools/build` once, and then
//! `cargo test --test exposition -- --test-threads=1`. This needs Debian's prometheus, Go for the
//! former, iproute2, mount and `/dev/net/tun`, and root or user namespaces. All traffic stays in
//! namespaces of its own.
//!
//! The tests of an agent run over the reference as well, an agent made of Prometheus' own client
//! library. A test that finds a fault in the reference has a fault itself.
#![allow(dead_code, unused_imports, reason = "namespaces and the wire tap are those of tests/netns, which uses more")]

mod accept;
mod agent;
#[path = "../netns/capture.rs"]
mod capture;
mod client;
#[path = "../common/mod.rs"]
mod common;
mod decoder;
#[path = "../netns/echo.rs"]
mod echo;
#[path = "../netns/emulator/mod.rs"]
mod emulator;
mod growth;
#[path = "../http_support/mod.rs"]
mod http_support;
#[path = "../netns/isolate.rs"]
mod isolate;
#[path = "../netns/namespace.rs"]
mod namespace;
mod prometheus;
#[path = "../common/prometheus.rs"]
mod prometheus_api;
mod quantiles;
#[path = "../scenario/random.rs"]
mod random;
mod tools;
