//! Every limit of the program, with its reason. Relations between them are asserted at compile time.

use std::time::Duration;

// ---- peers -------------------------------------------------------------------------------------

/// Peer slots, counting both families and the peers that have left but are not forgotten yet: a dual-stack mesh of
/// 5,000 nodes (the largest supported Kubernetes cluster) and as many again in a rollout.
pub const PEER_SLOTS_MAX: usize = 16_384;
/// Other nodes that a node probes, by default. With one family each has 24 series in text and 10 in protobuf: 24 have 576 and
/// 240. Each node is then watched by 12 others at least, 6 of them in other zones.
pub const MAX_PEERS_DEFAULT: usize = 24;
/// The most of them that can be chosen; who wants more probes all, which takes no choice. A selection is made on the probe thread, at
/// a cost that grows with the square: of 5,000 nodes 1 ms for 24, 23 to 50 ms for this many, 0.4 s for 1,024
/// (docs/adr/0012).
pub const MAX_PEERS_MAX: usize = 256;
const _: () = assert!(MAX_PEERS_DEFAULT <= MAX_PEERS_MAX);
/// Free slots between others before they are closed up: below a page of every table nothing is won.
pub const HOLES_MIN: usize = 128;
/// Zones that an agent tells apart; a peer in a further zone is shown as `unknown`. Regions have 3 to 6.
pub const ZONES_MAX: usize = 64;
/// Zones that the selection tells apart, the unknown one counted: as many as fit a byte, with one value left. More than have
/// names in series, for here all agents must come to the same, and which zones are the further ones they may see
/// differently. Where a zone is a rack, 5,000 nodes are in more than 100.
pub const MEMBER_ZONES_MAX: usize = 255;
/// Bytes of a node name or a zone: a DNS subdomain (RFC 1123), as Kubernetes allows.
pub const NAME_BYTES_MAX: usize = 253;
/// Bytes of a peers file: 16,384 lines of the longest form fit.
pub const PEERS_FILE_BYTES_MAX: u64 = 8 << 20;

// ---- probes ------------------------------------------------------------------------------------

/// The shortest probing interval. At 10 ms a peer's 32-bit counters last 497 days, at 1 s 136 years; what is counted of
/// all peers together has 64 bits.
pub const INTERVAL_MIN: Duration = Duration::from_millis(10);
/// The longest probing interval, and the longest timeout.
pub const INTERVAL_MAX: Duration = Duration::from_mins(5);
/// A prober that has not turned for longer reads before it sends: its times of sending come round after some minutes, and
/// the next probe that it books would put those from before into the future.
pub const STANDSTILL: Duration = Duration::from_secs(5);
/// How often it reads then, if something is left each time, at 4,096 packets: more than the queues of all peers can hold.
pub const STANDSTILL_READS_MAX: usize = 16;
/// Probes of one peer that may be under way at once: bounds the flight table by `peers × this`.
pub const IN_FLIGHT_PER_PEER_MAX: u64 = 64;
/// How long a loss is withheld at most while it is asked whether the list is right, and how long no further question is
/// asked about its address. Kubernetes discovery answers at once unless the peer's slice has changed since it was read, or
/// it is out of touch; then it reads the slice, which takes an API server 5 to 50 ms, and one that thousands of agents ask
/// in a rollout, seconds. With 0.75 s such rollouts showed single losses.
pub const DOUBT_TIME: Duration = Duration::from_secs(3);
/// How long a question is kept back: the reply to a later probe, which spares it, is on its way where a packet was lost and
/// nobody has gone. Longer than round trips in a cluster.
pub const QUESTION_PAUSE: Duration = Duration::from_millis(50);
/// Peers that are in doubt at once, and questions that may wait for their source; losses of more are booked at once. 24
/// peers by both protocols on both networks are 96; where more vanish within a second, it is no rollout.
pub const DOUBTS_MAX: u16 = 128;
/// Losses of one peer that are withheld: as long as a doubt lasts, at intervals of 15 ms and more; at shorter ones further
/// losses are booked. Below 100 ms so many, booked at once, may be more than what is left of the 255 that a recent half
/// counts, which then counts no further.
pub const WITHHELD_MAX: u8 = 200;
/// How long a peer that has left the list is probed on, apart from what is sent and lost: longer than a rolled pod, which
/// leaves before it returns, is away, and than a list may be behind (`preStop` 5 s).
pub const LEAVE_GRACE: Duration = Duration::from_secs(10);
/// A slot is kept for the timeout and so much more at least, until no probe to its peer is under way: losses are decided up
/// to an eighth of this after the timeout.
pub const SLOT_KEPT_SLACK: Duration = Duration::from_secs(1);
/// How soon a list is tried again that found the directory locked: a worker has it for a frame,
/// some 50 µs. Where it has lost its CPU meanwhile, 200 attempts a second cost nothing, and lists
/// come 100 ms apart at least.
pub const LIST_RETRY: Duration = Duration::from_millis(5);
/// How long a stop waits for probes under way, while HTTP still answers. Round trips in a cluster are shorter; what is dead
/// is not waited for.
pub const PROBES_FINISH_TIME: Duration = Duration::from_millis(250);
/// The smallest payload: our own header ([`crate::prober`] describes it).
pub const PAYLOAD_BYTES_MIN: usize = 24;
/// The largest payload: a jumbo frame of 9,000 bytes less the IPv6 and ICMP headers.
pub const PAYLOAD_BYTES_MAX: usize = 8_952;
/// Bounds of the classic RTT histogram, besides +Inf.
pub const RTT_BUCKETS_MAX: usize = 16;
/// Native buckets of one octave of all links together: 128 links have eight each, the finest resolution, and 512 have two.
/// With 21 octaves, at six bytes a bucket, that is 126 KB.
pub const LINK_BINS_MAX: usize = 1_024;
/// Half of the recent window, which covers one to two of these: the last minute.
pub const RECENT_HALF_MAX: Duration = Duration::from_secs(30);
/// Probes of one peer that half of the recent window may send. Its counters have 8 bits, and with the replies of probes
/// that were under way when it began none may count beyond 255.
pub const RECENT_HALF_PROBES: u32 = 180;
/// How often a reader tries to read the recent window of a peer, which fails if a half ends
/// meanwhile. Halves end 1.7 s apart at least: the second reading succeeds, unless the reader has
/// lost its CPU over the next end as well.
pub const RECENT_READS_MAX: usize = 3;

