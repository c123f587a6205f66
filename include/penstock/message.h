/* Messages: bytes, or an object of a codec (codec.h).
 *
 * A function whose name is just the verb (penstock_call_send) takes bytes, as a pointer and a length, and copies them.
 * A function whose name ends in `_message` takes a penstock_message, copies nothing, and leaves the message the
 * caller's (penstock_call_send_message).
 */
#ifndef PENSTOCK_MESSAGE_H
#define PENSTOCK_MESSAGE_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A message that has been received, or was made to be sent: its contents are immutable. It may be sent any number of
 * times, in any calls, also at the same time: hops change what is sent, not the message itself. */
typedef struct penstock_message penstock_message;

/* The flags of a message, joined by |.
 * NO_COMPRESS: every send of the message is uncompressed, also in a call that compresses: for a message that has both a
 * secret and text from others (the compressed length tells something about the secret), or for data that is compressed
 * already. This holds in every call that sends the message, also if a hop replaces its contents, and when it is sent
 * again. The other messages of a call are compressed as before. */
#define PENSTOCK_MESSAGE_NO_COMPRESS 1u

/* Makes a message with a copy of `length` bytes at `data` (NULL only with length 0). `flags` are PENSTOCK_MESSAGE_...,
 * or 0.
 * result: E_INVALID_ARGUMENT: also an unknown flag. E_NO_MEMORY.
 * memory: *message is owned by the caller; free with penstock_message_release.
 * threads: any */
PENSTOCK_API penstock_result penstock_message_new(const void *data, size_t length, uint32_t flags,
                                                  penstock_message **message);
/* Makes a message of `length` bytes of the caller's own at `data` (NULL only with length 0), without a copy.
 * `flags` are those of penstock_message_new. The finalizer (NULL for bytes that are never freed) gets `user_data` when
 * the last handle has been released, no connection still has bytes of the message to send, and no call needs it any
 * more: a call keeps up to 1 MiB of the messages that it has sent until there is a response, and the messages that
 * RESTART may send again.
 * result: E_INVALID_ARGUMENT: also an unknown flag.
 * memory: `data` is lent until the finalizer has run; `user_data` is transferred, even on error. *message is owned by
 * the caller; free with penstock_message_release.
 * threads: any */
PENSTOCK_API penstock_result penstock_message_new_lent(const void *data, size_t length, uint32_t flags, void *user_data,
                                                       penstock_finalizer finalizer, penstock_message **message);
/* Gives the bytes of the message, and their number in *length (nullable).
 * result: NULL and 0 for a message that is an object, and for NULL; an empty message gives a pointer that is not NULL.
 * memory: the bytes live as long as the message.
 * threads: any */
PENSTOCK_API const void *penstock_message_bytes(const penstock_message *message, size_t *length);
/* Adds a reference to `message`.
 * result: `message`; NULL for NULL.
 * memory: the reference is given back with penstock_message_release.
 * threads: any */
PENSTOCK_API penstock_message *penstock_message_retain(penstock_message *message);
/* Gives a reference back. NULL does nothing.
 * memory: the reference is the library's again.
 * threads: any */
PENSTOCK_API void penstock_message_release(penstock_message *message);

#ifdef __cplusplus
}
#endif
#endif
