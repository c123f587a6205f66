/* Status: how a call ended. It has a gRPC code, 0-16, a message, details (each a google.protobuf.Any) and trailers.
 *
 * Threading: one status object is for one thread at a time.
 */
#ifndef PENSTOCK_STATUS_H
#define PENSTOCK_STATUS_H

#include "base.h"
#include "metadata.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PENSTOCK_STATUS_OK                  0
#define PENSTOCK_STATUS_CANCELLED           1
#define PENSTOCK_STATUS_UNKNOWN             2
#define PENSTOCK_STATUS_INVALID_ARGUMENT    3
#define PENSTOCK_STATUS_DEADLINE_EXCEEDED   4
#define PENSTOCK_STATUS_NOT_FOUND           5
#define PENSTOCK_STATUS_ALREADY_EXISTS      6
#define PENSTOCK_STATUS_PERMISSION_DENIED   7
#define PENSTOCK_STATUS_RESOURCE_EXHAUSTED  8
#define PENSTOCK_STATUS_FAILED_PRECONDITION 9
#define PENSTOCK_STATUS_ABORTED             10
#define PENSTOCK_STATUS_OUT_OF_RANGE        11
#define PENSTOCK_STATUS_UNIMPLEMENTED       12
#define PENSTOCK_STATUS_INTERNAL            13
#define PENSTOCK_STATUS_UNAVAILABLE         14
#define PENSTOCK_STATUS_DATA_LOSS           15
#define PENSTOCK_STATUS_UNAUTHENTICATED     16

/* Names `code`: "NOT_FOUND" for 5, and so on.
 * result: the name; "unknown" outside 0-16. Never NULL.
 * memory: static.
 * threads: any */
PENSTOCK_API const char *penstock_status_code_name(int32_t code);

typedef struct penstock_status penstock_status;

/* Makes a status with `code` (0-16) and `message` (NUL-terminated UTF-8; NULL is ""), without details and trailers.
 * result: E_INVALID_ARGUMENT: `code` is outside 0-16. E_NO_MEMORY.
 * memory: `message` is copied; *status is owned by the caller; free with penstock_status_release.
 * threads: any */
PENSTOCK_API penstock_result penstock_status_new(int32_t code, const char *message, penstock_status **status);
/* Makes a status from `json`, NUL-terminated, in the form of penstock_status_json. "code" or "name" or both are
 * required, and nothing else is. A detail has "@type" and "base64", or, if it is one of the ten google.rpc error
 * details, its fields. Without "details", the details come from "grpc-status-details-bin" in "metadata".
 * result: E_INVALID_JSON: `error` names the JSON path.
 * memory: *status is owned by the caller; free with penstock_status_release.
 * threads: any */
PENSTOCK_API penstock_result penstock_status_from_json(const char *json, penstock_status **status,
                                                       penstock_error **error);
/* Adds a reference to `status`.
 * result: `status`; NULL for NULL.
 * memory: the reference is given back with penstock_status_release.
 * threads: any, also while another thread uses the status. */
PENSTOCK_API penstock_status *penstock_status_retain(const penstock_status *status);
/* Gives a reference back. NULL does nothing.
 * memory: the reference is the library's again.
 * threads: any */
PENSTOCK_API void penstock_status_release(penstock_status *status);

/* Gives the code, PENSTOCK_STATUS_...
 * result: the code; PENSTOCK_STATUS_UNKNOWN for NULL.
 * memory: none.
 * threads: one thread at a time for one status. */
PENSTOCK_API int32_t penstock_status_code(const penstock_status *status);
/* Gives the message, and in *length (nullable) its bytes, without the NUL at its end. A message of a server may have
 * further NULs.
 * result: NUL-terminated UTF-8 (invalid bytes are replaced by U+FFFD); "" and 0 for NULL.
 * memory: lives until the status is changed or released.
 * threads: one thread at a time for one status. */
PENSTOCK_API const char *penstock_status_message(const penstock_status *status, size_t *length);
/* Sets the code to `code`.
 * result: E_INVALID_ARGUMENT: `code` is outside 0-16. E_STATE: the status is read-only: that of a call that has ended,
 * or of a local cancel or deadline.
 * memory: none.
 * threads: one thread at a time for one status. */
PENSTOCK_API penstock_result penstock_status_set_code(penstock_status *status, int32_t code);
/* Sets the message to `length` bytes at `message`, UTF-8 (invalid bytes are replaced by U+FFFD).
 * result: E_STATE: read-only. E_NO_MEMORY.
 * memory: `message` is copied.
 * threads: one thread at a time for one status. */
