//! The check of a TLS server: a connection, a whole handshake, and its end. No request is sent.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use kube_canary_model::check::{CheckFailure, CheckPhase};
use rustls::pki_types::ServerName;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::Host;
use super::attempt::Attempt;
use super::authorities::AuthoritiesFile;
use super::certificate::CheckVerifier;
use super::failure::failure_of_io;
use crate::http::tls::{self, Trust};

/// Opens a connection, completes the handshake, and ends both.
pub async fn check(
    host: &Host,
    to: SocketAddr,
    authorities: Option<&AuthoritiesFile>,
    found: &mut Attempt,
) -> Result<(), CheckFailure> {
    let handshake = TlsHandshake::prepare(host, authorities, &[])?;
    let stream = found.connect(to).await?;
    let mut stream = handshake.complete(stream, found).await?;
    // The handshake is what counts. A server that does not read our close_notify has completed it.
    _ = stream.shutdown().await;
    Ok(())
}

/// A handshake that is prepared before the connection is opened: a server need not wait while we
/// read a file.
pub struct TlsHandshake {
    connector: TlsConnector,
    verifier: Arc<CheckVerifier>,
    name: ServerName<'static>,
}

impl TlsHandshake {
    /// Makes a handshake with this host ready. `protocols` are offered by ALPN.
    pub fn prepare(
        host: &Host,
        authorities: Option<&AuthoritiesFile>,
        protocols: &[&[u8]],
    ) -> Result<Self, CheckFailure> {
        // Without the authorities that the operator wants, nothing can be said of the server.
        let authorities = authorities.map(|file| file.current().ok_or(CheckFailure::Other)).transpose()?;
        let verifier = Arc::new(CheckVerifier::new(authorities));
        let mut config =
            tls::client_config(Trust::Verifier(Arc::clone(&verifier) as _)).map_err(|_| CheckFailure::Tls)?;
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        Ok(Self { connector: Arc::new(config).into(), verifier, name: server_name(host) })
    }

    /// Ends the handshake on a connection. `found` gets the end of the certificate also if it
    /// is not accepted.
    pub async fn complete(self, stream: TcpStream, found: &mut Attempt) -> Result<TlsStream<TcpStream>, CheckFailure> {
        let connecting = self.connector.connect(self.name, stream);
        let handshake = async { connecting.await.map_err(|error| failure_of_io(&error)) };
        let stream = found.timed(CheckPhase::Handshake, handshake).await;
        found.certificate_not_after = self.verifier.not_after();
        stream
    }
}

/// Returns the name by which a host is asked for, and for which its certificate must be valid.
fn server_name(host: &Host) -> ServerName<'static> {
    match host {
        Host::Address(address) => ServerName::from(*address),
        // A name that no certificate can have is not sent.
        Host::Name(name) => ServerName::try_from(name.trim_end_matches('.').to_owned())
            .unwrap_or_else(|_| ServerName::from(IpAddr::V4(Ipv4Addr::UNSPECIFIED))),
    }
}
