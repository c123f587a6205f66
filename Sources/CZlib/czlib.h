/* zlib for the transport, with static-inline shims for C macros, which Swift cannot import. */
#ifndef PENSTOCK_CZLIB_H
#define PENSTOCK_CZLIB_H
#include <zlib.h>

/* Window bits: 15 is the largest window, 16 more ask for a gzip header and trailer (RFC 1952). */
static inline int penstock_deflate_init(z_stream *stream) {
  return deflateInit2(stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
}
static inline int penstock_inflate_init(z_stream *stream) { return inflateInit2(stream, 15 + 16); }
#endif
