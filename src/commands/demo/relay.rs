//! Makes agents in a network namespace reachable from outside of it.
//!
//! A listening socket belongs to the network namespace in which it was created. So listeners that
//! are opened before the demo enters a namespace accept connections from outside, and each is
//! copied to the agent inside.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::{self, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use crate::limits::ACCEPT_PAUSE;

/// Connections that are copied at once. A browser has six to each agent. Further ones wait in the
/// kernel.
pub const CONNECTIONS_MAX: usize = 64;

/// Accepts the connections of `listener`, and copies each to `agent` and back. Never returns.
pub async fn relay(listener: TcpListener, agent: SocketAddr, permits: Arc<Semaphore>) {
    loop {
        let Ok((client, _)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        // The semaphore is never closed.
        let Ok(permit) = Arc::clone(&permits).acquire_owned().await else { return };
        tokio::spawn(async move {
            // Either end may break off. The client sees that its connection ends.
            let _ = copy(client, agent).await;
            drop(permit);
        });
    }
}

/// Returns when the agent has closed its side: it does so with a connection that is idle or slow.
async fn copy(mut client: TcpStream, agent: SocketAddr) -> io::Result<()> {
    let mut agent = TcpStream::connect(agent).await?;
    let ((mut from_client, mut to_client), (mut from_agent, mut to_agent)) = (client.split(), agent.split());
    let requests = async {
        io::copy(&mut from_client, &mut to_agent).await?;
        to_agent.shutdown().await?;
        std::future::pending().await
    };
    tokio::select! {
        done = io::copy(&mut from_agent, &mut to_client) => done.map(drop),
        failed = requests => failed,
    }
}
