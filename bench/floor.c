// The floor: the least cost of one probe a second to each of N targets, for bench/report.
//
// One ping socket, no heap, no threads, no runtime. The loop wakes once per tick, reads what has
// arrived, sends the probes that are due, and sleeps. It is the yardstick for CPU per probe. It
// also compares where a round-trip time may begin (-S):
//
//   batch        a user stamp before each sendmmsg of up to -B packets: one clock read, but the
//   last
//                packet of a batch includes the sending of all before it
//   single       a user stamp before each sendto: one system call per probe
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
// Usage: floor [-n TARGETS] [-s SECONDS] [-a FIRST_ADDRESS] [-T TICK_MS] [-B BATCH] [-S STAMP]
//              [-R kernel|user] [-l FILE]
//   -l FILE   at the end, a line "address sequence rtt_ns" per reply
// SIGTERM ends it early; it prints its line all the same.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
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
    BATCH_MAX = 256,
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

enum stamp { STAMP_BATCH, STAMP_SINGLE, STAMP_KERNEL, STAMP_KERNEL_DATA };

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
    uint32_t targets, seconds, first, tick_ms, batch;
    enum stamp stamp;
    bool receive_user;
    const char *log;
} arg = {.targets = 1000, .seconds = 10, .tick_ms = 10, .batch = 64, .stamp = STAMP_BATCH};

static struct target *targets;
static struct reply *replies;
static uint64_t replies_max;
static uint64_t sent, send_errors, received, lost, duplicates, unstamped, negative;
static int sock;
static volatile sig_atomic_t stopped;

// ---- round-trip times: a histogram whose buckets are 1/64 of a power of two wide ---------------

enum { STEPS = 64, STEP_BITS = 6 };
static uint32_t histogram[64 * STEPS];
static uint64_t rtt_max;

static void histogram_add(uint64_t ns) {
    unsigned bits = 63 - (unsigned)__builtin_clzll(ns | 1);
    unsigned index = bits < STEP_BITS ? (unsigned)ns : (bits - STEP_BITS + 1) * STEPS + ((ns >> (bits - STEP_BITS)) & (STEPS - 1));
    histogram[index]++;
    if (ns > rtt_max) rtt_max = ns;
}

static double histogram_quantile_us(double q) {
    uint64_t total = 0, below = 0;
    for (unsigned i = 0; i < 64 * STEPS; i++) total += histogram[i];
    for (unsigned i = 0; total && i < 64 * STEPS; i++) {
        below += histogram[i];
        if ((double)below < q * (double)total) continue;
        if (i < STEPS) return i / 1e3;
        return (double)((uint64_t)(STEPS + i % STEPS) << (i / STEPS - 1)) / 1e3;
    }
    return 0;
}

// ---- receiving ---------------------------------------------------------------------------------

static struct mmsghdr in[BATCH_MAX];
static struct iovec in_parts[BATCH_MAX];
static struct sockaddr_in in_from[BATCH_MAX];
static uint8_t in_bytes[BATCH_MAX][PACKET_BYTES];
static _Alignas(struct cmsghdr) uint8_t in_control[BATCH_MAX][CONTROL_BYTES];
static uint32_t id_ring[ID_RING];

static uint64_t clock_ns(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

static int receive(int flags) {
    for (uint32_t i = 0; i < arg.batch; i++) {
        in[i].msg_hdr = (struct msghdr){
            .msg_name = &in_from[i], .msg_namelen = sizeof in_from[i], .msg_iov = &in_parts[i], .msg_iovlen = 1,
            .msg_control = in_control[i], .msg_controllen = CONTROL_BYTES};
    }
    return recvmmsg(sock, in, arg.batch, flags | MSG_DONTWAIT, NULL);
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
        if (n < (int)arg.batch) return;
    }
}

static void read_replies(void) {
    // Stamps are read first: the stamp of a probe is always there before its reply.
    if (arg.stamp >= STAMP_KERNEL) read_transmit_stamps();
    for (;;) {
        int n = receive(0);
        uint64_t now = arg.receive_user ? clock_ns(CLOCK_REALTIME) : 0;
        for (int i = 0; i < n; i++) {
            struct probe p;
            if (in[i].msg_len != sizeof p) continue;
            memcpy(&p, in_bytes[i], sizeof p);
            if (p.icmp.type != ICMP_ECHOREPLY || p.magic != LABEL_MAGIC || p.target >= arg.targets) continue;
            struct target *t = &targets[p.target];
            if (t->address != in_from[i].sin_addr.s_addr || t->sequence != p.sequence) continue;
            if (!t->waiting) {
                duplicates++;
                continue;
            }
            t->waiting = false;
            uint64_t at = arg.receive_user ? now : kernel_stamp(&in[i].msg_hdr, NULL);
            uint64_t rtt = at - t->sent_at;
            if (!at || !t->sent_at) {
                unstamped++;
            } else if (at < t->sent_at) {
                negative++;
            } else {
                histogram_add(rtt);
                if (received < replies_max) replies[received] = (struct reply){p.target, p.sequence, rtt};
            }
            received++;
        }
        if (n < (int)arg.batch) return;
    }
}

