/* Registrations: each is an interceptor that has been added to a runtime, a channel or call options. Its id alone names
 * it, wherever it was added. A change holds for calls that are created after the change.
 *
 * Each function gives E_FORKED if the `id` comes from the parent of this process, and E_NOT_FOUND if no registration
 * ever had it. All functions except penstock_registration_wait_removed also give E_NOT_FOUND if the interceptor is not
 * registered any more.
 */
#ifndef PENSTOCK_REGISTRATION_H
#define PENSTOCK_REGISTRATION_H

#include "interceptor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Removes the interceptor of `id`: no call that is created after this function has returned has it.
 * result: E_NOT_FOUND, E_FORKED.
 * memory: none.
 * threads: any */
PENSTOCK_API penstock_result penstock_registration_remove(penstock_interceptor_id id, penstock_error **error);
/* Moves the interceptor of `id` to `priority`. Among interceptors of equal priority its place still depends on when it
 * was added.
 * result: E_NOT_FOUND, E_FORKED.
 * memory: none.
 * threads: any */
PENSTOCK_API penstock_result penstock_registration_set_priority(penstock_interceptor_id id, int32_t priority,
                                                                penstock_error **error);
/* Changes which calls meet the interceptor of `id`, and nothing else: the interceptor keeps its place. `methods` (NULL
 * is every method) and `kinds` (0 is all) as in penstock_interceptor.
 * result: E_INVALID_ARGUMENT: a pattern that no method matches, or an unknown kind. E_NOT_FOUND, E_FORKED.
 * memory: `methods` is copied.
 * threads: any */
PENSTOCK_API penstock_result penstock_registration_set_filter(penstock_interceptor_id id, const char *methods,
                                                              uint32_t kinds, penstock_error **error);
/* Replaces the interceptor of `id` by `interceptor`, which gets the priority and the place of the old one; its name,
 * filter and everything else come from its own table. The change is one step: each call meets either the old or the new
 * interceptor, and a call that is created afterwards meets the new one. `id` is then removed; *new_id names the new
 * registration.
 * result: as penstock_runtime_add_interceptor; E_NOT_FOUND, E_FORKED.
 * memory: the table is borrowed during the call; its user_data is transferred, even on error.
 * threads: any */
PENSTOCK_API penstock_result penstock_registration_replace(penstock_interceptor_id id,
                                                           const penstock_interceptor *interceptor,
                                                           penstock_interceptor_id *new_id, penstock_error **error);
/* Waits until the finalizer of the registration `id` has run. Call it after the registration has been removed or
 * replaced, or after its channel, runtime or options have been released; these need not exist any more. `timeout_ms` is
 * in milliseconds; negative is without limit.
 * result: PENSTOCK_OK: it has run. E_STATE: still registered. E_NOT_FOUND: no registration ever had this id. E_TIMEOUT:
 * a call that has the interceptor has not ended. E_WOULD_DEADLOCK: called on a thread that drives a runtime, in an
 * interceptor's finalizer, or in the function of this interceptor itself, if it is a synchronous one. E_FORKED.
 * memory: none.
 * threads: any but a thread that a call with the interceptor waits for. */
PENSTOCK_API penstock_result penstock_registration_wait_removed(penstock_interceptor_id id, int64_t timeout_ms);

#ifdef __cplusplus
}
#endif
#endif
