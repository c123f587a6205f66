/* Shared by the tests of tables: the memory of callers whose headers are older or newer than the library. */
#ifndef PENSTOCK_TEST_TABLES_H
#define PENSTOCK_TEST_TABLES_H

#include "ready.h"

#include <stddef.h>

/* The sizes of earlier versions, by the field that came next, and of this version. The last is a table of a later
 * version, whose further fields are 0. */
enum { LATER = 24, ROOM = 1024, CANARY = 0xa5 };

static const size_t interceptor_sizes[] = {offsetof(penstock_interceptor, outbound_executor),
                                           offsetof(penstock_interceptor, on_connection),
                                           offsetof(penstock_interceptor, on_pick),
                                           offsetof(penstock_interceptor, headers_wait),
                                           sizeof(penstock_interceptor),
                                           sizeof(penstock_interceptor) + LATER};

#define EACH(size, sizes)                                                                                              \
  for (const size_t *at = sizes, *end = sizes + sizeof(sizes) / sizeof(*sizes); at < end && ((size) = *at, true); at++)

/* The memory of a caller whose header knows `size` bytes of a table. Behind them is something else. */
typedef struct memory {
  size_t size;
  union {
    size_t struct_size;
    penstock_interceptor interceptor;
    penstock_async_interceptor async;
    penstock_sync_interceptor sync;
    penstock_call_callbacks callbacks;
    penstock_codec_functions codec;
    penstock_compressor_functions compressor;
    penstock_resolver_functions resolver;
    penstock_connector_functions connector;
    unsigned char bytes[ROOM];
  } as;
} memory;

/* Puts as much of `table`, which has `known` bytes, into a caller's memory as its header knows. */
static inline void place(memory *memory, size_t size, const void *table, size_t known) {
  memory->size = size;
  memset(memory->as.bytes, CANARY, ROOM);
  memset(memory->as.bytes, 0, size);
  memcpy(memory->as.bytes, table, size < known ? size : known);
  memory->as.struct_size = size;
}
#define PLACE(memory, size, table) place(memory, size, &(table), sizeof(table))

static inline bool check_intact(const memory *memory) {
  size_t wrong = 0;
  for (size_t i = memory->size; i < ROOM; i++) wrong += memory->as.bytes[i] != CANARY;
  return CHECK_INT(wrong, 0) && CHECK_INT(memory->as.struct_size, memory->size);
}

#endif
