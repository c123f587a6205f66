/* The libraries that this one stands on, with the versions that run in this process. */
#ifndef PENSTOCK_CLIBRARIES_H
#define PENSTOCK_CLIBRARIES_H
#include <jansson.h>
#include <nghttp2/nghttp2.h>
#include <openssl/crypto.h>
#include <zlib.h>

struct penstock_library {
  const char *name;
  const char *version;
  const void *code; /* a function of the library */
};

#define PENSTOCK_LIBRARIES 4

static inline struct penstock_library penstock_library_at(int index) {
  switch (index) {
  case 0:
    return (struct penstock_library){"openssl", OpenSSL_version(OPENSSL_VERSION_STRING), (void *)OpenSSL_version};
  case 1:
    return (struct penstock_library){"nghttp2", nghttp2_version(0)->version_str, (void *)nghttp2_version};
  case 2:
    return (struct penstock_library){"jansson", jansson_version_str(), (void *)jansson_version_str};
  default:
    return (struct penstock_library){"zlib", zlibVersion(), (void *)zlibVersion};
  }
}

/* dladdr(3) under a name of our own, because dlfcn.h declares it only with _GNU_SOURCE, which CPenstockSystem can't have. */
struct penstock_place {
  const char *file;
  void *base;
  const char *symbol;
  void *address;
};
extern int penstock_find_place(const void *code, struct penstock_place *place) __asm__("dladdr");

/* Whether two functions are in the same file: the library was linked in statically, or it was not. */
static inline int penstock_same_file(const void *one, const void *other) {
  struct penstock_place first, second;
  return penstock_find_place(one, &first) && penstock_find_place(other, &second) && first.base == second.base;
}
static inline int penstock_library_is_inside(int index) {
  return penstock_same_file(penstock_library_at(index).code, (const void *)penstock_library_is_inside);
}
#endif
