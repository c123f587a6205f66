/* nghttp2 as the transport needs it. */
#ifndef PENSTOCK_CNGHTTP2_H
#define PENSTOCK_CNGHTTP2_H
#include <nghttp2/nghttp2.h>
#include <stddef.h>
#include <stdint.h>

/* A function of nghttp2 1.61, and of corrected releases of older versions. It is weak, so that the library can be
 * built with and run on versions without it. */
__attribute__((weak)) void nghttp2_option_set_max_continuations(nghttp2_option *option, size_t val);

/* Allows a header block in any number of frames: the session limits its bytes. */
static inline void penstock_allow_continuations(nghttp2_option *option) {
  if (nghttp2_option_set_max_continuations) nghttp2_option_set_max_continuations(option, SIZE_MAX);
}
#endif