/// A step of the hour that is kept of every peer.
pub const HOUR_STEP: Duration = Duration::from_mins(1);
/// Steps that are kept.
pub const HOUR_STEPS: usize = 60;
/// Slots whose hour is kept, 128 bytes each. 64 KiB are what all of it may cost; a mesh whose page shows every pair is
/// smaller, and a larger one has a database.
pub const HOUR_PEERS_MAX: usize = 512;

/// Packets that a raw socket may have heard before its filter was there, and that are forgotten: what its first queue holds.
pub const UNHEARD_PACKETS_MAX: usize = 4_096;
/// Bytes that the kernel counts for one small packet in a receive queue, and for its departure on the error queue, which
/// counts against the same: 768 each on x86-64 with Linux 6, rounded up.
pub const RECEIVE_BYTES_PER_PEER: usize = 2 * 1_024;
/// The least that is asked for: what most kernels grant (`net.core.rmem_max`). Replies wait for up to a quarter of a second,
/// and with them packets that nobody asked for: 550 small ones, which the kernel counts 768 bytes each, fit into the
/// double of this that it gives.
pub const RECEIVE_BYTES_MIN: usize = 208 * 1_024;
/// The most that is asked for: 4,096 peers, all within one timeout. Costs memory only while packets wait.
pub const RECEIVE_BYTES_MAX: usize = 8 << 20;

// ---- series ------------------------------------------------------------------------------------

/// Series of a scrape, at most, by default: some 400 links with histograms.
pub const MAX_SERIES_DEFAULT: usize = 10_000;
/// The fewest that can be asked for: the agent's own are some 140, and a region's zones must have room beside them.
pub const MAX_SERIES_MIN: usize = 200;
/// The most: no limit in practice.
pub const MAX_SERIES_MAX: usize = 10_000_000;

// ---- HTTP --------------------------------------------------------------------------------------

