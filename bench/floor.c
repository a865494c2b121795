// The floor: the least cost of one probe a second to each of N targets, for bench/report.
//
// One ping socket, no heap, no threads, no runtime. The loop wakes once per tick, reads what has
// arrived, sends the probes that are due, and sleeps. It is the yardstick for CPU per probe. It
// also compares where a round-trip time may begin (-S):
//
//   batch        a user stamp before each sendmmsg of up to BATCH packets: one clock read, but the
//                last packet of a batch includes the sending of all before it
//   kernel       the kernel's transmit stamp, by SOF_TIMESTAMPING_OPT_ID and OPT_TSONLY: the error
//                queue returns a counter, which counts what the socket has sent
//   kernel-data  the kernel's transmit stamp together with the packet, whose label names the probe:
//                immune to a counter that is wrong after a failed send
//
// The traps: a stamp on the error queue occupies the receive buffer, as replies do. SO_TIMESTAMPING
// counts failed sends on some kernels and not on others. A returned packet begins with its
// link-layer header, so the label is found from the end. All stamps are of CLOCK_REALTIME, the
// kernel's choice: this program assumes that this clock is not set.
//
// Usage: floor [-n TARGETS] [-s SECONDS] [-T TICK_MS] [-S STAMP] [-l FILE]
//   -l FILE   at the end, a line "address sequence rtt_ns" per reply
// The targets are 10.66.0.1 and on. SIGTERM ends it early.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <inttypes.h>
#include <linux/icmp.h>
#include <netinet/in.h>
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

#include <linux/errqueue.h>  // needs struct timespec
#include <linux/net_tstamp.h>

enum {
    TARGETS_MAX = 60000,
    SECONDS_MAX = 86400,
    BATCH = 64,
    FIRST_ADDRESS = 0x0a420001,  // 10.66.0.1
    // 64 bytes of ICMP, as ping(8) sends: a header of 8 and 56 of payload.
    PROBE_BYTES = 64,
    // Ethernet with two VLAN tags, IPv4 with options, the probe: what kernel-data gives back at the
    // most.
    PACKET_BYTES = 22 + 60 + PROBE_BYTES,
    CONTROL_BYTES = 256,
    // The counter of OPT_ID finds its target here. Stamps are read every tick, long before this
    // many probes are sent.
    ID_RING = 1 << 16,
    NS_PER_MS = 1000000,
    RECEIVE_BUFFER_BYTES = 4 << 20,
    LABEL_MAGIC = 0x6b63666c,
};
static const uint64_t NS_PER_S = 1000000000;

enum stamp { STAMP_BATCH, STAMP_KERNEL, STAMP_KERNEL_DATA };

struct probe {
    struct icmphdr icmp;  // the kernel fills in id and checksum
    uint32_t magic, target, sequence;
    uint8_t padding[PROBE_BYTES - sizeof(struct icmphdr) - 12];
};
_Static_assert(sizeof(struct probe) == PROBE_BYTES, "no holes");

struct target {
    uint64_t sent_at;  // ns of CLOCK_REALTIME; 0: not stamped yet
    uint32_t address, sequence;
    bool waiting;
};

struct reply {  // a line of -l
    uint32_t target, sequence;
    uint64_t rtt;
};

static struct {
    uint32_t targets, seconds, tick_ms;
    enum stamp stamp;
    const char *log;
} arg = {.targets = 1000, .seconds = 10, .tick_ms = 10, .stamp = STAMP_BATCH};

static struct target *targets;
static struct reply *replies;
static uint64_t replies_max;
static uint64_t sent, logged;
static int sock;
static volatile sig_atomic_t stopped;

// ---- receiving ---------------------------------------------------------------------------------

static struct mmsghdr in[BATCH];
static struct iovec in_parts[BATCH];
static struct sockaddr_in in_from[BATCH];
static uint8_t in_bytes[BATCH][PACKET_BYTES];
static _Alignas(struct cmsghdr) uint8_t in_control[BATCH][CONTROL_BYTES];
static uint32_t id_ring[ID_RING];

static uint64_t clock_ns(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

static int receive(int flags) {
    for (uint32_t i = 0; i < BATCH; i++) {
        in[i].msg_hdr = (struct msghdr){
            .msg_name = &in_from[i], .msg_namelen = sizeof in_from[i], .msg_iov = &in_parts[i], .msg_iovlen = 1,
            .msg_control = in_control[i], .msg_controllen = CONTROL_BYTES};
    }
    return recvmmsg(sock, in, BATCH, flags | MSG_DONTWAIT, NULL);
}

// The kernel's stamp on a message, 0 if there is none, and its OPT_ID.
static uint64_t kernel_stamp(struct msghdr *message, uint32_t *id) {
    uint64_t at = 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c)) {
        if (c->cmsg_level == SOL_SOCKET && (c->cmsg_type == SCM_TIMESTAMPING || c->cmsg_type == SCM_TIMESTAMPNS)) {
            struct timespec t;  // the first of SCM_TIMESTAMPING's three is the software stamp
            memcpy(&t, CMSG_DATA(c), sizeof t);
            at = (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
        } else if (id && c->cmsg_level == SOL_IP && c->cmsg_type == IP_RECVERR) {
            struct sock_extended_err e;
            memcpy(&e, CMSG_DATA(c), sizeof e);
            if (e.ee_origin == SO_EE_ORIGIN_TIMESTAMPING) *id = e.ee_data;
        }
    }
    return at;
}

