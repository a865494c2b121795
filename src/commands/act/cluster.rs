//! Requests to the API server: the Lease, nodes, Events and conditions.

use std::time::Duration;

use hyper::{Method, StatusCode};
use serde::Deserialize;
use serde_json::Value;
use tokio::time::{Instant, sleep_until};

use super::conditions::{ConditionChange, NodeFacts};
use super::lease::{Election, LeaseObject, LeaseStep};
use super::notices::EventNote;
use super::objects::{self, DaemonSetReference, MANAGER};
use crate::discovery::KubernetesConfig;
use crate::discovery::kubernetes::{ApiConnection, ApiRequest, ConnectionUse};
use crate::http::path::encoded;
use crate::sys::clock;
use crate::sys::settle::MappedFiles;

/// Timeout of an answer. A Lease must be renewed within 20 s.
const REQUEST_TIME: Duration = Duration::from_secs(10);
/// Time between two patches: five a second.
const PATCH_SPACING: Duration = Duration::from_millis(200);
/// Bytes of an object. A Node names 50 images and more; etcd takes 1.5 MiB.
const OBJECT_BYTES_MAX: usize = 2 << 20;
/// Bytes of the memory; a longer one is not written. Annotations have 256 KiB in all.
pub const MEMORY_BYTES_MAX: usize = 192 << 10;
const JSON: &str = "application/json";
const MERGE_PATCH: &str = "application/merge-patch+json";
/// JSON is YAML, and all versions of the API know this name.
const APPLY_PATCH: &str = "application/apply-patch+yaml";

/// The reason why the API server has not done what was asked.
#[derive(Debug, thiserror::Error)]
#[error("{operation}: {reason}")]
pub struct ClusterError {
    operation: &'static str,
    /// Of what the API server says, at most 300 characters.
    reason: String,
    /// Whether it refuses this object, and may accept another.
    pub is_of_object: bool,
}

/// A client of the API server, which acts in one namespace.
pub struct Cluster {
    api: ApiConnection,
    namespace: String,
    daemon_set: String,
    /// The name of the Lease: two meshes of one namespace have two.
    lease: String,
    uid: Option<String>,
    next_patch: Instant,
    /// What of the program is released between requests.
    pub mapped: MappedFiles,
    /// The number of requests so far.
    pub requests: u64,
}

/// Returns the present time as the API writes it.
fn now() -> String {
    objects::whole_seconds(clock::realtime().as_secs())
}

impl Cluster {
    /// Makes a client that connects when it is first used.
    pub fn new(config: &KubernetesConfig) -> Self {
        let mut config = config.clone();
        config.timing.request = REQUEST_TIME;
        config.timing.connect = REQUEST_TIME / 2;
        Self {
            namespace: config.namespace.clone(),
            daemon_set: config.service.clone(),
            lease: format!("{}-act", config.service),
            api: ApiConnection::new(config.into(), ConnectionUse::Read),
            uid: None,
            next_patch: Instant::now(),
            mapped: MappedFiles::find(),
            requests: 0,
        }
    }

