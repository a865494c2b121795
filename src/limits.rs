//! The bounds of operators, and those that several stages share, each with its reason. Those of
//! reports and of the mesh are in the crate of the model. Relations between them are asserted at
//! compile time. A constant of one stage is beside its use.

use std::time::Duration;

pub use kube_canary_model::limits::*;

// ---- peers -------------------------------------------------------------------------------------

/// Default number of other nodes that a node probes. With one IP family, a peer has 24 series in
/// text and 10 in protobuf. 24 peers have 576 and 240. Each node then has at least 12 watchers, 6
/// of them in other zones.
pub const MAX_PEERS_DEFAULT: usize = 24;
/// Largest value of `--max-peers`. To probe more, an agent must probe all nodes, which needs no
/// selection. The probe thread computes the selection, at a cost that grows with the square of the
/// value. With 5,000 nodes it takes 1 ms for 24, 23 to 50 ms for 256 and 0.4 s for 1,024
/// (docs/adr/0012).
pub const MAX_PEERS_MAX: usize = 256;
const _: () = assert!(MAX_PEERS_DEFAULT <= MAX_PEERS_MAX);
/// Zones that an agent distinguishes. A peer in a further zone is shown as `unknown`. Regions
/// have 3 to 6.
pub const ZONES_MAX: usize = 64;
/// Bytes of a peers file. 16,384 lines of the longest form fit.
pub const PEERS_FILE_BYTES_MAX: u64 = 8 << 20;

// ---- probes ------------------------------------------------------------------------------------

