/* zlib for the transport, with static-inline shims for C macros, which Swift cannot import. */
#ifndef PENSTOCK_CZLIB_H
#define PENSTOCK_CZLIB_H
#include <zlib.h>

/* Window bits: 15 is the largest window, in zlib's format (RFC 1950); 16 more ask for gzip's (RFC 1952). */
static inline int penstock_deflate_init(z_stream *stream, int window_bits) {
  return deflateInit2(stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, window_bits, 8, Z_DEFAULT_STRATEGY);
}
static inline int penstock_inflate_init(z_stream *stream, int window_bits) { return inflateInit2(stream, window_bits); }
#endif
