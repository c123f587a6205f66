/* The Embedded Swift runtime seeds its hashing with arc4random_buf, which glibc has only since 2.36. The library has
 * this hidden arc4random_buf of its own, which calls getrandom. It must not fail: where getrandom does not work (a
 * seccomp filter, an old kernel), it uses the clock and the address of the buffer. Those are enough for a hash seed,
 * the only use. */
#include "cembedded.h"

#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <sys/random.h>
#include <time.h>

__attribute__((visibility("hidden"))) void arc4random_buf(void *buffer, size_t length) {
  unsigned char *bytes = buffer;
  size_t done = 0;
  while (done < length) {
    size_t chunk = length - done < 256 ? length - done : 256;
    ssize_t got = getrandom(bytes + done, chunk, 0);
    if (got > 0) {
      done += (size_t)got;
    } else if (errno != EINTR) {
      break;
    }
  }
  if (done < length) {
    struct timespec now = {0, 0};
    clock_gettime(CLOCK_MONOTONIC, &now);
    uint64_t state = (uint64_t)now.tv_nsec ^ ((uint64_t)now.tv_sec << 32) ^ (uint64_t)(uintptr_t)buffer;
    for (; done < length; done++) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      bytes[done] = (unsigned char)(state >> 56);
    }
  }
}
