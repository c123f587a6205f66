/* Metadata: an ordered multimap of lower-case names to values. Values of names that end in "-bin" are any bytes; all
 * others are visible ASCII and spaces, with none at their ends. Reserved names (":...", "grpc-...", "te", "content-type",
 * "user-agent", "host", "content-length" and HTTP/2's connection headers) are refused: what they say has accessors or
 * options of its own.
 * gRPC over HTTP/2, "Custom-Metadata".
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

/* An empty one. Memory: owned by the caller; free with penstock_metadata_release. */
PENSTOCK_API penstock_result penstock_metadata_new(penstock_metadata **metadata);
PENSTOCK_API penstock_metadata *penstock_metadata_retain(const penstock_metadata *metadata);
PENSTOCK_API void penstock_metadata_release(penstock_metadata *metadata);

/* Replaces every value of `name` by one; `name` and `value` are NUL-terminated and copied. Upper-case letters in
 * `name` are lowered. E_INVALID_ARGUMENT: NULL, a reserved or malformed name, a value with characters that its name
 * does not allow. E_STATE: the object is read-only (a reply's, or an event that has passed). */
PENSTOCK_API penstock_result penstock_metadata_set(penstock_metadata *metadata, const char *name, const char *value);
/* Adds a value after those that `name` has. Otherwise as penstock_metadata_set. */
PENSTOCK_API penstock_result penstock_metadata_add(penstock_metadata *metadata, const char *name, const char *value);
/* The same with a value of `length` bytes, for "-bin" names above all; `value` may be NULL if `length` is 0. */
PENSTOCK_API penstock_result penstock_metadata_set_bytes(penstock_metadata *metadata, const char *name,
                                                         const void *value, size_t length);
PENSTOCK_API penstock_result penstock_metadata_add_bytes(penstock_metadata *metadata, const char *name,
                                                         const void *value, size_t length);
/* Removes every value of `name`. E_NOT_FOUND: it has none. */
PENSTOCK_API penstock_result penstock_metadata_remove(penstock_metadata *metadata, const char *name);

/* How many (name, value) pairs there are; 0 for NULL. */
PENSTOCK_API size_t penstock_metadata_count(const penstock_metadata *metadata);
/* The `index`-th value of `name`. `*value` is followed by a NUL that `*length` (nullable) does not count, and lives
 * until the metadata is changed or released. E_NOT_FOUND: no such name or index. */
PENSTOCK_API penstock_result penstock_metadata_get(const penstock_metadata *metadata, const char *name, size_t index,
                                                   const void **value, size_t *length);
/* The pair at `index`, 0 to count - 1, in order. `*name` is NUL-terminated; both live as in penstock_metadata_get. */
PENSTOCK_API penstock_result penstock_metadata_at(const penstock_metadata *metadata, size_t index, const char **name,
                                                  const void **value, size_t *length);

/* The whole as JSON, NUL-terminated. Memory: owned by the caller; free with penstock_free. */
PENSTOCK_API penstock_result penstock_metadata_json(const penstock_metadata *metadata, char **json);
/* Replaces the whole by `json`; nothing changes if it fails. E_INVALID_JSON: `error` names the JSON path. */
PENSTOCK_API penstock_result penstock_metadata_set_json(penstock_metadata *metadata, const char *json,
                                                        penstock_error **error);

#ifdef __cplusplus
}
#endif
#endif
