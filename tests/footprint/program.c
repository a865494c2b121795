/* Takes known amounts of memory, one step for each byte on standard input. It writes a byte on
 * standard output after each step. A step takes PAGES pages and writes every byte of them. Between
 * the steps nothing changes. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { PAGES = 64 };

static char data[PAGES * 65536] __attribute__((aligned(65536))) = {1};
static char bss[PAGES * 65536] __attribute__((aligned(65536)));

static void *wait_forever(void *nothing) {
    for (;;) pause();
    return nothing;
}

static char *map(size_t bytes, int flags, int file) {
    int protection = file < 0 ? PROT_READ | PROT_WRITE : PROT_READ;
    char *at = mmap(NULL, bytes, protection, flags | (file < 0 ? MAP_ANONYMOUS : 0), file, 0);
    if (at == MAP_FAILED) _exit(3);
    return at;
}

/* A stack between two guard pages, so that no neighbouring memory can count as part of it. */
static void thread(size_t bytes, size_t page) {
    pthread_attr_t attributes;
    pthread_t id;
    char *at = map(bytes + 2 * page, MAP_PRIVATE, -1);
    if (mprotect(at, page, PROT_NONE) || mprotect(at + page + bytes, page, PROT_NONE)) _exit(4);
    memset(at + page, 1, bytes);
    if (pthread_attr_init(&attributes) || pthread_attr_setstack(&attributes, at + page, bytes) ||
        pthread_create(&id, &attributes, wait_forever, NULL))
        _exit(5);
}

int main(int argc, char **argv) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), bytes = PAGES * page;
    volatile char sink;
    char step;
    if (argc != 2) return 2;
    /* Any process that may read this memory may also see the stack pointers, even if a security
     * module restricts that to children. */
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    /* A write to a small page would otherwise take a huge page. */
    prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
    if (write(STDOUT_FILENO, "r", 1) != 1) return 1;
    while (read(STDIN_FILENO, &step, 1) == 1) {
        switch (step) {
            case 'd': memset(data, 2, bytes); break;
            case 'b': memset(bss, 2, bytes); break;
            case 'h': {
                /* It begins at a page boundary, because the heap may end within a page. */
                char *end = sbrk((intptr_t)(bytes + page));
                if (end == (void *)-1) return 6;
                uintptr_t start = ((uintptr_t)end + page - 1) / page * page;
                memset((void *)start, 2, bytes);
                break;
            }
            case 'a': memset(map(bytes, MAP_PRIVATE, -1), 2, bytes); break;
            case 's': memset(map(bytes, MAP_SHARED, -1), 2, bytes); break;
            case 'f': {
                int file = open(argv[1], O_RDONLY);
                if (file < 0) return 7;
                char *at = map(bytes, MAP_PRIVATE, file);
                for (size_t i = 0; i < bytes; i += page) sink = at[i];
                break;
            }
            case 't': thread(bytes, page); break;
            default: return 8;
        }
        if (write(STDOUT_FILENO, &step, 1) != 1) return 1;
    }
    (void)sink;
    return 0;
}
