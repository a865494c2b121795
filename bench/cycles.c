// The memory that a malloc keeps, with cycles from several threads. A cycle grows to a limit by
// blocks of random sizes, and frees them at random down to a sixteenth. After each phase the
// program prints the resident set. bench/cycles links it with each malloc.
//
// A block is filled when it is made and compared when it is freed. Its content follows from its
// address and size, so blocks that overlap, move or are freed too early are found. Sizes are
// skewed: of the classes 16, 32, 64 … the smaller of two that are drawn evenly, and evenly within
// the class. While growing, each thread fills a table of its own. While shrinking, in three cycles
// of four, it frees from another thread's table. Memory that one thread allocates and another frees
// is hard for caches and arenas per thread. The sequence of sizes and of freed blocks follows from
// the number of the thread.
//
// The traps: tables are mapped, not allocated. Their resident part is reported separately
// (table_kb), or it would count as the malloc's. Nothing here allocates but the blocks, and stdio
// is not used either.
//
// Usage: cycles THREADS LIMIT_BYTES LARGEST_BLOCK_BYTES CYCLES [damaged]
//   damaged   damages a block, to show that it is found: exit code 3 is right then
// There is a line per phase: grown and shrunk of each cycle, and then emptied.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    THREADS_MAX = 16,
    CYCLES_MAX = 1000,
    BLOCK_BYTES_MIN = 16,
    BLOCK_BYTES_MAX = 1 << 20,
    // What is left of the limit after shrinking.
    SHRINK_DIVISOR = 16,
    // The mean of the skewed sizes is well above it, so a table of this many blocks never fills.
    // That is checked.
    MEAN_BLOCK_BYTES_MIN = 128,
    EXIT_DAMAGED = 3,
};
static const uint64_t LIMIT_BYTES_MAX = UINT64_C(1) << 34;

struct block {
    unsigned char *bytes;
    size_t size;
};

struct table {
    struct block *blocks;
    size_t capacity, count, count_max;
    uint64_t live_bytes;
};

enum phase { GROW, SHRINK, EMPTY, END };

struct worker {
    pthread_t thread;
    unsigned index;
    uint64_t random;
};

static unsigned threads, cycles;
static uint64_t limit_bytes;
static size_t largest_block_bytes;
static unsigned size_classes;
static bool damage;

static struct table tables[THREADS_MAX];
static struct worker workers[THREADS_MAX];
static pthread_barrier_t barrier;
static enum phase phase;  // written by main while all others wait
static unsigned cycle;

static void die(const char *what) {
    dprintf(STDERR_FILENO, "cycles: %s%s%s\n", what, errno ? ": " : "", errno ? strerror(errno) : "");
    exit(1);
}

