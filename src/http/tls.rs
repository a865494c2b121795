//! The TLS of a client, with a small footprint: ring, only the authorities that are named, and no
//! session resumption. A connection is opened again after seconds or minutes, and tickets would be
//! kept for nothing.

use std::sync::Arc;

use rustls::client::Resumption;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

/// The name of HTTP/1.1 in ALPN (RFC 7301).
pub const HTTP_1_1: &[u8] = b"http/1.1";

/// Which certificates of a server are accepted.
#[derive(Debug)]
pub enum Trust {
    /// Those that one of these authorities has signed, for the name of the server.
    Authorities(RootCertStore),
    /// Those that this verifier accepts.
    Verifier(Arc<dyn ServerCertVerifier>),
}

/// Reads the authorities of a PEM bundle.
///
/// # Errors
/// What is wrong with the bundle. An empty one is an error.
pub fn authorities(pem: &[u8]) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|error| format!("{error:?}"))?;
        roots.add(certificate).map_err(|error| error.to_string())?;
    }
    // They may be kept.
    roots.roots.shrink_to_fit();
    if roots.is_empty() { Err("no certificate in it".into()) } else { Ok(roots) }
}

/// Returns the algorithms of ring. They are not kept, because a handshake costs far more.
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// Makes the configuration of a client. It offers no protocol by ALPN.
///
/// # Errors
/// Never with the versions and algorithms of ring, but the signature of rustls has one.
pub fn client_config(trust: Trust) -> Result<ClientConfig, rustls::Error> {
    let builder = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
    let builder = match trust {
        Trust::Authorities(roots) => builder.with_root_certificates(roots),
        Trust::Verifier(verifier) => builder.dangerous().with_custom_certificate_verifier(verifier),
    };
    let mut config = builder.with_no_client_auth();
    config.resumption = Resumption::disabled();
    Ok(config)
}
