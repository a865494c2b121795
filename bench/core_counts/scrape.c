/*
 * Scrapes of one agent, in a fixed order: scrape PORT PATH HELD COMPRESSED WHOLE SECONDS PREFIX
 *
 * First HELD requests at once. Their answers are not read until none of them grows: each is
 * then in progress, and blocked by its reader. So the peak does not depend on which thread ran when.
 * Then all of them are closed, as by scrapers after their timeout.
 *
 * Then COMPRESSED requests at once, of clients that accept gzip, in the same way.
 *
 * Then WHOLE answers, one after another, each read to its end. The agent cuts a response off after
 * 30 s. One answer at a time is far below that on any computer; all of them together were not.
 *
 * An answer counts if it is a 200 and its body came whole, by its length or its last chunk. Prints
 * one line:
 *
 *   held=60 fewest=123456 compressed=48 whole=16 bytes=1234567 answered=200 milliseconds=815
 *
 * with the fewest bytes that had come of a held answer, the bytes of the shortest body, and how
 * many lines of the last body begin with PREFIX and do not end in " 0". Exit code 1 if anything
 * did not end well within SECONDS, which only end what hangs; standard error says which and why. No
 * allocation, no thread, so that it costs the small machine that it runs in next to nothing.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { CONNECTIONS_MAX = 64, HEAD_MAX = 4096, LINE_MAX_BYTES = 1024, READ_LOW = 32 * 1024 };
/* Polls are counted, not time: a stopped computer costs one poll, and the agent runs before the
 * next. */
enum { LOOK_MS = 50, STILL_LOOKS = 20 };
enum state { HEAD, LENGTH, CHUNK_SIZE, CHUNK, CHUNK_END, TRAILER, DONE };

struct answer {
    enum state state;
    unsigned long long left; /* bytes of the body, or of its chunk, that are still to come */
    unsigned long long bytes;
    size_t used;
    char head[HEAD_MAX]; /* also the line of a chunk's size, and of the trailer */
};

static int held[CONNECTIONS_MAX];
static struct sockaddr_in server = {.sin_family = AF_INET};
static char request[512];
static size_t request_length;
static long long deadline;
static int last; /* of the answers that are read to their end: by then every peer has had the most time */
static char buffer[64 * 1024];
static const char *prefix;
static char line[LINE_MAX_BYTES];
static size_t line_used;
static unsigned answered;

static void fail(int index, const char *what) {
    fprintf(stderr, "scrape %d: %s\n", index, what);
    exit(1);
}

static long long now_ms(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000LL + time.tv_nsec / 1000000;
}

/* Counts lines of the last body. A line that is too long does not count: its end is not seen. */
static void count(const char *bytes, size_t length) {
    for (size_t i = 0; i < length; i++) {
        if (bytes[i] != '\n') {
            if (line_used < sizeof line) line[line_used] = bytes[i];
            line_used++;
            continue;
        }
        size_t wanted = strlen(prefix);
        if (line_used <= sizeof line && line_used > wanted + 2 && !memcmp(line, prefix, wanted) &&
            memcmp(line + line_used - 2, " 0", 2)) {
            answered++;
        }
        line_used = 0;
    }
}

static void head(int index, struct answer *answer) {
    if (strncmp(answer->head, "HTTP/1.1 200 ", 13)) fail(index, "not a 200");
    answer->state = DONE;
    for (char *field = strstr(answer->head, "\r\n"); field; field = strstr(field + 2, "\r\n")) {
        if (!strncasecmp(field + 2, "transfer-encoding: chunked\r\n", 28)) answer->state = CHUNK_SIZE;
        if (!strncasecmp(field + 2, "content-length: ", 16)) {
            answer->left = strtoull(field + 18, NULL, 10);
            if (answer->left) answer->state = LENGTH;
        }
    }
    if (answer->state == DONE) fail(index, "a body of no known length, or an empty one");
}

/* Adds one byte to the head or line that is being read. Returns whether it ends with `end`. */
static int until(int index, struct answer *answer, char byte, const char *end) {
    if (answer->used + 1 >= sizeof answer->head) fail(index, "a head or a chunk's head is too long");
    answer->head[answer->used++] = byte;
    answer->head[answer->used] = 0;
    size_t length = strlen(end);
    return answer->used >= length && !memcmp(answer->head + answer->used - length, end, length);
}

static void take(int index, struct answer *answer, const char *bytes, size_t length) {
    while (length) {
        if (answer->state == LENGTH || answer->state == CHUNK) {
            size_t part = length < answer->left ? length : (size_t)answer->left;
            if (index == last) count(bytes, part);
            answer->bytes += part;
            answer->left -= part;
            bytes += part;
            length -= part;
            if (!answer->left) answer->state = answer->state == LENGTH ? DONE : CHUNK_END;
            continue;
        }
        char byte = *bytes++;
        length--;
        switch (answer->state) {
        case HEAD:
            if (!until(index, answer, byte, "\r\n\r\n")) continue;
            head(index, answer);
            break;
        case CHUNK_SIZE: {
            if (!until(index, answer, byte, "\r\n")) continue;
            char *end;
            errno = 0;
            answer->left = strtoull(answer->head, &end, 16);
            if (end == answer->head || errno) fail(index, "a chunk without a size");
            answer->state = answer->left ? CHUNK : TRAILER;
            break;
        }
        case CHUNK_END:
            if (!until(index, answer, byte, "\r\n")) continue;
            if (answer->used != 2) fail(index, "a chunk longer than its size");
            answer->state = CHUNK_SIZE;
            break;
        case TRAILER:
            if (!until(index, answer, byte, "\r\n")) continue;
            if (answer->used == 2) answer->state = DONE;
            break;
        default:
            fail(index, "bytes after the end");
        }
        answer->used = 0;
    }
}

