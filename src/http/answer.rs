//! From a request to its answer: the rules of HTTP that no route needs to know.

use std::{convert::Infallible, future, rc::Rc};

use hyper::{
    Method, Request, Response, StatusCode,
    body::{Body, Incoming},
    header::{self, HeaderValue},
    service::Service,
};

use super::{
    Reply,
    frames::Answer,
    line::{Class, Line},
};

const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// Answers the requests of one connection.
pub(super) struct Answering(pub(super) Rc<Line>);

impl Service<Request<Incoming>> for Answering {
    type Response = Response<Answer>;
    type Error = Infallible;
    type Future = future::Ready<Result<Response<Answer>, Infallible>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        self.0.answer_begins();
        let mut response = self.answer(&request);
        let has_body = !request.body().is_end_stream();
        if has_body {
            self.0.expect_unread();
        }
        // A body is not read, so the next request could not be found behind it.
        if has_body || response.status() == StatusCode::SERVICE_UNAVAILABLE || self.0.worker().is_stopping() {
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        future::ready(Ok(response))
    }
}

impl Answering {
    fn answer(&self, request: &Request<Incoming>) -> Response<Answer> {
        let worker = self.0.worker();
        let path = request.uri().path();
        if !is_health(path) && self.0.class() == Class::Health && !worker.promote(&self.0) {
            worker.stats().refused();
            let mut response = self.text(StatusCode::SERVICE_UNAVAILABLE, "every place is taken; try again\n");
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
            return response;
        }
        worker.stats().served();
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let mut response = self.text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are answered\n");
            response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
            return response;
        }
        let accept = request.headers().get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or("");
        let line = Rc::clone(&self.0);
        let is_head = *request.method() == Method::HEAD;
        let (status, content_type, length, body) = match worker.routes().route(path, accept) {
            Reply::Full { status, content_type, body } => {
                let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
                let length = Some(body.len());
                (status, content_type, length, if is_head { Answer::empty(line) } else { Answer::whole(body, line) })
            }
            Reply::Stream { content_type, body } => {
                let body = if is_head { Answer::empty(line) } else { Answer::stream(body, line) };
                (StatusCode::OK, content_type, None, body)
            }
        };
        let mut response = Response::new(body);
        *response.status_mut() = status;
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
        if let (true, Some(length)) = (is_head, length) {
            response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(length));
        }
        response
    }

    fn text(&self, status: StatusCode, text: &str) -> Response<Answer> {
        let mut response = Response::new(Answer::whole(text.as_bytes().to_vec(), Rc::clone(&self.0)));
        *response.status_mut() = status;
        response.headers_mut().insert(header::CONTENT_TYPE, TEXT);
        response
    }
}

fn is_health(path: &str) -> bool {
    matches!(path, "/healthz" | "/readyz")
}
