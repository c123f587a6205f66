/* Status: how a call ended. A gRPC code 0-16, a message, details (google.protobuf.Any each) and trailers.
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

/* "NOT_FOUND" for 5, and so on; "unknown" outside 0-16. Static; never NULL. */
PENSTOCK_API const char *penstock_status_code_name(int32_t code);

typedef struct penstock_status penstock_status;

/* A status with `code` (0-16) and `message` (NUL-terminated UTF-8, copied; NULL is ""), no details, no trailers.
 * Memory: owned by the caller; free with penstock_status_release. */
PENSTOCK_API penstock_result penstock_status_new(int32_t code, const char *message, penstock_status **status);
/* A status from the JSON that penstock_status_json gives, NUL-terminated and borrowed during the call: "code", "name" or
 * both have to be there, and nothing else has to. A detail has "@type" and "base64", or, if it is one of the ten
 * google.rpc error details, its fields. "grpc-status-details-bin" in "metadata" counts where "details" is absent.
 * E_INVALID_JSON names the JSON path. Memory: owned by the caller; free with penstock_status_release. */
PENSTOCK_API penstock_result penstock_status_from_json(const char *json, penstock_status **status,
                                                       penstock_error **error);
PENSTOCK_API penstock_status *penstock_status_retain(const penstock_status *status);
PENSTOCK_API void penstock_status_release(penstock_status *status);

/* PENSTOCK_STATUS_...; PENSTOCK_STATUS_UNKNOWN for NULL. */
PENSTOCK_API int32_t penstock_status_code(const penstock_status *status);
/* NUL-terminated UTF-8 (what is not is repaired with U+FFFD); lives until the status is changed or released. */
PENSTOCK_API const char *penstock_status_message(const penstock_status *status);
/* E_INVALID_ARGUMENT: outside 0-16. E_STATE: read-only (a reply's, a local cancel or deadline). */
PENSTOCK_API penstock_result penstock_status_set_code(penstock_status *status, int32_t code);
/* `message` is NUL-terminated UTF-8 and copied. */
PENSTOCK_API penstock_result penstock_status_set_message(penstock_status *status, const char *message);

/* The trailers: borrowed from the status, and as long-lived. They can be changed where the status can. Where there are
 * details, "grpc-status-details-bin" is among them: as the server sent it until code, message or details are changed,
 * then as penstock_status_details_bin gives it. */
PENSTOCK_API penstock_metadata *penstock_status_trailers(const penstock_status *status);

/* How many details there are (grpc-status-details-bin, google.rpc.Status.details). */
PENSTOCK_API size_t penstock_status_detail_count(const penstock_status *status);
/* The detail at `index`: its type URL (NUL-terminated) and its bytes; both live until the status is changed or
 * released. E_NOT_FOUND: no such index. */
PENSTOCK_API penstock_result penstock_status_detail_at(const penstock_status *status, size_t index,
                                                       const char **type_url, const void **value, size_t *length);
/* The first detail with this type URL; one without a '/' is compared with what stands after the last '/' alone. */
PENSTOCK_API penstock_result penstock_status_detail_find(const penstock_status *status, const char *type_url,
                                                         const void **value, size_t *length);
/* Adds a detail; `type_url` and `value` are copied. */
PENSTOCK_API penstock_result penstock_status_add_detail(penstock_status *status, const char *type_url,
                                                        const void *value, size_t length);
/* Replaces the value of the first detail with this type URL, compared as by penstock_status_detail_find; without one,
 * adds it. Both are copied. */
PENSTOCK_API penstock_result penstock_status_set_detail(penstock_status *status, const char *type_url,
                                                        const void *value, size_t length);
/* Removes every detail with this type URL, compared as by penstock_status_detail_find. E_NOT_FOUND: there is none. */
PENSTOCK_API penstock_result penstock_status_remove_detail(penstock_status *status, const char *type_url);
/* Removes all details. */
PENSTOCK_API penstock_result penstock_status_clear_details(penstock_status *status);

/* Code, message and details, encoded as a google.rpc.Status: what grpc-status-details-bin has to be for them, without its
 * base64. Memory: owned by the caller; free with penstock_free; never NULL. */
PENSTOCK_API penstock_result penstock_status_details_bin(const penstock_status *status, void **data, size_t *length);

/* {"code": 5, "name": "NOT_FOUND", "message": "...", "metadata": {trailers}, "details": [...]}: each detail has
 * "@type" and, if it is one of the ten google.rpc error details, its fields; else "base64". Details that do not decode
 * leave "details_error". Memory: owned by the caller; free with penstock_free. */
PENSTOCK_API penstock_result penstock_status_json(const penstock_status *status, char **json);

#ifdef __cplusplus
}
#endif
#endif
