/*
 * Scrapes that are under way all at once: scrape PORT PATH CONNECTIONS SECONDS PREFIX
 *
 * Connects all of them to 127.0.0.1, sends all requests, and then reads all answers in turns, some 32 KB at a time. An answer counts if it is a
 * 200 and its body came whole, by its length or its last chunk. Prints one line:
 *
 *   scrapes=48 bytes=1234567 answered=200 milliseconds=815
 *
 * with the bytes of the shortest body, and how many lines of the first body begin with PREFIX and do not end in " 0". Exit
 * code 1 if any scrape did not end well within SECONDS; standard error says which and why. No allocation, no thread, so
 * that it costs the small machine that it runs in next to nothing.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { CONNECTIONS_MAX = 64, HEAD_MAX = 4096, LINE_MAX_BYTES = 1024, READ_LOW = 32 * 1024 };
enum state { HEAD, LENGTH, CHUNK_SIZE, CHUNK, CHUNK_END, TRAILER, DONE };

struct answer {
    int socket;
    enum state state;
    unsigned long long left; /* bytes of the body, or of its chunk, that are still to come */
    unsigned long long bytes;
    size_t used;
    char head[HEAD_MAX]; /* also the line of a chunk's size, and of the trailer */
};

static struct answer answers[CONNECTIONS_MAX];
static struct epoll_event events[CONNECTIONS_MAX];
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

/* Lines of the first body; of one that is too long the end is not seen, and it does not count. */
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

/* Adds one byte to the head or the line that is being read; whether it ends with `end`. */
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
            if (index == 0) count(bytes, part);
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

int main(int argc, char **argv) {
    if (argc != 6) {
        fputs("usage: scrape PORT PATH CONNECTIONS SECONDS PREFIX\n", stderr);
        return 2;
    }
    struct sockaddr_in server = {.sin_family = AF_INET, .sin_port = htons((uint16_t)number(argv[1], 65535))};
    server.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int connections = (int)number(argv[3], CONNECTIONS_MAX);
    long long start = now_ms(), deadline = start + 1000LL * number(argv[4], 3600);
    prefix = argv[5];
    static char request[512];
    int length = snprintf(request, sizeof request, "GET %s HTTP/1.1\r\nHost: canary\r\nConnection: close\r\n\r\n", argv[2]);
    if (length < 0 || (size_t)length >= sizeof request) fail(0, "the path is too long");

    int poll = epoll_create1(EPOLL_CLOEXEC);
    if (poll < 0) fail(0, strerror(errno));
    for (int i = 0; i < connections; i++) {
        int fd = answers[i].socket = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        struct epoll_event event = {.events = EPOLLIN, .data.u32 = (uint32_t)i};
        if (fd < 0 || connect(fd, (struct sockaddr *)&server, sizeof server) || epoll_ctl(poll, EPOLL_CTL_ADD, fd, &event)) {
            fail(i, strerror(errno));
        }
    }
    for (int i = 0; i < connections; i++) {
        if (send(answers[i].socket, request, (size_t)length, MSG_NOSIGNAL) != length) fail(i, strerror(errno));
    }
    /* Without it the reader is woken for every frame of 6 KB, which in the emulator costs more than all the rest. */
    for (int i = 0; i < connections; i++) {
        int low = READ_LOW;
        if (setsockopt(answers[i].socket, SOL_SOCKET, SO_RCVLOWAT, &low, sizeof low)) fail(i, strerror(errno));
    }
    for (int open = connections; open;) {
        long long left = deadline - now_ms();
        if (left <= 0) {
            for (int i = 0; i < connections; i++) {
                if (answers[i].socket >= 0) fail(i, "not whole in time");
            }
        }
        int ready = epoll_wait(poll, events, CONNECTIONS_MAX, (int)left);
        if (ready < 0 && errno != EINTR) fail(0, strerror(errno));
        for (int n = 0; n < ready; n++) {
            int i = (int)events[n].data.u32;
            ssize_t got = recv(answers[i].socket, buffer, sizeof buffer, MSG_DONTWAIT);
            if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
            if (got < 0) fail(i, strerror(errno));
            if (got == 0 && answers[i].state != DONE) fail(i, "ended before it was whole");
            take(i, &answers[i], buffer, (size_t)got);
            if (got == 0) {
                close(answers[i].socket); /* which takes it off the list as well */
                answers[i].socket = -1;
                open--;
            }
        }
    }
    unsigned long long shortest = answers[0].bytes;
    for (int i = 1; i < connections; i++) {
        if (answers[i].bytes < shortest) shortest = answers[i].bytes;
    }
    printf("scrapes=%d bytes=%llu answered=%u milliseconds=%lld\n", connections, shortest, answered, now_ms() - start);
    return 0;
}
