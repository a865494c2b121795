// The packets on the wire, for bench/report: every echo request of a veth pair beside its reply, by
// the kernel's stamps.
//
// Two packet sockets, one at each end, see what arrives: a request as it reaches the far end, its
// reply as it comes back. The stamps of both are the kernel's, by one clock. So neither this
// program's lag nor the prober's is in their difference. Outgoing packets are not captured. The
// copy that a tap takes of them lies between their stamp and the wire, and measured 4 to 6 µs of
// round-trip time that no prober can see.
//
// The program reads the sockets every 100 ms only, so as not to take CPU from the measured
// processes. A large buffer holds the packets between two reads, and packets that do not fit are
// counted (dropped=). The copies are still made in the sender's time, so CPU time is measured
// without the tap.
//
// Usage: peers_tap -i INTERFACE -f FAR_NAMESPACE [-s SECONDS] [-l FILE]
//   -f FILE   the network namespace of the far end, as in /proc/PID/ns/net; its interface has the
//             same name
//   -l FILE   at the end, a line "address identifier sequence rtt_ns" per answered request
// Prints "ready" once it listens, and one line of totals at SIGTERM or after -s seconds.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/filter.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <netinet/ip.h>
#include <netinet/ip_icmp.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    SECONDS_MAX = 3600,
    REQUESTS_MAX = 1 << 23,  // 5,000 a second for 28 minutes; later ones are counted as overflow
    SLOTS = 1 << 24,         // of the hash table: at most half full
    BATCH = 256,
    SNAP_BYTES = 96,  // an IPv4 header with options and an ICMP header
    CONTROL_BYTES = 128,
    RECEIVE_BUFFER_BYTES = 256 << 20,
    LOOK_MS = 100,
};
static const uint64_t NS_PER_S = 1000000000;

struct request {
    uint64_t at;   // ns of CLOCK_REALTIME
    uint64_t rtt;  // 0: not answered
    uint32_t address;
    uint16_t identifier, sequence;
};

static struct request *requests;
static uint32_t *slots;  // one more than an index into requests; 0: free
static uint32_t requests_used;
static uint64_t replies, unmatched, repeated, reused, overflow, unstamped;
static volatile sig_atomic_t stopped;

static void fail(const char *what) {
    fprintf(stderr, "peers_tap: %s: %s\n", what, strerror(errno));
    exit(1);
}

// The slot of the newest request with this key, or the free one where it belongs.
static uint32_t *find(uint32_t address, uint16_t identifier, uint16_t sequence) {
    uint64_t key = (uint64_t)address << 32 | (uint32_t)identifier << 16 | sequence;
    uint32_t slot = (uint32_t)((key * 0x9e3779b97f4a7c15u) >> 40);
    for (;; slot++) {
        uint32_t *entry = &slots[slot % SLOTS];
        if (!*entry) return entry;
        const struct request *r = &requests[*entry - 1];
        if (r->address == address && r->identifier == identifier && r->sequence == sequence) return entry;
    }
}

// One end of the pair, and its buffers: the near one's are in use while the far one's are drained.
struct end {
    bool far;
    int sock;
    struct mmsghdr messages[BATCH];
    struct iovec parts[BATCH];
    uint8_t bytes[BATCH][SNAP_BYTES];
    _Alignas(struct cmsghdr) uint8_t control[BATCH][CONTROL_BYTES];
};
static struct end near = {.far = false}, far = {.far = true};

static void drain(struct end *end);

static void request(uint64_t at, uint32_t address, const struct icmphdr *icmp) {
    if (requests_used == REQUESTS_MAX) {
        overflow++;
        return;
    }
    uint32_t *entry = find(address, icmp->un.echo.id, icmp->un.echo.sequence);
    reused += *entry != 0;
    requests[requests_used++] = (struct request){
        .at = at, .address = address, .identifier = icmp->un.echo.id, .sequence = icmp->un.echo.sequence};
    *entry = requests_used;
}