/// HTTP worker threads, default and most. The number never follows the machine.
pub const HTTP_WORKERS_DEFAULT: usize = 4;
/// The most HTTP worker threads that can be asked for.
pub const HTTP_WORKERS_MAX: usize = 64;
/// Names that `--allow-host` may give: each request of the page and of `/api` is compared with them.
pub const ALLOWED_HOSTS_MAX: usize = 64;
/// Connections that one worker serves.
pub const CONNECTIONS_PER_WORKER: usize = 16;
/// Connections that one worker takes beyond those, for `/healthz` and `/readyz` alone: the kubelet must get an answer
/// while every ordinary place is taken by slow scrapers.
pub const HEALTH_CONNECTIONS_PER_WORKER: usize = 4;
/// How long a health connection stays at least before it gives way to the next. A kubelet sends its
/// request when it learns that it is connected: within a millisecond, or one time slice later (3 ms)
/// on a busy node. In that time it must not be evicted. Longer would help an attacker: the 16 health
/// places of four workers take 3,200 connections a second, and a full backlog is through in 40 ms.
/// At 100 ms they would take 160, and the kubelet's connection would be lost among 128 others that
/// wait in the backlog for 0.8 s of its timeout of 1 s (Kubernetes' default).
pub const HEALTH_STAY_MIN: Duration = Duration::from_millis(5);
/// File descriptors of a worker besides those of its places: its event loop, the socket that it
/// listens on, a file of /proc, and a connection that waits for a place.
pub const DESCRIPTORS_PER_WORKER: usize = 8;
/// File descriptors of an ordinary place: the client's connection, and the one to the agent that is
/// asked for the client.
pub const DESCRIPTORS_PER_ORDINARY_PLACE: usize = 2;
/// File descriptors of all the rest: 3 standard streams, 16 of sockets, timers and signals of the
/// probe thread, 8 identity requests, 4 rows of a gathering, 4 of discovery; what is left is reserve.
pub const DESCRIPTORS_RESERVED: usize = 64;
/// Bytes of request head: hyper's smallest buffer.
pub const REQUEST_HEAD_BYTES_MAX: usize = 8_192;
/// How long a connection may be idle, or take to send a request's head.
pub const REQUEST_HEAD_TIME: Duration = Duration::from_secs(5);
/// How long one response may take to be read by its scraper. Prometheus gives up after 10 s by default.
pub const RESPONSE_TIME: Duration = Duration::from_secs(30);
/// Bytes that a response is rendered and sent in at a time: the whole cost of a scrape, for any number of peers.
pub const FRAME_BYTES: usize = 6 * 1_024;
/// Responses that are compressed at once, by all workers together; further ones are sent as they
/// are. More scrapes than this at the same time are rare, and the memory of all is [`GZIP_BYTES`]
/// times this.
pub const COMPRESSED_RESPONSES_MAX: usize = 16;
/// Memory of one of them, beside its frame: 14,160 bytes of zlib's own (docs/adr/0019), a frame
/// that is not compressed yet, and what is compressed and not sent yet. Whole pages.
pub const GZIP_BYTES: usize = 24 * 1_024;
/// Bytes of a complete body from which it is compressed: a smaller one fits one packet anyway.
pub const COMPRESSED_BODY_BYTES_MIN: usize = 1_024;
/// Frame buffers that a worker keeps for the next scrape. A frame is rendered only when its socket has room for it, so
/// that more than one is rarely alive.
pub const SPARE_FRAMES_PER_WORKER: usize = 1;
/// How long scrapes that overlap share the agent's own metrics as one of them encoded them. Scrapes one after the other
/// never do.
pub const HEAD_SHARED_TIME: Duration = Duration::from_secs(1);
/// Connections that wait to be accepted, in the kernel.
pub const LISTEN_BACKLOG: i32 = 128;
/// What the kernel may hold for a client that does not read; it counts twice this, for its own bookkeeping, and bills it
/// to the container. A scrape of 1.6 MB over 50 ms of round trip still takes below 3 s.
pub const SOCKET_SEND_BYTES: usize = 32 * 1_024;
/// What the kernel may hold of requests that are not read yet.
pub const SOCKET_RECEIVE_BYTES: usize = 16 * 1_024;
/// Bytes that are read from a client at a time: more than any scraper's request.
pub const READ_BYTES: usize = 2_048;
/// What is read and forgotten of a request that was refused, so that its sender can read why.
pub const DRAIN_BYTES_MAX: usize = 64 * 1_024;
/// How long that may take.
pub const DRAIN_TIME: Duration = Duration::from_millis(250);
/// Pause after accept(2) failed for another reason than the connection itself, such as want of
/// descriptors or memory.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How long a shutdown waits for responses under way: the whole process stops within a second.
pub const HTTP_SHUTDOWN_TIME: Duration = Duration::from_millis(500);
/// Bytes of the mesh page: after it was asked for they are resident until unused parts of the program file are next given
/// back.
pub const PAGE_BYTES_MAX: usize = 48 * 1_024;
/// Stack of an HTTP worker. Measured after parallel scrapes: 28 KiB in a release build, 68 KiB in a debug build; untouched
/// pages cost nothing.
pub const HTTP_WORKER_STACK_BYTES: usize = 192 * 1_024;

// ---- discovery ---------------------------------------------------------------------------------

