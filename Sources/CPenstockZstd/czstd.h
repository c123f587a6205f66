/* The part of libzstd's stable API (RFC 8878) that the transport uses. The library is loaded only where a program asks
 * for it, so neither its headers nor its name are needed to build or to link. */
#ifndef PENSTOCK_CZSTD_H
#define PENSTOCK_CZSTD_H
#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

#define PENSTOCK_ZSTD_FILE "libzstd.so.1"

struct penstock_zstd_in {
  const void *bytes;
  size_t size;
  size_t at;
};

struct penstock_zstd_out {
  void *bytes;
  size_t size;
  size_t at;
};

enum {
  PENSTOCK_ZSTD_GO_ON = 0,
  PENSTOCK_ZSTD_END = 2,
  PENSTOCK_ZSTD_WINDOW_LOG_MAX = 100,
  PENSTOCK_ZSTD_NO_MEMORY = 64
};

struct penstock_zstd {
  void *(*new_packer)(void);
  size_t (*free_packer)(void *);
  size_t (*set_size)(void *, unsigned long long);
  size_t (*pack)(void *, struct penstock_zstd_out *, struct penstock_zstd_in *, int directive);
  void *(*new_unpacker)(void);
  size_t (*free_unpacker)(void *);
  size_t (*set_limit)(void *, int parameter, int value);
  size_t (*unpack)(void *, struct penstock_zstd_out *, struct penstock_zstd_in *);
  unsigned (*is_error)(size_t);
  int (*error_code)(size_t);
};

/* Loads the library, which stays loaded. 0: it has all functions. */
static inline int penstock_zstd_load(struct penstock_zstd *zstd) {
  const char *names[] = {"ZSTD_createCCtx", "ZSTD_freeCCtx",    "ZSTD_CCtx_setPledgedSrcSize", "ZSTD_compressStream2",
                         "ZSTD_createDCtx", "ZSTD_freeDCtx",    "ZSTD_DCtx_setParameter",      "ZSTD_decompressStream",
                         "ZSTD_isError",    "ZSTD_getErrorCode"};
  void *library = dlopen(PENSTOCK_ZSTD_FILE, RTLD_NOW | RTLD_LOCAL);
  if (!library) return -1;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    void *function = dlsym(library, names[i]);
    if (!function) {
      dlclose(library);
      return -1;
    }
    memcpy((char *)zstd + i * sizeof function, &function, sizeof function);
  }
  return 0;
}
#endif
