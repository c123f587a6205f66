/* Conventions, results, errors.
 *
 * Every function has a comment of its own, in one order: its purpose, with the parameters and their units; `result:`,
 * the values that it returns, with the errors (not where it returns void); `memory:`, the ownership; `threads:`, the
 * threads that may call it.
 * These rules hold for all functions:
 *
 * result: a function that returns a penstock_result gives PENSTOCK_OK when all went well. E_... is short for
 * PENSTOCK_E_...: E_INVALID_ARGUMENT (a pointer is NULL that must not be), E_FORKED (a handle belongs to the parent of
 * this process) and E_NO_MEMORY may come even where they are not named. After a failure the outputs are as they were.
 * `penstock_error **error` is always optional; after a failure *error is owned by the caller; free with
 * penstock_error_release.
 *
 * memory: these phrases say who owns something: "borrowed during the call" (read before the function returns, never
 * kept), "copied" (the library makes its own), "retained" (the library adds a reference of its own), "lent until the
 * finalizer has run" (read in place, never written), "transferred, even on error" (the library's from now on), "owned by
 * the caller; free with X", "static" (never freed). "none" means that the arguments are borrowed during the call and
 * nothing is given out. A table whose struct_size is too small is not read: everything in it stays the caller's. No
 * table is read or written behind its struct_size.
 *
 * threads: "any" means any thread, also several threads at once, and also in any callback.
 *
 * The signature of a function shows who owns its result. An object that is given through an output argument is owned by
 * the caller, unless its type is const. A pointer that is returned is borrowed, and its comment says how long it lives;
 * only the pointer that X_retain returns is the caller's to keep. JSON follows the same rule: a reply and an error
 * never change, so they keep their JSON and return it; all other functions give a new string through a `char **`, owned
 * by the caller; free with penstock_free.
 *
 * Every handle is reference counted: X_retain adds a reference, X_release gives one back, X_release(NULL) does nothing,
 * and no release ever blocks.
 */
#ifndef PENSTOCK_BASE_H
#define PENSTOCK_BASE_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define PENSTOCK_API __attribute__((visibility("default")))
#else
#define PENSTOCK_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* The result of a library function. It is not a gRPC status: a call that ran and ended with NOT_FOUND is
 * PENSTOCK_OK with a reply whose status is NOT_FOUND. */
typedef int32_t penstock_result;

#define PENSTOCK_OK                 0
#define PENSTOCK_E_INVALID_ARGUMENT 1  /* a NULL, a size or a value that is not allowed */
#define PENSTOCK_E_INVALID_JSON     2  /* options or metadata JSON: malformed, unknown key, wrong type, out of range */
#define PENSTOCK_E_NO_MEMORY        3  /* an allocation failed */
#define PENSTOCK_E_UNSUPPORTED      4  /* the caller asked for something that this version does not have */
#define PENSTOCK_E_ALREADY          5  /* it was done before: the ticket is spent, the call is half-closed */
#define PENSTOCK_E_GONE             6  /* the call, event or other thing that the handle stands for has ended */
#define PENSTOCK_E_WOULD_BLOCK      7  /* no room, demand or reply yet: on_sent, on_demand or on_reply tells when */
#define PENSTOCK_E_WOULD_DEADLOCK   8  /* a function that waits, called in a callback on the driving thread */
#define PENSTOCK_E_BUSY             9  /* another thread drives the runtime, or a callback of the runtime polls it */
#define PENSTOCK_E_TIMEOUT          10 /* the given time ran out */
#define PENSTOCK_E_INTERRUPTED      11 /* a signal handler ran, or may have run, during an interruptible wait */
#define PENSTOCK_E_FORKED           12 /* the handle belongs to the parent of this process */
#define PENSTOCK_E_CLOSED           13 /* the channel or its runtime has been closed */
#define PENSTOCK_E_NOT_FOUND        14 /* no such name, index, key or id */
#define PENSTOCK_E_STATE            15 /* not allowed at this point of the call, or in this callback */
#define PENSTOCK_E_TOO_LARGE        16 /* larger than a limit */
#define PENSTOCK_E_SYSTEM           17 /* the operating system refused; the error's message says what */
#define PENSTOCK_E_END              18 /* no more messages, or no headers: only the call's status is left */

