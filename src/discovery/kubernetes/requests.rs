//! Requests to the API server over one connection, which is opened when it is needed.

use std::fmt::Write as _;
use std::sync::Arc;

use hyper::body::Incoming;
use hyper::{Method, Request, Response, StatusCode, header};
use tokio::time::timeout;

use super::account::Account;
use super::api;
use super::config::KubernetesConfig;
use super::connect::{self, ConnectionUse};
use super::failure::ApiFailure;
use super::traffic::Verb;
use crate::http::client::{HttpConnection, RequestBody};
use crate::http::path::encoded;
use crate::limits;

/// Bytes of an error body that are read so that its connection can be reused.
const ERROR_BYTES_MAX: usize = 16 << 10;
/// Asks for whole objects.
const WHOLE: &str = "application/vnd.kubernetes.protobuf";
/// Asks for an object as text.
const JSON: &str = "application/json";
/// Asks for the metadata of each object of a list.
const METADATA_LIST: &str = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
/// Asks for metadata in a watch's events.
const METADATA: &str = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

/// A request: path with query, and the wanted form of the answer.
pub struct ApiRequest {
    method: Method,
    /// How discovery counts it. `None` for requests of others.
    verb: Option<Verb>,
    path: String,
    accept: &'static str,
    /// The media type of the body and the body, if it has one.
    body: Option<(&'static str, Vec<u8>)>,
}

impl ApiRequest {
    const fn read(verb: Verb, path: String, accept: &'static str) -> Self {
        Self { method: Method::GET, verb: Some(verb), path, accept, body: None }
    }

    /// Makes a request whose body and answer are JSON. The body has a media type.
    pub const fn json(method: Method, path: String, body: Option<(&'static str, Vec<u8>)>) -> Self {
        Self { method, verb: None, path, accept: JSON, body }
    }

    /// Makes a request for all slices of our Service, or for their metadata. The answer comes from
    /// the watch cache, or from etcd if `consistent`.
    pub fn list(config: &KubernetesConfig, whole: bool, consistent: bool) -> Self {
        let mut path = selected(config);
        if !consistent {
            path.push_str("&resourceVersion=0");
        }
        Self::read(Verb::List, path, if whole { WHOLE } else { METADATA_LIST })
    }

    /// Makes a watch for changes of the slices' metadata after that version, for that many seconds.
    pub fn watch(config: &KubernetesConfig, version: u64, seconds: u64) -> Self {
        let mut path = selected(config);
        let _ = write!(path, "&watch=1&allowWatchBookmarks=true&timeoutSeconds={seconds}&resourceVersion={version}");
        Self::read(Verb::Watch, path, METADATA)
    }

    /// Makes a request for one slice, not older than that version.
    pub fn slice(config: &KubernetesConfig, name: &str, version: u64) -> Self {
        let path = format!("{}/{}?resourceVersion={version}", slices(config), encoded(name));
        Self::read(Verb::Get, path, WHOLE)
    }
}

fn slices(config: &KubernetesConfig) -> String {
    format!("/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices", config.namespace)
}

fn selected(config: &KubernetesConfig) -> String {
    format!("{}?labelSelector=kubernetes.io%2Fservice-name%3D{}", slices(config), config.service)
}

/// At most one open connection.
pub struct ApiConnection {
    config: Arc<KubernetesConfig>,
    account: Account,
    purpose: ConnectionUse,
    link: Option<HttpConnection>,
}

impl ApiConnection {
    /// Makes a connection that is opened by the first request.
    pub fn new(config: Arc<KubernetesConfig>, purpose: ConnectionUse) -> Self {
        Self { account: Account::new(config.account.clone()), config, purpose, link: None }
    }

    /// Returns the link to read a body from.
    ///
    /// # Errors
    /// There is no open connection.
    pub fn link(&mut self) -> Result<&mut HttpConnection, ApiFailure> {
        self.link.as_mut().ok_or_else(|| ApiFailure::Wire("no connection".into()))
    }

    /// Returns whether there is an open connection.
    pub const fn is_open(&self) -> bool {
        self.link.is_some()
    }

    /// Closes the connection, because unread bytes on it are not the next answer.
    pub fn close(&mut self) {
        self.link = None;
    }

    /// Sends a request and waits for the head of a 200. Opens a new connection if the
    /// present one is unusable.
    ///
    /// # Errors
    /// [`ApiFailure`]
    pub async fn get(&mut self, ask: &ApiRequest) -> Result<Incoming, ApiFailure> {
        let response = self.send(ask).await?;
        if response.status() == StatusCode::OK { Ok(response.into_body()) } else { Err(self.refused(response).await.0) }
    }