// SplitMix64: one word of state, every seed as good as another.
static uint64_t mixed(uint64_t z) {
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static uint64_t drawn(struct worker *w, uint64_t below) { return mixed(w->random += UINT64_C(0x9e3779b97f4a7c15)) % below; }

static size_t drawn_size(struct worker *w) {
    uint64_t a = drawn(w, size_classes), b = drawn(w, size_classes);
    size_t class = (size_t)BLOCK_BYTES_MIN << (a < b ? a : b);
    size_t size = class + drawn(w, class);
    return size < largest_block_bytes ? size : largest_block_bytes;
}

// ---- blocks -------------------------------------------------------------------------------------
static uint64_t filling(const struct block *b) { return mixed((uint64_t)(uintptr_t)b->bytes ^ ((uint64_t)b->size << 48)); }

static void fill(const struct block *b) {
    uint64_t word = filling(b);
    size_t i = 0;
    for (; i + sizeof word <= b->size; i += sizeof word, word++) memcpy(b->bytes + i, &word, sizeof word);
    memcpy(b->bytes + i, &word, b->size - i);
}

static void check(const struct block *b) {
    uint64_t word = filling(b), wrong = 0, found;
    size_t i = 0;
    for (; i + sizeof word <= b->size; i += sizeof word, word++) {
        memcpy(&found, b->bytes + i, sizeof found);
        wrong |= found ^ word;
    }
    if (wrong || memcmp(b->bytes + i, &word, b->size - i)) {
        dprintf(STDERR_FILENO, "cycles: a block of %zu bytes at %p does not hold what was written to it\n", b->size, (void *)b->bytes);
        _exit(EXIT_DAMAGED);
    }
}

static void grow(struct worker *w, struct table *t, uint64_t until) {
    while (t->live_bytes < until) {
        struct block b = {.size = drawn_size(w)};
        if (!(b.bytes = malloc(b.size))) die("malloc");
        if ((uintptr_t)b.bytes % _Alignof(max_align_t)) die("malloc: misaligned");
        fill(&b);
        if (t->count == t->capacity) die("more blocks than the table holds");
        t->blocks[t->count++] = b;
        t->live_bytes += b.size;
    }
    if (t->count > t->count_max) t->count_max = t->count;
}

static void shrink(struct worker *w, struct table *t, uint64_t until) {
    while (t->live_bytes > until) {
        size_t chosen = drawn(w, t->count);
        struct block b = t->blocks[chosen];
        t->blocks[chosen] = t->blocks[--t->count];
        t->live_bytes -= b.size;
        check(&b);
        free(b.bytes);
    }
}

// ---- threads ------------------------------------------------------------------------------------
static void await_all(void) {
    int error = pthread_barrier_wait(&barrier);
    if (error && error != PTHREAD_BARRIER_SERIAL_THREAD) die("pthread_barrier_wait");
}

static void *work(void *argument) {
    struct worker *w = argument;
    uint64_t share = limit_bytes / threads;
    for (;;) {
        await_all();
        struct table *own = &tables[w->index], *other = &tables[(w->index + cycle) % threads];
        switch (phase) {
        case GROW: grow(w, own, share); break;
        case SHRINK: shrink(w, other, share / SHRINK_DIVISOR); break;
        case EMPTY: shrink(w, own, 0); break;
        case END: return NULL;
        }
        await_all();
    }
}

// ---- figures ------------------------------------------------------------------------------------
static uint64_t kilobytes(const char *text, const char *key) {
    const char *at = strstr(text, key);
    if (!at) die(key);
    return strtoull(at + strlen(key), NULL, 10);
}

// VmRSS of /proc/self/status may lag. This counts page by page.
static void report(const char *name) {
    static char text[4096];
    int file = open("/proc/self/smaps_rollup", O_RDONLY | O_CLOEXEC);
    ssize_t length = file < 0 ? -1 : read(file, text, sizeof text - 1);
    if (length <= 0) die("/proc/self/smaps_rollup");
    close(file);
    text[length] = 0;
    uint64_t live = 0, table_kb = 0;
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    for (unsigned i = 0; i < threads; i++) {
        live += tables[i].live_bytes;
        table_kb += (tables[i].count_max * sizeof(struct block) + page - 1) / page * page / 1024;
    }
    dprintf(STDOUT_FILENO, "%u,%s,%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 "\n", cycle + 1, name, live,
            kilobytes(text, "\nRss:"), kilobytes(text, "\nSwap:"), table_kb);
}

static void run(enum phase next, const char *name) {
    phase = next;
    await_all();
    await_all();
    report(name);
}

static uint64_t number(const char *text, uint64_t least, uint64_t most) {
    char *end;
    uint64_t n = strtoull(text, &end, 10);
    if (*end || n < least || n > most) {
        dprintf(STDERR_FILENO, "cycles: %s: a whole number from %" PRIu64 " to %" PRIu64 " is accepted\n", text, least, most);
        exit(2);
    }
    return n;
}

static void arguments(int argc, char **argv) {
    if (argc < 5) die("THREADS LIMIT_BYTES LARGEST_BLOCK_BYTES CYCLES [damaged] are accepted");
    threads = (unsigned)number(argv[1], 1, THREADS_MAX);
    limit_bytes = number(argv[2], 1 << 20, LIMIT_BYTES_MAX);
    largest_block_bytes = number(argv[3], 2 * BLOCK_BYTES_MIN, BLOCK_BYTES_MAX);
    cycles = (unsigned)number(argv[4], 1, CYCLES_MAX);
    damage = argc > 5;
    for (size_classes = 1; (size_t)BLOCK_BYTES_MIN << size_classes < largest_block_bytes;) size_classes++;
}

int main(int argc, char **argv) {
    arguments(argc, argv);
    if (pthread_barrier_init(&barrier, NULL, threads + 1)) die("pthread_barrier_init");
    for (unsigned i = 0; i < threads; i++) {
        struct table *t = &tables[i];
        t->capacity = limit_bytes / threads / MEAN_BLOCK_BYTES_MIN;
        size_t bytes = t->capacity * sizeof *t->blocks;
        t->blocks = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (t->blocks == MAP_FAILED) die("mmap");
        // Without this, more of a table could be resident than is used. A kernel without huge pages
        // refuses the call, and needs none.
        madvise(t->blocks, bytes, MADV_NOHUGEPAGE);
        workers[i] = (struct worker){.index = i, .random = mixed(THREADS_MAX + i)};
        if ((errno = pthread_create(&workers[i].thread, NULL, work, &workers[i]))) die("pthread_create");
    }
    dprintf(STDOUT_FILENO, "cycle,phase,live_bytes,rss_kb,swap_kb,table_kb\n");
    for (cycle = 0; cycle < cycles; cycle++) {
        run(GROW, "grown");
        if (damage) tables[0].blocks[0].bytes[0] ^= 1;
        run(SHRINK, "shrunk");
    }
    cycle = cycles - 1;
    run(EMPTY, "emptied");
    phase = END;
    await_all();
    for (unsigned i = 0; i < threads; i++) pthread_join(workers[i].thread, NULL);
    return 0;
}
