//! Stand-ins for agents, the API server and receivers: HTTP over loopback, with TLS or without.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

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