/// Bytes of one EndpointSlice, or of one watch event. A slice of 1,000 endpoints has some 170 KB.
pub const API_BODY_BYTES_MAX: usize = 4 << 20;
/// Bytes of an error's body that are read, so that its connection can be used again.
pub const API_ERROR_BYTES_MAX: usize = 16 << 10;
/// Bytes of a whole list. Slices have 1 to 2 KB of metadata each, mostly `managedFields`: 4 KB for
/// as many as are kept; and the first list has their endpoints besides, of 170 to 400 bytes: 1 KB
/// for as many as there are slots.
pub const API_LIST_BYTES_MAX: usize = SLICES_MAX * 4_096 + PEER_SLOTS_MAX * 1_024;
/// Endpoints of one EndpointSlice that are read. The API allows 1,000.
pub const ENDPOINTS_PER_SLICE_MAX: usize = 1_000;
/// EndpointSlices of our Service that are kept: 16,384 endpoints in slices that are mostly a quarter full (the controller fills
/// them to 100 but does not rebalance).
pub const SLICES_MAX: usize = 4_096;
/// Capacity that a read buffer keeps between two watch events; a larger one is given back after its event.
pub const EVENT_BUFFER_KEPT_BYTES: usize = 8_192;
/// Read buffer of an HTTP client connection, and so the largest response head: hyper's smallest.
pub const CLIENT_BUFFER_BYTES: usize = 8_192;
/// Bytes that a client reads of an answer beside its body: the head with every 1xx before it, the
/// sizes of chunks, trailers. A head of hyper's largest size, what may be read of the body together
/// with it, and as much again for 1xx; heads of our own answers have 150 bytes, those of API
/// servers below 2 KB.
pub const CLIENT_OVERHEAD_BYTES_MAX: usize = 4 * CLIENT_BUFFER_BYTES;
/// Bytes of a service account file (token, CA bundle, namespace). A bundle of a dozen roots is 20 KB.
pub const CREDENTIAL_BYTES_MAX: u64 = 256 << 10;
/// TCP and TLS set-up with the API server.
pub const API_CONNECT_TIME: Duration = Duration::from_secs(10);
/// The head of any answer, the whole of a slice, and each pause of a list. API Priority and Fairness may queue a request for a minute.
pub const API_REQUEST_TIME: Duration = Duration::from_secs(75);
/// What we ask a watch to last, ± 20 % of jitter so that agents do not come back together. client-go takes 5 to 10 min.
pub const WATCH_TIME: Duration = Duration::from_mins(5);
/// So long before its time a watch's end counts as its time: servers are asked for whole seconds, and begin to count later than we.
pub const WATCH_END_SLACK: Duration = Duration::from_secs(1);
/// What a watch may last beyond what we asked for, before we take its connection for dead.
pub const WATCH_GRACE: Duration = Duration::from_secs(30);
/// Back-off after the first failure: a random part of this.
pub const API_BACKOFF_MIN: Duration = Duration::from_secs(1);
/// The longest back-off: a random part of this.
pub const API_BACKOFF_MAX: Duration = Duration::from_mins(1);
/// A watch that has stood for so long has worked, however it ended: something between us and the server may cut what is idle, as
/// some proxies do after 50 s. A server that ends watches after so long, and takes them again, is asked hardly more often than one
/// that fails at once: by each agent every 20 s at most, and not every 30 s on average.
pub const WATCH_STOOD: Duration = Duration::from_secs(20);
/// The longest `Retry-After` that is honoured.
pub const API_RETRY_AFTER_MAX: Duration = Duration::from_mins(5);
/// A slice is not read sooner than this after it has changed: changes that follow each other within it are one reading. A rollout
/// touches a slice several times a second.
pub const EVENTS_COALESCE: Duration = Duration::from_millis(100);
/// For each further slice of the Service, a slice that holds peers of ours is read so much later after a change, ± 50 %. With
/// that and the next two, what 5,000 agents read in a rollout of theirs, of 50 slices that change all the time, is 4,600 slices per
/// second, doubted ones included (docs/adr/0013).
pub const READ_SPACING: Duration = Duration::from_millis(800);
/// The middle of that pause at most, so that its end is a minute: what a list may lag behind where nobody doubts it.
pub const READ_PAUSE_MIDDLE_MAX: Duration = Duration::from_secs(40);
/// A slice that holds none of ours is read so many times later: it matters for who joins and leaves the mesh.
pub const READ_OTHERS_FACTOR: u32 = 4;
/// So long after its first list an agent that is not listed there itself, and so does not know its zone, reads all slices as soon
/// as those of its peers: the longest pause twice, for its own may have been read just before. Who is no endpoint of the
/// Service looks no longer than that.
pub const OWN_SEARCH_TIME: Duration = Duration::from_mins(2);
/// A slice that is not read so long after it was due leaves the list unconfirmed, so that its age rises.
pub const READ_OVERDUE: Duration = Duration::from_secs(30);
/// How long the connection for reading slices stays open unused: a rollout needs it every second, a quiet cluster never, and it
/// costs 35 to 50 KB.
pub const READ_LINK_IDLE: Duration = Duration::from_secs(5);
/// A host that has acknowledged nothing of a reading for so long is dead, and the next reading makes a connection anew, perhaps to
/// another. One that is alive acknowledges in milliseconds, however slow its server is; some five packets in a row must be lost. Longer
/// would be more losses of peers that are rolled meanwhile.
pub const READ_LINK_DEAD: Duration = Duration::from_secs(5);
/// Readings of doubted slices are spread over so much for each further slice …
pub const DOUBT_SPACING: Duration = Duration::from_millis(4);
/// … and this at most: little beside the time that the asker waits.
pub const DOUBT_PAUSE_MAX: Duration = Duration::from_millis(200);
/// After a failure an agent waits, beside its back-off, a random part of this for each further slice: 5,000 agents that an API
/// server has sent away come back over 10 s, not over one …
pub const RETURN_SPACING: Duration = Duration::from_millis(200);
/// … and of this at most. The second look at an empty list is spread over as much.
pub const RETURN_PAUSE_MAX: Duration = Duration::from_secs(10);
/// A watch that brings nothing for so long is given up, and what there is compared anew. A bookmark comes about once a minute,
/// where anything changes in the cluster; after a restore of etcd to an older version, a watch from a newer one brings nothing
/// for ever.
pub const WATCH_SILENCE: Duration = Duration::from_mins(3);
/// How often events confirm the list at most: in a rollout they come by the dozen.
pub const LIST_CONFIRM_TIME: Duration = Duration::from_secs(1);
/// Between the first look at an empty list and the second, which makes it true; at least.
pub const SECOND_LOOK: Duration = Duration::from_secs(5);
/// A DNS name is not resolved more often, whatever its TTL: CoreDNS answers with 5 s, and every node asks.
pub const DNS_REFRESH_MIN: Duration = Duration::from_secs(5);
/// Nor less often: a pod that has gone would be probed for longer than this and count as loss.
pub const DNS_REFRESH_MAX: Duration = Duration::from_secs(30);
/// One look-up of all candidate names and both families.
pub const DNS_LOOKUP_TIME: Duration = Duration::from_secs(15);
/// Identity requests under way at once.
pub const IDENTITY_REQUESTS_MAX: usize = 8;
/// One identity request. Also how long a first list waits for the names of its peers.
pub const IDENTITY_TIME: Duration = Duration::from_secs(2);
/// Bytes of an identity: two names of 253 bytes and the node's addresses; fields may be added.
pub const IDENTITY_BYTES_MAX: usize = 64 << 10;
/// How often a peer that has given its name is asked again, ± 50 %: an address may move to another node.
pub const IDENTITY_REFRESH: Duration = Duration::from_mins(10);
/// How long after a failed identity request the next, ± 50 %.
pub const IDENTITY_RETRY: Duration = Duration::from_secs(20);
/// Node addresses of one identity that are looked at: two families on a few networks.
pub const NODE_ADDRESSES_MAX: usize = 8;
/// How long the node addresses of a peer are kept that has left the list. A pod that is replaced is away for less, its image's
/// pull included; a machine that is made anew under its old name, perhaps at another address, is away for longer.
pub const NODE_ADDRESSES_KEPT: Duration = Duration::from_mins(1);
/// Questions of node addresses that wait for the answer on their pods; the oldest gives way. Two families of the peers that
/// are probed by default.
pub const NODE_DOUBTS_MAX: usize = 64;
/// How long the probe loop may stand still before `/healthz` fails.
pub const PROBE_LOOP_STALL: Duration = Duration::from_secs(30);

