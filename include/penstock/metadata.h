/* Metadata: an ordered multimap of lower-case names to values. The value of a name that ends in "-bin" is any bytes;
 * every other value is visible ASCII and spaces, without a space at its ends. Reserved names (":...", "grpc-...", "te",
 * "content-type", "user-agent", "host", "content-length" and HTTP/2's connection headers) are refused; where the
 * program may choose such a value, there is a function or an option for it. See "Custom-Metadata" in gRPC over HTTP/2.
 *
 * JSON: {"name": ["v1", "v2"]}; input also takes a bare string for one value. "-bin" values are base64 (padding
 * optional on input). A text value that is not UTF-8 appears as {"base64": "..."}. Order is kept within a name.
 *
 * Threading: one metadata object is for one thread at a time.
 */
#ifndef PENSTOCK_METADATA_H
#define PENSTOCK_METADATA_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct penstock_metadata penstock_metadata;

/* Makes an empty metadata object.
 * result: E_INVALID_ARGUMENT.
 * memory: *metadata is owned by the caller; free with penstock_metadata_release.
 * threads: any */
PENSTOCK_API penstock_result penstock_metadata_new(penstock_metadata **metadata);
/* Adds a reference to `metadata`.
 * result: `metadata`; NULL for NULL.
 * memory: the reference is given back with penstock_metadata_release.
 * threads: any, also while another thread uses the metadata. */
PENSTOCK_API penstock_metadata *penstock_metadata_retain(const penstock_metadata *metadata);
/* Gives a reference back. NULL does nothing.
 * memory: the reference is the library's again.
 * threads: any */
PENSTOCK_API void penstock_metadata_release(penstock_metadata *metadata);

/* Replaces every value of `name` by `value`; both are NUL-terminated. Upper-case letters in `name` are lowered.
 * result: E_INVALID_ARGUMENT: a reserved or malformed name, a value with characters that its name does not allow.
 * E_STATE: the metadata is read-only (a reply's, or an event's that has passed). E_NO_MEMORY.
 * memory: both are copied.
 * threads: one thread at a time for one metadata. */
PENSTOCK_API penstock_result penstock_metadata_set(penstock_metadata *metadata, const char *name, const char *value);
/* Adds `value` after the values that `name` has; both are NUL-terminated. Upper-case letters in `name` are lowered.
 * result: as penstock_metadata_set.
 * memory: both are copied.
 * threads: one thread at a time for one metadata. */
PENSTOCK_API penstock_result penstock_metadata_add(penstock_metadata *metadata, const char *name, const char *value);
/* Replaces every value of `name` by the `length` bytes at `value` (NULL only with length 0). This function is meant for
 * "-bin" names.
 * result: as penstock_metadata_set.
 * memory: both are copied.
 * threads: one thread at a time for one metadata. */
PENSTOCK_API penstock_result penstock_metadata_set_bytes(penstock_metadata *metadata, const char *name,
                                                         const void *value, size_t length);
/* Adds a value of `length` bytes at `value` (NULL only with length 0) after those that `name` has.
 * result: as penstock_metadata_set.
 * memory: both are copied.
 * threads: one thread at a time for one metadata. */
PENSTOCK_API penstock_result penstock_metadata_add_bytes(penstock_metadata *metadata, const char *name,
                                                         const void *value, size_t length);
/* Removes every value of `name`.
 * result: E_NOT_FOUND: it has none. E_STATE: read-only.
 * memory: none.
 * threads: one thread at a time for one metadata. */
PENSTOCK_API penstock_result penstock_metadata_remove(penstock_metadata *metadata, const char *name);

/* Counts the (name, value) pairs.
 * result: how many there are; 0 for NULL.
 * memory: none.
 * threads: one thread at a time for one metadata. */
PENSTOCK_API size_t penstock_metadata_count(const penstock_metadata *metadata);
/* Gives the value at `index` among those of `name`, from 0. *value is followed by a NUL that *length (nullable) does
 * not count.
 * result: E_NOT_FOUND: no such name or index.
 * memory: *value lives until the metadata is changed or released.
 * threads: one thread at a time for one metadata. */
PENSTOCK_API penstock_result penstock_metadata_get(const penstock_metadata *metadata, const char *name, size_t index,
                                                   const void **value, size_t *length);
/* Gives the pair at `index`, 0 to count - 1, in order. *name is NUL-terminated; *value and *length (nullable) are as in
 * penstock_metadata_get.
 * result: E_NOT_FOUND: no such index.
 * memory: *name and *value live until the metadata is changed or released.
 * threads: one thread at a time for one metadata. */
PENSTOCK_API penstock_result penstock_metadata_at(const penstock_metadata *metadata, size_t index, const char **name,
                                                  const void **value, size_t *length);

/* Writes the metadata as JSON, NUL-terminated.
 * result: E_NO_MEMORY.
 * memory: *json is owned by the caller; free with penstock_free.
 * threads: one thread at a time for one metadata. */
PENSTOCK_API penstock_result penstock_metadata_json(const penstock_metadata *metadata, char **json);
/* Replaces all pairs by those in `json` (NUL-terminated).
 * result: E_INVALID_JSON: `error` names the JSON path. E_STATE: read-only. In both cases nothing has changed.
 * memory: none.
 * threads: one thread at a time for one metadata. */
PENSTOCK_API penstock_result penstock_metadata_set_json(penstock_metadata *metadata, const char *json,
                                                        penstock_error **error);

#ifdef __cplusplus
}
#endif
#endif
