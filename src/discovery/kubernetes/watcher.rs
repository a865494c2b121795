//! Does what [`super::machine`] decides: requests, timers, the channel. One future, no task of its own.

use std::time::Duration;

use http_body_util::Empty;
use hyper::body::{Bytes, Incoming};
use hyper::{Request, Response, StatusCode, header};
use tokio::time::{Instant, sleep_until, timeout};

use super::account::Account;
use super::api;
use super::backoff::Backoff;
use super::config::KubernetesConfig;
use super::connect;
use super::failure::Failure;
use super::machine::{Ask, Machine, Outcome};
use crate::discovery::report::Reporter;
use crate::discovery::{Update, Updates, random};
use crate::http::client::Link;
use crate::http::lines::Lines;
use crate::limits;

/// Lists and watches until nobody listens any more.
pub async fn run(config: KubernetesConfig, updates: Updates) {
    let watcher = Watcher {
        account: Account::new(config.account.clone()),
        machine: Machine::new(Backoff::new(config.timing.backoff_min, config.timing.backoff_max)),
        reporter: Reporter::new("kubernetes"),
        link: None,
        token: String::new(),
        updates: updates.clone(),
        config,
    };
    tokio::select! {
        () = updates.closed() => {}
        () = watcher.run() => {}
    }
}

struct Watcher {
    config: KubernetesConfig,
    account: Account,
    machine: Machine,
    reporter: Reporter,
    link: Option<Link>,
    /// The one that the last request carried.
    token: String,
    updates: Updates,
}

impl Watcher {
    /// Goes on for ever; [`run`] drops it when the channel closes.
    async fn run(mut self) {
        loop {
            let done = match self.machine.ask() {
                Ask::List { continue_token } => {
                    let path = self.list_path(continue_token);
                    self.list(&path).await
                }
                Ask::Watch { resource_version } => {
                    let seconds = random::spread(self.config.timing.watch, 0.2, random::unit()).as_secs().max(1);
                    let path = self.watch_path(resource_version, seconds);
                    self.watch(&path, Duration::from_secs(seconds)).await
                }
            };
            let wait = match done {
                Ok(Outcome::LookAgain) => self.config.timing.second_look,
                Ok(_) => continue,
                Err(failure) => {
                    // Whatever is left on the connection, it is not what we want to read next.
                    self.link = None;
                    if matches!(failure, Failure::Unauthorized) && self.token_has_changed() {
                        continue;
                    }
                    match failure {
                        // Part of the protocol: the server keeps its history for five minutes.
                        Failure::Gone => log::debug!("kubernetes discovery: {failure}"),
                        _ => _ = self.reporter.failed(failure.kind(), &failure),
                    }
                    self.machine.failed(&failure, random::unit())
                }
            };
            tokio::time::sleep(wait).await;
        }
    }

    /// Asks for one page and takes it.
    async fn list(&mut self, path: &str) -> Result<Outcome, Failure> {
        let time = self.config.timing.request;
        let response = self.get(path).await?;
        let Some(link) = &mut self.link else { return Err(Failure::Wire("no connection".into())) };
        let body = timeout(time, link.collect(response.into_body(), limits::API_BODY_BYTES_MAX))
            .await
            .map_err(|_| Failure::Time("a list"))??;
        let page = api::parse_page(&body).map_err(Failure::Malformed)?;
        let outcome = self.machine.page(page)?;
        drop(body);
        if outcome == Outcome::Changed {
            self.publish().await;
        }
        Ok(outcome)
    }

    /// Watches until the server or the connection ends it, or something asks for a new list.
    async fn watch(&mut self, path: &str, lasting: Duration) -> Result<Outcome, Failure> {
        let started = Instant::now();
        let mut body = self.get(path).await?.into_body();
        self.send(Update::Confirmed).await;
        let deadline = started + lasting + self.config.timing.watch_grace;
        let mut stream = Stream { lines: Lines::new(limits::API_BODY_BYTES_MAX), flush: None, events: 0 };
        let done = self.follow(&mut stream, &mut body, deadline).await;
        if stream.flush.is_some() && !matches!(done, Ok(Outcome::LookAgain)) {
            self.publish().await;
        }
        if matches!(done, Ok(Outcome::LookAgain)) {
            // The rest of the watch is not read: this connection cannot be used again.
            self.link = None;
        } else if done.is_ok() {
            if stream.events == 0 && started.elapsed() < lasting / 2 {
                return Err(Failure::Ended);
            }
            self.machine.healthy();
        }
        done
    }

