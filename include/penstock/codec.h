/* Codec: turns the caller's own objects into message bytes and back, inside the call.
 *
 * A channel or a call that has a codec takes and gives messages that are objects (penstock_message_new_object,
 * penstock_message_object): pointers whose meaning only the program knows. Interceptors at the object level
 * (PENSTOCK_LEVEL_OBJECT) see the objects themselves, without any serialising; interceptors at the bytes level see the
 * bytes that are sent and received. Without a codec both levels see bytes.
 */
#ifndef PENSTOCK_CODEC_H
#define PENSTOCK_CODEC_H

#include "call.h"
#include "channel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The buffer to which an encode function appends the bytes of a message. */
typedef struct penstock_buffer penstock_buffer;

/* Appends a copy of `length` bytes at `data` (NULL only with length 0).
 * result: E_NO_MEMORY.
 * memory: `data` is copied.
 * threads: the encode function that got `buffer`, on its thread. */
PENSTOCK_API penstock_result penstock_buffer_append(penstock_buffer *buffer, const void *data, size_t length);

/* The functions of a codec. encode and decode run on the thread that drives the runtime, when a message passes from one
 * level to the other; `method` is "/package.Service/Method", NUL-terminated, borrowed during the call. They return 0 on
 * success; any other value ends the call with INTERNAL and a message that names the method. */
typedef struct penstock_codec_functions {
  size_t struct_size;
  void *user_data;              /* transferred, even on error */
  penstock_finalizer finalizer; /* runs once, when the codec and its last object have been freed, or on error */
  /* Appends the bytes of a request object to `bytes`; the object itself stays as it is. */
  int32_t (*encode)(void *user_data, const char *method, void *object, penstock_buffer *bytes);
  /* Makes an object from the bytes of a response, which are borrowed during the call. The library then owns the
   * object. */
  int32_t (*decode)(void *user_data, const char *method, const void *data, size_t length, void **object);
  /* Frees an object: called exactly once for each object that the library owns, on any thread, while the library holds
   * no lock. */
  void (*free)(void *user_data, void *object);
  /* Returns a copy of an object, for RESTART at the object level, or NULL if the object can't be copied. If `copy` is
   * NULL, no RESTART is possible at the object level. */
  void *(*copy)(void *user_data, void *object);
  /* The name of the encoding of the bytes: lower-case letters, digits, "-", "_" and "."; NUL-terminated, copied. A call
   * with the codec is sent as "application/grpc+NAME", with Connect as "application/NAME" or
   * "application/connect+NAME". NULL: "proto", and gRPC's content-type is "application/grpc". The option
   * "content_subtype" of a call and penstock_request_set_content_subtype count more. */
  const char *name;
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
 * result: E_INVALID_ARGUMENT: a NULL among encode, decode, free, a name with other characters, or a struct_size that is
 * too small. E_UNSUPPORTED: fields that this version does not know.
 * memory: the table is copied; its user_data is transferred, even on error, except if struct_size is too small.
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
 * memory: the reference is the library's again.
 * threads: any */
PENSTOCK_API void penstock_codec_release(penstock_codec *codec);

/* Sets the codec of the calls that are created on the channel from now on; NULL: no codec.
 * result: E_INVALID_ARGUMENT, E_FORKED.
 * memory: `codec` is retained.
 * threads: any */
PENSTOCK_API penstock_result penstock_channel_set_codec(penstock_channel *channel, penstock_codec *codec);
/* Sets the codec of calls with these options, instead of the channel's; NULL: the channel's codec again.
 * result: E_INVALID_ARGUMENT.
 * memory: `codec` is retained.
 * threads: one thread, before the options are shared. */
PENSTOCK_API penstock_result penstock_call_options_set_codec(penstock_call_options *options, penstock_codec *codec);

/* ---- Objects as messages. A call with a codec sends and receives messages that are objects of this codec; the
 * functions that take bytes give E_STATE in such a call. ---- */

/* Makes a message that is `object`; `flags` are those of penstock_message_new. The message counts as 256 bytes of a
 * send buffer. Like any message it may be sent more than once; but all these sends share one object, so a hop that
 * changes the object in place changes it for all of them.
 * result: E_INVALID_ARGUMENT: `codec` or `message` is NULL, or an unknown flag.
 * memory: `object` belongs to the message from then on: the codec's `free` frees it when nothing needs the message any
 * more. With a result other than OK the object stays the caller's. *message is owned by the caller; free with
 * penstock_message_release.
 * threads: any */
PENSTOCK_API penstock_result penstock_message_new_object(penstock_codec *codec, void *object, uint32_t flags,
                                                         penstock_message **message);
/* Gives the object of a message that is an object.
 * result: the object; NULL for a message of bytes, and for NULL.
 * memory: borrowed from the message; lives as long as the message.
 * threads: any */
PENSTOCK_API void *penstock_message_object(const penstock_message *message);

/* In a call with a codec, a hop at the object level gets the objects, from penstock_hop_message; penstock_hop_codec
 * gives the codec (both in hop.h). The functions of hop.h that take bytes give E_STATE for such a hop. */

#ifdef __cplusplus
}
#endif
#endif