/* Names `result`, such as "PENSTOCK_E_BUSY".
 * result: the name; "unknown" for a number that is no result. Never NULL.
 * memory: static.
 * threads: any */
PENSTOCK_API const char *penstock_result_name(penstock_result result);

/* Gives the version of the running library: "MAJOR.MINOR.PATCH", followed by "-dev" before that version is released.
 * result: NUL-terminated. Never NULL.
 * memory: static.
 * threads: any */
PENSTOCK_API const char *penstock_version(void);
/* Gives the version of the running library as a number, 0xMMmmpp. Compare it with PENSTOCK_VERSION_NUMBER, the version
 * of the header that the program was compiled with.
 * result: the number.
 * memory: none.
 * threads: any */
PENSTOCK_API uint32_t penstock_version_number(void);
/* Writes as JSON the versions of the running library and of the libraries that it stands on:
 * {"version", "libraries": {"openssl", "nghttp2", "jansson", "zlib": each {"version", "inside"}}}
 * "inside" is true for a library that is linked in statically, so that updates of the system's do not reach it.
 * result: E_INVALID_ARGUMENT for `json` NULL, E_NO_MEMORY.
 * memory: *json is owned by the caller; free with penstock_free.
 * threads: any */
PENSTOCK_API penstock_result penstock_version_json(char **json);

/* The library calls a finalizer exactly once, when it no longer needs `user_data`. The finalizer may run on any thread,
 * but never while the library holds a lock. No callback gets this `user_data` afterwards. */
typedef void (*penstock_finalizer)(void *user_data);

/* Frees `memory` that is "owned by the caller; free with penstock_free". NULL does nothing.
 * memory: `memory` is the library's again.
 * threads: any */
PENSTOCK_API void penstock_free(void *memory);

/* Is told that the process is about to end because there is no memory for `bytes` bytes. */
typedef void (*penstock_out_of_memory_hook)(size_t bytes, void *user_data);

/* Sets the function that is called before the process ends for lack of memory; NULL: none (the default). Functions and
 * calls that lack memory end with E_NO_MEMORY and RESOURCE_EXHAUSTED, and a reserve lets what runs end so. Only if the
 * reserve is used up too, the library ends the process by a trap (SIGILL on x86-64), after the hook. The hook runs on the
 * thread that lacks the memory, perhaps while the library holds locks: it must not call the library, and should write what
 * it has to say with write(2). It may end the process itself. It gets `user_data`.
 * memory: `user_data` is kept until the next call of this function; it stays the caller's.
 * threads: any; set it before other threads use the library. */
PENSTOCK_API void penstock_set_out_of_memory_hook(penstock_out_of_memory_hook hook, void *user_data);

/* An error: says why a function failed. It is immutable and owned by the caller; free with penstock_error_release. */
typedef struct penstock_error penstock_error;

/* Tells in words what failed, where, and what was expected.
 * result: NUL-terminated UTF-8; "" for NULL.
 * memory: lives as long as `error`.
 * threads: any */
PENSTOCK_API const char *penstock_error_message(const penstock_error *error);
/* Gives the error as JSON: {"code": "PENSTOCK_E_...", "message", "path": JSON path of the wrong value or null}.
 * result: NUL-terminated; "{}" for NULL.
 * memory: lives as long as `error`.
 * threads: any */
PENSTOCK_API const char *penstock_error_json(const penstock_error *error);
/* Gives a reference back. NULL does nothing.
 * memory: the reference is the library's again.
 * threads: any */
PENSTOCK_API void penstock_error_release(penstock_error *error);

#ifdef __cplusplus
}
#endif
#endif