    async fn follow(&mut self, stream: &mut Stream, body: &mut Incoming, end: Instant) -> Result<Outcome, Failure> {
        loop {
            let Some(link) = &mut self.link else { return Err(Failure::Wire("no connection".into())) };
            let frame = tokio::select! {
                biased;
                () = sleep_until(stream.flush.unwrap_or(end)), if stream.flush.is_some() => {
                    stream.flush = None;
                    self.publish().await;
                    continue;
                }
                () = sleep_until(end) => return Err(Failure::Time("a watch")),
                frame = link.frame(body) => frame,
            };
            let Some(frame) = frame.transpose()? else { return Ok(Outcome::Unchanged) };
            let Ok(data) = frame.into_data() else { continue };
            stream.lines.push(&data).map_err(|_| Failure::TooLarge(limits::API_BODY_BYTES_MAX))?;
            let mut confirmed = false;
            while let Some(line) = stream.lines.next_line() {
                let event = api::parse_event(line).map_err(Failure::Malformed)?;
                match self.machine.event(event)? {
                    Outcome::LookAgain => return Ok(Outcome::LookAgain),
                    Outcome::Changed => {
                        // The first of a burst sets the time: a steady stream cannot put it off.
                        stream.flush.get_or_insert(Instant::now() + self.config.timing.coalesce);
                    }
                    Outcome::Unchanged | Outcome::More => confirmed = true,
                }
                stream.events += 1;
                self.reporter.recovered();
            }
            if confirmed && stream.flush.is_none() {
                self.send(Update::Confirmed).await;
            }
        }
    }

    /// Sends a GET, on a new connection where there is none to use, and waits for the head of a 200.
    async fn get(&mut self, path: &str) -> Result<Response<Incoming>, Failure> {
        let timing = self.config.timing;
        let link = match self.link.take() {
            Some(mut link) => link.is_usable().await.then_some(link),
            None => None,
        };
        let mut link = match link {
            Some(link) => link,
            None => self.connect().await?,
        };
        self.token = self.account.token()?;
        let request = Request::get(path)
            .header(header::HOST, self.config.server.to_string())
            .header(header::USER_AGENT, concat!("kube-canary/", env!("CARGO_PKG_VERSION")))
            .header(header::ACCEPT, "application/json")
            .header(header::AUTHORIZATION, format!("Bearer {}", self.token))
            .body(Empty::<Bytes>::new())
            .map_err(|e| Failure::Wire(e.to_string()))?;
        let response = timeout(timing.request, link.send(request)).await.map_err(|_| Failure::Time("a request"))??;
        if response.status() != StatusCode::OK {
            let retry_after = response.headers().get(header::RETRY_AFTER).and_then(|v| v.to_str().ok());
            return Err(Failure::of_status(response.status().as_u16(), retry_after));
        }
        self.link = Some(link);
        Ok(response)
    }

    /// `&mut` only because a shared borrow across an await would ask that the connection be `Sync`.
    async fn connect(&mut self) -> Result<Link, Failure> {
        let connecting = connect::connect(&self.config.server, &self.account);
        timeout(self.config.timing.connect, connecting).await.map_err(|_| Failure::Time("a connection"))?
    }

    /// Whether the kubelet has written another token than the one refused: then it is tried without a pause.
    fn token_has_changed(&self) -> bool {
        self.account.token().is_ok_and(|token| token != self.token)
    }

    async fn publish(&mut self) {
        let list = self.machine.peers();
        self.send(Update::List(list)).await;
    }

    async fn send(&mut self, update: Update) {
        if self.updates.send(update).await.is_err() {
            // Nobody listens: `run` is about to drop us.
            std::future::pending::<()>().await;
        }
    }

    /// One slice per page: the body, not the cluster, is what memory follows.
    fn list_path(&self, continue_token: Option<&str>) -> String {
        let mut path = format!("{}&limit=1", self.base());
        if let Some(token) = continue_token {
            path.push_str("&continue=");
            escape(token, &mut path);
        }
        path
    }

    fn watch_path(&self, resource_version: &str, seconds: u64) -> String {
        let mut path = format!("{}&watch=1&allowWatchBookmarks=true&timeoutSeconds={seconds}", self.base());
        path.push_str("&resourceVersion=");
        escape(resource_version, &mut path);
        path
    }

    fn base(&self) -> String {
        let KubernetesConfig { namespace, service, .. } = &self.config;
        format!(
            "/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices\
             ?labelSelector=kubernetes.io%2Fservice-name%3D{service}"
        )
    }
}

/// What one watch has read so far.
struct Stream {
    lines: Lines,
    /// When the events of this burst are published; None where there are none.
    flush: Option<Instant>,
    events: u64,
}

/// Percent-encodes all but RFC 3986's unreserved characters.
fn escape(text: &str, into: &mut String) {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            into.push(char::from(byte));
        } else {
            for digit in [byte >> 4, byte & 15] {
                into.push(char::from(b"0123456789ABCDEF"[usize::from(digit)]));
            }
            into.insert(into.len() - 2, '%');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_escaped_into_the_query() {
        let mut path = String::new();
        escape("aB9-._~+/=&%", &mut path);
        assert_eq!(path, "aB9-._~%2B%2F%3D%26%25");
    }
}