static void reply(uint64_t at, uint32_t address, const struct icmphdr *icmp) {
    uint32_t *entry = find(address, icmp->un.echo.id, icmp->un.echo.sequence);
    if (!*entry) {
        drain(&far);  // its request came since the last look at that end
        entry = find(address, icmp->un.echo.id, icmp->un.echo.sequence);
    }
    if (!*entry) {
        unmatched++;
        return;
    }
    struct request *r = &requests[*entry - 1];
    replies++;
    if (r->rtt) repeated++;
    else r->rtt = at > r->at ? at - r->at : 1;
}

static void packet(const struct end *end, const uint8_t *bytes, uint32_t length, uint64_t at) {
    struct iphdr ip;
    struct icmphdr icmp;
    if (length < sizeof ip) return;
    memcpy(&ip, bytes, sizeof ip);
    uint32_t header = ip.ihl * 4u;
    if (ip.protocol != IPPROTO_ICMP || length < header + sizeof icmp) return;
    memcpy(&icmp, bytes + header, sizeof icmp);
    if (icmp.type != (end->far ? ICMP_ECHO : ICMP_ECHOREPLY)) return;
    if (!at) unstamped++;
    else if (end->far) request(at, ip.daddr, &icmp);
    else reply(at, ip.saddr, &icmp);
}

static void drain(struct end *end) {
    for (;;) {
        for (int i = 0; i < BATCH; i++) {
            end->parts[i] = (struct iovec){end->bytes[i], SNAP_BYTES};
            end->messages[i].msg_hdr = (struct msghdr){.msg_iov = &end->parts[i], .msg_iovlen = 1,
                                                       .msg_control = end->control[i], .msg_controllen = CONTROL_BYTES};
        }
        int n = recvmmsg(end->sock, end->messages, BATCH, MSG_DONTWAIT, NULL);
        for (int i = 0; i < n; i++) {
            struct msghdr *m = &end->messages[i].msg_hdr;
            uint64_t at = 0;
            for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
                if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_TIMESTAMPNS) continue;
                struct timespec t;
                memcpy(&t, CMSG_DATA(c), sizeof t);
                at = (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
            }
            packet(end, end->bytes[i], end->messages[i].msg_len, at);
        }
        if (n < BATCH) return;
    }
}

static int open_tap(const char *interface) {
    // Bound to no protocol at first: no packet arrives before the filter is set.
    int sock = socket(AF_PACKET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (sock < 0) fail("a packet socket");
    struct sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 9),  // the protocol of the IPv4 header
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, IPPROTO_ICMP, 0, 4),
        BPF_STMT(BPF_LDX | BPF_B | BPF_MSH, 0),
        BPF_STMT(BPF_LD | BPF_B | BPF_IND, 0),                // the ICMP type
        BPF_STMT(BPF_ALU | BPF_AND | BPF_K, (uint8_t)~ICMP_ECHO),  // 0 for a request (8) and for a reply (0)
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, 0),
        BPF_STMT(BPF_RET | BPF_K, SNAP_BYTES),
    };
    struct sock_fprog filter = {sizeof program / sizeof *program, program};
    int on = 1, bytes = RECEIVE_BUFFER_BYTES;
    if (setsockopt(sock, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter)) fail("SO_ATTACH_FILTER");
    if (setsockopt(sock, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on)) fail("SO_TIMESTAMPNS");
    if (setsockopt(sock, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof bytes)) fail("SO_RCVBUFFORCE");
    struct sockaddr_ll to = {.sll_family = AF_PACKET,
                             .sll_protocol = htons(ETH_P_IP),  // what goes out would come only to ETH_P_ALL
                             .sll_ifindex = (int)if_nametoindex(interface)};
    if (!to.sll_ifindex) fail(interface);
    if (bind(sock, (struct sockaddr *)&to, sizeof to)) fail("bind");
    return sock;
}

static int ascending(const void *a, const void *b) {
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return (left > right) - (left < right);
}