static void read_transmit_stamps(void) {
    for (;;) {
        int n = receive(MSG_ERRQUEUE);
        for (int i = 0; i < n; i++) {
            uint32_t id = 0;
            uint64_t at = kernel_stamp(&in[i].msg_hdr, &id);
            struct target *t;
            if (arg.stamp == STAMP_KERNEL) {
                t = &targets[id_ring[id % ID_RING]];
            } else {
                struct probe p;
                if (in[i].msg_len < sizeof p) continue;
                memcpy(&p, in_bytes[i] + in[i].msg_len - sizeof p, sizeof p);
                if (p.magic != LABEL_MAGIC || p.target >= arg.targets) continue;
                t = &targets[p.target];
                if (p.sequence != t->sequence) continue;
            }
            if (t->waiting && at) t->sent_at = at;
        }
        if (n < BATCH) return;
    }
}

static void read_replies(void) {
    // Stamps are read first: the stamp of a probe is always there before its reply.
    if (arg.stamp >= STAMP_KERNEL) read_transmit_stamps();
    for (;;) {
        int n = receive(0);
        for (int i = 0; i < n; i++) {
            struct probe p;
            if (in[i].msg_len != sizeof p) continue;
            memcpy(&p, in_bytes[i], sizeof p);
            if (p.icmp.type != ICMP_ECHOREPLY || p.magic != LABEL_MAGIC || p.target >= arg.targets) continue;
            struct target *t = &targets[p.target];
            if (t->address != in_from[i].sin_addr.s_addr || t->sequence != p.sequence) continue;
            if (!t->waiting) continue;
            t->waiting = false;
            uint64_t at = kernel_stamp(&in[i].msg_hdr, NULL);
            if (t->sent_at && at >= t->sent_at && logged < replies_max) {
                replies[logged++] = (struct reply){p.target, p.sequence, at - t->sent_at};
            }
        }
        if (n < BATCH) return;
    }
}

// ---- sending -----------------------------------------------------------------------------------

static struct mmsghdr out[BATCH];
static struct iovec out_parts[BATCH];
static struct sockaddr_in out_to[BATCH];
static struct probe out_probes[BATCH];

// Sends to `count` targets from `first` on, as one batch.
static void send_batch(uint32_t first, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        struct target *t = &targets[first + i];
        t->waiting = true;
        t->sequence++;
        t->sent_at = 0;
        out_probes[i].target = first + i;
        out_probes[i].sequence = t->sequence;
        out_probes[i].icmp.un.echo.sequence = htons((uint16_t)t->sequence);
        out_to[i].sin_addr.s_addr = t->address;
    }
    if (arg.stamp == STAMP_BATCH) {
        uint64_t now = clock_ns(CLOCK_REALTIME);
        for (uint32_t i = 0; i < count; i++) targets[first + i].sent_at = now;
    }
    for (uint32_t done = 0; done < count;) {
        for (uint32_t i = done; arg.stamp == STAMP_KERNEL && i < count; i++) {
            id_ring[(sent + i - done) % ID_RING] = first + i;
        }
        int n = sendmmsg(sock, out + done, count - done, MSG_DONTWAIT);
        if (n <= 0) {  // the first that is left was refused
            targets[first + done].waiting = false;
            done++;
            continue;
        }
        done += (uint32_t)n;
        sent += (uint64_t)n;
    }
}

// ---- set-up and the loop -----------------------------------------------------------------------

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static void open_socket(void) {
    sock = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, IPPROTO_ICMP);
    if (sock < 0) fail("floor: an ICMP socket (net.ipv4.ping_group_range)");
    int bytes = RECEIVE_BUFFER_BYTES;
    if (setsockopt(sock, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof bytes) &&
        setsockopt(sock, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes)) {
        fail("floor: SO_RCVBUF");
    }
    if (arg.stamp >= STAMP_KERNEL) {
        int flags = SOF_TIMESTAMPING_TX_SOFTWARE | SOF_TIMESTAMPING_RX_SOFTWARE | SOF_TIMESTAMPING_SOFTWARE;
        if (arg.stamp == STAMP_KERNEL) flags |= SOF_TIMESTAMPING_OPT_ID | SOF_TIMESTAMPING_OPT_TSONLY;
        if (setsockopt(sock, SOL_SOCKET, SO_TIMESTAMPING, &flags, sizeof flags)) fail("floor: SO_TIMESTAMPING");
    } else {
        int on = 1;
        if (setsockopt(sock, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on)) fail("floor: SO_TIMESTAMPNS");
    }
}

