//! Requests to the API server over one connection, which is made when it is needed.

use std::fmt::Write as _;
use std::sync::Arc;

use http_body_util::Empty;
use hyper::body::{Bytes, Incoming};
use hyper::{Request, Response, StatusCode, header};
use tokio::time::timeout;

use super::account::Account;
use super::api;
use super::config::KubernetesConfig;
use super::connect::{self, Use};
use super::failure::Failure;
use super::traffic::Verb;
use crate::http::client::Link;
use crate::limits;

/// Whole objects.
const WHOLE: &str = "application/vnd.kubernetes.protobuf";
/// Of each object of a list its metadata alone.
const METADATA_LIST: &str = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
/// The same in a watch's events.
const METADATA: &str = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

/// A request: verb, path with query, and in what form the answer is to be.
pub struct Ask {
    verb: Verb,
    path: String,
    accept: &'static str,
}

impl Ask {
    /// All slices of our Service, or their metadata. Out of the watch cache, or, where `consistent`, as of now.
    pub fn list(config: &KubernetesConfig, whole: bool, consistent: bool) -> Self {
        let mut path = selected(config);
        if !consistent {
            path.push_str("&resourceVersion=0");
        }
        Self { verb: Verb::List, path, accept: if whole { WHOLE } else { METADATA_LIST } }
    }

    /// What changes after that version, for so many seconds: the slices' metadata.
    pub fn watch(config: &KubernetesConfig, version: u64, seconds: u64) -> Self {
        let mut path = selected(config);
        let _ = write!(path, "&watch=1&allowWatchBookmarks=true&timeoutSeconds={seconds}&resourceVersion={version}");
        Self { verb: Verb::Watch, path, accept: METADATA }
    }

    /// One slice, not older than that version.
    pub fn slice(config: &KubernetesConfig, name: &str, version: u64) -> Self {
        let mut path = slices(config);
        path.push('/');
        escape(name, &mut path);
        let _ = write!(path, "?resourceVersion={version}");
        Self { verb: Verb::Get, path, accept: WHOLE }
    }
}

fn slices(config: &KubernetesConfig) -> String {
    format!("/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices", config.namespace)
}

fn selected(config: &KubernetesConfig) -> String {
    format!("{}?labelSelector=kubernetes.io%2Fservice-name%3D{}", slices(config), config.service)
}

/// One connection, or none yet.
pub struct Connection {
    config: Arc<KubernetesConfig>,
    account: Account,
    purpose: Use,
    link: Option<Link>,
}

impl Connection {
    /// Connects when something is asked.
    pub fn new(config: Arc<KubernetesConfig>, purpose: Use) -> Self {
        Self { account: Account::new(config.account.clone()), config, purpose, link: None }
    }

    /// Where a body is read.
    ///
    /// # Errors
    /// There is no connection.
    pub fn link(&mut self) -> Result<&mut Link, Failure> {
        self.link.as_mut().ok_or_else(|| Failure::Wire("no connection".into()))
    }

    /// Whether there is a connection.
    pub const fn is_open(&self) -> bool {
        self.link.is_some()
    }

    /// Whatever is left on the connection, it is not what we want to read next.
    pub fn close(&mut self) {
        self.link = None;
    }

    /// Sends a request, on a new connection where there is none to use, and waits for the head of a 200.
    ///
    /// # Errors
    /// [`Failure`]
    pub async fn get(&mut self, ask: &Ask) -> Result<Incoming, Failure> {
        let response = self.send(ask).await?;
        if response.status() == StatusCode::OK { Ok(response.into_body()) } else { Err(self.refused(response).await.0) }
    }

    /// Reads a slice. None where the API server says that there is none of that name.
    ///
    /// # Errors
    /// [`Failure`]
    pub async fn read(&mut self, name: &str, version: u64) -> Result<Option<Vec<u8>>, Failure> {
        let ask = Ask::slice(&self.config, name, version);
        let response = self.send(&ask).await?;
        if response.status() != StatusCode::OK {
            let (failure, body) = self.refused(response).await;
            return if api::is_not_found(&body, name) { Ok(None) } else { Err(failure) };
        }
        let time = self.config.timing.request;
        let collecting = self.link()?.collect(response.into_body(), limits::API_BODY_BYTES_MAX);
        let body = timeout(time, collecting).await.map_err(|_| Failure::Time("a slice"))??;
        Ok(Some(body))
    }

    /// What an answer other than 200 means, and its body, which is read so that the connection can be used again.
    async fn refused(&mut self, response: Response<Incoming>) -> (Failure, Vec<u8>) {
        let retry_after = response.headers().get(header::RETRY_AFTER).and_then(|v| v.to_str().ok());
        let failure = Failure::of_status(response.status().as_u16(), retry_after);
        let Some(link) = &mut self.link else { return (failure, Vec::new()) };
        let collecting = link.collect(response.into_body(), limits::API_ERROR_BYTES_MAX);
        if let Ok(Ok(body)) = timeout(self.config.timing.connect, collecting).await {
            return (failure, body);
        }
        self.close();
        (failure, Vec::new())
    }

    /// One request and the head of its answer.
    async fn send(&mut self, ask: &Ask) -> Result<Response<Incoming>, Failure> {
        let (response, token) = self.exchange(ask).await?;
        if response.status() != StatusCode::UNAUTHORIZED || self.account.token().is_ok_and(|now| now == token) {
            return Ok(response);
        }
        // The kubelet has written another token than the one refused: it is tried without a pause.
        let _ = self.refused(response).await;
        Ok(self.exchange(ask).await?.0)
    }

    /// One request and the head of its answer; and the token that it carried.
    async fn exchange(&mut self, ask: &Ask) -> Result<(Response<Incoming>, String), Failure> {
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
        let request = Request::get(&ask.path)
            .header(header::HOST, self.config.server.to_string())
            .header(header::USER_AGENT, concat!("kube-canary/", env!("CARGO_PKG_VERSION")))
            .header(header::ACCEPT, ask.accept)
            .header(header::AUTHORIZATION, format!("Bearer {token}"))
            .body(Empty::<Bytes>::new())
            .map_err(|e| Failure::Wire(e.to_string()))?;
        ask.verb.count();
        let response = timeout(timing.request, link.send(request)).await.map_err(|_| Failure::Time("a request"))??;
        self.link = Some(link);
        Ok((response, token))
    }

    /// `&mut` only because a shared borrow across an await would ask that the connection be `Sync`.
    async fn connect(&mut self) -> Result<Link, Failure> {
        let connecting = connect::connect(&self.config.server, &self.account, self.purpose);
        timeout(self.config.timing.connect, connecting).await.map_err(|_| Failure::Time("a connection"))?
    }
}

/// Percent-encodes all but RFC 3986's unreserved characters.
fn escape(text: &str, into: &mut String) {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            into.push(char::from(byte));
        } else {
            let _ = write!(into, "%{byte:02X}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped_into_the_path() {
        let mut path = String::new();
        escape("aB9-._~+/=&%\u{1}", &mut path);
        assert_eq!(path, "aB9-._~%2B%2F%3D%26%25%01");
    }
}
