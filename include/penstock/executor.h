/* Executors: they run an interceptor's callbacks on threads other than the one that drives the runtime.
 *
 * An interceptor whose callbacks take long, wait, or belong on one thread is registered with an executor for each lane
 * (both may have the same one). Within one call its callbacks of one lane still run in order and one at a time.
 */
#ifndef PENSTOCK_EXECUTOR_H
#define PENSTOCK_EXECUTOR_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* An executor runs jobs. It is reference counted; an interceptor's registration and a running call retain it. */
typedef struct penstock_executor penstock_executor;

/* A job of the library: the executor has to call it exactly once, with its argument, on any thread. */
typedef void (*penstock_job)(void *argument);
/* Takes a job; returns 0 if it has taken it. The job may run on any thread, also before this function returns. Jobs may
 * run at the same time and in any order, because the library submits the next job of a call and lane only when the job
 * before it has ended. Any other value means that the job was not taken and will never run: its call ends with
 * INTERNAL. A job that is taken and never run keeps its call's memory; deadline and cancel still end the call.
 * Threading: any thread may call it, several at once; the library holds no lock then. */
typedef int32_t (*penstock_submit)(penstock_job job, void *argument, void *user_data);

/* Makes an executor from the function `submit`, for example of a thread pool or an event loop. `finalizer` (nullable)
 * gets `user_data` after the last release; no job is left then.
 * result: E_INVALID_ARGUMENT.
 * memory: `user_data` is transferred, even on error. *executor is owned by the caller; free with
 * penstock_executor_release.
 * threads: any */
PENSTOCK_API penstock_result penstock_executor_new(penstock_submit submit, void *user_data,
                                                   penstock_finalizer finalizer, penstock_executor **executor);
/* Makes an executor with one thread of its own, which runs jobs in the order in which they come. The thread blocks all
 * signals except those that its own faults raise. The thread ends by itself after the last release, when all its jobs
 * are done. Its jobs may wait in blocking functions, but not for a call that needs this executor: such a wait gives
 * E_WOULD_DEADLOCK.
 * result: E_SYSTEM: a thread could not be started.
 * memory: *executor is owned by the caller; free with penstock_executor_release.
 * threads: any */
PENSTOCK_API penstock_result penstock_executor_new_serial(penstock_executor **executor);
/* Declares that the event loop or threads behind an executor made with penstock_executor_new exist in a child of fork,
 * too (see fork.h): the program makes the event loop anew there, or starts threads with the next job. Without this
 * declaration, a call in a child that needs the executor ends with INTERNAL. A serial executor starts its thread anew
 * by itself.
 * result: E_INVALID_ARGUMENT: NULL. E_STATE: a serial executor. E_FORKED: it belongs to the parent.
 * memory: none.
 * threads: any */
PENSTOCK_API penstock_result penstock_executor_survives_fork(penstock_executor *executor);
/* Adds a reference to `executor`.
 * result: `executor`; NULL for NULL.
 * memory: the reference is given back with penstock_executor_release.
 * threads: any */
PENSTOCK_API penstock_executor *penstock_executor_retain(penstock_executor *executor);
/* Gives a reference back, and never waits. NULL does nothing.
 * memory: the reference is the library's again.
 * threads: any, also the executor's own. */
PENSTOCK_API void penstock_executor_release(penstock_executor *executor);

#ifdef __cplusplus
}
#endif
#endif
