/*
 * kube-canary with a C main: the Rust program is a static library, and the final link decides the
 * malloc.
 *
 * Rust's runtime starts only with Rust's own main. This file does the same for the C main as the
 * runtime does for the plain binary. A constructor inside the library switches huge pages off,
 * before any malloc that this links.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>

#include "kube_canary.h"

/* Weak: null if the final link has no such malloc. The library uses those that exist to find out
 * which malloc serves it. */
extern int mallctl(const char *name, void *oldp, size_t *oldlenp, void *newp, size_t newlen) __attribute__((weak));
extern int mi_version(void) __attribute__((weak));
extern bool mi_is_in_heap_region(const void *p) __attribute__((weak));

/* A standard descriptor that the parent closed must not become a socket: stderr would then be
 * written to that socket. */
static void open_standard_descriptors(void) {
    for (int fd = 0; fd <= 2; fd++) {
        if (fcntl(fd, F_GETFD) == -1 && errno == EBADF && open("/dev/null", O_RDWR) != fd) {
            abort();
        }
    }
}

int main(int argc, char **argv) {
    open_standard_descriptors();
    /* A scraper that disconnects is an error of one write, not the end of the process. */
    if (signal(SIGPIPE, SIG_IGN) == SIG_ERR) {
        abort();
    }
    const struct kube_canary_link link = {
        .mallctl = mallctl,
        .mi_version = mi_version,
        .mi_is_in_heap_region = mi_is_in_heap_region,
    };
    return kube_canary_main(argc, argv, &link);
}
