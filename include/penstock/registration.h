/* Registrations: each stands for an interceptor that has been added to a runtime, a channel or the options of calls. Each
 * is named by its id alone, wherever it was added; a change is for calls that are created from then on.
 *
 * Each function gives E_NOT_FOUND where `id` was never given or is not registered any more, and E_FORKED where it was
 * given before this process was forked.
 */
#ifndef PENSTOCK_REGISTRATION_H
#define PENSTOCK_REGISTRATION_H

#include "interceptor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Takes the interceptor of `id` out: after it has returned no call that is created later has it.
 * result: E_NOT_FOUND, E_FORKED.
 * memory: none.
 * threads: any */
PENSTOCK_API penstock_result penstock_registration_remove(penstock_interceptor_id id, penstock_error **error);
/* Moves the interceptor of `id` to `priority`. Among equals it keeps the turn that it had when it was added.
 * result: E_NOT_FOUND, E_FORKED.
 * memory: none.
 * threads: any */
PENSTOCK_API penstock_result penstock_registration_set_priority(penstock_interceptor_id id, int32_t priority,
                                                                penstock_error **error);
/* Changes which calls meet the interceptor of `id`, and nothing else: it keeps its turn. `methods` (NULL is every
 * method) and `kinds` (0 is all) as in penstock_interceptor.
 * result: E_INVALID_ARGUMENT: a malformed pattern or an unknown kind. E_NOT_FOUND, E_FORKED.
 * memory: `methods` is copied.
 * threads: any */
PENSTOCK_API penstock_result penstock_registration_set_filter(penstock_interceptor_id id, const char *methods,
                                                              uint32_t kinds, penstock_error **error);
/* Replaces the interceptor `id` by `interceptor`, which keeps the priority and the order among equals, and has the name,
 * the filter and all else of its own table. It is one step: a call meets the old or the new interceptor, and the new one if
 * it is created afterwards. `id` is then removed; *new_id names the new registration.
 * result: as penstock_runtime_add_interceptor; E_NOT_FOUND, E_FORKED.
 * memory: the table is borrowed during the call; its user_data is transferred, even on error.
 * threads: any */
PENSTOCK_API penstock_result penstock_registration_replace(penstock_interceptor_id id,
                                                           const penstock_interceptor *interceptor,
                                                           penstock_interceptor_id *new_id, penstock_error **error);
/* Waits until the registration `id`, which has been removed or replaced, or whose channel, runtime or options have been
 * released, has ended: until its finalizer has run. `timeout_ms` is in milliseconds; negative is without limit. The
 * channel or runtime need not exist any more.
 * result: PENSTOCK_OK: it has run. E_STATE: still registered. E_NOT_FOUND: never given. E_TIMEOUT: a call that has it
 * has not ended. E_WOULD_DEADLOCK: it would wait on a thread that drives a runtime, in an interceptor's finalizer, or
 * in the very function of a synchronous one. E_FORKED.
 * memory: none.
 * threads: any that no call with the interceptor waits for. */
PENSTOCK_API penstock_result penstock_registration_wait_removed(penstock_interceptor_id id, int64_t timeout_ms);

#ifdef __cplusplus
}
#endif
#endif