static void *table(size_t entries, size_t bytes) {
    void *p = mmap(NULL, entries * bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) fail("floor: mmap");
    return p;
}

static void prepare(void) {
    targets = table(arg.targets, sizeof *targets);
    for (uint32_t i = 0; i < arg.targets; i++) targets[i].address = htonl(FIRST_ADDRESS + i);
    if (arg.log) {
        replies_max = (uint64_t)arg.targets * (arg.seconds + 2);
        replies = table(replies_max, sizeof *replies);
    }
    for (uint32_t i = 0; i < BATCH; i++) {
        out_probes[i] = (struct probe){.icmp.type = ICMP_ECHO, .magic = LABEL_MAGIC};
        out_parts[i] = (struct iovec){&out_probes[i], PROBE_BYTES};
        out_to[i].sin_family = AF_INET;
        out[i].msg_hdr = (struct msghdr){
            .msg_name = &out_to[i], .msg_namelen = sizeof out_to[i], .msg_iov = &out_parts[i], .msg_iovlen = 1};
        in_parts[i] = (struct iovec){in_bytes[i], PACKET_BYTES};
    }
}

static void sleep_until(uint64_t ns) {
    struct timespec t = {(time_t)(ns / NS_PER_S), (long)(ns % NS_PER_S)};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
}

static void run(void) {
    const uint64_t start = clock_ns(CLOCK_MONOTONIC), tick = (uint64_t)arg.tick_ms * NS_PER_MS;
    uint64_t handled = 0;  // probes that have fallen due and were sent, or dropped with a backlog
    for (;;) {
        uint64_t since = clock_ns(CLOCK_MONOTONIC) - start;
        if (stopped || since >= arg.seconds * NS_PER_S) break;
        read_replies();
        uint64_t due = since * arg.targets / NS_PER_S;  // fits: 86,400e9 × 60,000 < 2^63
        // After a stall, probes that are more than a second late are skipped, not sent in a burst.
        if (due > handled + arg.targets) handled = due - arg.targets;
        while (handled < due) {
            uint32_t first = (uint32_t)(handled % arg.targets);
            uint64_t count = due - handled;
            if (count > BATCH) count = BATCH;
            if (count > arg.targets - first) count = arg.targets - first;
            send_batch(first, (uint32_t)count);
            handled += count;
        }
        sleep_until(start + (since / tick + 1) * tick);
    }
    sleep_until(clock_ns(CLOCK_MONOTONIC) + 300 * NS_PER_MS);
    read_replies();
}

static void write_log(void) {
    FILE *file = fopen(arg.log, "w");
    if (!file) fail(arg.log);
    for (uint64_t i = 0; i < logged; i++) {
        struct in_addr address = {targets[replies[i].target].address};
        fprintf(file, "%s %" PRIu32 " %" PRIu64 "\n", inet_ntoa(address), replies[i].sequence, replies[i].rtt);
    }
    if (fclose(file)) fail(arg.log);
}

static void stop(int signal) {
    (void)signal;
    stopped = 1;
}

static uint32_t number(int option, uint32_t max) {
    char *end;
    unsigned long value = strtoul(optarg, &end, 10);
    if (*end || !value || value > max) {
        fprintf(stderr, "floor: -%c %s: a number from 1 to %" PRIu32 " is accepted\n", option, optarg, max);
        exit(2);
    }
    return (uint32_t)value;
}

static enum stamp stamp(void) {
    static const char *const names[] = {"batch", "kernel", "kernel-data"};
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
        if (!strcmp(names[i], optarg)) return (enum stamp)i;
    }
    fprintf(stderr, "floor: -S %s: batch, kernel and kernel-data are accepted\n", optarg);
    exit(2);
}

int main(int argc, char **argv) {
    for (int o; (o = getopt(argc, argv, "n:s:T:S:l:")) != -1;) {
        switch (o) {
            case 'n': arg.targets = number(o, TARGETS_MAX); break;
            case 's': arg.seconds = number(o, SECONDS_MAX); break;
            case 'T': arg.tick_ms = number(o, 1000); break;
            case 'S': arg.stamp = stamp(); break;
            case 'l': arg.log = optarg; break;
            default: return 2;
        }
    }
    prepare();
    open_socket();
    struct sigaction action = {.sa_handler = stop};
    sigaction(SIGTERM, &action, NULL);
    run();
    if (arg.log) write_log();
    return 0;
}