static long number(const char *text, long highest) {
    char *end;
    long value = strtol(text, &end, 10);
    if (*end || value < 1 || value > highest) {
        fprintf(stderr, "scrape: %s: a number from 1 to %ld is accepted\n", text, highest);
        exit(2);
    }
    return value;
}

/* The request that asked() sends, with one more header or none. */
static void prepare(const char *path, const char *header) {
    const char *form = "GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n%s\r\n";
    int length = snprintf(request, sizeof request, form, path, header);
    if (length < 0 || (size_t)length >= sizeof request) fail(0, "the path is too long");
    request_length = (size_t)length;
}

/* A connection with a request at once: the agent closes one that has none for 5 s. */
static int asked(int index) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&server, sizeof server)) {
        fail(index, strerror(errno));
    }
    ssize_t sent = send(fd, request, request_length, MSG_NOSIGNAL);
    if (sent != (ssize_t)request_length) fail(index, strerror(errno));
    return fd;
}

/* The fewest bytes that have come of an answer when none of them grows any more. */
static int hold(int connections, const char *path, const char *header) {
    int sent[CONNECTIONS_MAX] = {0}, fewest = 0;
    prepare(path, header);
    for (int i = 0; i < connections; i++) held[i] = asked(i);
    for (int still = 0; still < STILL_LOOKS; still++) {
        nanosleep(&(struct timespec){.tv_nsec = LOOK_MS * 1000000L}, NULL);
        for (int i = 0; i < connections; i++) {
            int now;
            if (ioctl(held[i], FIONREAD, &now)) fail(i, strerror(errno));
            if (!now || now != sent[i]) still = -1;
            if (still < 0 && now_ms() > deadline) {
                fail(i, now ? "held, it still grows" : "held, without an answer");
            }
            sent[i] = now;
            if (i == 0 || now < fewest) fewest = now;
        }
    }
    for (int i = 0; i < connections; i++) close(held[i]);
    return fewest;
}

/* The bytes of a body that is read to its end. */
static unsigned long long whole(int index) {
    static struct answer answer;
    memset(&answer, 0, sizeof answer);
    int fd = asked(index), low = READ_LOW;
    /* Without it, every frame of 6 KB wakes the reader, which in the emulator costs more than
     * everything else. */
    if (setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &low, sizeof low)) fail(index, strerror(errno));
    long long begun = now_ms();
    for (;;) {
        struct pollfd readable = {.fd = fd, .events = POLLIN};
        long long left = deadline - now_ms();
        int ready = left > 0 ? poll(&readable, 1, (int)left) : 0;
        if (ready < 0 && errno == EINTR) continue;
        if (ready < 0) fail(index, strerror(errno));
        if (ready == 0) fail(index, "not whole in time");
        ssize_t got = recv(fd, buffer, sizeof buffer, MSG_DONTWAIT);
        if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
        if (got < 0) fail(index, strerror(errno));
        if (got == 0) break;
        take(index, &answer, buffer, (size_t)got);
    }
    if (answer.state != DONE) {
        fprintf(stderr, "after %llu bytes and %lld ms, ", answer.bytes, now_ms() - begun);
        fail(index, "ended before it was whole");
    }
    close(fd);
    return answer.bytes;
}

int main(int argc, char **argv) {
    if (argc != 8) {
        fputs("usage: scrape PORT PATH HELD COMPRESSED WHOLE SECONDS PREFIX\n", stderr);
        return 2;
    }
    server.sin_port = htons((uint16_t)number(argv[1], 65535));
    server.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int plain = (int)number(argv[3], CONNECTIONS_MAX), compressed = (int)number(argv[4], CONNECTIONS_MAX);
    int answers = (int)number(argv[5], 1000);
    long long start = now_ms();
    deadline = start + 1000LL * number(argv[6], 3600);
    prefix = argv[7];

    int fewest = hold(plain, argv[2], "");
    hold(compressed, argv[2], "Accept-Encoding: gzip\r\n");
    prepare(argv[2], "");
    last = answers - 1;
    unsigned long long shortest = whole(0);
    for (int i = 1; i < answers; i++) {
        unsigned long long bytes = whole(i);
        if (bytes < shortest) shortest = bytes;
    }
    printf("held=%d fewest=%d compressed=%d whole=%d ", plain, fewest, compressed, answers);
    printf("bytes=%llu answered=%u milliseconds=%lld\n", shortest, answered, now_ms() - start);
    return 0;
}
