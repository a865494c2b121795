#ifndef KUBE_CANARY_H
#define KUBE_CANARY_H

/* Generated from src/shim.rs: KUBE_CANARY_BLESS=1 cargo test --test c_shim */

#include <stdbool.h>
#include <stddef.h>

/**
 * The malloc functions that the final link found. Each function may be null, if that malloc was
 * not linked. These are functions, so there is no ownership.
 */
struct kube_canary_link {
  /**
   * jemalloc's `mallctl`.
   */
  int (*mallctl)(const char *name, void *oldp, size_t *oldlenp, void *newp, size_t newlen);
  /**
   * mimalloc's `mi_version`.
   */
  int (*mi_version)(void);
  /**
   * mimalloc's `mi_is_in_heap_region`.
   */
  bool (*mi_is_in_heap_region)(const void *p);
};

/**
 * Runs kube-canary's command line. Returns its exit code, which `main` should return. Call it
 * once, from `main`, before any thread is started.
 *
 * `argv` is `main`'s: `argc` C strings, which are copied and stay the caller's. Null is allowed if
 * `argc` is 0, and a null among the strings ends the list. `link` is copied and stays the
 * caller's. It must not be null.
 *
 * A panic never reaches C: the function returns 101, as a Rust `main` does. In a release build the
 * panic aborts the process.
 *
 * # Safety
 * `argv` and `link` must be as described.
 */
int kube_canary_main(int argc, char *const *argv, const struct kube_canary_link *link);

#endif  /* KUBE_CANARY_H */