    async fn call(
        &mut self,
        operation: &'static str,
        method: Method,
        path: String,
        body: Option<(&'static str, &Value)>,
    ) -> Result<(StatusCode, Vec<u8>), ClusterError> {
        self.requests += 1;
        let body = body.map(|(media_type, body)| (media_type, body.to_string().into_bytes()));
        let request = ApiRequest::json(method, path, body);
        let answer = self.api.call(&request, OBJECT_BYTES_MAX).await;
        // Between two patches, and until the next round, none of its code is resident.
        self.mapped.give_back();
        answer.map_err(|failure| ClusterError { operation, reason: failure.to_string(), is_of_object: false })
    }

    /// Takes or renews the Lease, and writes the memory to it. Returns what the last holder
    /// remembers, if no memory is given and the Lease is taken.
    ///
    /// # Errors
    /// [`ClusterError`]. The election knows since when the process does not lead.
    pub async fn lead(
        &mut self,
        election: &mut Election,
        memory: Option<&str>,
        now: Duration,
    ) -> Result<Option<String>, ClusterError> {
        let path = format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", self.namespace);
        let found = self.read_lease(&path).await?;
        let old = found.as_ref().and_then(LeaseObject::memory).unwrap_or("");
        let new = memory.filter(|memory| memory.len() <= MEMORY_BYTES_MAX).unwrap_or(old);
        let accepted = match election.step(found.as_ref(), now) {
            LeaseStep::Wait => return Ok(None),
            LeaseStep::Create => self.write_lease(Method::POST, path, election.holder(), (None, 0), new).await?,
            LeaseStep::Write(version, changes) => {
                let path = format!("{path}/{}", self.lease);
                self.write_lease(Method::PUT, path, election.holder(), (Some(&version), changes), new).await?
            }
        };
        election.written(accepted, now);
        Ok((accepted && memory.is_none()).then(|| old.to_owned()))
    }

    async fn read_lease(&mut self, path: &str) -> Result<Option<LeaseObject>, ClusterError> {
        const OPERATION: &str = "reading the Lease";
        let (status, body) = self.call(OPERATION, Method::GET, format!("{path}/{}", self.lease), None).await?;
        match status {
            StatusCode::OK => parsed(OPERATION, &body).map(Some),
            StatusCode::NOT_FOUND => Ok(None),
            _ => Err(refused(OPERATION, status, &body)),
        }
    }

    /// Gives the Lease back, so that the next process need not wait. Failing that, it expires.
    ///
    /// # Errors
    /// [`ClusterError`]
    pub async fn give_back(
        &mut self,
        election: &mut Election,
        memory: &str,
        now: Duration,
    ) -> Result<(), ClusterError> {
        let path = format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", self.namespace);
        let found = self.read_lease(&path).await?;
        if election.leads(now)
            && let LeaseStep::Write(version, changes) = election.step(found.as_ref(), now)
        {
            let path = format!("{path}/{}", self.lease);
            self.write_lease(Method::PUT, path, "", (Some(&version), changes), memory).await?;
        }
        Ok(())
    }

    /// Returns whether the Lease was written: false if another was quicker.
    async fn write_lease(
        &mut self,
        method: Method,
        path: String,
        holder: &str,
        (version, changes): (Option<&str>, u32),
        memory: &str,
    ) -> Result<bool, ClusterError> {
        const OPERATION: &str = "writing the Lease";
        let lease = objects::lease((&self.namespace, &self.lease), holder, version, changes, memory, &micro_time());
        let (status, body) = self.call(OPERATION, method, path, Some((JSON, &lease))).await?;
        match status {
            StatusCode::OK | StatusCode::CREATED => Ok(true),
            StatusCode::CONFLICT => Ok(false),
            _ => Err(refused(OPERATION, status, &body)),
        }
    }

    /// Reads a node. `None` if there is none of this name.
    ///
    /// # Errors
    /// [`ClusterError`]
    pub async fn node(&mut self, name: &str) -> Result<Option<NodeFacts>, ClusterError> {
        const OPERATION: &str = "reading a node";
        let (status, body) =
            self.call(OPERATION, Method::GET, format!("/api/v1/nodes/{}", encoded(name)), None).await?;
        match status {
            StatusCode::OK => objects::node_facts(&body).map(Some).map_err(|error| malformed(OPERATION, &error)),
            StatusCode::NOT_FOUND => Ok(None),
            _ => Err(refused(OPERATION, status, &body)),
        }
    }

    /// Applies the condition of a node, or takes it back. Waits for its turn.
    ///
    /// # Errors
    /// [`ClusterError`]
    pub async fn apply(&mut self, node: &str, change: Option<&ConditionChange>) -> Result<(), ClusterError> {
        const OPERATION: &str = "patching the condition of a node";
        sleep_until(self.next_patch).await;
        self.next_patch = Instant::now() + PATCH_SPACING;
        let path = format!("/api/v1/nodes/{}/status?fieldManager={MANAGER}&force=true", encoded(node));
        let now = now();
        let object = objects::node_status(node, change.map(|change| (change, now.as_str())));
        let (status, body) = self.call(OPERATION, Method::PATCH, path, Some((APPLY_PATCH, &object))).await?;
        match status {
            // A node that is gone has no condition.
            StatusCode::OK | StatusCode::CREATED | StatusCode::NOT_FOUND => Ok(()),
            _ => Err(refused(OPERATION, status, &body)),
        }
    }

    /// Creates an Event, or patches it if it is there.
    ///
    /// # Errors
    /// [`ClusterError`]
    pub async fn event(&mut self, note: &EventNote, holder: &str) -> Result<(), ClusterError> {
        const OPERATION: &str = "writing an Event";
        let uid = self.daemon_set_uid().await?;
        let mesh = DaemonSetReference { namespace: &self.namespace, name: &self.daemon_set, uid: &uid };
        let (namespace, object) = objects::event(note, &mesh, holder, &now());
        let path = format!("/api/v1/namespaces/{namespace}/events");
        let (status, body) = self.call(OPERATION, Method::POST, path.clone(), Some((JSON, &object))).await?;
        let (status, body) = match status {
            StatusCode::CONFLICT => {
                let again = objects::event_again(note, &now());
                let path = format!("{path}/{}", encoded(&note.name));
                self.call(OPERATION, Method::PATCH, path, Some((MERGE_PATCH, &again))).await?
            }
            _ => (status, body),
        };
        if status.is_success() { Ok(()) } else { Err(refused(OPERATION, status, &body)) }
    }

    /// Returns the UID of the agents' DaemonSet; empty if there is none yet.
    async fn daemon_set_uid(&mut self) -> Result<String, ClusterError> {
        #[derive(Deserialize)]
        struct Object {
            metadata: Metadata,
        }
        #[derive(Deserialize)]
        struct Metadata {
            uid: String,
        }
        const OPERATION: &str = "reading the DaemonSet";
        if let Some(uid) = &self.uid {
            return Ok(uid.clone());
        }
        let path = format!("/apis/apps/v1/namespaces/{}/daemonsets/{}", self.namespace, self.daemon_set);
        let (status, body) = self.call(OPERATION, Method::GET, path, None).await?;
        let uid = match status {
            StatusCode::OK => parsed::<Object>(OPERATION, &body)?.metadata.uid,
            StatusCode::NOT_FOUND => String::new(),
            _ => return Err(refused(OPERATION, status, &body)),
        };
        self.uid = Some(uid.clone()).filter(|uid| !uid.is_empty());
        Ok(uid)
    }
}

/// Returns the present time with microseconds, as a Lease has it.
fn micro_time() -> String {
    clock::rfc3339(clock::realtime()).replace('Z', "000Z")
}

fn parsed<'a, T: Deserialize<'a>>(operation: &'static str, body: &'a [u8]) -> Result<T, ClusterError> {
    serde_json::from_slice(body).map_err(|error| malformed(operation, &error))
}

fn malformed(operation: &'static str, error: &serde_json::Error) -> ClusterError {
    ClusterError { operation, reason: format!("not an object of the API: {error}"), is_of_object: true }
}

/// Returns what a refusal says.
fn refused(operation: &'static str, status: StatusCode, body: &[u8]) -> ClusterError {
    #[derive(Deserialize)]
    struct Refusal {
        message: String,
    }
    let reason = serde_json::from_slice(body).map_or_else(|_| String::new(), |Refusal { message }| message);
    let reason: String = reason.chars().take(300).collect();
    // Without credentials, or beyond a rate, it refuses all.
    let is_of_all = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::TOO_MANY_REQUESTS);
    let is_of_object = status.is_client_error() && !is_of_all;
    ClusterError { operation, reason: format!("status {}: {reason}", status.as_u16()), is_of_object }
}
