/* Conventions, results, errors.
 *
 * Ownership is said in five phrases only: "borrowed during the call" (read before the function returns, never kept),
 * "copied" (the library makes its own), "lent until the finalizer has run" (read where it is, never written),
 * "transferred, even on error" (the library's from now on), "owned by the caller; free with X".
 *
 * The form of a function says whose a result is. What comes out through an argument is the caller's, unless it points to
 * const. A pointer that is returned is borrowed, and its text says how long it lives; only X_retain returns one to keep.
 * So too with JSON: a reply and an error never change, keep their JSON and return it; everything else gives a new string
 * through a `char **`, owned by the caller; free with penstock_free.
 *
 * Every handle is reference counted: X_retain adds a reference, X_release gives one back, X_release(NULL) does
 * nothing, and no release ever blocks. Every function may be called from any thread and from any callback unless its
 * text says otherwise. A pointer that must not be NULL gives PENSTOCK_E_INVALID_ARGUMENT when it is. On failure
 * outputs are left untouched. `penstock_error **error` is always optional. A table whose struct_size is too small is not
 * read: what is in it stays the caller's.
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

/* What a library function says of itself. It is not a gRPC status: a call that ran and ended with NOT_FOUND is
 * PENSTOCK_OK with a reply whose status is NOT_FOUND. */
typedef int32_t penstock_result;

#define PENSTOCK_OK                 0
#define PENSTOCK_E_INVALID_ARGUMENT 1  /* a NULL, a size or a value that is not allowed */
#define PENSTOCK_E_INVALID_JSON     2  /* options or metadata JSON: malformed, unknown key, wrong type, out of range */
#define PENSTOCK_E_NO_MEMORY        3  /* an allocation failed */
#define PENSTOCK_E_UNSUPPORTED      4  /* asks for something that this version does not have */
#define PENSTOCK_E_ALREADY          5  /* done before: a spent ticket, a second half-close */
#define PENSTOCK_E_GONE             6  /* what the handle stood for has ended */
#define PENSTOCK_E_WOULD_BLOCK      7  /* no room or no demand now; try again after the signal */
#define PENSTOCK_E_WOULD_DEADLOCK   8  /* a function that waits, called in a callback on the driving thread */
#define PENSTOCK_E_BUSY             9  /* another thread drives the runtime, or this is a poll within a poll */
#define PENSTOCK_E_TIMEOUT          10 /* the given time ran out */
#define PENSTOCK_E_INTERRUPTED      11 /* a signal arrived in an interruptible wait */
#define PENSTOCK_E_FORKED           12 /* the handle belongs to the parent of this process */
#define PENSTOCK_E_CLOSED           13 /* the channel or its runtime has been closed */
#define PENSTOCK_E_NOT_FOUND        14 /* no such name, index, key or id */
#define PENSTOCK_E_STATE            15 /* not allowed at this point of the call, or in this callback */
#define PENSTOCK_E_TOO_LARGE        16 /* over a limit */
#define PENSTOCK_E_SYSTEM           17 /* the operating system refused; the message says what */
#define PENSTOCK_E_END              18 /* no more messages; the call's status is next */

/* The name of a result ("PENSTOCK_E_BUSY"), or "unknown". Static; never NULL. */
PENSTOCK_API const char *penstock_result_name(penstock_result result);

/* The version of the library that runs, "MAJOR.MINOR.PATCH", with "-dev" behind it before it is finished. Static; never
 * NULL. */
PENSTOCK_API const char *penstock_version(void);
/* The same as a number, 0xMMmmpp: compare with PENSTOCK_VERSION_NUMBER, that of the header compiled against. */
PENSTOCK_API uint32_t penstock_version_number(void);

/* Runs when the library is done with a `user_data`: exactly once, after which no callback with it runs; never while
 * a lock of the library is held; on any thread. */
typedef void (*penstock_finalizer)(void *user_data);

/* Frees memory that is "owned by the caller; free with penstock_free". NULL does nothing. */
PENSTOCK_API void penstock_free(void *memory);

/* Why a function failed: immutable, owned by the caller; free with penstock_error_release. */
typedef struct penstock_error penstock_error;

/* The result that the function returned with it; PENSTOCK_E_INVALID_ARGUMENT for NULL. */
PENSTOCK_API penstock_result penstock_error_code(const penstock_error *error);
/* What, where and what was expected, in words, NUL-terminated UTF-8; lives as long as `error`. "" for NULL. */
PENSTOCK_API const char *penstock_error_message(const penstock_error *error);
/* {"code": "PENSTOCK_E_...", "message": ..., "path": JSON path of the wrong value or null}; lives as long as
 * `error`. "{}" for NULL. */
PENSTOCK_API const char *penstock_error_json(const penstock_error *error);
PENSTOCK_API penstock_error *penstock_error_retain(penstock_error *error);
PENSTOCK_API void penstock_error_release(penstock_error *error);

#ifdef __cplusplus
}
#endif
#endif
