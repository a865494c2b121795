//! Stand-ins for agents, the API server and receivers: HTTP over loopback, with TLS or without.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

/// A request as a stand-in has read it.
pub struct Asked {
    pub method: String,
    pub path: String,
    pub headers: BTreeMap<String, String>,
    pub body: Value,
}

/// Reads a request. `None` at the end of the connection.
async fn read(stream: &mut (impl AsyncBufReadExt + Unpin)) -> Option<Asked> {
    let mut line = String::new();
    stream.read_line(&mut line).await.ok().filter(|bytes| *bytes > 0)?;
    let mut words = line.split(' ').map(str::to_owned);
    let (method, path) = (words.next()?, words.next()?);
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await.ok()?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        headers.insert(name.to_ascii_lowercase(), value.to_owned());
    }
    let length = headers.get("content-length").map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    let body = if body.is_empty() { Value::Null } else { serde_json::from_slice(&body).expect("JSON") };
    Some(Asked { method, path, headers, body })
}

/// What a stand-in answers: a status and a body.
pub type Answer = Arc<dyn Fn(Asked) -> (u16, String) + Send + Sync>;

async fn answer(stream: impl AsyncRead + AsyncWrite + Unpin, answer: Answer) {
    let mut stream = BufReader::new(stream);
    while let Some(asked) = read(&mut stream).await {
        let (status, body) = answer(asked);
        let text = format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        if stream.write_all(text.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// Serves until the set is dropped.
pub async fn serve(tasks: &mut JoinSet<()>, tls: Option<TlsAcceptor>, answers: Answer) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let (tls, answers) = (tls.clone(), Arc::clone(&answers));
            connections.spawn(async move {
                match tls {
                    Some(tls) => {
                        if let Ok(stream) = tls.accept(stream).await {
                            answer(stream, answers).await;
                        }
                    }
                    None => answer(stream, answers).await,
                }
            });
        }
    });
    address
}

/// The directory of a service account, with a webhook's files beside it.
pub struct Account(pub PathBuf);

impl Account {
    /// Makes a service account of this name, and what its API server needs for TLS.
    pub fn new(name: &str) -> (Self, TlsAcceptor) {
        let path = std::env::temp_dir().join(format!("kube-canary-act-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        let mut params = CertificateParams::new(vec![]).unwrap();
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
        let account = Self(path);
        account.write("ca.crt", &ca.pem());
        account.write("token", "token");
        (account, TlsAcceptor::from(Arc::new(config)))
    }

    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