/// Longest probing interval, and longest timeout.
pub const INTERVAL_MAX: Duration = Duration::from_mins(5);
/// Extra UDP probes that an agent sends in a second, to flows that seem to lose. At most one goes
/// to each peer.
pub const FLOW_PROBES_PER_SECOND: usize = 8;
/// Probes of one peer that may be in flight at once. Bounds the flight table to `peers × this`.
pub const IN_FLIGHT_PER_PEER_MAX: u64 = 64;
/// Longest time that a loss is withheld while the source is asked whether the list is right. No
/// further question about that address is asked for as long.
///
/// Kubernetes discovery answers at once, unless the peer's slice has changed since it was read or
/// no watch is open yet. It reads a changed slice. That takes an API server 5 to 50 ms, and seconds
/// if thousands of agents ask during a rollout. With 0.75 s, such rollouts showed single losses.
pub const DOUBT_TIME: Duration = Duration::from_secs(3);
/// Peers that are in doubt at once by one method, and addresses about which their source may be
/// asked at once. Losses of further peers are counted at once. 24 peers with both families on both
/// networks are 96 addresses, which all methods share. Peers that stay silent take half of the
/// places at most.
pub const DOUBTS_MAX: u16 = 128;
/// Questions that may wait until the source reads them. Each of the three methods may ask about the
/// same address in one turn.
pub const QUESTIONS_MAX: usize = 3 * DOUBTS_MAX as usize;
/// How long a peer that has left the list is still probed. These probes are counted apart from sent
/// and lost. A rolled pod leaves the list before it returns, and this is longer than its absence.
/// It is also longer than a list may be behind (`preStop` is 5 s).
pub const LEAVE_GRACE: Duration = Duration::from_secs(10);
/// A slot is kept at least for the timeout plus this, until no probe to its peer is in flight. A
/// loss is decided at most an eighth of this after the timeout.
pub const SLOT_KEPT_SLACK: Duration = Duration::from_secs(1);
/// How long a stop waits for probes in flight, while HTTP still answers. Round trips in a cluster
/// are shorter. Dead peers are not waited for.
pub const PROBES_FINISH_TIME: Duration = Duration::from_millis(250);
/// Smallest payload: our own header ([`crate::prober`] describes it).
pub const PAYLOAD_BYTES_MIN: usize = 24;
/// Largest payload: a jumbo frame of 9,000 bytes less the IPv6 and ICMP headers.
pub const PAYLOAD_BYTES_MAX: usize = 8_952;
/// How long a peer that is new at its address may leave probes by UDP and TCP unanswered without
/// losing them: its agent may not listen yet, or may not have us in its list. Lists arrive within
/// seconds, and in a busy cluster a quarter of a minute later.
pub const NEW_PEER_SILENCE: Duration = Duration::from_secs(30);
/// How long a reflector may keep a request before it answers, at its next turn. A UDP probe counts
/// as lost this long after its timeout, and its round-trip time is without that wait.
pub const DWELL_MAX: Duration = Duration::from_secs(1);
/// Longest time between a request and its answer that is believed of a reflector. A longer one
/// comes from a step of its clock. An agent that was stopped for as long has lost all its answers.
pub const DWELL_PLAUSIBLE_MAX: Duration = Duration::from_hours(1);
/// Bytes of the longest answer of the STAMP reflector. Up to here it has the length of its request.
/// Our own requests have 72 bytes. Other implementations add TLVs, of which all types together fit.
pub const STAMP_ANSWER_BYTES_MAX: usize = 256;
/// Requests per second of one pair of sessions that the STAMP reflector answers. A link has 100
/// probes at the shortest interval. 28 more are for traces, extra probes, and probes of the path
/// MTU. The rest is reserve.
pub const STAMP_RATE_MAX: u64 = 256;
/// Requests of one pair of sessions that the STAMP reflector answers at once. As many arrive in a
/// second. An agent that was stopped for as long finds them all in its queue.
pub const STAMP_BURST_MAX: u64 = STAMP_RATE_MAX;
/// Ranges of source addresses that the packet filter of the STAMP reflector distinguishes. Each
/// takes 2 to 8 instructions, and the kernel allows 4,096.
pub const STAMP_FILTER_RANGES_MAX: usize = 512;
/// The same for each of the 32 sockets that send UDP probes. 24 peers fit. A program has at most 5
/// KB of kernel memory then. With more peers, the nearest ranges are joined.
pub const SENDER_FILTER_RANGES_MAX: usize = 64;
/// Pairs of sessions of one address that have a place in the STAMP reflector. An agent has one
/// pair. Two agents on one host network have the same address, for a moment during a rollout.
pub const STAMP_PAIRS_MAX: usize = 2;
/// Shares among which the pairs of sessions without a place are divided, each with the rate of a
/// place. 8 bytes each. A pod that forges the addresses of members takes an answer of one of them
/// only by more than 16,000 requests a second, several times of what the queue of the reflector
/// holds at four turns a second. All shares together grant 32,768 answers a second.
pub const STAMP_SHARES: usize = 128;
/// How long a place is kept for a pair of sessions that sends nothing, unless four intervals are
/// longer. An agent that restarts has another pair.
pub const STAMP_PAIR_KEPT: Duration = Duration::from_secs(10);
/// How often requests of strangers are read, and how many at most of each family. They have a
/// socket of their own, of which the kernel drops the rest.
pub const STAMP_STRANGERS_EVERY: Duration = Duration::from_secs(1);
/// See [`STAMP_STRANGERS_EVERY`].
pub const STAMP_STRANGERS_MAX: usize = 128;
/// Bounds of the classic RTT histogram, besides +Inf.
pub const RTT_BUCKETS_MAX: usize = 16;

