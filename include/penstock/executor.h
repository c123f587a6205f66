/* Executors: run an interceptor's callbacks elsewhere than on the thread that drives the runtime.
 *
 * An interceptor whose callbacks take long, wait, or belong on one thread is registered with an executor for each lane
 * (the same one for both if it likes). For one call its callbacks of one lane still run in order and one at a time.
 */
#ifndef PENSTOCK_EXECUTOR_H
#define PENSTOCK_EXECUTOR_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Something that runs jobs. Reference counted; an interceptor's registration and a running call keep theirs. */
typedef struct penstock_executor penstock_executor;

/* A job of the library's: to be called exactly once, with its argument, on any thread. */
typedef void (*penstock_job)(void *argument);
/* Takes a job: 0 if it was taken. It may run on any thread, also before this function returns; jobs may run at the same
 * time and in any order, for the library submits the next one of a call and lane when the one before has ended. Any
 * other value: it was not taken, and must never run: the call that it is for ends with INTERNAL. A job that is taken and
 * never run keeps its call's memory, and no more: deadline and cancel still end the call.
 * Threading: called on any thread, on several at once, under no lock. */
typedef int32_t (*penstock_submit)(penstock_job job, void *argument, void *user_data);

/* Makes an executor of the function `submit`: a thread pool's, an event loop's. `finalizer` (nullable) gets `user_data`
 * when the last reference has gone; no job is left then.
 * result: E_INVALID_ARGUMENT.
 * memory: `user_data` is transferred, even on error. *executor is owned by the caller; free with
 * penstock_executor_release.
 * threads: any */
PENSTOCK_API penstock_result penstock_executor_new(penstock_submit submit, void *user_data,
                                                   penstock_finalizer finalizer, penstock_executor **executor);
/* Makes an executor with one thread of its own, which runs jobs in the order in which they come. The thread blocks all
 * signals but those of its own faults; it ends by itself after the last release, when the jobs that it has are done.
 * Its jobs may wait in blocking functions, but not for a call that needs this executor: E_WOULD_DEADLOCK.
 * result: E_SYSTEM: a thread could not be started.
 * memory: *executor is owned by the caller; free with penstock_executor_release.
 * threads: any */
PENSTOCK_API penstock_result penstock_executor_new_serial(penstock_executor **executor);
/* Adds a reference to `executor`.
 * result: `executor`; NULL for NULL.
 * memory: the reference is given back with penstock_executor_release.
 * threads: any */
PENSTOCK_API penstock_executor *penstock_executor_retain(penstock_executor *executor);
/* Gives a reference back; waits for nothing. NULL does nothing.
 * result: none.
 * memory: the reference is the library's again.
 * threads: any, that of the executor included. */
PENSTOCK_API void penstock_executor_release(penstock_executor *executor);

#ifdef __cplusplus
}
#endif
#endif
