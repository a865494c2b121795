//! Peers from Kubernetes: the EndpointSlices of one Service, each read some time after it changes.
//!
//! `machine` decides, with `slices` and `endpoints` (the stored state), `plan` (when to read which
//! slice) and `backoff`. `protobuf`, `api`, `inbox` and `failure` parse. `watcher`, `requests` and
//! `connect` do the I/O, and `traffic` counts it. docs/adr/0002 explains why not kube-rs.
//! docs/adr/0013 and 0023 explain why a watch of metadata and a GET per slice.
//!
//! The traps:
//! * An error is never an empty list.
//! * A watch can hang for ever on a dead connection, or on a version from before a restore.
//! * A token is rotated while we hold it.
//! * Agents that see a change together must not read it together.

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

// Encodes answers as the server does. The integration tests share it.
#[cfg(test)]
#[path = "../../../tests/discovery/encode.rs"]
mod encode;

pub use account::DIRECTORY;
pub use backoff::Backoff;
pub use config::{ConfigError, KubernetesConfig, Timing};
pub use connect::{ApiServer, ConnectionUse};
pub use failure::ApiFailure;
pub use requests::{ApiConnection, ApiRequest};
pub use watcher::run;
