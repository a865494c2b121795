//! Sends the letters of one receiver. Nothing but the configured addresses is contacted, and a
//! redirect is not followed. What may be a secret is in no message of the log.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hyper::{Request, header};
use rustls::pki_types::ServerName;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_rustls::TlsConnector;

use super::messages::{self, Letter};
use super::notices::Notice;
use super::outbox::{Outbox, Sent, from_status};
use crate::config::{HttpUrl, Receiver};
use crate::discovery::{dns, random};
use crate::http::client::{HttpConnection, RequestBody, chain};
use crate::http::tls::{self, Trust};
use crate::limits::AUTHORITIES_BYTES_MAX;
use crate::sys::{clock, files};

/// Timeout of one attempt.
const ATTEMPT: Duration = Duration::from_secs(10);
/// Bytes of a file with a URL or a key.
const SECRET_BYTES_MAX: u64 = 8 << 10;
/// Bytes of an answer that are read.
const ANSWER_BYTES_MAX: usize = 16 << 10;

/// What has become of a letter.
#[derive(Clone, Debug)]
pub struct DeliveryOutcome {
    /// The kind of the receiver.
    pub receiver: &'static str,
    /// A label of the metric: `sent`, `failed`, `refused` or `lost`.
    pub result: &'static str,
    /// The occurrence whose end this letter reports, if it does.
    pub ends: Option<String>,
}

/// Sends notices to a receiver until the sender is dropped.
pub async fn deliver(
    receiver: Receiver,
    authorities: PathBuf,
    mut notices: mpsc::Receiver<Notice>,
    outcomes: mpsc::Sender<DeliveryOutcome>,
) {
    let (mut outbox, start, label) = (Outbox::default(), Instant::now(), receiver.label());
    let tell = async |result, letter: Option<&Letter>| {
        let ends = letter.and_then(|letter| letter.ends.clone());
        // The loop that reads them ends before this task does.
        let _ = outcomes.send(DeliveryOutcome { receiver: label, result, ends }).await;
    };
    loop {
        let due = outbox.next().map(|(letter, at)| (letter.clone(), start + at));
        let letter = tokio::select! {
            notice = notices.recv() => {
                let Some(notice) = notice else { return };
                let letter = messages::letter(&receiver, &notice, clock::realtime().as_secs());
                if let Some(lost) = letter.and_then(|letter| outbox.push(letter)) {
                    log::warn!("{label}: too many messages wait: {} is lost", lost.id);
                    tell("lost", Some(&lost)).await;
                }
                continue;
            }
            letter = wait(due) => letter,
        };
        let sent = attempt(&receiver, &authorities, &letter).await;
        let done = outbox.ended(&sent, start.elapsed(), random::unit());
        match sent {
            Sent::Taken => tell("sent", done.as_ref()).await,
            Sent::Refused(reason) => {
                log::error!("{label} refuses message {}: {reason}", letter.id);
                tell("refused", done.as_ref()).await;
            }
            Sent::Failed(reason, _) => {
                log::warn!("{label}: message {} is sent again later: {reason}", letter.id);
                tell("failed", None).await;
            }
        }
    }
}

/// Waits until a letter is due; for ever without one.
async fn wait(due: Option<(Letter, Instant)>) -> Letter {
    match due {
        Some((letter, at)) => {
            sleep_until(at).await;
            letter
        }
        None => std::future::pending().await,
    }
}

async fn attempt(receiver: &Receiver, authorities: &Path, letter: &Letter) -> Sent {
    match timeout(ATTEMPT, send(receiver, authorities, letter)).await {
        Ok(Ok(sent)) => sent,
        Ok(Err(reason)) => Sent::Failed(reason, Duration::ZERO),
        Err(_) => Sent::Failed(format!("no answer within {ATTEMPT:?}"), Duration::ZERO),
    }
}

/// Reads a file with a secret. The error names the file alone.
fn secret(path: &Path) -> Result<String, String> {
    let named = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let bytes = files::read(path, SECRET_BYTES_MAX).map_err(|error| named(&error))?;
    let text = String::from_utf8(bytes).map_err(|_| named(&"not UTF-8"))?.trim().to_owned();
    if text.is_empty() { Err(named(&"empty")) } else { Ok(text) }
}

fn secret_url(path: &Path) -> Result<HttpUrl, String> {
    HttpUrl::parse(&secret(path)?).map_err(|accepted| format!("{}: expected {accepted}", path.display()))
}

/// Sends a letter and reads the answer.
async fn send(receiver: &Receiver, authorities: &Path, letter: &Letter) -> Result<Sent, String> {
    let mut body = letter.body.clone();
    let (url, key) = match receiver {
        Receiver::Webhook { url, key } => (secret_url(url)?, key.as_deref().map(secret).transpose()?),
        Receiver::Slack { url } => (secret_url(url)?, None),
        Receiver::PagerDuty { key, url } => {
            body["routing_key"] = secret(key)?.into();
            (url.clone(), None)
        }
        Receiver::Alertmanager { url, .. } => (url.clone(), None),
    };
    let body = body.to_string().into_bytes();
    let path =
        format!("{}{}", if letter.path.is_empty() { &url.path } else { url.path.trim_end_matches('/') }, letter.path);
    let mut request = Request::post(path)
        .header(header::HOST, url.host_header())
        .header(header::USER_AGENT, concat!("kube-canary/", env!("CARGO_PKG_VERSION")))
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::CONNECTION, "close")
        .header("kube-canary-message-id", &letter.id);
    if let Some(key) = key {
        request = request.header("kube-canary-signature", messages::signature(key.as_bytes(), &body));
    }
    // The error of a bad path would repeat it.
    let request = request.body(RequestBody::from(body)).map_err(|_| "the URL cannot be requested".to_owned())?;
    let mut link = connect(&url, authorities).await?;
    let response = link.send(request).await.map_err(|error| chain(&error))?;
    let after = response.headers().get(header::RETRY_AFTER).and_then(|after| after.to_str().ok()?.trim().parse().ok());
    let status = response.status().as_u16();
    // The body says nothing that is needed, and an answer that is longer is one as well.
    let _ = link.collect(response.into_body(), ANSWER_BYTES_MAX).await;
    Ok(from_status(status, after.map(Duration::from_secs)))
}

async fn connect(url: &HttpUrl, authorities: &Path) -> Result<HttpConnection, String> {
    let stream = dns::connect(&url.host, url.port).await.map_err(|error| format!("connecting: {error}"))?;
    if !url.is_secure {
        return HttpConnection::handshake(stream).await.map_err(|error| chain(&error));
    }
    let named = |error: &dyn std::fmt::Display| format!("{}: {error}", authorities.display());
    let pem = files::read(authorities, AUTHORITIES_BYTES_MAX).map_err(|error| named(&error))?;
    let roots = tls::authorities(&pem).map_err(|error| named(&error))?;
    let config = tls::client_config(Trust::Authorities(roots)).map_err(|error| error.to_string())?;
    let name = ServerName::try_from(url.host.clone()).map_err(|error| error.to_string())?;
    let stream = TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await
        .map_err(|error| format!("TLS: {}", chain(&error)))?;
    HttpConnection::handshake(stream).await.map_err(|error| chain(&error))
}
