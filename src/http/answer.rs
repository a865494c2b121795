//! Turns a request into its answer. This covers the rules of HTTP that routes need not know.

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
};

use hyper::{
    Method, Request, Response, StatusCode,
    body::{Body, Incoming},
    header::{self, HeaderValue},
    http::uri::Authority,
    service::Service,
};

use super::{
    Reply,
    coding::Coding,
    frames::{Answer, Content, Gzip},
    line::{Class, Line},
};

const FOREIGN_HOST: &str =
    "this name is not known to be the agent's own; call it by its address, or allow the name with --allow-host\n";

/// Answers the requests of one connection.
pub(super) struct Answering(pub(super) Rc<Line>);

impl Service<Request<Incoming>> for Answering {
    type Response = Response<Answer>;
    type Error = Infallible;
    type Future = Answered;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        self.0.answer_begins();
        // This holds even before the body is known: hyper may flush in between, which would look
        // like the end of the answer.
        self.0.body_begins();
        let has_body = !request.body().is_end_stream();
        if has_body {
            self.0.expect_unread();
        }
        let is_head = *request.method() == Method::HEAD;
        let coding = Coding::of(request.uri().path(), request.headers());
        Answered { line: Rc::clone(&self.0), has_body, is_head, coding, reply: Some(self.reply(&request)) }
    }
}

impl Answering {
    fn reply(&self, request: &Request<Incoming>) -> Reply {
        let worker = self.0.worker();
        let path = request.uri().path();
        if let Some(refusal) = self.refusal(request, path) {
            worker.stats().served();
            return refusal;
        }
        if !is_health(path) && self.0.class() == Class::Health && !worker.promote(&self.0) {
            worker.stats().refused();
            return Reply::text(503, "every place is taken; try again\n");
        }
        worker.stats().served();
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return Reply::text(405, "only GET and HEAD are answered\n");
        }
        let accept = request.headers().get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or("");
        worker.routes().route(path, accept)
    }
}

impl Answering {
    /// The answer to a request that names a foreign host, or more than one Host header.
    fn refusal(&self, request: &Request<Incoming>, path: &str) -> Option<Reply> {
        let mut hosts = request.headers().get_all(header::HOST).iter();
        let host = hosts.next();
        if hosts.next().is_some() {
            return Some(Reply::text(400, "more than one Host header\n"));
        }
        let accepted = self.0.worker().hosts().filter(|_| !is_open(path))?;
        // A target in absolute form has its own host, which takes precedence over the header (RFC
        // 9112, section 3.2.2). A browser sends the same host in both. Neither may be foreign.
        let authority = request.uri().authority().map(Authority::as_str);
        let header = host.map(|value| value.to_str().unwrap_or_default());
        let is_foreign = authority.into_iter().chain(header).any(|host| !accepted.accept(host));
        is_foreign.then(|| Reply::text(403, FOREIGN_HOST))
    }
}

/// The future answer to one request. It completes once the reply is known.
pub(super) struct Answered {
    line: Rc<Line>,
    has_body: bool,
    is_head: bool,
    coding: Coding,
    /// None once the reply was taken.
    reply: Option<Reply>,
}

impl Future for Answered {
    type Output = Result<Response<Answer>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        while let Some(Reply::Later(later)) = &mut self.reply {
            let reply = ready!(later.as_mut().poll(cx));
            self.reply = Some(reply);
        }
        let reply = self.reply.take();
        Poll::Ready(Ok(self.response(reply)))
    }
}

impl Answered {
    fn response(&self, reply: Option<Reply>) -> Response<Answer> {
        let mut policy = None;
        let (status, content_type, content) = match reply {
            Some(Reply::Full { status, content_type, body }) => {
                let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
                (status, content_type, Content::whole(body))
            }
            Some(Reply::Stream { content_type, body }) => (StatusCode::OK, content_type, Content::Stream(body)),
            Some(Reply::Page { policy: of_page, body }) => {
                policy = Some(of_page);
                (StatusCode::OK, "text/html; charset=utf-8", Content::Stream(body))
            }
            Some(Reply::Live { content_type, body }) => (StatusCode::OK, content_type, Content::Live(body)),
            // A `Later` reply has been awaited by now, and a reply that was taken is not requested
            // again.
            Some(Reply::Later(_)) | None => (StatusCode::INTERNAL_SERVER_ERROR, "text/plain", Content::Done),
        };
        let line = Rc::clone(&self.line);
        let mut is_compressed = self.coding.is_gzip() && status == StatusCode::OK && content.is_long();
        // This is the length of the body itself. The length of a compressed body is not known yet.
        let length = content.length().filter(|_| !is_compressed);
        let body = if self.is_head {
            Answer::new(Content::Done, None, line)
        } else {
            let gzip = if is_compressed { Gzip::begin(self.line.worker().stats()) } else { None };
            is_compressed = gzip.is_some();
            Answer::new(content, gzip, line)
        };
        let mut response = Response::new(body);
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
        // A browser that guesses the type may interpret a peer's name as markup.
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        self.coding.describe(is_compressed, headers);
        if let Some(policy) = policy {
            headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(policy));
        }
        if let (true, Some(length)) = (self.is_head, length) {
            headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
        }
        match status {
            StatusCode::SERVICE_UNAVAILABLE => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
            }
            StatusCode::METHOD_NOT_ALLOWED => {
                headers.insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
            }
            _ => {}
        }
        // A request body is not read, so the start of the next request could not be found after it.
        if self.has_body || status == StatusCode::SERVICE_UNAVAILABLE || self.line.worker().is_stopping() {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

/// Whether a path is answered under any host name. Scrapers and kubelets use the names that they
/// are configured with, which we do not know.
fn is_open(path: &str) -> bool {
    is_health(path) || path == "/metrics"
}

fn is_health(path: &str) -> bool {
    matches!(path, "/healthz" | "/readyz")
}
