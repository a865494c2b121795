//! The directory of a service account, and an authority that its API server has a certificate of.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use tokio_rustls::TlsAcceptor;

/// A certificate authority with one server certificate for 127.0.0.1.
pub struct Authority {
    pub pem: String,
    pub acceptor: TlsAcceptor,
}

impl Authority {
    pub fn new() -> Self {
        // Each has a name of its own: two authorities of one name would be a different failure.
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let mut params = CertificateParams::new(vec![]).unwrap();
        let name = format!("authority {}", COUNT.fetch_add(1, Ordering::Relaxed));
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        let leaf = CertificateParams::new(vec!["127.0.0.1".into()]).unwrap().signed_by(&key, &ca).unwrap();
        let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![leaf.der().clone()], key)
            .unwrap();
        Self { pem: ca.pem(), acceptor: TlsAcceptor::from(Arc::new(config)) }
    }
}

/// A service account's directory, which is removed at the end of the test.
pub struct Account(pub PathBuf);

impl Account {
    pub fn new(ca: &str, token: &str) -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("kube-canary-account-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        let account = Self(path);
        account.write("ca.crt", ca);
        account.write("token", token);
        account.write("namespace", "monitoring\n");
        account
    }

    /// Writes a file at once. Returns its path.
    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let new = self.0.join(format!("{name}.new"));
        fs::write(&new, text).unwrap();
        let path = self.0.join(name);
        fs::rename(new, &path).unwrap();
        path
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
