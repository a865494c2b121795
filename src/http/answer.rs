//! The answer to a request: the rules of HTTP that routes need not know.

use std::{io::Cursor, rc::Rc, sync::Arc};

use hyper::{
    Method, Request, Response, StatusCode,
    body::{Body, Incoming},
    header::{self, HeaderValue},
    http::uri::Authority,
};

use super::{
    Hosts, Reply, ServerStats,
    body::{AnswerBody, BodyContent, Gzip},
    coding::Coding,
    socket::ClientSocket,
};

/// Smallest complete body that is compressed, in bytes. A smaller one fits one packet anyway.
const COMPRESSED_BODY_BYTES_MIN: usize = 1_024;
const FOREIGN_HOST: &str =
    "this name is not known to be the agent's own; call it by its address, or allow the name with --allow-host\n";

/// Whether a path may be requested while every ordinary permit is taken.
pub(super) fn is_health(path: &str) -> bool {
    matches!(path, "/healthz" | "/readyz")
}

/// The answer to a request that names a foreign host, or more than one Host header. `accepted` is
/// none if any name is accepted.
pub(super) fn refusal(request: &Request<Incoming>, accepted: Option<&Hosts>) -> Option<Reply> {
    let mut hosts = request.headers().get_all(header::HOST).iter();
    let host = hosts.next();
    if hosts.next().is_some() {
        return Some(Reply::text(400, "more than one Host header\n"));
    }
    // Scrapers and kubelets use the names that they are configured with, which we do not know.
    let path = request.uri().path();
    let accepted = accepted.filter(|_| !is_health(path) && path != "/metrics")?;
    // A target in absolute form has its own host, which takes precedence over the header (RFC 9112,
    // section 3.2.2). A browser sends the same host in both. Neither may be foreign.
    let authority = request.uri().authority().map(Authority::as_str);
    let header = host.map(|value| value.to_str().unwrap_or_default());
    let is_foreign = authority.into_iter().chain(header).any(|host| !accepted.accept(host));
    is_foreign.then(|| Reply::text(403, FOREIGN_HOST))
}

/// The form of an answer, as far as its request determines it.
pub(super) struct AnswerForm {
    is_head: bool,
    coding: Coding,
    /// Whether the request has a body. It is not read, so the start of the next request could not
    /// be found after it.
    pub(super) closes: bool,
}

impl AnswerForm {
    pub(super) fn new(request: &Request<Incoming>) -> Self {
        Self {
            is_head: *request.method() == Method::HEAD,
            coding: Coding::negotiate(request.uri().path(), request.headers()),
            closes: !request.body().is_end_stream(),
        }
    }

    /// Turns the reply of a route into a response in this form.
    pub(super) fn respond(
        &self,
        reply: Reply,
        socket: Rc<ClientSocket>,
        counters: &Arc<ServerStats>,
    ) -> Response<AnswerBody> {
        let mut policy = None;
        let (status, content_type, content) = match reply {
            Reply::Full { status, content_type, body } => {
                let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
                (status, content_type, BodyContent::Complete(Cursor::new(body)))
            }
            Reply::Shared { content_type, head, body } => {
                (StatusCode::OK, content_type, BodyContent::Shared(Cursor::new(head), Cursor::new(body)))
            }
            Reply::Stream { content_type, body } => (StatusCode::OK, content_type, BodyContent::Stream(body)),
            Reply::Page { policy: page_policy, body } => {
                policy = Some(page_policy);
                (StatusCode::OK, "text/html; charset=utf-8", BodyContent::Stream(body))
            }
            Reply::Live { content_type, body } => (StatusCode::OK, content_type, BodyContent::Live(body)),
            // It has been awaited by now.
            Reply::Later(_) | Reply::ToClient(_) => {
                (StatusCode::INTERNAL_SERVER_ERROR, "text/plain", BodyContent::EMPTY)
            }
        };
        let length = content.length();
        // A long body, or one whose length is not known.
        let is_long = length.is_none_or(|length| length >= COMPRESSED_BODY_BYTES_MIN);
        let mut is_compressed = self.coding.accepts_gzip && status == StatusCode::OK && is_long;
        let body = if self.is_head {
            AnswerBody::new(BodyContent::EMPTY, None, socket)
        } else {
            let gzip = if is_compressed { Gzip::begin(counters) } else { None };
            is_compressed = gzip.is_some();
            AnswerBody::new(content, gzip, socket)
        };
        let mut response = Response::new(body);
        *response.status_mut() = status;
        let headers = response.headers_mut();
        self.coding.describe(is_compressed, headers);
        // hyper knows the length of the body that follows, which a HEAD does not have.
        if let (true, false, Some(length)) = (self.is_head, is_compressed, length) {
            headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
        }
        for (name, value) in [
            (header::CONTENT_TYPE, Some(content_type)),
            // A browser that guesses the type may interpret a peer's name as markup.
            (header::X_CONTENT_TYPE_OPTIONS, Some("nosniff")),
            (header::CONTENT_SECURITY_POLICY, policy),
            (header::RETRY_AFTER, (status == StatusCode::SERVICE_UNAVAILABLE).then_some("1")),
            (header::ALLOW, (status == StatusCode::METHOD_NOT_ALLOWED).then_some("GET, HEAD")),
        ] {
            if let Some(value) = value {
                headers.insert(name, HeaderValue::from_static(value));
            }
        }
        response
    }
}
