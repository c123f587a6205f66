/* Preloaded into a program: counts allocations by the library that requests them, and at the end writes one line of
 * JSON to the file that COST_COUNTS names. Every realloc counts, whether the block moves or not. */
#define _GNU_SOURCE
#include <errno.h>
#include <link.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);

enum { PENSTOCK, NGHTTP2, OTHERS, KINDS };
static const char *const names[KINDS] = {"libpenstock.so", "libnghttp2.so", ""};
static atomic_long counts[KINDS];
/* The address range of each library's code. */
static uintptr_t from[KINDS], until[KINDS];

static int find(struct dl_phdr_info *info, size_t size, void *unused) {
  (void)size, (void)unused;
  for (int kind = 0; kind < OTHERS; kind++) {
    if (!info->dlpi_name || !strstr(info->dlpi_name, names[kind])) continue;
    for (int i = 0; i < info->dlpi_phnum; i++) {
      const ElfW(Phdr) *part = &info->dlpi_phdr[i];
      if (part->p_type != PT_LOAD || !(part->p_flags & PF_X)) continue;
      from[kind] = info->dlpi_addr + part->p_vaddr;
      until[kind] = from[kind] + part->p_memsz;
    }
  }
  return 0;
}

__attribute__((constructor)) static void begin(void) { dl_iterate_phdr(find, NULL); }

__attribute__((destructor)) static void end(void) {
  const char *path = getenv("COST_COUNTS");
  FILE *file = path ? fopen(path, "w") : NULL;
  if (!file) return;
  fprintf(file, "{\"penstock\": %ld, \"nghttp2\": %ld, \"others\": %ld}\n", counts[PENSTOCK], counts[NGHTTP2],
          counts[OTHERS]);
  fclose(file);
}

static void count(const void *caller) {
  const uintptr_t at = (uintptr_t)caller;
  int kind = 0;
  while (kind < OTHERS && !(at >= from[kind] && at < until[kind])) kind++;
  atomic_fetch_add_explicit(&counts[kind], 1, memory_order_relaxed);
}
#define COUNT() count(__builtin_return_address(0))

void *malloc(size_t size) {
  COUNT();
  return __libc_malloc(size);
}
void *calloc(size_t number, size_t size) {
  COUNT();
  return __libc_calloc(number, size);
}
void *realloc(void *memory, size_t size) {
  COUNT();
  return __libc_realloc(memory, size);
}
void *memalign(size_t alignment, size_t size) {
  COUNT();
  return __libc_memalign(alignment, size);
}
void *aligned_alloc(size_t alignment, size_t size) {
  COUNT();
  return __libc_memalign(alignment, size);
}
int posix_memalign(void **memory, size_t alignment, size_t size) {
  COUNT();
  void *found = __libc_memalign(alignment, size);
  if (!found) return ENOMEM;
  *memory = found;
  return 0;
}