/// Time between two TCP handshakes to one peer, if `--interval` is not longer. A handshake takes
/// about eight system calls and four packets, and it leaves entries in tables for connections on
/// the path. ICMP and UDP find a loss sooner.
pub const TCP_INTERVAL: Duration = Duration::from_secs(10);
/// TCP handshakes in flight at once. Each takes a descriptor. 256 peers with both families make
/// 51 handshakes a second. All of these can stay silent for the one second until they are lost.
/// A handshake that is already lost makes room for a new one.
pub const TCP_HANDSHAKES_MAX: usize = 64;
/// Connections to the TCP probe port that may wait for the probe thread. 5,000 nodes that all probe
/// this one make 500 a second, so the thread may be two seconds late before a handshake fails. Each
/// takes about 3 KB of kernel memory until it is accepted. `net.core.somaxconn` may lower the
/// number.
pub const TCP_BACKLOG: i32 = 1_024;
/// Connections to the TCP probe port that one turn accepts, per family.
pub const TCP_ACCEPTS_MAX: usize = 64;
/// Connections of members to the TCP probe port that are accepted per second in the long run. It is
/// eight times what 5,000 nodes make, and about what [`TCP_BACKLOG`] holds between two of four
/// turns a second. A member that makes more fills the backlog, and the handshakes of others then
/// fail. The agent says so ([`crate::prober::Probers::overran`]), and no verdict counts losses of
/// handshakes and UDP probes to it.
pub const TCP_ACCEPTS_PER_SECOND: u64 = 4_000;
/// Connections of strangers to the TCP probe port that may wait for the probe thread, per family.
/// The kernel drops further SYNs of strangers.
pub const TCP_STRANGERS_MAX: i32 = 64;
/// Shortest time between two turns that accept and close the connections of strangers: at most 320
/// a second per family. Turns are 250 ms apart, so a stranger's connection stays open for less than
/// half a second.
pub const TCP_STRANGERS_EVERY: Duration = Duration::from_millis(200);

/// One step of the hour of history that is kept of every peer.
pub const HOUR_STEP: Duration = Duration::from_mins(1);
/// Slots whose hour is kept, 128 bytes each. All of it may cost 64 KiB. A mesh whose page shows
/// every pair is smaller, and a larger mesh has a database.
pub const HOUR_PEERS_MAX: usize = 512;

// ---- traces and the path MTU --------------------------------------------------------------------

/// Traces per agent and minute. Each has at most [`TRACE_PACKETS_MAX`] packets, so they are 5.3
/// packets/s on average. An operator sees three traces of a verdict, so more would tell nothing.
pub const TRACES_PER_MINUTE: u64 = 2;
/// Traces per mesh and minute, if all agents lose packets: 3,200 packets/s, spread over all paths.
pub const TRACES_PER_MESH_MINUTE: u64 = 1_200;
/// Packets of one trace: 30 for each of five hops, which show where a fifth is lost. 16 bytes each,
/// once per agent.
pub const TRACE_PACKETS_MAX: usize = 160;
/// Latest traces that are kept, one per slot, 800 bytes each.
pub const TRACES_KEPT: usize = 32;
/// Largest packet by which a path MTU is searched: jumbo frames of 9,216 bytes. The loopback
/// device would allow 65,536.
pub const PATH_MTU_MAX: u16 = 9_216;
/// Large packets per second of all searches for a path MTU. In a healthy mesh of 24 peers they are
/// 0.4. If a hole hits all paths at once, 24 pairs need some 600 packets, which takes 40 s.
pub const MTU_PROBES_PER_SECOND: u64 = 16;
/// Pairs whose path MTU is searched at once. Others wait.
pub const MTU_SEARCHES_MAX: usize = 32;

// ---- checks ------------------------------------------------------------------------------------

/// Bytes of a checks file: the longest line of each of the checks, and as many comments.
pub const CHECKS_FILE_BYTES_MAX: u64 = 64 << 10;
/// Bytes of the path of a URL that is checked. The `target` label has it, and so has each sample.
pub const CHECK_PATH_BYTES_MAX: usize = 256;
/// Bytes of the query of a URL that is checked. Signed URLs have some 500.
pub const CHECK_QUERY_BYTES_MAX: usize = 1_024;
/// Default of the attempts that all agents together make in a second at one target outside of the
/// mesh. 5,000 nodes then ask it every 100 s each.
pub const CHECK_RATE_DEFAULT: u16 = 50;
/// Largest value of `--check-rate`.
pub const CHECK_RATE_MAX: u16 = 1_000;
/// Bytes of a bundle of authorities (`--check-ca`). The one that browsers trust has 220 KB.
pub const AUTHORITIES_BYTES_MAX: u64 = 1 << 20;

// ---- series ------------------------------------------------------------------------------------

