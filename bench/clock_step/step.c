// Steps the real-time clock of its machine, again and again, at moments scattered over 40 to 80 ms.
// It is only for the virtual machine of bench/clock-step. It refuses to run if there is no
// /arguments, which bench/vm/run makes.
//
//   step NANOSECONDS TIMES SEED
//
// It uses clock_settime and ADJ_SETOFFSET in turn. Each step has a line: monotonic time, way.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/timex.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000LL

static uint64_t state;
static uint64_t next(void) { // xorshift64*, Vigna 2016
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return state * 0x2545F4914F6CDD1DULL;
}

static struct timespec of(long long ns) {
    long long seconds = ns / SECOND - (ns % SECOND < 0);
    return (struct timespec){.tv_sec = seconds, .tv_nsec = ns - seconds * SECOND};
}

static long long now(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return time.tv_sec * SECOND + time.tv_nsec;
}

int main(int argc, char **argv) {
    if (argc != 4 || access("/arguments", F_OK) != 0) {
        fprintf(stderr, "step NANOSECONDS TIMES SEED, in the virtual machine of bench/clock-step\n");
        return 2;
    }
    const long long by = atoll(argv[1]);
    const int times = atoi(argv[2]);
    state = strtoull(argv[3], NULL, 10) * 2 + 1;
    for (int i = 0; i < times; i++) {
        struct timespec pause = of(40000000 + (long long)(next() % 40000000));
        nanosleep(&pause, NULL);
        int failed;
        if (i % 2) {
            struct timespec offset = of(by);
            struct timex change = {.modes = ADJ_SETOFFSET | ADJ_NANO, .time = {offset.tv_sec, offset.tv_nsec}};
            failed = clock_adjtime(CLOCK_REALTIME, &change) < 0;
        } else {
            struct timespec to = of(now(CLOCK_REALTIME) + by);
            failed = clock_settime(CLOCK_REALTIME, &to) != 0;
        }
        if (failed) {
            perror("step");
            return 1;
        }
        printf("%lld,%s\n", now(CLOCK_MONOTONIC), i % 2 ? "adjtimex" : "settime");
    }
    return 0;
}
