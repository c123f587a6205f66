/* The memory that reading a large JSON text takes: the functions of malloc are this program's own, and count. */
#define _GNU_SOURCE
#include "test.h"

#include <errno.h>
#include <malloc.h>
#include <stdatomic.h>

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *block, size_t size);
void *__libc_memalign(size_t alignment, size_t size);
void __libc_free(void *block);

/* The bytes of the blocks that there are, and the most since `most` was set. */
static _Atomic int64_t now, most;

/* How many blocks can still be had; below 0: any number. */
static _Atomic int64_t left = -1;

/* Whether the next block is refused. */
static int refuses(void) {
  if (left < 0 || atomic_fetch_sub(&left, 1) != 0) return 0;
  errno = ENOMEM;
  return 1;
}

static void *counted(void *block) {
  if (block == NULL) return NULL;
  int64_t size = (int64_t)malloc_usable_size(block);
  int64_t after = atomic_fetch_add(&now, size) + size, before = most;
  while (after > before && !atomic_compare_exchange_weak(&most, &before, after)) continue;
  return block;
}

static void uncount(void *block) {
  if (block != NULL) atomic_fetch_sub(&now, (int64_t)malloc_usable_size(block));
}

void *malloc(size_t size) { return refuses() ? NULL : counted(__libc_malloc(size)); }
void *calloc(size_t count, size_t size) { return refuses() ? NULL : counted(__libc_calloc(count, size)); }
void *memalign(size_t alignment, size_t size) { return refuses() ? NULL : counted(__libc_memalign(alignment, size)); }
void *aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }
int posix_memalign(void **block, size_t alignment, size_t size) {
  *block = memalign(alignment, size);
  return *block != NULL ? 0 : ENOMEM;
}
void *realloc(void *block, size_t size) {
  if (refuses()) return NULL;
  uncount(block);
  void *moved = __libc_realloc(block, size);
  return counted(moved != NULL || size == 0 ? moved : block);
}
void free(void *block) {
  uncount(block);
  __libc_free(block);
}

static char *text;
static size_t length;

/* The text is `begin`, then `count` elements, with commas between them, then `end`. */
static void make(const char *begin, int count, const char *element, const char *end) {
  length = (size_t)sprintf(text, "%s", begin);
  for (int i = 0; i < count; i++) {
    if (i > 0) text[length++] = ',';
    for (const char *at = element; *at != 0; at++) {
      if (*at == '#') {
        length += (size_t)sprintf(text + length, "%d", i);
      } else {
        text[length++] = *at;
      }
    }
  }
  strcpy(text + length, end);
  length += strlen(end);
}

#define BLANKS  " \t\r\n"
#define METHODS "{\"service_config\":{\"methodConfig\":["

/* Reading takes at most three times the text, and then what stays. */
TEST(json_memory_of_options) {
  static const struct {
    const char *begin, *element, *end;
    int count;
    penstock_result result;
  } rows[] = {
      {METHODS "{\"timeout\":\"5s\",\"name\":[", "{\"service\":\"s#\"}", "]}]}}", 200000, PENSTOCK_OK},
      {METHODS, "{\"timeout\":\"5s\",\"name\":[{\"service\":\"s#\"}]}", "]}}", 80000, PENSTOCK_OK},
      {"{\"service_config\":{\"loadBalancingConfig\":[", "{\"p#\":{}}", "]}}", 130000, PENSTOCK_E_INVALID_JSON},
      {"{\"service_config\":{\"x\":[", "{}", "]}}", 262000, PENSTOCK_OK},
      {"{\"service_config\":{\"x\":[", "\"\"", "]}}", 1000000, PENSTOCK_OK},
      /* Each kind of blank, at each place where one may be. */
      {BLANKS "{" BLANKS "\"service_config\"" BLANKS ":" BLANKS "{" BLANKS "\"x\"" BLANKS ":" BLANKS "[" BLANKS, "\"\"",
       BLANKS "]" BLANKS "}" BLANKS "}" BLANKS, 1000000, PENSTOCK_OK},
      {" {\"service_config\":{\"x\":[", "\"\"", "]}}", 1000000, PENSTOCK_OK},
      {"{\"service_config\":{\"x\":[", "\"\"", "]}} ", 1000000, PENSTOCK_OK},
      {"{\"service_config\":{\"x\":[", "\"\"", "]}\n}", 1000000, PENSTOCK_OK},
      {"{\"service_config\":{\"x\":[", "\"\"", "]\r}}", 1000000, PENSTOCK_OK},
      {"{\t\"service_config\":{\n\"x\" :\r[", "\"\"", "]}}", 1000000, PENSTOCK_OK},
      {"{\"service_config\":{\"x\":[", "1", "]}}", 1000000, PENSTOCK_OK},
      {"{\"service_config\":{", "\"#\":1", "}}", 500000, PENSTOCK_OK},
  };
  text = __libc_malloc(16 << 20);
  for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
    penstock_runtime *runtime = NULL;
    penstock_channel *channel = NULL;
    REQUIRE_OK(penstock_runtime_new(NULL, &runtime, NULL));
    make(rows[i].begin, rows[i].count, rows[i].element, rows[i].end);
    int64_t before = now;
    most = before;
    CHECK_RESULT(penstock_channel_new_on(runtime, "localhost:1", text, &channel, NULL), rows[i].result);
    double peak = (double)(most - before), stays = (double)(now - before), size = (double)length;
    printf("  %s: %.0f bytes, peak %.2f, stays %.2f\n", rows[i].element, size, peak / size, stays / size);
    CHECK(peak <= 3 * size + stays);
    CHECK(stays <= 3 * size);
    penstock_channel_release(channel);
    OK(penstock_runtime_shutdown(runtime, 60000));
    penstock_runtime_release(runtime);
  }
  __libc_free(text);
}