/// Default limit on the series of a scrape: about 400 links with histograms.
pub const MAX_SERIES_DEFAULT: usize = 10_000;
/// Smallest value of `--max-series`. The agent's own series are about 140, and a region's zones
/// must fit beside them.
pub const MAX_SERIES_MIN: usize = 200;
/// Largest value of `--max-series`. In practice it is no limit.
pub const MAX_SERIES_MAX: usize = 10_000_000;

// ---- HTTP --------------------------------------------------------------------------------------

/// Default number of HTTP worker threads. It never depends on the machine.
pub const HTTP_WORKERS_DEFAULT: usize = 4;
/// Largest number of HTTP worker threads.
pub const HTTP_WORKERS_MAX: usize = 64;
/// Names that `--allow-host` may give. Each request for the page or `/api` is compared
/// with all of them.
pub const ALLOWED_HOSTS_MAX: usize = 64;
/// Addresses that `--outside` may give.
pub const OUTSIDE_MAX: usize = 64;
/// Connections that one worker serves.
pub const CONNECTIONS_PER_WORKER: usize = 16;
/// Connections that one worker accepts beyond [`CONNECTIONS_PER_WORKER`], for
/// `/healthz` and `/readyz` alone. The kubelet must get an answer even if slow scrapers
/// hold every ordinary permit.
pub const HEALTH_CONNECTIONS_PER_WORKER: usize = 4;
/// File descriptors of everything else: 3 standard streams, 16 sockets, timers and signals of the
/// probe thread, 37 for UDP (a socket for each flow and family, two reflectors, two of an epoll
/// descriptor, and one to ask for routes), 8 identity requests, 4 reports of a collection for a
/// reader and 16 of a judge's, 3 questions to judges and 3 for a reader, a document that is passed
/// on, 4 of discovery, and for TCP 64 handshakes, 4 listeners and a connection that is being
/// accepted. The rest is reserve.
pub const DESCRIPTORS_RESERVED: usize = 112 + TCP_HANDSHAKES_MAX + 3;
/// Bytes of request head: hyper's smallest buffer.
pub const REQUEST_HEAD_BYTES_MAX: usize = 8_192;
/// How long a connection may be idle, or take to send a request's head.
pub const REQUEST_HEAD_TIME: Duration = Duration::from_secs(5);
/// How long a scraper may take to read one response. Prometheus gives up after 10 s by default.
pub const RESPONSE_TIME: Duration = Duration::from_secs(30);
/// Bytes in which a response is rendered and sent. This is the whole memory cost of a scrape, for
/// any number of peers.
pub const FRAME_BYTES: usize = 6 * 1_024;
/// Responses that are compressed at once, by all workers together. Further responses are
/// sent uncompressed. More scrapes than this at once are rare. Together they use
/// [`GZIP_BYTES`] times this.
pub const COMPRESSED_RESPONSES_MAX: usize = 16;
/// Memory of one compressed response besides its frame, in whole pages. It holds 14,160 bytes
/// of zlib state (docs/adr/0019), a frame that is not compressed yet, and compressed bytes that
/// are not sent yet.
pub const GZIP_BYTES: usize = 24 * 1_024;
/// Pause after accept(2) fails for a reason other than the connection itself, such as too few
/// descriptors or too little memory.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How long a shutdown waits for responses in progress. The whole process stops within a second.
pub const HTTP_SHUTDOWN_TIME: Duration = Duration::from_millis(500);

// ---- discovery ---------------------------------------------------------------------------------

