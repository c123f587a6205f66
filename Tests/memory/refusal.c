/* The second part of the canary, the malloc that the tests preload (canary.c is the first part). This part lets
 * allocations of the library's C side fail: those whose numbers the test program has chosen.
 *
 * The C side is nghttp2, jansson, zlib, OpenSSL and the buffers of the library: memory whose size a caller or a peer
 * chooses. The return address of the allocating function tells who requests it. A request of Swift itself
 * (CANARY_SWIFT: where its allocating functions lie in libpenstock.so, "start-end,..." in hexadecimal) is never
 * refused: Swift ends the process then (docs/architecture.md). cm_alloc ends with a jump to malloc, so the return
 * address is that of its caller.
 *
 * With CANARY_SWIFT the library keeps no blocks for later (Sources/CPenstockEmbedded/blocks.c): each allocation comes to malloc.
 */
#define _GNU_SOURCE 1
#include "refusal.h"

#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { RANGES = 64, FRAMES = 40 };
typedef struct range {
  uintptr_t start, end;
} range;

static struct {
  range ranges[RANGES];
  int count;
} c_side, swift;

static atomic_int armed;
static atomic_long asked, first, last;
static void *frames[FRAMES];
static int depth;

static int is_within(uintptr_t address, const range *ranges, int count) {
  while (count && (address < ranges->start || address >= ranges->end)) ranges++, count--;
  return count > 0;
}

static int is_ours(const char *path) {
  static const char *const names[] = {"libpenstock.", "libnghttp2.", "libjansson.", "libz.", "libcrypto.", "libssl."};
  const char *slash = path ? strrchr(path, '/') : NULL;
  for (size_t i = 0; slash && i < sizeof(names) / sizeof(*names); i++) {
    if (strncmp(slash + 1, names[i], strlen(names[i])) == 0) return (int)i + 1;
  }
  return 0;
}

static void note_swift(uintptr_t base) {
  const char *at = getenv("CANARY_SWIFT");
  while (at && *at && swift.count < RANGES) {
    char *end;
    uintptr_t start = strtoul(at, &end, 16);
    if (*end != '-') abort();
    uintptr_t stop = strtoul(end + 1, &end, 16);
    swift.ranges[swift.count++] = (range){base + start, base + stop};
    at = *end ? end + 1 : end;
  }
}

static int note(struct dl_phdr_info *info, size_t size, void *context) {
  (void)size, (void)context;
  int ours = is_ours(info->dlpi_name);
  for (int i = 0; ours && i < info->dlpi_phnum && c_side.count < RANGES; i++) {
    const ElfW(Phdr) *part = &info->dlpi_phdr[i];
    uintptr_t start = info->dlpi_addr + part->p_vaddr;
    if (part->p_type == PT_LOAD && part->p_flags & PF_X) {
      c_side.ranges[c_side.count++] = (range){start, start + part->p_memsz};
    }
  }
  if (ours == 1) note_swift(info->dlpi_addr);
  return 0;
}

int is_library(void *caller) { return is_within((uintptr_t)caller, c_side.ranges, c_side.count); }

/* Within json_loadb: jansson 2.14 does not check whether the buffer of a token could grow, and then reads past the end
 * of the buffer, so the growth of a token is never refused. The buffer's sizes are powers of two. */
static int is_jansson_token(size_t size) {
  Dl_info who;
  if (size < 32 || (size & (size - 1))) return 0;
  for (int i = 0; i < depth; i++) {
    if (dladdr(frames[i], &who) && who.dli_sname && strcmp(who.dli_sname, "json_loadb") == 0) return 1;
  }
  return 0;
}

int refuses(void *caller, size_t size) {
  if (!atomic_load_explicit(&armed, memory_order_acquire)) return 0;
  uintptr_t address = (uintptr_t)caller;
  if (!is_library(caller) || is_within(address, swift.ranges, swift.count)) return 0;
  long number = atomic_fetch_add(&asked, 1) + 1;
  if (number < atomic_load(&first) || number > atomic_load(&last)) return 0;
  if (number == atomic_load(&first)) depth = backtrace(frames, FRAMES);
  if (is_jansson_token(size)) return 0;
  errno = ENOMEM;
  return 1;
}

void canary_refuse(long from, long count) {
  if (c_side.count == 0) {
    dl_iterate_phdr(note, NULL);
    /* The first use of backtrace loads a library, which must not happen within an allocation. */
    backtrace(frames, FRAMES);
  }
  depth = 0;
  atomic_store(&asked, 0);
  atomic_store(&first, from);
  atomic_store(&last, from + count - 1);
  atomic_store_explicit(&armed, 1, memory_order_release);
}

long canary_asked(void) {
  atomic_store_explicit(&armed, 0, memory_order_release);
  return atomic_load(&asked);
}

void canary_where(int descriptor) { backtrace_symbols_fd(frames, depth, descriptor); }

/* With CANARY_SWIFT this function refuses the one key that the library requests, for the blocks that a thread keeps:
 * without the key the library keeps no blocks. */
int pthread_key_create(pthread_key_t *key, void (*destructor)(void *)) {
  static _Atomic(int (*)(pthread_key_t *, void (*)(void *))) real;
  Dl_info who;
  if (getenv("CANARY_SWIFT") && dladdr(__builtin_return_address(0), &who) && is_ours(who.dli_fname) == 1) return EAGAIN;
  if (!real) real = (int (*)(pthread_key_t *, void (*)(void *)))dlsym(RTLD_NEXT, "pthread_key_create");
  return real(key, destructor);
}