    /// Sends a request. Returns the status and the body of its answer, of at most `limit` bytes.
    ///
    /// # Errors
    /// [`ApiFailure`]. No status is one.
    pub async fn call(&mut self, ask: &ApiRequest, limit: usize) -> Result<(StatusCode, Vec<u8>), ApiFailure> {
        let response = self.send(ask).await?;
        let (status, time) = (response.status(), self.config.timing.request);
        let collecting = self.link()?.collect(response.into_body(), limit);
        let read = timeout(time, collecting).await.map_err(|_| ApiFailure::Time("an object"));
        let read = read.and_then(|body| Ok((status, body?)));
        if read.is_err() {
            // What is left of the answer is not the next one.
            self.close();
        }
        read
    }

    /// Reads a slice. None if the API server says that no slice of that name exists.
    ///
    /// # Errors
    /// [`ApiFailure`]
    pub async fn read(&mut self, name: &str, version: u64) -> Result<Option<Vec<u8>>, ApiFailure> {
        let ask = ApiRequest::slice(&self.config, name, version);
        let response = self.send(&ask).await?;
        if response.status() != StatusCode::OK {
            let (failure, body) = self.refused(response).await;
            return if api::is_not_found(&body, name) { Ok(None) } else { Err(failure) };
        }
        let time = self.config.timing.request;
        let collecting = self.link()?.collect(response.into_body(), limits::API_BODY_BYTES_MAX);
        let body = timeout(time, collecting).await.map_err(|_| ApiFailure::Time("a slice"))??;
        Ok(Some(body))
    }

    /// Returns the meaning of an answer other than 200, and its body. The body is read so that the
    /// connection can be reused.
    async fn refused(&mut self, response: Response<Incoming>) -> (ApiFailure, Vec<u8>) {
        let retry_after = response.headers().get(header::RETRY_AFTER).and_then(|v| v.to_str().ok());
        let failure = ApiFailure::from_status(response.status().as_u16(), retry_after);
        let Some(link) = &mut self.link else { return (failure, Vec::new()) };
        let collecting = link.collect(response.into_body(), ERROR_BYTES_MAX);
        if let Ok(Ok(body)) = timeout(self.config.timing.connect, collecting).await {
            return (failure, body);
        }
        self.close();
        (failure, Vec::new())
    }

    /// Sends one request and returns the head of its answer. Retries once if the token was rotated.
    async fn send(&mut self, ask: &ApiRequest) -> Result<Response<Incoming>, ApiFailure> {
        let (response, token) = self.exchange(ask).await?;
        if response.status() != StatusCode::UNAUTHORIZED || self.account.token().is_ok_and(|now| now == token) {
            return Ok(response);
        }
        // The kubelet has written another token than the refused one. It is tried without a pause.
        let _ = self.refused(response).await;
        Ok(self.exchange(ask).await?.0)
    }

    /// Sends one request. Returns the head of its answer and the token that it carried.
    async fn exchange(&mut self, ask: &ApiRequest) -> Result<(Response<Incoming>, String), ApiFailure> {
        let timing = self.config.timing;
        let link = match self.link.take() {
            Some(mut link) => link.is_usable().await.then_some(link),
            None => None,
        };
        let mut link = match link {
            Some(link) => link,
            None => self.connect().await?,
        };
        let token = self.account.token()?;
        let mut request = Request::builder().method(&ask.method).uri(&ask.path);
        if let Some((media_type, _)) = ask.body {
            request = request.header(header::CONTENT_TYPE, media_type);
        }
        let body = ask.body.as_ref().map_or_else(RequestBody::default, |(_, body)| body.clone().into());
        let request = request
            .header(header::HOST, self.config.server.to_string())
            .header(header::USER_AGENT, concat!("kube-canary/", env!("CARGO_PKG_VERSION")))
            .header(header::ACCEPT, ask.accept)
            .header(header::AUTHORIZATION, format!("Bearer {token}"))
            .body(body)
            .map_err(|e| ApiFailure::Wire(e.to_string()))?;
        ask.verb.inspect(|verb| verb.count());
        let response =
            timeout(timing.request, link.send(request)).await.map_err(|_| ApiFailure::Time("a request"))??;
        self.link = Some(link);
        Ok((response, token))
    }

    /// Takes `&mut` only because a shared borrow across an await would require the connection to be
    /// `Sync`.
    async fn connect(&mut self) -> Result<HttpConnection, ApiFailure> {
        let connecting = connect::connect(&self.config.server, &self.account, self.purpose);
        timeout(self.config.timing.connect, connecting).await.map_err(|_| ApiFailure::Time("a connection"))?
    }
}
