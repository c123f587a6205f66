/* Messages: bytes, or an object of a codec (codec.h).
 *
 * A function named by the bare verb takes bytes, a pointer and a length, and copies them (penstock_call_send). One whose
 * name ends in `_message` takes a penstock_message, copies nothing, and leaves it the caller's
 * (penstock_call_send_message).
 */
#ifndef PENSTOCK_MESSAGE_H
#define PENSTOCK_MESSAGE_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A message that has been received, or was made to be sent: immutable. It may be sent any number of times, in any calls,
 * also at once: what hops change is what is sent, not the message. */
typedef struct penstock_message penstock_message;

/* A message with a copy of `data` (NULL only with length 0).
 * Memory: owned by the caller; free with penstock_message_release. */
PENSTOCK_API penstock_result penstock_message_new(const void *data, size_t length, penstock_message **message);
/* A message made of the caller's own bytes, without a copy. `data` (NULL only with length 0) is lent until the finalizer
 * has run: the caller leaves it where it is and as it is, and the library never writes it. The finalizer (nullable: for
 * bytes that stay for good) runs when the last handle has been released, no connection has bytes of it to send, and no
 * call needs it any more: a call keeps up to 1 MiB of what it has sent until there is an answer, and what RESTART may send
 * again. `user_data` is transferred, even on error.
 * Memory: owned by the caller; free with penstock_message_release. */
PENSTOCK_API penstock_result penstock_message_wrap(const void *data, size_t length, void *user_data,
                                                   penstock_finalizer finalizer, penstock_message **message);
/* Its bytes, and in *length how many (`length` may be NULL). NULL and 0 for a message that is an object; an empty message
 * gives a pointer that is not NULL. They live as long as the message. */
PENSTOCK_API const void *penstock_message_bytes(const penstock_message *message, size_t *length);
PENSTOCK_API penstock_message *penstock_message_retain(penstock_message *message);
PENSTOCK_API void penstock_message_release(penstock_message *message);

#ifdef __cplusplus
}
#endif
#endif
