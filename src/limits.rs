//! Every limit of the program, with its reason. Relations between them are asserted at compile time.

use std::time::Duration;

// ---- peers -------------------------------------------------------------------------------------

/// Peer slots, counting both families and the peers that have left but are not forgotten yet: a dual-stack mesh of
/// 5,000 nodes (the largest supported Kubernetes cluster) and as many again in a rollout.
pub const PEER_SLOTS_MAX: usize = 16_384;
/// Zones that an agent tells apart; a peer in a further zone is shown as `unknown`. Regions have 3 to 6.
pub const ZONES_MAX: usize = 64;
/// Bytes of a node name or a zone: a DNS subdomain (RFC 1123), as Kubernetes allows.
pub const NAME_BYTES_MAX: usize = 253;
/// Bytes of a peers file: 16,384 lines of the longest form fit.
pub const PEERS_FILE_BYTES_MAX: u64 = 8 << 20;

// ---- probes ------------------------------------------------------------------------------------

/// The shortest probing interval. At 10 ms a 32-bit histogram bucket lasts 497 days.
pub const INTERVAL_MIN: Duration = Duration::from_millis(10);
/// The longest probing interval, and the longest timeout.
pub const INTERVAL_MAX: Duration = Duration::from_secs(300);
/// Probes of one peer that may be under way at once: bounds the flight table by `peers × this`.
pub const IN_FLIGHT_PER_PEER_MAX: u64 = 64;
/// The smallest payload: our own header ([`crate::prober`] describes it).
pub const PAYLOAD_BYTES_MIN: usize = 24;
/// The largest payload: a jumbo frame of 9,000 bytes less the IPv6 and ICMP headers.
pub const PAYLOAD_BYTES_MAX: usize = 8_952;
/// Bounds of the RTT histogram, besides +Inf.
pub const RTT_BUCKETS_MAX: usize = 16;

// ---- HTTP --------------------------------------------------------------------------------------

/// HTTP worker threads, default and most. The number never follows the machine.
pub const HTTP_WORKERS_DEFAULT: usize = 4;
/// The most HTTP worker threads that can be asked for.
pub const HTTP_WORKERS_MAX: usize = 64;
/// Connections that one worker serves.
pub const CONNECTIONS_PER_WORKER: usize = 16;
/// Connections that one worker takes beyond those, for `/healthz` and `/readyz` alone: the kubelet must get an answer
/// while every ordinary place is taken by slow scrapers.
pub const HEALTH_CONNECTIONS_PER_WORKER: usize = 4;
/// Bytes of request head: hyper's smallest buffer.
pub const REQUEST_HEAD_BYTES_MAX: usize = 8_192;
/// How long a connection may be idle, or take to send a request's head.
pub const REQUEST_HEAD_TIME: Duration = Duration::from_secs(5);
/// How long one response may take to be read by its scraper. Prometheus gives up after 10 s by default.
pub const RESPONSE_TIME: Duration = Duration::from_secs(30);
/// Bytes that a response is rendered and sent in at a time: the whole cost of a scrape, for any number of peers.
pub const FRAME_BYTES: usize = 6 * 1_024;
/// Stack of an HTTP worker. Measured need is below 40 KiB; untouched pages cost nothing.
pub const HTTP_WORKER_STACK_BYTES: usize = 192 * 1_024;

// ---- discovery ---------------------------------------------------------------------------------

/// Bytes of one response body of the API server or of a peer, or of one watch event.
pub const API_BODY_BYTES_MAX: usize = 4 << 20;
/// Endpoints of one EndpointSlice that are read. The API allows 1,000.
pub const ENDPOINTS_PER_SLICE_MAX: usize = 1_000;
/// How long the probe loop may stand still before `/healthz` fails.
pub const PROBE_LOOP_STALL: Duration = Duration::from_secs(30);

// ---- allocators --------------------------------------------------------------------------------

/// jemalloc arenas that can be asked for at build time: its own default, four per processor, on 256 processors.
pub const NARENAS_MAX: u32 = 1_024;
/// How often glibc's books are compared before it is held not to be ours: they are the whole process's, and other
/// threads free memory meanwhile.
pub const MALLOC_TRIALS_MAX: u32 = 64;

const _: () = assert!(PAYLOAD_BYTES_MIN <= PAYLOAD_BYTES_MAX);
const _: () = assert!(HTTP_WORKERS_DEFAULT <= HTTP_WORKERS_MAX);
const _: () = assert!(INTERVAL_MIN.as_nanos() < INTERVAL_MAX.as_nanos());
const _: () = assert!(FRAME_BYTES >= 2 * (NAME_BYTES_MAX * 4 + 512), "a sample with the longest labels fits a frame");