// ---- the kernel's files ------------------------------------------------------------------------

/// Bytes of a line of /proc or of a cgroup that are looked at; the longest that matters (`Icmp:` of /proc/net/snmp) has
/// 400. It stands on the stack, once per reading thread.
pub const PROC_LINE_BYTES_MAX: usize = 1_024;
/// Bytes of such a file. Mountinfo of a node with a thousand pods has 2 MB.
pub const PROC_FILE_BYTES_MAX: u64 = 8 << 20;

// ---- footprint ---------------------------------------------------------------------------------

/// The largest process id: PID_MAX_LIMIT of a 64-bit kernel.
pub const PID_MAX: u64 = 4_194_304;
/// Program headers of a file that are looked at. Linkers write 8 to 14.
pub const FOOTPRINT_HEADERS_MAX: usize = 64;
/// Loaded segments of a file that are told apart; a linker writes 4 or 5 by itself, our own script 10. A file with more
/// counts by its permissions.
pub const FOOTPRINT_SEGMENTS_MAX: usize = 16;
/// Bytes that the command reads at a time, with room for the longest path (PATH_MAX) in a mapping's head.
pub const FOOTPRINT_READ_BYTES: usize = 16 * 1_024;
/// The same in the agent, where they stand on a worker's stack: its own paths are short.
pub const FOOTPRINT_OWN_READ_BYTES: usize = 3 * 1_024;
/// Bytes of a path that are kept in the agent.
pub const FOOTPRINT_OWN_PATH_BYTES: usize = 512;
/// Threads that share the work where thousands of processes are read: the kernel's walk of their page tables takes most of
/// the time, and goes on side by side.
pub const FOOTPRINT_THREADS_MAX: usize = 8;
/// Processes that are worth a thread.
pub const FOOTPRINT_PROCESSES_PER_THREAD: usize = 64;
/// Processes that could not be read and are named; the rest is counted.
pub const FOOTPRINT_UNREADABLE_NAMED_MAX: usize = 8;
/// How long the agent's resident memory stands before `smaps_rollup` is read again: 0.1 ms of kernel time each.
pub const MEMORY_RESIDENT_TIME: Duration = Duration::from_secs(5);
/// How long its memory by category stands: a reading is of 30 KB of text, and brings back pages of code that runs for
/// nothing else.
pub const MEMORY_CATEGORIES_TIME: Duration = Duration::from_mins(1);

