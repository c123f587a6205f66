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

/* An executor made of a function: a thread pool's, an event loop's. `finalizer` (nullable) gets `user_data` when the
 * last reference has gone; no job is left then. E_INVALID_ARGUMENT: `submit` or `executor` is NULL.
 * Memory: owned by the caller; free with penstock_executor_release. `user_data` is transferred, even on error. */
PENSTOCK_API penstock_result penstock_executor_new(penstock_submit submit, void *user_data,
                                                   penstock_finalizer finalizer, penstock_executor **executor);
/* An executor with one thread of its own, which runs jobs in the order in which they come. The thread blocks all signals
 * but those of its own faults; it ends by itself after the last release, when the jobs that it has are done. Its jobs may
 * wait in blocking functions, but not for a call that needs this executor: E_WOULD_DEADLOCK. E_SYSTEM: a thread could not
 * be started.
 * Memory: owned by the caller; free with penstock_executor_release. */
PENSTOCK_API penstock_result penstock_executor_new_serial(penstock_executor **executor);
PENSTOCK_API penstock_executor *penstock_executor_retain(penstock_executor *executor);
/* From any thread, that of the executor included; it waits for nothing. */
PENSTOCK_API void penstock_executor_release(penstock_executor *executor);

#ifdef __cplusplus
}
#endif
#endif