/// Bytes of one EndpointSlice, or of one watch event. A slice of 1,000 endpoints has about 170 KB.
pub const API_BODY_BYTES_MAX: usize = 4 << 20;
/// Bytes of a whole list. A slice has 1 to 2 KB of metadata, mostly `managedFields`: allow 4 KB for
/// as many slices as are kept. The first list also has their endpoints, 170 to 400 bytes each:
/// allow 1 KB for each slot.
pub const API_LIST_BYTES_MAX: usize = SLICES_MAX * 4_096 + PEER_SLOTS_MAX * 1_024;
/// Endpoints of one EndpointSlice that are read. The API allows 1,000.
pub const ENDPOINTS_PER_SLICE_MAX: usize = 1_000;
/// EndpointSlices of our Service that are kept. 16,384 endpoints fit even if the slices are mostly
/// a quarter full. The controller fills slices to 100 but does not rebalance them.
pub const SLICES_MAX: usize = 4_096;
/// Capacity that a read buffer keeps between two watch events. A larger buffer is
/// released after its event.
pub const EVENT_BUFFER_KEPT_BYTES: usize = 8_192;
/// Largest number of identity requests in progress at once.
pub const IDENTITY_REQUESTS_MAX: usize = 8;

// ---- footprint ---------------------------------------------------------------------------------

/// Largest process id: PID_MAX_LIMIT of a 64-bit kernel.
pub const PID_MAX: u32 = 4_194_304;

// ---- fleet and doctor --------------------------------------------------------------------------

/// Bytes of one report: of 5,000 nodes of two families by three methods, with 699 bytes for each
/// object on average. Names of 48 bytes fit. `doctor` holds one report as a whole, and may run
/// within the 32 MiB of an agent's pod.
pub const REPORT_BYTES_MAX: usize = 20 << 20;
/// Bytes of one mesh: 300 reports that name 5,000 peers each, at 300 bytes.
pub const MESH_DOCUMENT_BYTES_MAX: usize = 512 << 20;
/// Nodes and reports that `doctor --rows` judges at most. This is ten times the largest supported
/// Kubernetes cluster, and less than the node numbers that a cell can hold.
pub const OFFLINE_NODES_MAX: usize = 50_000;
/// Bytes that `doctor --rows` reads at most. The reports of those 5,000 nodes have 7.5 GB. A line
/// may have [`REPORT_BYTES_MAX`], and a document that is not in lines [`MESH_DOCUMENT_BYTES_MAX`].
pub const OFFLINE_BYTES_MAX: u64 = 16 << 30;
/// Shortest interval of `--watch`. Each update reads 30 KB from each of a hundred agents.
pub const WATCH_INTERVAL_MIN: Duration = Duration::from_secs(1);

// ---- the mesh ----------------------------------------------------------------------------------

/// Agents of a collection that names them. Their names fit a request's head, if they have fewer
/// than 70 bytes.
pub const NAMED_REPORTS_MAX: usize = 100;
/// Age from which an agent's list of peers is reported as old. It is above `watch_silence` in
/// `src/discovery/kubernetes/config.rs`, after which a list is confirmed even if nothing changes.
pub const LIST_AGE_MAX: Duration = Duration::from_mins(4);
/// Verdicts of the last 24 hours that have ended and that a judge keeps, and their bytes. A verdict
/// with its sentence takes some 450 bytes, so the bytes suffice for 150 of them.
pub const JUDGE_PAST_MAX: usize = 256;
/// See [`JUDGE_PAST_MAX`].
pub const JUDGE_PAST_BYTES_MAX: usize = 64 * 1_024;
/// What only one judge claims has this part of [`JUDGE_PAST_MAX`] and [`JUDGE_PAST_BYTES_MAX`], a
/// quarter, and only if nothing else needs it.
pub const JUDGE_UNCONFIRMED_PART: usize = 4;
/// Verdicts of a judge's document: those that hold and those that have ended.
pub const JUDGE_VERDICTS_MAX: usize = MESH_VERDICTS_MAX + JUDGE_PAST_MAX;
/// Bytes of a judge's document. A mesh without a fault has 400, and one with 64 verdicts and a
/// full past some 120 KB.
pub const JUDGE_DOCUMENT_BYTES_MAX: usize = 192 * 1_024;
/// Reports that a judge requests at once. A report has some hundred bytes, so the time of a request
/// is that of its round trips.
pub const JUDGE_REQUESTS_MAX: usize = 16;
/// Time between two of a judge's requests. Those of 5,000 nodes then take 12.5 s of the 15 s of a
/// round, so a judge's load is even.
pub const JUDGE_REQUEST_PAUSE: Duration = Duration::from_micros(2_500);
/// Bytes that a judge keeps of all nodes: 28 for each of 5,000, and their names, each without what
/// it shares with the one before. Nodes that do not fit are counted.
pub const JUDGE_NODES_BYTES_MAX: usize = 250_000;
/// Bytes of the document of all nodes that an agent passes on: 5,000 nodes at some 250 bytes are
/// 1.3 MB. It is never held as a whole.
pub const NODES_DOCUMENT_BYTES_MAX: usize = 4 << 20;
/// Bytes of one object of a report: two names of 253 bytes, each escaped to six times its
/// length, and the figures, of which UDP has most.
pub const REPORT_OBJECT_BYTES_MAX: usize = 5 * 1_024;
/// Reports that are requested at once. The next ones load while one is passed on. Each holds a
/// connection of about 35 KB.
pub const REPORT_REQUESTS_MAX: usize = 4;
/// Bytes of a peer's last hour: two series of 60 steps with three figures each.
pub const HOUR_BYTES_MAX: usize = 16 * 1_024;

