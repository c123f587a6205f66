/* Cancel scopes: one handle that cancels many calls at once, from any thread. penstock_call_cancel (call.h) cancels a
 * single call of which the program has the handle.
 */
#ifndef PENSTOCK_CANCEL_H
#define PENSTOCK_CANCEL_H

#include "base.h"
#include "call.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A set of calls that are cancelled together: all calls, of every kind and style, that are made with call options to
 * which the scope has been given (penstock_call_options_set_cancel_scope). */
typedef struct penstock_cancel_scope penstock_cancel_scope;

/* Makes a scope without calls.
 * result: E_INVALID_ARGUMENT, E_NO_MEMORY.
 * memory: *scope is owned by the caller; free with penstock_cancel_scope_release.
 * threads: any */
PENSTOCK_API penstock_result penstock_cancel_scope_new(penstock_cancel_scope **scope);
/* Cancels the calls of the scope for good: each ends with CANCELLED and `reason` (NUL-terminated UTF-8; NULL is ""), as
 * after penstock_call_cancel. This holds for all calls that run now and for all that begin later. A call that begins
 * later sends nothing, and no hop sees it; so a cancel also works if it comes a moment before its call. A call that has
 * ended keeps its reply. The function does not wait: a call that is just ending may end with its own status, and
 * messages that have come may still be received.
 * result: E_ALREADY: cancelled before, and the first reason stays. E_INVALID_ARGUMENT, E_NO_MEMORY, E_FORKED.
 * memory: `reason` is copied.
 * threads: any, in callbacks too */
PENSTOCK_API penstock_result penstock_cancel_scope_cancel(penstock_cancel_scope *scope, const char *reason);
/* Adds a reference to `scope`.
 * result: `scope`; NULL for NULL.
 * memory: the reference is given back with penstock_cancel_scope_release.
 * threads: any */
PENSTOCK_API penstock_cancel_scope *penstock_cancel_scope_retain(penstock_cancel_scope *scope);
/* Gives a reference back. The calls of the scope go on. NULL does nothing.
 * memory: the reference is the library's again.
 * threads: any */
PENSTOCK_API void penstock_cancel_scope_release(penstock_cancel_scope *scope);

/* Makes `scope` the scope of the calls that are made with these options from now on; NULL: they have none. One scope may
 * be given to many options.
 * result: E_INVALID_ARGUMENT: `options` is NULL. E_FORKED.
 * memory: `scope` is retained, by the options and by each call.
 * threads: one thread, before the options are shared. */
PENSTOCK_API penstock_result penstock_call_options_set_cancel_scope(penstock_call_options *options,
                                                                    penstock_cancel_scope *scope);

#ifdef __cplusplus
}
#endif
#endif
