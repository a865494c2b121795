//! KubeCanary: the nodes of a cluster ping each other and export latency and loss to Prometheus.
//!
//! ```text
//! discovery ─► peers ─► prober ─► statistics ─► exposition
//!  (who)      (slots)  (send/recv)  (per slot)   (/metrics, /api)
//! ```

pub mod clock;
pub mod discovery;
pub mod exposition;
pub mod http;
pub mod limits;
pub mod peers;
pub mod prober;
pub mod statistics;
pub mod units;