static void *table(size_t bytes) {
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) fail("mmap");
    return p;
}

static void report(const char *log) {
    FILE *file = log ? fopen(log, "w") : NULL;
    if (log && !file) fail(log);
    uint64_t *rtts = table(sizeof *rtts * ((size_t)requests_used + 1)), answered = 0;
    for (uint32_t i = 0; i < requests_used; i++) {
        const struct request *r = &requests[i];
        if (!r->rtt) continue;
        rtts[answered++] = r->rtt;
        struct in_addr address = {r->address};
        if (file) {
            fprintf(file, "%s %u %u %" PRIu64 "\n", inet_ntoa(address), ntohs(r->identifier), ntohs(r->sequence), r->rtt);
        }
    }
    if (file && fclose(file)) fail(log);
    qsort(rtts, answered, sizeof *rtts, ascending);
    unsigned dropped = 0;
    for (int i = 0; i < 2; i++) {
        struct tpacket_stats kernel = {0};
        socklen_t size = sizeof kernel;
        if (getsockopt(i ? far.sock : near.sock, SOL_PACKET, PACKET_STATISTICS, &kernel, &size)) fail("PACKET_STATISTICS");
        dropped += kernel.tp_drops;
    }
    double q[3] = {0.5, 0.99, 0.999};
    printf("requests=%u answered=%" PRIu64 " replies=%" PRIu64 " repeated=%" PRIu64 " unmatched=%" PRIu64 " reused=%" PRIu64
           " unstamped=%" PRIu64 " overflow=%" PRIu64 " dropped=%u", requests_used, answered, replies, repeated, unmatched,
           reused, unstamped, overflow, dropped);
    const char *names[3] = {"p50_us", "p99_us", "p999_us"};
    for (int i = 0; i < 3; i++) {
        printf(" %s=%.2f", names[i], answered ? (double)rtts[(uint64_t)(q[i] * (double)(answered - 1))] / 1e3 : 0.0);
    }
    printf(" max_us=%.2f\n", answered ? (double)rtts[answered - 1] / 1e3 : 0.0);
}

static void stop(int signal) {
    (void)signal;
    stopped = 1;
}

int main(int argc, char **argv) {
    const char *interface = NULL, *far_namespace = NULL, *log = NULL;
    long seconds = SECONDS_MAX;
    for (int o; (o = getopt(argc, argv, "i:f:s:l:")) != -1;) {
        switch (o) {
            case 'i': interface = optarg; break;
            case 'f': far_namespace = optarg; break;
            case 'l': log = optarg; break;
            case 's': {
                char *end;
                seconds = strtol(optarg, &end, 10);
                if (*end || end == optarg || seconds < 1 || seconds > SECONDS_MAX) {
                    fprintf(stderr, "peers_tap: -s %s: a number from 1 to %d is accepted\n", optarg, SECONDS_MAX);
                    return 2;
                }
                break;
            }
            default: return 2;
        }
    }
    if (!interface || !far_namespace || optind < argc) {
        fputs("usage: peers_tap -i INTERFACE -f FAR_NAMESPACE [-s SECONDS] [-l FILE]\n", stderr);
        return 2;
    }
    requests = table(sizeof *requests * REQUESTS_MAX);
    slots = table(sizeof *slots * SLOTS);
    near.sock = open_tap(interface);
    int namespace = open(far_namespace, O_RDONLY | O_CLOEXEC);
    if (namespace < 0) fail(far_namespace);
    if (setns(namespace, CLONE_NEWNET)) fail("setns");
    far.sock = open_tap(interface);
    struct sigaction action = {.sa_handler = stop};
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    puts("ready");
    fflush(stdout);
    for (long looks = seconds * 1000 / LOOK_MS; looks > 0 && !stopped; looks--) {
        nanosleep(&(struct timespec){.tv_nsec = LOOK_MS * 1000000L}, NULL);
        drain(&far);
        drain(&near);
    }
    drain(&far);
    drain(&near);
    report(log);
    return 0;
}
