//! A TLS connection to the API server, small: ring, the cluster's own CA and no other, no session resumption (a watch
//! reconnects every five minutes; tickets would be kept for nothing), HTTP/1.1 only.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use rustls::client::Resumption;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::account::{Account, credentials};
use super::failure::Failure;
use super::traffic::Counted;
use crate::discovery::dns;
use crate::http::client::{Link, chain};

/// Where the API server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// An address, or (on some managed clusters) a DNS name. Without brackets.
    pub host: String,
    /// Its TLS port.
    pub port: u16,
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// Connects and shakes hands. The CA bundle is read anew: it may have been rotated.
///
/// # Errors
/// Credentials, Connect or Tls; the caller bounds the time.
pub async fn connect(server: &Server, account: &Account) -> Result<Link, Failure> {
    let config = client_config(account)?;
    let refused = |reason: String| Failure::Connect { host: server.to_string(), reason };
    let name = ServerName::try_from(server.host.clone()).map_err(|e| refused(e.to_string()))?;
    let address = match server.host.parse::<IpAddr>() {
        Ok(address) => address,
        Err(_) => dns::host_address(&server.host).await.map_err(|e| refused(e.to_string()))?,
    };
    let stream = TcpStream::connect(SocketAddr::new(address, server.port)).await.map_err(|e| refused(e.to_string()))?;
    keep_alive(&stream).map_err(|e| refused(e.to_string()))?;
    let tls_refused = |reason: String| Failure::Tls { host: server.to_string(), reason };
    let stream = TlsConnector::from(Arc::new(config))
        .connect(name, Counted(stream))
        .await
        .map_err(|e| tls_refused(chain(&e)))?;
    Link::handshake(stream).await.map_err(|e| tls_refused(chain(&e)))
}

/// A watch says nothing for minutes: the kernel finds out sooner than our timer when the server's host has died.
fn keep_alive(stream: &TcpStream) -> std::io::Result<()> {
    let second = Duration::from_secs;
    let keepalive = TcpKeepalive::new().with_time(second(30)).with_interval(second(10)).with_retries(3);
    SockRef::from(stream).set_tcp_keepalive(&keepalive)
}

fn client_config(account: &Account) -> Result<ClientConfig, Failure> {
    let (pem, path) = account.authorities()?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        let certificate = certificate.map_err(|e| credentials(&path, &format_args!("{e:?}")))?;
        roots.add(certificate).map_err(|e| credentials(&path, &e))?;
    }
    if roots.is_empty() {
        return Err(credentials(&path, &"no certificate in it"));
    }
    let mut config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|e| credentials(&path, &e))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.resumption = Resumption::disabled();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv6_server_is_bracketed_where_it_is_written_with_its_port() {
        let server = |host: &str| Server { host: host.into(), port: 443 }.to_string();
        assert_eq!(server("fd00::1"), "[fd00::1]:443");
        assert_eq!(server("10.96.0.1"), "10.96.0.1:443");
    }
}
