// Put before ggml's CPU code by the compiler (CMakeLists.txt), not included by anything here.
//
// ggml's threads meet at a barrier after every operation, some 700 times a token, and wait there by spinning without
// end. When another process holds the core that the last thread needs, the others burn their time slices waiting for it:
// beside busy processes two threads took 90 to 950 ms for a token that one thread did in 25 to 40. So a wait that lasts
// longer than an ordinary one gives its core away: 45 to 77 ms in the same minutes. A quiet machine never gets that far.
//
// The spin's only hook is the pause instruction, which on x86 is an intrinsic; elsewhere nothing changes.
#pragma once

#if defined(__x86_64__) && defined(__linux__) && !defined(__cplusplus)

#include <immintrin.h>
#include <sched.h>
#include <stdint.h>

// In cycles of the time stamp counter. Calls further apart than QR_NEW_WAIT belong to another wait.
#define QR_NEW_WAIT  10000
#define QR_LONG_WAIT 60000

static inline void qr_relax(void) {
    static __thread uint64_t start, last;
    const uint64_t now = __rdtsc();
    if (now - last > QR_NEW_WAIT) {
        start = now;
    }
    last = now;
    __builtin_ia32_pause();
    if (now - start > QR_LONG_WAIT) {
        sched_yield();
        last = __rdtsc();
    }
}

#define _mm_pause() qr_relax()

#endif
