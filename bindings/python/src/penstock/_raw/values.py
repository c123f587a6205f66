"""The functions of base.h, metadata.h, status.h and executor.h: errors, metadata, statuses, executors."""

from __future__ import annotations

from ctypes import POINTER, c_char_p, c_int32, c_size_t, c_uint32, c_void_p
from typing import Any, Dict, Tuple

from .c_types import penstock_finalizer, penstock_out_of_memory_hook, penstock_submit

PROTOTYPES: Dict[str, Tuple[Any, ...]] = {
    # ---- base.h ----
    # const char *penstock_result_name(penstock_result result);
    "penstock_result_name": (c_char_p, c_int32),
    # const char *penstock_version(void);
    "penstock_version": (c_char_p,),
    # uint32_t penstock_version_number(void);
    "penstock_version_number": (c_uint32,),
    # penstock_result penstock_version_json(char **json);
    "penstock_version_json": (c_int32, POINTER(c_void_p)),
    # void penstock_set_out_of_memory_hook(penstock_out_of_memory_hook hook, void *user_data);
    "penstock_set_out_of_memory_hook": (None, penstock_out_of_memory_hook, c_void_p),
    # void penstock_free(void *memory);
    "penstock_free": (None, c_void_p),
    # const char *penstock_error_message(const penstock_error *error);
    "penstock_error_message": (c_char_p, c_void_p),
    # const char *penstock_error_json(const penstock_error *error);
    "penstock_error_json": (c_char_p, c_void_p),
    # void penstock_error_release(penstock_error *error);
    "penstock_error_release": (None, c_void_p),
    # ---- metadata.h ----
    # penstock_result penstock_metadata_new(penstock_metadata **metadata);
    "penstock_metadata_new": (c_int32, POINTER(c_void_p)),
    # penstock_metadata *penstock_metadata_retain(const penstock_metadata *metadata);
    "penstock_metadata_retain": (c_void_p, c_void_p),
    # void penstock_metadata_release(penstock_metadata *metadata);
    "penstock_metadata_release": (None, c_void_p),
    # penstock_result penstock_metadata_set(penstock_metadata *metadata, const char *name, const char *value);
    "penstock_metadata_set": (c_int32, c_void_p, c_char_p, c_char_p),
    # penstock_result penstock_metadata_add(penstock_metadata *metadata, const char *name, const char *value);
    "penstock_metadata_add": (c_int32, c_void_p, c_char_p, c_char_p),
    # penstock_result penstock_metadata_set_bytes(penstock_metadata *metadata, const char *name, const void *value,
    # size_t length);
    "penstock_metadata_set_bytes": (c_int32, c_void_p, c_char_p, c_void_p, c_size_t),
    # penstock_result penstock_metadata_add_bytes(penstock_metadata *metadata, const char *name, const void *value,
    # size_t length);
    "penstock_metadata_add_bytes": (c_int32, c_void_p, c_char_p, c_void_p, c_size_t),
    # penstock_result penstock_metadata_remove(penstock_metadata *metadata, const char *name);
    "penstock_metadata_remove": (c_int32, c_void_p, c_char_p),
    # size_t penstock_metadata_count(const penstock_metadata *metadata);
    "penstock_metadata_count": (c_size_t, c_void_p),
    # penstock_result penstock_metadata_get(const penstock_metadata *metadata, const char *name, size_t index, const
    # void **value, size_t *length);
    "penstock_metadata_get": (c_int32, c_void_p, c_char_p, c_size_t, POINTER(c_void_p), POINTER(c_size_t)),
    # penstock_result penstock_metadata_at(const penstock_metadata *metadata, size_t index, const char **name, const
    # void **value, size_t *length);
    "penstock_metadata_at": (c_int32, c_void_p, c_size_t, POINTER(c_char_p), POINTER(c_void_p), POINTER(c_size_t)),
    # penstock_result penstock_metadata_json(const penstock_metadata *metadata, char **json);
    "penstock_metadata_json": (c_int32, c_void_p, POINTER(c_void_p)),
    # penstock_result penstock_metadata_set_json(penstock_metadata *metadata, const char *json, penstock_error
    # **error);
    "penstock_metadata_set_json": (c_int32, c_void_p, c_char_p, POINTER(c_void_p)),
    # ---- status.h ----
    # const char *penstock_status_code_name(int32_t code);
    "penstock_status_code_name": (c_char_p, c_int32),
    # penstock_result penstock_status_new(int32_t code, const char *message, penstock_status **status);
    "penstock_status_new": (c_int32, c_int32, c_char_p, POINTER(c_void_p)),
    # penstock_result penstock_status_from_json(const char *json, penstock_status **status, penstock_error **error);
    "penstock_status_from_json": (c_int32, c_char_p, POINTER(c_void_p), POINTER(c_void_p)),
    # penstock_status *penstock_status_retain(const penstock_status *status);
    "penstock_status_retain": (c_void_p, c_void_p),
    # void penstock_status_release(penstock_status *status);
    "penstock_status_release": (None, c_void_p),
    # int32_t penstock_status_code(const penstock_status *status);
    "penstock_status_code": (c_int32, c_void_p),
    # const char *penstock_status_message(const penstock_status *status, size_t *length);
    "penstock_status_message": (c_void_p, c_void_p, POINTER(c_size_t)),
    # penstock_result penstock_status_set_code(penstock_status *status, int32_t code);
    "penstock_status_set_code": (c_int32, c_void_p, c_int32),
    # penstock_result penstock_status_set_message(penstock_status *status, const void *message, size_t length);
    "penstock_status_set_message": (c_int32, c_void_p, c_void_p, c_size_t),
    # penstock_metadata *penstock_status_trailers(const penstock_status *status);
    "penstock_status_trailers": (c_void_p, c_void_p),
    # size_t penstock_status_detail_count(const penstock_status *status);
    "penstock_status_detail_count": (c_size_t, c_void_p),
    # penstock_result penstock_status_detail_at(const penstock_status *status, size_t index, const char **type_url,
    # const void **value, size_t *length);
    "penstock_status_detail_at": (
        c_int32,
        c_void_p,
        c_size_t,
        POINTER(c_char_p),
        POINTER(c_void_p),
        POINTER(c_size_t),
    ),
    # penstock_result penstock_status_detail_find(const penstock_status *status, const char *type_url, const void
    # **value, size_t *length);
    "penstock_status_detail_find": (c_int32, c_void_p, c_char_p, POINTER(c_void_p), POINTER(c_size_t)),
    # penstock_result penstock_status_add_detail(penstock_status *status, const char *type_url, const void *value,
    # size_t length);
    "penstock_status_add_detail": (c_int32, c_void_p, c_char_p, c_void_p, c_size_t),
    # penstock_result penstock_status_set_detail(penstock_status *status, const char *type_url, const void *value,
    # size_t length);
    "penstock_status_set_detail": (c_int32, c_void_p, c_char_p, c_void_p, c_size_t),
    # penstock_result penstock_status_remove_detail(penstock_status *status, const char *type_url);
    "penstock_status_remove_detail": (c_int32, c_void_p, c_char_p),
    # penstock_result penstock_status_clear_details(penstock_status *status);
    "penstock_status_clear_details": (c_int32, c_void_p),
    # penstock_result penstock_status_details_bin(const penstock_status *status, void **data, size_t *length);
    "penstock_status_details_bin": (c_int32, c_void_p, POINTER(c_void_p), POINTER(c_size_t)),
    # penstock_result penstock_status_json(const penstock_status *status, char **json);
    "penstock_status_json": (c_int32, c_void_p, POINTER(c_void_p)),
    # ---- executor.h ----
    # penstock_result penstock_executor_new(penstock_submit submit, void *user_data, penstock_finalizer finalizer,
    # penstock_executor **executor);
    "penstock_executor_new": (c_int32, penstock_submit, c_void_p, penstock_finalizer, POINTER(c_void_p)),
    # penstock_result penstock_executor_new_serial(penstock_executor **executor);
    "penstock_executor_new_serial": (c_int32, POINTER(c_void_p)),
    # penstock_result penstock_executor_survives_fork(penstock_executor *executor);
    "penstock_executor_survives_fork": (c_int32, c_void_p),
    # penstock_executor *penstock_executor_retain(penstock_executor *executor);
    "penstock_executor_retain": (c_void_p, c_void_p),
    # void penstock_executor_release(penstock_executor *executor);
    "penstock_executor_release": (None, c_void_p),
}
