#ifndef KUBE_CANARY_H
#define KUBE_CANARY_H

/* Generated from src/shim.rs: KUBE_CANARY_BLESS=1 cargo test --test c_shim */

#include <stdbool.h>
#include <stddef.h>

/**
 * What the final link found of mallocs that can be asked who they are. Each function may be null: that malloc was not
 * linked. Functions, so nothing is owned.
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
 * Runs kube-canary's command line and returns its exit code, as `main` should. Call it once, from `main`, before any
 * thread is started.
 *
 * `argv` is `main`'s: `argc` C strings that stay the caller's and are copied; null is allowed if `argc` is 0, and a null
 * among them ends the list. `link` stays the caller's and is copied; it must not be null.
 *
 * A panic never reaches C: it returns 101, as a Rust `main` does (in a release build it aborts where it happens).
 *
 * # Safety
 * `argv` and `link` must be as described.
 */
int kube_canary_main(int argc,
                     char *const *argv,
                     const struct kube_canary_link *link);

#endif  /* KUBE_CANARY_H */
