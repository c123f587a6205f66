/* Codec: turns the caller's own objects into message bytes and back, inside the call.
 *
 * A channel or a call that has a codec takes and gives messages that are objects (penstock_message_new_object,
 * penstock_message_object): whatever a pointer means to the program. Interceptors at the object level
 * (PENSTOCK_LEVEL_OBJECT) see those very objects and pay for no serialising; those at the bytes level see the bytes
 * that are sent and received. Without a codec both levels see bytes.
 */
#ifndef PENSTOCK_CODEC_H
#define PENSTOCK_CODEC_H

#include "call.h"
#include "channel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes that an encode function fills. */
typedef struct penstock_buffer penstock_buffer;

/* Appends a copy of `length` bytes at `data` (NULL only with length 0).
 * result: E_NO_MEMORY.
 * memory: `data` is copied.
 * threads: the encode function that got `buffer`, on its thread. */
PENSTOCK_API penstock_result penstock_buffer_append(penstock_buffer *buffer, const void *data, size_t length);

/* The functions of a codec. encode and decode run on the thread that drives the runtime, when a message passes from one
 * level to the other; `method` is "/package.Service/Method", NUL-terminated, borrowed during the call. A result other
 * than 0 ends the call with INTERNAL and a message that names the method. */
typedef struct penstock_codec_functions {
  size_t struct_size;
  void *user_data;              /* transferred, even on error */
  penstock_finalizer finalizer; /* runs once, when the codec and the last object of it have gone, or on error */
  /* Appends the bytes of a request object to `bytes`; the object stays. */
  int32_t (*encode)(void *user_data, const char *method, void *object, penstock_buffer *bytes);
  /* Makes an object of a response's bytes, which are borrowed during the call. The library owns it from then on. */
  int32_t (*decode)(void *user_data, const char *method, const void *data, size_t length, void **object);
  /* Lets go of an object, exactly once for each that the library owns. On any thread, under no lock. */
  void (*free)(void *user_data, void *object);
  /* A copy of an object, for RESTART at the object level; NULL: there is none. May be NULL: then no such restart. */
  void *(*copy)(void *user_data, void *object);
} penstock_codec_functions;

#ifdef __cplusplus
static inline penstock_codec_functions penstock_codec_functions_init(void) {
  penstock_codec_functions empty = penstock_codec_functions();
  empty.struct_size = sizeof(empty);
  return empty;
}
#define PENSTOCK_CODEC_FUNCTIONS_INIT penstock_codec_functions_init()
#else
#define PENSTOCK_CODEC_FUNCTIONS_INIT                                                                                  \
  { .struct_size = sizeof(penstock_codec_functions) }
#endif

typedef struct penstock_codec penstock_codec;

/* Makes a codec of `functions`.
 * result: E_INVALID_ARGUMENT: a NULL among encode, decode, free, or a struct_size that is too small. E_UNSUPPORTED:
 * fields that this version does not know.
 * memory: the table is copied; its user_data is transferred, even on error, but with a struct_size that is too small.
 * *codec is owned by the caller; free with penstock_codec_release.
 * threads: any */
PENSTOCK_API penstock_result penstock_codec_new(const penstock_codec_functions *functions, penstock_codec **codec,
                                                penstock_error **error);
/* Adds a reference to `codec`.
 * result: `codec`; NULL for NULL.
 * memory: the reference is given back with penstock_codec_release.
 * threads: any */
PENSTOCK_API penstock_codec *penstock_codec_retain(penstock_codec *codec);
/* Gives a reference back. NULL does nothing.
 * result: none.
 * memory: the reference is the library's again.
 * threads: any */
PENSTOCK_API void penstock_codec_release(penstock_codec *codec);

/* Gives calls that are created on the channel from now on `codec`; NULL: none.
 * result: E_INVALID_ARGUMENT, E_FORKED.
 * memory: the channel retains the codec.
 * threads: any */
PENSTOCK_API penstock_result penstock_channel_set_codec(penstock_channel *channel, penstock_codec *codec);
/* Gives calls with these options `codec` instead of the channel's; NULL: the channel's.
 * result: E_INVALID_ARGUMENT.
 * memory: the options retain the codec.
 * threads: one thread, before the options are shared. */
PENSTOCK_API penstock_result penstock_call_options_set_codec(penstock_call_options *options, penstock_codec *codec);

/* ---- Objects as messages. A call with a codec sends messages that are objects of that very codec and receives such;
 * the functions that take bytes give E_STATE there. ---- */

/* Makes a message that is `object`. It counts as 256 bytes of a send buffer. It may be sent more than once, like any
 * other; but then it is one object, and a hop that changes it where it is changes it for all.
 * result: E_INVALID_ARGUMENT: `codec` or `message` is NULL.
 * memory: `object` belongs to the message from then on: the codec's free lets it go when nothing needs the message any
 * more. With a result other than OK it stays the caller's. *message is owned by the caller; free with
 * penstock_message_release.
 * threads: any */
PENSTOCK_API penstock_result penstock_message_new_object(penstock_codec *codec, void *object,
                                                         penstock_message **message);
/* Gives the object that the message is.
 * result: the object; NULL for a message of bytes, and for NULL.
 * memory: borrowed from the message, and as long-lived.
 * threads: any */
PENSTOCK_API void *penstock_message_object(const penstock_message *message);

/* A hop at the object level of such a call sees the objects: penstock_hop_message, penstock_hop_codec (hop.h). The functions
 * of hop.h that take bytes give E_STATE there. */

#ifdef __cplusplus
}
#endif
#endif