PENSTOCK_API penstock_result penstock_status_set_message(penstock_status *status, const void *message, size_t length);

/* Gives the trailers, which can be changed when the status can. If there are details, the trailers contain
 * "grpc-status-details-bin": as the server sent it, or, once code, message or details have been changed, as
 * penstock_status_details_bin gives it.
 * result: the trailers; NULL for NULL.
 * memory: borrowed from the status; lives as long as the status.
 * threads: one thread at a time for one status. */
PENSTOCK_API penstock_metadata *penstock_status_trailers(const penstock_status *status);

/* Counts the details (grpc-status-details-bin, google.rpc.Status.details).
 * result: how many there are; 0 for NULL.
 * memory: none.
 * threads: one thread at a time for one status. */
PENSTOCK_API size_t penstock_status_detail_count(const penstock_status *status);
/* Gives the detail at `index`, from 0: its type URL, NUL-terminated, in *type_url, its bytes in *value, and their
 * number in *length.
 * result: E_NOT_FOUND: no such index.
 * memory: both live until the status is changed or released.
 * threads: one thread at a time for one status. */
PENSTOCK_API penstock_result penstock_status_detail_at(const penstock_status *status, size_t index,
                                                       const char **type_url, const void **value, size_t *length);
/* Gives the first detail with the type URL `type_url`, in *value and *length. A `type_url` without a '/' is compared
 * only with the part of each type URL after its last '/'.
 * result: E_NOT_FOUND: there is none.
 * memory: *value lives until the status is changed or released.
 * threads: one thread at a time for one status. */
PENSTOCK_API penstock_result penstock_status_detail_find(const penstock_status *status, const char *type_url,
                                                         const void **value, size_t *length);
/* Adds a detail of the type `type_url` with `length` bytes at `value`.
 * result: E_STATE: read-only. E_NO_MEMORY.
 * memory: both are copied.
 * threads: one thread at a time for one status. */
PENSTOCK_API penstock_result penstock_status_add_detail(penstock_status *status, const char *type_url,
                                                        const void *value, size_t length);
/* Replaces the value of the first detail with the type URL `type_url`, compared as by penstock_status_detail_find, by
 * `length` bytes at `value`; without such a detail, adds it.
 * result: E_STATE: read-only. E_NO_MEMORY.
 * memory: both are copied.
 * threads: one thread at a time for one status. */
PENSTOCK_API penstock_result penstock_status_set_detail(penstock_status *status, const char *type_url,
                                                        const void *value, size_t length);
/* Removes every detail with the type URL `type_url`, compared as by penstock_status_detail_find.
 * result: E_NOT_FOUND: there is none. E_STATE: read-only.
 * memory: none.
 * threads: one thread at a time for one status. */
PENSTOCK_API penstock_result penstock_status_remove_detail(penstock_status *status, const char *type_url);
/* Removes all details.
 * result: E_STATE: read-only.
 * memory: none.
 * threads: one thread at a time for one status. */
PENSTOCK_API penstock_result penstock_status_clear_details(penstock_status *status);

/* Encodes code, message and details as a google.rpc.Status, in *data and *length: the contents of
 * grpc-status-details-bin before base64.
 * result: E_NO_MEMORY.
 * memory: *data is owned by the caller; free with penstock_free. It is never NULL.
 * threads: one thread at a time for one status. */
PENSTOCK_API penstock_result penstock_status_details_bin(const penstock_status *status, void **data, size_t *length);

/* Writes the status as JSON: {"code": 5, "name": "NOT_FOUND", "message": "...", "metadata": {trailers}, "details":
 * [...]}. Each detail has "@type" and, if it is one of the ten google.rpc error details, its fields; else "base64".
 * If the details can't be decoded, there is "details_error"; if the answer belonged to no RPC, such as a proxy's page,
 * there may be "body", the first 512 bytes of its body, made printable. If the server has sent "grpc-retry-pushback-ms",
 * there is "retry_pushback_ms": the wait in milliseconds before another attempt, or -1: it wants none.
 * result: E_NO_MEMORY.
 * memory: *json is owned by the caller; free with penstock_free.
 * threads: one thread at a time for one status. */
PENSTOCK_API penstock_result penstock_status_json(const penstock_status *status, char **json);

#ifdef __cplusplus
}
#endif
#endif
