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
// Usage: peers_tap -i INTERFACE -f FAR_NAMESPACE -l FILE
//   -f FILE   the network namespace of the far end, as in /proc/PID/ns/net; its interface has the
//             same name
//   -l FILE   at the end, a line "TYPE ADDRESS IDENTIFIER SEQUENCE NS" per packet: 8 is a request,
//             0 a reply; the address is that of the far end
// Prints "ready" once it listens, and the count of dropped packets at SIGTERM.
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
    PACKETS_MAX = 1 << 24,  // 10,000 a second for 28 minutes; later ones are counted as dropped
    BATCH = 256,
    SNAP_BYTES = 96,  // an IPv4 header with options and an ICMP header
    CONTROL_BYTES = 128,
    RECEIVE_BUFFER_BYTES = 256 << 20,
    LOOK_MS = 100,
};
static const uint64_t NS_PER_S = 1000000000;

struct seen {
    uint64_t at;  // ns of CLOCK_REALTIME
    uint32_t address;
    uint16_t identifier, sequence;
    uint8_t type;
};

static struct seen *packets;
static uint32_t packets_used;
static unsigned dropped;
static volatile sig_atomic_t stopped;

static void fail(const char *what) {
    fprintf(stderr, "peers_tap: %s: %s\n", what, strerror(errno));
    exit(1);
}

// One end of the pair, and its buffers.
struct end {
    bool far;
    int sock;
    struct mmsghdr messages[BATCH];
    struct iovec parts[BATCH];
    uint8_t bytes[BATCH][SNAP_BYTES];
    _Alignas(struct cmsghdr) uint8_t control[BATCH][CONTROL_BYTES];
};
static struct end near = {.far = false}, far = {.far = true};

static void packet(const struct end *end, const uint8_t *bytes, uint32_t length, uint64_t at) {
    struct iphdr ip;
    struct icmphdr icmp;
    if (length < sizeof ip) return;
    memcpy(&ip, bytes, sizeof ip);
    uint32_t header = ip.ihl * 4u;
    if (ip.protocol != IPPROTO_ICMP || length < header + sizeof icmp) return;
    memcpy(&icmp, bytes + header, sizeof icmp);
    if (icmp.type != (end->far ? ICMP_ECHO : ICMP_ECHOREPLY)) return;
    if (!at) return;
    if (packets_used == PACKETS_MAX) {
        dropped++;
        return;
    }
    packets[packets_used++] = (struct seen){
        at, end->far ? ip.daddr : ip.saddr, ntohs(icmp.un.echo.id), ntohs(icmp.un.echo.sequence), icmp.type};
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

static void report(const char *log) {
    FILE *file = fopen(log, "w");
    if (!file) fail(log);
    for (uint32_t i = 0; i < packets_used; i++) {
        const struct seen *it = &packets[i];
        struct in_addr address = {it->address};
        fprintf(file, "%u %s %u %u %" PRIu64 "\n", it->type, inet_ntoa(address), it->identifier, it->sequence, it->at);
    }
    if (fclose(file)) fail(log);
    for (int i = 0; i < 2; i++) {
        struct tpacket_stats kernel = {0};
        socklen_t size = sizeof kernel;
        if (getsockopt(i ? far.sock : near.sock, SOL_PACKET, PACKET_STATISTICS, &kernel, &size)) fail("PACKET_STATISTICS");
        dropped += kernel.tp_drops;
    }
    printf("dropped=%u\n", dropped);
}

static void stop(int signal) {
    (void)signal;
    stopped = 1;
}

int main(int argc, char **argv) {
    const char *interface = NULL, *far_namespace = NULL, *log = NULL;
    for (int o; (o = getopt(argc, argv, "i:f:l:")) != -1;) {
        switch (o) {
            case 'i': interface = optarg; break;
            case 'f': far_namespace = optarg; break;
            case 'l': log = optarg; break;
            default: return 2;
        }
    }
    if (!interface || !far_namespace || !log) {
        fputs("usage: peers_tap -i INTERFACE -f FAR_NAMESPACE -l FILE\n", stderr);
        return 2;
    }
    packets = mmap(NULL, sizeof *packets * PACKETS_MAX, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (packets == MAP_FAILED) fail("mmap");
    near.sock = open_tap(interface);
    int namespace = open(far_namespace, O_RDONLY | O_CLOEXEC);
    if (namespace < 0) fail(far_namespace);
    if (setns(namespace, CLONE_NEWNET)) fail("setns");
    far.sock = open_tap(interface);
    struct sigaction action = {.sa_handler = stop};
    sigaction(SIGTERM, &action, NULL);
    puts("ready");
    fflush(stdout);
    while (!stopped) {
        nanosleep(&(struct timespec){.tv_nsec = LOOK_MS * 1000000L}, NULL);
        drain(&far);
        drain(&near);
    }
    drain(&far);
    drain(&near);
    report(log);
    return 0;
}