// ---- fleet and doctor --------------------------------------------------------------------------

/// Canaries that are asked: the largest supported Kubernetes cluster.
pub const CANARIES_MAX: usize = 5_000;
/// Of them at once. Each keeps a row in memory until it is read: 1.3 MB of one that watches 5,000 peers.
pub const CANARIES_AT_ONCE: usize = 8;
/// One canary, its name's look-up included: a row of 5,000 peers takes it some 50 ms to render.
pub const CANARY_TIME: Duration = Duration::from_secs(10);
/// Bytes of one row, `/api/v1/peers`: 16,384 peers with names of usual length.
pub const ROW_BYTES_MAX: usize = 8 << 20;
/// Bytes that are read of `/metrics` before its first series of a peer: the canary's own take 8 KB.
pub const OWN_SAMPLES_BYTES_MAX: usize = 256 << 10;
/// Bytes of one of its lines: a frame, in which every sample and every help text fits.
pub const SAMPLE_BYTES_MAX: usize = FRAME_BYTES;
/// One mesh, which a canary gathers from all others first, and which may have to wait for another's gathering.
pub const MESH_TIME: Duration = Duration::from_mins(1);
/// Bytes of one mesh: 300 rows that name 5,000 peers each, of 300 bytes.
pub const MESH_DOCUMENT_BYTES_MAX: usize = 512 << 20;
/// Nodes without a row that are read, of all meshes together: twice the largest supported Kubernetes
/// cluster.
pub const MISSING_MAX: usize = 10_000;
/// Nodes and reports that `doctor --rows` judges at most: ten times the largest supported Kubernetes
/// cluster, and fewer than the numbers that a cell has for them.
pub const ROWS_NODES_MAX: usize = 50_000;
/// Bytes that `doctor --rows` keeps of a mesh: 5,000 nodes that each probe all others take 200 MB.
pub const ROWS_MESH_BYTES_MAX: usize = 512 << 20;
/// Bytes that `doctor --rows` reads at most: the reports of those 5,000 nodes have 7.5 GB. A line may
/// have [`ROW_BYTES_MAX`], a document that is not in lines [`MESH_DOCUMENT_BYTES_MAX`].
pub const ROWS_BYTES_MAX: u64 = 16 << 30;
/// Lines without a report that `doctor --rows` names. It counts the others.
pub const ROWS_UNREAD_NAMED_MAX: usize = 16;
/// How soon `doctor --watch` sees that the reader of its output has gone.
pub const WATCH_READER_TIME: Duration = Duration::from_secs(1);
/// How often `--watch` may look: a look reads 30 KB from each canary of a hundred.
pub const WATCH_INTERVAL_MIN: Duration = Duration::from_secs(1);

// ---- the mesh ----------------------------------------------------------------------------------

