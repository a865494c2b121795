/* A crowd of processes with many mappings, as the subject of a measurement of memory:
 * footprint_maps PROCESSES MAPPINGS FILE
 *
 * Each child makes MAPPINGS mappings of 16 KB of three kinds in turn: anonymous memory, FILE shared
 * and read, FILE private and read. It dirties one page of each anonymous mapping. In the first few
 * of these it dirties two pages. How many these are depends on the child, so that no two neighbours
 * look the same. Neighbouring mappings never merge, because they are of different kinds. The program prints
 * "ready" once all children have done so. It ends with its standard input, and the children end
 * with it.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { REGION = 16384, PAGE = 4096, MORE_MAX = 16 };

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static void child(int index, int mappings, int file, int ready, pid_t parent) {
    volatile char sink;
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) fail("prctl");
    if (getppid() != parent) exit(1);
    for (int i = 0; i < mappings; i++) {
        int anonymous = i % 3 == 0;
        int flags = anonymous ? MAP_PRIVATE | MAP_ANONYMOUS : i % 3 == 1 ? MAP_SHARED : MAP_PRIVATE;
        int protection = anonymous ? PROT_READ | PROT_WRITE : PROT_READ;
        char *at = mmap(NULL, REGION, protection, flags, anonymous ? -1 : file, 0);
        if (at == MAP_FAILED) fail("mmap");
        if (anonymous) {
            at[0] = 1;
            if (i / 3 < index % MORE_MAX) at[PAGE] = 1;
        } else {
            sink = at[i % 4 * PAGE];
        }
    }
    (void)sink;
    if (write(ready, "x", 1) != 1) exit(1);
    for (;;) pause();
}

int main(int argc, char **argv) {
    int processes = argc == 4 ? atoi(argv[1]) : 0, mappings = argc == 4 ? atoi(argv[2]) : 0, ready[2];
    if (processes < 1 || processes > 10000 || mappings < 1 || mappings > 10000) {
        fprintf(stderr, "usage: footprint_maps PROCESSES MAPPINGS FILE\n");
        return 2;
    }
    int file = open(argv[3], O_RDONLY | O_CLOEXEC);
    if (file < 0) fail(argv[3]);
    if (pipe(ready) != 0) fail("pipe");
    pid_t parent = getpid();
    for (int i = 0; i < processes; i++) {
        pid_t pid = fork();
        if (pid < 0) fail("fork");
        if (pid == 0) child(i, mappings, file, ready[1], parent);
    }
    for (int i = 0; i < processes; i++) {
        char byte;
        if (read(ready[0], &byte, 1) != 1) fail("read");
    }
    puts("ready");
    fflush(stdout);
    char byte;
    while (read(STDIN_FILENO, &byte, 1) > 0) {}
    return 0;
}
