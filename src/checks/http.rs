//! The checks by HTTP: the head of an answer, and the identity of an agent behind a Service.
//!
//! A redirect is an answer, and is not followed. The body of a target is not read.

use std::net::SocketAddr;

use hyper::body::Incoming;
use hyper::{Request, Response, StatusCode, header};
use kube_canary_model::check::{CheckFailure, CheckPhase};
use tokio::io::{AsyncRead, AsyncWrite};

use super::HostPort;
use super::attempt::Attempt;
use super::authorities::AuthoritiesFile;
use super::failure::{failure_of_body, failure_of_http};
use super::tls::TlsHandshake;
use crate::discovery::{IDENTITY_PATH, parse_identity};
use crate::http::client::{HttpConnection, RequestBody};
use crate::http::tls::HTTP_1_1;

/// Names this program in the logs of a target.
const USER_AGENT: &str = concat!("kube-canary/", env!("CARGO_PKG_VERSION"));
/// Bytes of an identity: two names of 253 bytes and the addresses of the node.
const IDENTITY_BYTES_MAX: usize = 4_096;

/// Asks for a path by HTTP.
pub async fn check(host: &HostPort, path: &str, to: SocketAddr, found: &mut Attempt) -> Result<(), CheckFailure> {
    let request = request(&host_header(host, 80), path)?;
    let stream = found.connect(to).await?;
    answer(stream, request, found).await.map(drop)
}

/// Asks for a path by HTTPS.
pub async fn check_secure(
    host: &HostPort,
    path: &str,
    to: SocketAddr,
    authorities: Option<&AuthoritiesFile>,
    found: &mut Attempt,
) -> Result<(), CheckFailure> {
    let request = request(&host_header(host, 443), path)?;
    let handshake = TlsHandshake::prepare(&host.host, authorities, &[HTTP_1_1])?;
    let stream = found.connect(to).await?;
    let stream = handshake.complete(stream, found).await?;
    answer(stream, request, found).await.map(drop)
}

/// Asks for the identity of an agent.
pub async fn check_service(to: SocketAddr, own_node: &str, found: &mut Attempt) -> Result<(), CheckFailure> {
    // An agent accepts any address as host, and not the names of other Services.
    let request = request(&to.to_string(), IDENTITY_PATH)?;
    let stream = found.connect(to).await?;
    let own_address = stream.local_addr().map(|local| local.ip().to_canonical()).ok();
    let (mut link, response) = answer(stream, request, found).await?;
    if response.status() != StatusCode::OK {
        return Err(CheckFailure::Malformed);
    }
    let body = link.collect(response.into_body(), IDENTITY_BYTES_MAX).await;
    let body = body.map_err(|error| failure_of_body(&error))?;
    let answer = parse_identity(&body).map_err(|_| CheckFailure::Malformed)?;
    found.is_own_answer = answer.identity.node == own_node;
    found.is_rewritten = !found.is_own_answer && answer.asked_from.is_some() && answer.asked_from != own_address;
    Ok(())
}

/// Returns the value of `Host`: without the port if it is the usual one.
fn host_header(host: &HostPort, usual_port: u16) -> String {
    if host.port == usual_port { host.host.to_string() } else { host.to_string() }
}

/// Makes a request without credentials.
fn request(host: &str, path: &str) -> Result<Request<RequestBody>, CheckFailure> {
    Request::get(path)
        .header(header::HOST, host)
        .header(header::USER_AGENT, USER_AGENT)
        .header(header::ACCEPT, "*/*")
        .header(header::CONNECTION, "close")
        .body(RequestBody::default())
        .map_err(|_| CheckFailure::Other)
}

/// Sends a request, and waits for the head of its answer.
async fn answer<S>(
    stream: S,
    request: Request<RequestBody>,
    found: &mut Attempt,
) -> Result<(HttpConnection, Response<Incoming>), CheckFailure>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut link = HttpConnection::handshake(stream).await.map_err(|error| failure_of_http(&error))?;
    let head = async { link.send(request).await.map_err(|error| failure_of_http(&error)) };
    let response = found.timed(CheckPhase::FirstByte, head).await?;
    if response.status().as_u16() >= 400 { Err(CheckFailure::Status) } else { Ok((link, response)) }
}

#[cfg(test)]
mod tests {
    use super::super::Host;
    use super::*;

    #[test]
    fn a_host_is_written_with_an_unusual_port_alone() {
        let write = |host: Host, port, usual| host_header(&HostPort { host, port }, usual);
        assert_eq!(write(Host::Name("a.example".into()), 443, 443), "a.example");
        assert_eq!(write(Host::Name("a.example".into()), 443, 80), "a.example:443");
        let address = Host::Address("fd00::1".parse().unwrap());
        assert_eq!(
            (write(address.clone(), 80, 80).as_str(), write(address, 81, 80).as_str()),
            ("[fd00::1]", "[fd00::1]:81")
        );
    }
}
