//! Peers from Kubernetes: the EndpointSlices of one Service, read when they matter.
//!
//! `machine` decides, with `slices` and `endpoints` (what is kept), `plan` (which slice when) and `backoff`; `protobuf`, `api`, `inbox` and
//! `failure` read; `watcher`, `requests` and `connect` do the I/O; `traffic` counts it. Why not kube-rs: docs/adr/0002; why a watch
//! of metadata and a GET per slice: docs/adr/0013.
//!
//! The traps: an error is never an empty list; a watch can hang for ever on a dead connection, or on a version from before a
//! restore; a token is rotated while we hold it; agents that hear of a change together must not come for it together.

mod account;
mod api;
mod backoff;
mod config;
mod connect;
mod endpoints;
mod failure;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod inbox;
mod machine;
mod plan;
mod protobuf;
mod requests;
mod slices;
pub mod traffic;
mod watcher;

// The other side, which tests share.
#[cfg(test)]
#[path = "../../../tests/discovery/encode.rs"]
mod encode;

pub use account::DIRECTORY;
pub use config::{ConfigError, KubernetesConfig, Timing};
pub use connect::Server;
pub use watcher::run;
