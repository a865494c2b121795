//! The shape of the tool that this project grew out of, for `bench/cores`. Every part of it is the
//! obvious choice. Together these choices make memory grow with the machine.
//!
//! - A multi-thread tokio runtime, with one worker per CPU, serves HTTP as well as the pings.
//! - jemalloc has its own defaults: four arenas per CPU and a cache per thread.
//! - Each peer has a histogram of the prometheus crate. A scrape reads all of them and encodes them
//!   into one buffer.
//! - Each peer has a surge-ping `Pinger` and a task.
//! - Transparent huge pages are used as the machine has them.
//!
//! `as_in_2018 PEERS_FILE ADDRESS:PORT`: the file has a line `NAME=ADDRESS[@ZONE]` per peer. Each
//! peer is pinged once a second. Any path is answered with the metrics.

use std::convert::Infallible;
use std::error::Error;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::CONTENT_TYPE;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use prometheus::{
    Encoder, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, Opts, Registry, TextEncoder,
};
use surge_ping::{Client, Config, PingIdentifier, PingSequence};
use tokio::net::TcpListener;

#[global_allocator]
static GLOBAL: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const INTERVAL: Duration = Duration::from_secs(1);
const BUCKETS: [f64; 12] = [0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5];

type Failure = Box<dyn Error + Send + Sync>;

struct Peer {
    address: IpAddr,
    rtt: Histogram,
    sent: IntCounter,
    lost: IntCounter,
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let (Some(file), Some(listen)) = (std::env::args().nth(1), std::env::args().nth(2)) else {
        return Err("usage: as_in_2018 PEERS_FILE ADDRESS:PORT".into());
    };
    let registry = Registry::new();
    let peers = peers(&std::fs::read_to_string(&file).map_err(|error| format!("{file}: {error}"))?, &registry)?;
    let client = Arc::new(Client::new(&Config::default())?);
    let count = u32::try_from(peers.len())?;
    for (index, peer) in (0..).zip(peers) {
        tokio::spawn(ping(Arc::clone(&client), peer, index, INTERVAL * u32::from(index) / count));
    }
    let listener = TcpListener::bind(listen.parse::<SocketAddr>()?).await?;
    loop {
        let (stream, _) = listener.accept().await?;
        let registry = registry.clone();
        tokio::spawn(async move {
            let service = service_fn(move |_| {
                let response = metrics(&registry);
                async { Ok::<_, Infallible>(response) }
            });
            // A client that disconnects in the middle of an answer is no error of this program.
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

fn peers(text: &str, registry: &Registry) -> Result<Vec<Peer>, Failure> {
    let labels = ["source_node", "peer_node", "peer_zone"];
    let rtts =
        HistogramVec::new(HistogramOpts::new("ping_rtt_seconds", "Round-trip time.").buckets(BUCKETS.into()), &labels)?;
    let sent = IntCounterVec::new(Opts::new("ping_sent_total", "Pings sent."), &labels)?;
    let losses = IntCounterVec::new(Opts::new("ping_lost_total", "Pings not answered."), &labels)?;
    registry.register(Box::new(rtts.clone()))?;
    registry.register(Box::new(sent.clone()))?;
    registry.register(Box::new(losses.clone()))?;
    let peer = |line: &str| {
        let (name, at) = line.split_once('=').ok_or_else(|| format!("{line}: not NAME=ADDRESS[@ZONE]"))?;
        let (address, zone) = at.split_once('@').unwrap_or((at, "unknown"));
        let values = ["bench", name, zone];
        Ok(Peer {
            address: address.parse().map_err(|error| format!("{line}: {error}"))?,
            rtt: rtts.with_label_values(&values),
            sent: sent.with_label_values(&values),
            lost: losses.with_label_values(&values),
        })
    };
    text.lines().map(peer).collect()
}

async fn ping(client: Arc<Client>, peer: Peer, index: u16, delay: Duration) {
    let mut pinger = client.pinger(peer.address, PingIdentifier(index)).await;
    pinger.timeout(INTERVAL);
    // The first pings are spread over the interval: without this, most of them would be lost.
    tokio::time::sleep(delay).await;
    let mut ticks = tokio::time::interval(INTERVAL);
    for sequence in (0..=u16::MAX).cycle() {
        ticks.tick().await;
        peer.sent.inc();
        match pinger.ping(PingSequence(sequence), &[0; 56]).await {
            Ok((_, rtt)) => peer.rtt.observe(rtt.as_secs_f64()),
            Err(_) => peer.lost.inc(),
        }
    }
}

fn metrics(registry: &Registry) -> hyper::Response<Full<Bytes>> {
    let mut body = Vec::new();
    let encoder = TextEncoder::new();
    let mut response = hyper::Response::new(Full::default());
    match encoder.encode(&registry.gather(), &mut body) {
        Ok(()) => *response.body_mut() = Full::from(body),
        Err(_) => *response.status_mut() = hyper::StatusCode::INTERNAL_SERVER_ERROR,
    }
    response.headers_mut().insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static(prometheus::TEXT_FORMAT));
    response
}