/// Rows of a mesh that are gathered and judged; the rest is counted.
pub const MESH_ROWS_MAX: usize = 300;
/// Nodes of a mesh that are told apart: those of the largest supported Kubernetes cluster, which 300 rows may speak of.
pub const MESH_NODES_MAX: usize = 5_000;
/// Zones of a mesh that are told apart; further ones count as `unknown`. Regions have 3 to 6, and verdicts keep 320
/// bytes of sums for each two of them.
pub const MESH_ZONES_MAX: usize = 17;
/// Failure domains that `--domains-file` may name: as many as fit a byte, with values to spare.
/// Verdicts keep 72 bytes of sums for each.
pub const DOMAINS_MAX: usize = 250;
/// Bytes of a domains file: what a ConfigMap holds at most.
pub const DOMAINS_FILE_BYTES_MAX: u64 = 1 << 20;
/// Its lines with a domain: one for each node of twice the largest supported Kubernetes cluster.
pub const DOMAIN_LINES_MAX: usize = 10_000;
/// Those of them with a wildcard, two for each domain. They are compared with a node's name one
/// after the other; plain names are looked up.
pub const DOMAIN_PATTERNS_MAX: usize = 500;
/// Bytes that are kept of a mesh and taken to judge it: a gathering may peak at 1 MB, and 300 nodes that each probe all
/// others take 780 KB, of which their cells are 718.
pub const MESH_BYTES_MAX: usize = 900_000;
/// Bytes that judging takes for each node, counted into those above.
pub const MESH_JUDGED_BYTES_PER_NODE: usize = 72;
/// From which age on a canary's list of peers is told to be old: above [`WATCH_SILENCE`], after which a list is confirmed anew also
/// where nothing in the cluster changes.
pub const LIST_AGE_MAX: Duration = Duration::from_mins(4);
/// Bytes that are kept of why a row is missing.
pub const MESH_ERROR_BYTES_MAX: usize = 80;
/// Culprits that are looked for, the strongest first, among losses and among round trips each: judging takes a walk over
/// all cells for each.
pub const MESH_CULPRITS_MAX: usize = 24;
/// Verdicts that are given, the gravest first.
pub const MESH_VERDICTS_MAX: usize = 64;
/// Nodes being removed that are listed by name beside the verdicts; the rest is counted. As many as
/// reports are collected, so that names of 253 bytes take at most 76 KB.
pub const MESH_LEAVING_MAX: usize = MESH_ROWS_MAX;
/// Bytes of one object of a row: two names of 253 bytes, each escaped to six times its length, and the figures.
pub const ROW_OBJECT_BYTES_MAX: usize = 4 * 1_024;
/// Rows that are asked for at once: the next are under way while one is passed on. Each holds a connection of some 35 KB.
pub const ROW_REQUESTS_MAX: usize = 4;
/// How long a canary may take to begin its row, and to go on with it. It answers from memory.
pub const ROW_TIME: Duration = Duration::from_secs(2);
/// How long the whole of a row may take, once it has begun: rows come one after the other, and one that trickles must not
/// take the time of all others.
pub const ROW_WHOLE_TIME: Duration = Duration::from_secs(5);
/// How long a gathering may take: 300 rows take about a second, dead canaries 2 s for four of them.
pub const GATHERING_TIME: Duration = Duration::from_secs(20);
/// How long a request waits for the gathering before it.
pub const GATHERING_WAIT: Duration = Duration::from_secs(8);
/// How long the reader of a mesh document may keep its collection from going on, in all; then the
/// document is broken off. Shorter than [`GATHERING_WAIT`], so that requests that wait behind it are
/// answered. 300 rows of 299 peers are 27 MB: a reader needs 5 MB/s.
pub const MESH_READER_TIME: Duration = Duration::from_secs(5);
/// After a collection, the next begins so many times later than the first one worked. A client that
/// asks without end takes a tenth of a CPU for the rows that this agent reads and judges.
pub const GATHERING_PAUSE_FACTOR: u32 = 9;
/// That pause at most, so that a request that waits [`GATHERING_WAIT`] has its turn.
pub const GATHERING_PAUSE_MAX: Duration = Duration::from_secs(5);
/// Requests that wait for a gathering; more are refused.
pub const GATHERING_WAITERS_MAX: usize = 8;
/// How long verdicts stand before they are judged anew.
pub const VERDICTS_TIME: Duration = Duration::from_secs(5);
/// Bytes of a peer's last hour: two series of 60 steps of three figures.
pub const HOUR_BYTES_MAX: usize = 16 * 1_024;

// ---- demo --------------------------------------------------------------------------------------

/// Canaries of one demo: each is a process.
pub const DEMO_NODES_MAX: u64 = 50;

// ---- ping --------------------------------------------------------------------------------------

