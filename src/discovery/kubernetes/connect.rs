//! A TLS connection to the API server: only the cluster's own CA, and HTTP/1.1 only.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::account::{Account, credentials};
use super::failure::ApiFailure;
use super::traffic;
use crate::discovery::dns;
use crate::http::client::{HttpConnection, chain};
use crate::http::tls::{self, Trust};

/// A host that has acknowledged nothing of a request for this long is dead. The next reading opens
/// a new connection, perhaps to another host. A live host acknowledges in milliseconds, however
/// slow its server is, so about five consecutive packets must be lost. A longer time would mean
/// more losses of peers that are rolled in it.
const READ_LINK_DEAD: Duration = Duration::from_secs(5);

/// Where the API server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiServer {
    /// An address, or (on some managed clusters) a DNS name. Without brackets.
    pub host: String,
    /// The port that serves TLS.
    pub port: u16,
}

impl fmt::Display for ApiServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionUse {
    /// Lists and the watch, which may be silent for minutes.
    Watch,
    /// Slices. A withheld loss may depend on their reading.
    Read,
}

/// Connects and completes the TLS handshake. The CA bundle is read each time, because it
/// may have been rotated.
///
/// # Errors
/// Credentials, Connect or Tls; the caller bounds the time.
pub async fn connect(
    server: &ApiServer,
    account: &Account,
    purpose: ConnectionUse,
) -> Result<HttpConnection, ApiFailure> {
    let config = client_config(account)?;
    let refused = |reason: String| ApiFailure::Connect { host: server.to_string(), reason };
    let name = ServerName::try_from(server.host.clone()).map_err(|e| refused(e.to_string()))?;
    let stream = dns::connect(&server.host, server.port).await.map_err(refused)?;
    keep_alive(&stream, purpose).map_err(|e| refused(e.to_string()))?;
    let tls_refused = |reason: String| ApiFailure::Tls { host: server.to_string(), reason };
    let stream = TlsConnector::from(Arc::new(config))
        .connect(name, traffic::counted(stream))
        .await
        .map_err(|e| tls_refused(chain(&e)))?;
    HttpConnection::handshake(stream).await.map_err(|e| tls_refused(chain(&e)))
}

/// Makes the kernel detect a dead server host sooner than our timers do.
///
/// Keepalive does not detect a host that dies while it owes us an acknowledgement.
/// `TCP_USER_TIMEOUT` does (tcp(7)). But it also replaces the number of keepalive probes: an idle
/// connection ends at the first lost probe once the last packet is that old. A watch is idle by
/// nature and must survive a short break of the network, so it does not use that option.
fn keep_alive(stream: &TcpStream, purpose: ConnectionUse) -> std::io::Result<()> {
    let socket = SockRef::from(stream);
    let second = Duration::from_secs;
    let keepalive = TcpKeepalive::new().with_retries(3);
    match purpose {
        ConnectionUse::Watch => socket.set_tcp_keepalive(&keepalive.with_time(second(30)).with_interval(second(10))),
        ConnectionUse::Read => {
            // Three keepalive probes come before the end, so one lost packet does not end the
            // connection.
            socket.set_tcp_keepalive(&keepalive.with_time(second(2)).with_interval(second(1)))?;
            socket.set_tcp_user_timeout(Some(READ_LINK_DEAD))
        }
    }
}

fn client_config(account: &Account) -> Result<ClientConfig, ApiFailure> {
    let (pem, path) = account.authorities()?;
    let roots = tls::authorities(&pem).map_err(|reason| credentials(&path, &reason))?;
    let mut config = tls::client_config(Trust::Authorities(roots)).map_err(|e| credentials(&path, &e))?;
    config.alpn_protocols = vec![tls::HTTP_1_1.to_vec()];
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dead_host_is_detected_soon_during_a_read_and_an_idle_watch_outlives_a_short_break() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let seconds = |purpose| {
                keep_alive(&stream, purpose).unwrap();
                let socket = SockRef::from(&stream);
                assert!(socket.keepalive().unwrap() && socket.tcp_keepalive_retries().unwrap() == 3);
                let times = (socket.tcp_keepalive_time().unwrap(), socket.tcp_keepalive_interval().unwrap());
                (socket.tcp_user_timeout().unwrap(), times.0.as_secs(), times.1.as_secs())
            };
            assert_eq!(seconds(ConnectionUse::Watch), (None, 30, 10));
            assert_eq!(seconds(ConnectionUse::Read), (Some(READ_LINK_DEAD), 2, 1));
        });
    }

    #[test]
    fn an_ipv6_server_is_bracketed_where_it_is_written_with_its_port() {
        let server = |host: &str| ApiServer { host: host.into(), port: 443 }.to_string();
        assert_eq!(server("fd00::1"), "[fd00::1]:443");
        assert_eq!(server("10.96.0.1"), "10.96.0.1:443");
    }
}
