/* Fork: how channels, with their interceptors, go on in a child of this process.
 *
 * Without these functions a child gets E_FORKED for the handles of its parent. A program that wants them to work in the
 * child as well asks for it, once, before it makes threads:
 *
 *   pthread_atfork(penstock_fork_prepare, penstock_fork_parent, penstock_fork_child);
 *
 * The child then makes connections and threads of its own when it needs them. The calls that were under way end there
 * with CANCELLED; nothing of the parent's connections is touched, and the parent notices nothing. docs/fork.md says it
 * all.
 */
#ifndef PENSTOCK_FORK_H
#define PENSTOCK_FORK_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Stops the library where all is whole, just before a fork: waits up to one second for the threads that drive runtimes,
 * and for those that hold a lock. After that second, in a callback, or on a system without membarrier nothing is stopped,
 * and the child gets E_FORKED for its parent's handles. Until penstock_fork_parent other threads wait in the library.
 * result: none.
 * memory: none.
 * threads: the one that forks. */
PENSTOCK_API void penstock_fork_prepare(void);
/* Lets the threads of the parent go on, after the fork, also where it failed.
 * result: none.
 * memory: none.
 * threads: the one that has forked. */
PENSTOCK_API void penstock_fork_parent(void);
/* Takes over in the child what the parent has, after the fork and before anything else of the library is used there. No
 * callback runs within it.
 * result: none.
 * memory: none.
 * threads: the one that the child has. */
PENSTOCK_API void penstock_fork_child(void);

#ifdef __cplusplus
}
#endif
#endif