TEST(json_memory_of_metadata) {
  static const struct {
    const char *begin, *element, *end;
    int count;
  } rows[] = {
      {"{\"a\":[", "\"v#\"", "]}", 300000}, {"{", "\"n#\":\"v\"", "}", 200000}, {"{", "\"n#\":[\"v\"]", "}", 200000}};
  text = __libc_malloc(16 << 20);
  for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
    penstock_metadata *metadata = NULL;
    OK(penstock_metadata_new(&metadata));
    make(rows[i].begin, rows[i].count, rows[i].element, rows[i].end);
    int64_t before = now;
    most = before;
    OK(penstock_metadata_set_json(metadata, text, NULL));
    double peak = (double)(most - before), stays = (double)(now - before), size = (double)length;
    printf("  %s: %.0f bytes, peak %.2f, stays %.2f\n", rows[i].element, size, peak / size, stays / size);
    CHECK(peak <= 3 * size + stays);
    penstock_metadata_release(metadata);
  }
  __libc_free(text);
}

#define FIFTY "01234567890123456789012345678901234567890123456789"
#define LONG  "{\"n\":\"#" FIFTY FIFTY "\"}"

/* A member that a look-up can't find for lack of memory does not count as absent: each of these texts breaks a rule, or
 * keeps to it, by such a member. */
TEST(json_without_memory) {
  static const struct {
    const char *begin, *element, *end;
    penstock_result result;
  } rows[] = {
      {METHODS "{\"retryPolicy\":{\"maxAttempts\":2,\"initialBackoff\":\"1s\",\"maxBackoff\":\"1s\","
               "\"backoffMultiplier\":1,\"retryableStatusCodes\":[14]},\"hedgingPolicy\":{\"x\":[",
       LONG, "]}}]}}", PENSTOCK_E_INVALID_JSON},
      {"{\"tls\":false,\"service_config\":{\"loadBalancingPolicy\":\"no\",\"loadBalancingConfig\":[{\"round_robin\":{\"x\":[",
       LONG, "]}}]}}", PENSTOCK_OK},
      {"{\"tls\":false,\"max_header_list_bytes\":12345678901234567890123,\"service_config\":{\"x\":[", LONG, "]}}",
       PENSTOCK_E_INVALID_JSON},
  };
  text = __libc_malloc(1 << 20);
  penstock_runtime *runtime = NULL;
  REQUIRE_OK(penstock_runtime_new("{\"mode\":\"host\"}", &runtime, NULL));
  for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
    make(rows[i].begin, 200, rows[i].element, rows[i].end);
    int refused = 0;
    for (int64_t n = 0, isOver = 0; !isOver; n++) {
      penstock_channel *channel = NULL;
      left = n;
      penstock_result result = penstock_channel_new_on(runtime, "localhost:1", text, &channel, NULL);
      isOver = left >= 0;
      left = -1;
      if (result != PENSTOCK_E_NO_MEMORY) CHECK_RESULT(result, rows[i].result);
      refused += result == PENSTOCK_E_NO_MEMORY;
      penstock_channel_release(channel);
    }
    printf("  row %zu: %d lacks of memory are told\n", i, refused);
    CHECK(refused > 0);
  }
  OK(penstock_runtime_shutdown(runtime, 60000));
  penstock_runtime_release(runtime);
  __libc_free(text);
}
