/* nghttp2 for the transport, with a function that older versions lack. */
#ifndef PENSTOCK_CNGHTTP2_H
#define PENSTOCK_CNGHTTP2_H
#include <nghttp2/nghttp2.h>
#include <stddef.h>
#include <stdint.h>

/* This function exists from nghttp2 1.61 on, and in corrected releases of older versions. Its declaration is weak, so
 * that the library can be built with, and run on, versions without it. */
__attribute__((weak)) void nghttp2_option_set_max_continuations(nghttp2_option *option, size_t val);

/* Allows a header block to come in any number of frames. The session itself limits the bytes of a header block. */
static inline void penstock_allow_continuations(nghttp2_option *option) {
  if (nghttp2_option_set_max_continuations) nghttp2_option_set_max_continuations(option, SIZE_MAX);
}
#endif