// ---- sending -----------------------------------------------------------------------------------

static struct mmsghdr out[BATCH_MAX];
static struct iovec out_parts[BATCH_MAX];
static struct sockaddr_in out_to[BATCH_MAX];
static struct probe out_probes[BATCH_MAX];

// Sends to `count` targets from `first` on, as one batch.
static void send_batch(uint32_t first, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        struct target *t = &targets[first + i];
        if (t->waiting) lost++;
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
        int n;
        for (uint32_t i = done; arg.stamp == STAMP_KERNEL && i < count; i++) {
            id_ring[(sent + i - done) % ID_RING] = first + i;
        }
        if (arg.stamp == STAMP_SINGLE) {
            targets[first + done].sent_at = clock_ns(CLOCK_REALTIME);
            n = sendto(sock, &out_probes[done], PROBE_BYTES, MSG_DONTWAIT, &out_to[done], sizeof out_to[done]) < 0 ? -1 : 1;
        } else {
            n = sendmmsg(sock, out + done, count - done, MSG_DONTWAIT);
        }
        if (n <= 0) {  // the first that is left was refused
            send_errors++;
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
    } else if (!arg.receive_user) {
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
    for (uint32_t i = 0; i < arg.targets; i++) targets[i].address = htonl(arg.first + i);
    if (arg.log) {
        replies_max = (uint64_t)arg.targets * (arg.seconds + 2);
        replies = table(replies_max, sizeof *replies);
    }
    for (uint32_t i = 0; i < BATCH_MAX; i++) {
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
            if (count > arg.batch) count = arg.batch;
            if (count > arg.targets - first) count = arg.targets - first;
            send_batch(first, (uint32_t)count);
            handled += count;
        }
        sleep_until(start + (since / tick + 1) * tick);
    }
    sleep_until(clock_ns(CLOCK_MONOTONIC) + 300 * NS_PER_MS);
    read_replies();
    for (uint32_t i = 0; i < arg.targets; i++) lost += targets[i].waiting;
}

static void write_log(void) {
    FILE *file = fopen(arg.log, "w");
    if (!file) fail(arg.log);
    for (uint64_t i = 0; i < received && i < replies_max; i++) {
        if (!replies[i].sequence) continue;  // one without a stamp
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
    errno = 0;
    unsigned long value = strtoul(optarg, &end, 10);
    if (errno || *end || end == optarg || !value || value > max) {
        fprintf(stderr, "floor: -%c %s: a number from 1 to %" PRIu32 " is accepted\n", option, optarg, max);
        exit(2);
    }
    return (uint32_t)value;
}

static unsigned word(int option, const char *const *words) {
    for (unsigned i = 0; words[i]; i++) {
        if (!strcmp(words[i], optarg)) return i;
    }
    fprintf(stderr, "floor: -%c %s is none of:", option, optarg);
    for (unsigned i = 0; words[i]; i++) fprintf(stderr, " %s", words[i]);
    fputs("\n", stderr);
    exit(2);
}

static uint32_t address(void) {
    struct in_addr a;
    if (inet_pton(AF_INET, optarg, &a) != 1) {
        fprintf(stderr, "floor: -a %s: an IPv4 address is accepted\n", optarg);
        exit(2);
    }
    return ntohl(a.s_addr);
}

int main(int argc, char **argv) {
    static const char *const stamps[] = {"batch", "single", "kernel", "kernel-data", NULL};
    static const char *const sources[] = {"kernel", "user", NULL};
    arg.first = 0x0a420001;  // 10.66.0.1
    for (int o; (o = getopt(argc, argv, "n:s:a:T:B:S:R:l:")) != -1;) {
        switch (o) {
            case 'n': arg.targets = number(o, TARGETS_MAX); break;
            case 's': arg.seconds = number(o, SECONDS_MAX); break;
            case 'a': arg.first = address(); break;
            case 'T': arg.tick_ms = number(o, 1000); break;
            case 'B': arg.batch = number(o, BATCH_MAX); break;
            case 'S': arg.stamp = word(o, stamps); break;
            case 'R': arg.receive_user = word(o, sources); break;
            case 'l': arg.log = optarg; break;
            default: return 2;
        }
    }
    if (optind < argc) {
        fprintf(stderr, "floor: %s: nothing but options is accepted\n", argv[optind]);
        return 2;
    }
    prepare();
    open_socket();
    struct sigaction action = {.sa_handler = stop};
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    run();
    uint64_t cpu = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    printf("cpu_ns_per_probe=%" PRIu64 " sent=%" PRIu64 " received=%" PRIu64 " lost=%" PRIu64 " send_errors=%" PRIu64
           " duplicates=%" PRIu64 " unstamped=%" PRIu64 " negative=%" PRIu64
           " p50_us=%.2f p99_us=%.2f p999_us=%.2f max_us=%.2f\n",
           sent ? cpu / sent : 0, sent, received, lost, send_errors, duplicates, unstamped, negative,
           histogram_quantile_us(0.5), histogram_quantile_us(0.99), histogram_quantile_us(0.999), (double)rtt_max / 1e3);
    if (arg.log) write_log();
    return 0;
}