/// Targets of one ping: the largest supported Kubernetes cluster.
pub const PING_TARGETS_MAX: usize = 5_000;
/// The most probes per target that can be asked for.
pub const PING_COUNT_MAX: u64 = 1_000_000_000;
/// Round-trip times of a target that are kept as they are, 8 bytes each; beyond, they are counted in cells.
pub const PING_EXACT_RTTS: usize = 1_024;
/// Bytes of output that wait for a slow reader; with more than that no further probe is sent.
pub const PING_OUTPUT_BYTES_MAX: usize = 1 << 20;
/// Bytes written at a time: PIPE_BUF, which a pipe that is ready for writing takes without blocking (pipe(7)).
pub const PING_WRITE_BYTES: usize = 4_096;
/// How soon output that did not fit is tried again.
pub const PING_OUTPUT_RETRY: Duration = Duration::from_millis(10);
/// How long the end waits for a reader that takes nothing.
pub const PING_OUTPUT_TIME: Duration = Duration::from_millis(800);

// ---- allocators --------------------------------------------------------------------------------

/// jemalloc arenas that can be asked for at build time: its own default, four per processor, on 256 processors.
pub const NARENAS_MAX: u32 = 1_024;
/// How often glibc's books are compared before it is held not to be ours: they are the whole process's, and other
/// threads free memory meanwhile.
pub const MALLOC_TRIALS_MAX: u32 = 64;
/// Heap profiles that one run writes beside its last: each is a file.
pub const HEAP_PROFILES_MAX: u32 = 1_000;
/// Allocations that the leak finder follows at once, at 40 bytes of its own each, and 400 more with a call stack. An agent
/// has a thousand, a test's wire half a million. More are reported as such.
pub const LEAK_LIVE_MAX: usize = 1 << 20;
/// Frames that it keeps of a call stack. A debug build has some 20 of its own and of the standard library's before ours.
pub const LEAK_STACK_FRAMES: usize = 48;
/// Call sites that it names, the largest first.
pub const LEAK_LINES_MAX: usize = 40;

const _: () = assert!(PING_TARGETS_MAX <= PEER_SLOTS_MAX);
const _: () = assert!(ROWS_NODES_MAX < u16::MAX as usize, "a node has a number of 16 bits, and one is none");
const _: () = assert!(PAYLOAD_BYTES_MIN <= PAYLOAD_BYTES_MAX);
const _: () = assert!(HTTP_WORKERS_DEFAULT <= HTTP_WORKERS_MAX);
const _: () = assert!(3 + 16 + IDENTITY_REQUESTS_MAX + ROW_REQUESTS_MAX + 4 <= DESCRIPTORS_RESERVED);
const _: () = assert!(OWN_SEARCH_TIME.as_millis() >= 3 * READ_PAUSE_MIDDLE_MAX.as_millis());
const _: () = assert!(QUESTION_PAUSE.as_millis() < DOUBT_TIME.as_millis());
const _: () = assert!(DOUBT_TIME.as_millis() / 15 <= WITHHELD_MAX as u128);
const _: () = assert!(DRAIN_TIME.as_millis() < HTTP_SHUTDOWN_TIME.as_millis());
const _: () =
    assert!(PROBES_FINISH_TIME.as_millis() + HTTP_SHUTDOWN_TIME.as_millis() + ACCEPT_PAUSE.as_millis() < 1_000);
const _: () = assert!(3 * FRAME_BYTES <= SOCKET_SEND_BYTES, "a third of a send buffer takes a frame");
const _: () = assert!(GZIP_BYTES.is_multiple_of(4_096) && FRAME_BYTES < GZIP_BYTES);
const _: () = assert!(RECENT_HALF_PROBES as u64 + IN_FLIGHT_PER_PEER_MAX + 2 < u8::MAX as u64);
const _: () = assert!(HOUR_PEERS_MAX <= PEER_SLOTS_MAX);
const _: () =
    assert!(RECENT_HALF_MAX.as_nanos() * 2 == HOUR_STEP.as_nanos(), "two halves, the recent window, are a minute");
const _: () = assert!(INTERVAL_MIN.as_nanos() < INTERVAL_MAX.as_nanos());
const _: () =
    assert!(ROW_OBJECT_BYTES_MAX + 64 <= FRAME_BYTES, "an object of a row and what stands around it fit a frame");
const _: () = assert!(GATHERING_TIME.as_secs() + GATHERING_WAIT.as_secs() < RESPONSE_TIME.as_secs());
const _: () = assert!(FRAME_BYTES >= 2 * (NAME_BYTES_MAX * 4 + 512), "a sample with the longest labels fits a frame");
