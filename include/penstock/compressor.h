/* Compressor: a compression of messages that the program makes itself, beside gzip, deflate and zstd.
 * docs/protocols.md, "A compressor of your own".
 */
#ifndef PENSTOCK_COMPRESSOR_H
#define PENSTOCK_COMPRESSOR_H

#include "base.h"
#include "channel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One message that is compressed or decompressed, for the result. The handle is valid until the function that got it
 * returns; the functions below are for the thread that runs it. */
typedef struct penstock_compression penstock_compression;

/* The functions of a compressor. Both get one whole message of `length` bytes, which is not empty and is borrowed until
 * they return, and append the result to `message`, in one piece or in many. They return 0 on success; any other value, or
 * penstock_compression_fail, ends the call with INTERNAL. They run on the thread that drives the runtime, one at a time
 * for each runtime, and no other call goes on meanwhile: they must return soon, and a function that waits gives
 * PENSTOCK_E_WOULD_DEADLOCK there. */
typedef struct penstock_compressor_functions {
  size_t struct_size;
  void *user_data;              /* transferred, even on error */
  penstock_finalizer finalizer; /* runs once, when nothing needs the compressor any more, or on error */
  /* The name of the compression in header fields and in the option "compression": lower-case letters, digits, "-", "_" and
   * "."; not one of the library's own ("identity", "gzip", "x-gzip", "deflate", "zstd"). NUL-terminated, copied. */
  const char *name;
  int32_t (*compress)(void *user_data, const void *data, size_t length, penstock_compression *message);
  /* `data` comes from a server. So that a small message can't take much memory and time, it appends the result as it goes
   * on, and returns as soon as penstock_compression_append refuses it. */
  int32_t (*decompress)(void *user_data, const void *data, size_t length, penstock_compression *message);
} penstock_compressor_functions;

#ifdef __cplusplus
static inline penstock_compressor_functions penstock_compressor_functions_init(void) {
  penstock_compressor_functions empty = penstock_compressor_functions();
  empty.struct_size = sizeof(empty);
  return empty;
}
#define PENSTOCK_COMPRESSOR_FUNCTIONS_INIT penstock_compressor_functions_init()
#else
#define PENSTOCK_COMPRESSOR_FUNCTIONS_INIT                                                                             \
  { .struct_size = sizeof(penstock_compressor_functions) }
#endif

/* Appends a copy of `length` bytes at `data` (NULL only with length 0) to the result.
 * result: E_INVALID_ARGUMENT: a NULL. E_TOO_LARGE: the result is over the limit on received messages
 * ("max_receive_message_bytes"), or over 4 GiB for a sent one: the call ends with RESOURCE_EXHAUSTED, and the function
 * should return. E_NO_MEMORY: likewise.
 * memory: `data` is copied.
 * threads: the one of the function that got `message` */
PENSTOCK_API penstock_result penstock_compression_append(penstock_compression *message, const void *data,
                                                         size_t length);
/* Tells how many bytes may still be appended.
 * result: 0 for NULL, and after an E_TOO_LARGE or E_NO_MEMORY.
 * memory: none.
 * threads: the one of the function that got `message` */
PENSTOCK_API size_t penstock_compression_room(const penstock_compression *message);
/* Lets the message fail, with `words` (NUL-terminated) as a part of the status of its call; of several the last ones
 * count, and of long ones the first 500 bytes.
 * result: E_INVALID_ARGUMENT: a NULL, or `words` is not UTF-8.
 * memory: `words` is copied.
 * threads: the one of the function that got `message` */
PENSTOCK_API penstock_result penstock_compression_fail(penstock_compression *message, const char *words);

typedef struct penstock_compressor penstock_compressor;

/* Makes a compressor of `functions`. From now on the option "compression" of channels and calls, and
 * penstock_request_set_compression, take its name; a call can be made on a channel that has the compressor.
 * result: E_INVALID_ARGUMENT: a NULL among compress, decompress and name, a name that is not allowed, or a struct_size
 * that is too small. E_UNSUPPORTED: fields that this version does not know. E_NO_MEMORY.
 * memory: the table is copied; its user_data is transferred, even on error, except if struct_size is too small.
 * *compressor is owned by the caller; free with penstock_compressor_release.
 * threads: any */
PENSTOCK_API penstock_result penstock_compressor_new(const penstock_compressor_functions *functions,
                                                     penstock_compressor **compressor, penstock_error **error);
/* Adds a reference to `compressor`.
 * result: `compressor`; NULL for NULL.
 * memory: the reference is given back with penstock_compressor_release.
 * threads: any */
PENSTOCK_API penstock_compressor *penstock_compressor_retain(penstock_compressor *compressor);
/* Gives a reference back. NULL does nothing.
 * memory: the reference is the library's again.
 * threads: any */
PENSTOCK_API void penstock_compressor_release(penstock_compressor *compressor);

/* Lets the calls that begin from now on use `compressor`, any number of them for a channel: answers may have its
 * compression, which is offered to servers before the library's own, and so may requests, if the option "compression" or
 * penstock_request_set_compression names it. It takes the place of one with the same name.
 * result: E_INVALID_ARGUMENT: a NULL. E_CLOSED, E_FORKED.
 * memory: `compressor` is retained, until the channel has closed and no call needs it.
 * threads: any */
PENSTOCK_API penstock_result penstock_channel_add_compressor(penstock_channel *channel,
                                                             penstock_compressor *compressor);

#ifdef __cplusplus
}
#endif
#endif
