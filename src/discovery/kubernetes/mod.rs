//! Peers from Kubernetes: list and watch of the EndpointSlices of one Service.
//!
//! `machine` decides, `slices` merges, `api` and `failure` read; `watcher` and `connect` do the I/O. Why not
//! kube-rs: docs/adr/0002.
//!
//! One connection serves lists and watches in turn. The traps: an error is never an empty list; a watch can hang for
//! ever on a dead connection; a token is rotated while we hold it; agents that reconnect together stay together.

mod account;
mod api;
mod backoff;
mod config;
mod connect;
mod failure;
mod machine;
mod slices;
mod watcher;

pub use account::DIRECTORY;
pub use config::{ConfigError, KubernetesConfig, Timing};
pub use connect::Server;
pub use watcher::run;
