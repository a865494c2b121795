//! Queries a Prometheus in a namespace.

use std::net::SocketAddr;

use serde_json::Value;

use crate::common::process::Process;
use crate::common::scrape::fetch;
use crate::common::until::until;
use crate::namespace::Namespace;

/// The HTTP API of a Prometheus.
pub struct Api<'a> {
    pub namespace: &'a Namespace,
    pub address: SocketAddr,
}

impl Api<'_> {
    /// Waits until Prometheus answers queries.
    pub fn wait_until_ready(&self, process: &Process) {
        until("Prometheus is ready", || match self.get("/-/ready") {
            Ok((200, _)) => Ok(()),
            other => Err(format!("{other:?}: {}", process.log())),
        });
    }

    fn get(&self, path: &str) -> Result<(u16, String), String> {
        let answer = self.namespace.within(|| fetch(self.address, path, "")).map_err(|error| error.to_string())?;
        Ok((answer.status, answer.body))
    }

    /// Returns an answer of the API, which must be a success.
    pub fn answer(&self, path: &str) -> Value {
        let (status, body) = self.get(path).unwrap_or_else(|error| panic!("{path}: {error}"));
        let json: Value = serde_json::from_str(&body).unwrap_or_else(|error| panic!("{path}: {error}: {body}"));
        assert!(status == 200 && json["status"] == "success", "{} {path}: {body}", self.address);
        json
    }

    /// Returns the answer to a query at a time in seconds since the epoch, or now.
    pub fn query(&self, expression: &str, at: Option<f64>) -> Value {
        let escaped: String =
            expression.bytes().flat_map(|byte| format!("%{byte:02x}").into_bytes()).map(char::from).collect();
        let at = at.map_or_else(String::new, |at| format!("&time={at:.3}"));
        self.answer(&format!("/api/v1/query?query={escaped}{at}"))
    }
}

/// The samples of an answer to a query.
pub fn samples(answer: &Value) -> Vec<Value> {
    answer["data"]["result"].as_array().cloned().unwrap_or_default()
}

/// The value of a sample.
pub fn value(sample: &Value) -> Option<f64> {
    sample["value"][1].as_str()?.parse().ok()
}