// ---- names of commands -------------------------------------------------------------------------

/// Bytes of `/etc/hosts`. Lists of blocked names have up to 6 MB.
pub const HOSTS_FILE_BYTES_MAX: u64 = 16 << 20;
/// Addresses of one name in `/etc/hosts`. A command uses the first that fits.
pub const HOSTS_ADDRESSES_MAX: usize = 64;

// ---- demo --------------------------------------------------------------------------------------

/// Agents of one demo. Each is a process.
pub const DEMO_NODES_MAX: u8 = 50;

// ---- ping --------------------------------------------------------------------------------------

/// Targets of one ping: the largest supported Kubernetes cluster.
pub const PING_TARGETS_MAX: usize = 5_000;
/// Largest number of probes per target.
pub const PING_COUNT_MAX: u64 = 1_000_000_000;

const _: () = assert!(PING_TARGETS_MAX <= PEER_SLOTS_MAX);
const _: () = assert!(OFFLINE_NODES_MAX < u16::MAX as usize, "a node has a number of 16 bits, and one is none");
const _: () = assert!(PAYLOAD_BYTES_MIN <= PAYLOAD_BYTES_MAX);
const _: () =
    assert!(STAMP_RATE_MAX as u128 * INTERVAL_MIN.as_millis() > 1_280, "more than the probes of a link, and 28 others");
const _: () = assert!(HTTP_WORKERS_DEFAULT <= HTTP_WORKERS_MAX);
const _: () = assert!(
    3 + 16
        + 2 * (FLOWS_MAX as usize + 1)
        + 2
        + IDENTITY_REQUESTS_MAX
        + REPORT_REQUESTS_MAX
        + JUDGE_REQUESTS_MAX
        + 2 * 3
        + 1
        + 4
        + TCP_HANDSHAKES_MAX
        + 5
        <= DESCRIPTORS_RESERVED
);
const _: () = assert!(TCP_INTERVAL.as_nanos() <= INTERVAL_MAX.as_nanos());
const _: () =
    assert!(PROBES_FINISH_TIME.as_millis() + HTTP_SHUTDOWN_TIME.as_millis() + ACCEPT_PAUSE.as_millis() < 1_000);
const _: () = assert!(GZIP_BYTES.is_multiple_of(4_096) && FRAME_BYTES < GZIP_BYTES);
const _: () = assert!(HOUR_PEERS_MAX <= PEER_SLOTS_MAX);
const _: () = assert!(INTERVAL_MIN.as_nanos() < INTERVAL_MAX.as_nanos());
const _: () =
    assert!(REPORT_OBJECT_BYTES_MAX + 64 <= FRAME_BYTES, "an object of a row and what stands around it fit a frame");
const _: () = assert!(FRAME_BYTES >= 2 * (NAME_BYTES_MAX * 4 + 512), "a sample with the longest labels fits a frame");
