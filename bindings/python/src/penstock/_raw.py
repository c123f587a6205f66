"""The C functions as they are in include/penstock/*.h: prototypes only.

A function becomes an attribute of this module when the first one is asked for; that is when the library is loaded.
Handles are ``int | None`` (``void *``); strings that C gives back are ``bytes | None``.
"""

from __future__ import annotations

import ctypes
from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    c_char_p,
    c_int,
    c_int32,
    c_int64,
    c_size_t,
    c_uint32,
    c_uint64,
    c_void_p,
)
from typing import Any, Dict, Tuple

from . import _library

# ---- Types ----

# typedef void (*penstock_finalizer)(void *user_data);
penstock_finalizer = CFUNCTYPE(None, c_void_p)
# typedef void (*penstock_job)(void *argument);
penstock_job = CFUNCTYPE(None, c_void_p)
# typedef int32_t (*penstock_submit)(penstock_job job, void *argument, void *user_data);
penstock_submit = CFUNCTYPE(c_int32, penstock_job, c_void_p, c_void_p)
# typedef int32_t (*penstock_hop_callback)(penstock_hop *hop, void *state);
penstock_hop_callback = CFUNCTYPE(c_int32, c_void_p, c_void_p)
# typedef int32_t (*penstock_hop_create)(penstock_hop *hop, void *user_data, void **state);
penstock_hop_create = CFUNCTYPE(c_int32, c_void_p, c_void_p, POINTER(c_void_p))
# typedef void (*penstock_hop_destroy)(penstock_hop *hop, void *state);
penstock_hop_destroy = CFUNCTYPE(None, c_void_p, c_void_p)
# typedef int32_t (*penstock_async_create)(void *user_data, const char *method, int32_t kind, void **state);
penstock_async_create = CFUNCTYPE(c_int32, c_void_p, c_char_p, c_int32, POINTER(c_void_p))
# typedef void (*penstock_async_destroy)(void *state);
penstock_async_destroy = CFUNCTYPE(None, c_void_p)
# typedef void (*penstock_async_metadata)(void *state, penstock_metadata *metadata, penstock_completion *completion);
penstock_async_metadata = CFUNCTYPE(None, c_void_p, c_void_p, c_void_p)
# typedef void (*penstock_async_message)(void *state, const void *data, size_t length,
#                                       penstock_completion *completion);
penstock_async_message = CFUNCTYPE(None, c_void_p, c_void_p, c_size_t, c_void_p)
# typedef void (*penstock_async_signal)(void *state, penstock_completion *completion);
penstock_async_signal = CFUNCTYPE(None, c_void_p, c_void_p)
# typedef void (*penstock_async_status)(void *state, penstock_status *status, penstock_completion *completion);
penstock_async_status = CFUNCTYPE(None, c_void_p, c_void_p, c_void_p)
# typedef void (*penstock_async_cancel)(void *state, const penstock_status *status);
penstock_async_cancel = CFUNCTYPE(None, c_void_p, c_void_p)
# typedef int32_t (*penstock_intercept)(penstock_intercepted_call *call, void *user_data);
penstock_intercept = CFUNCTYPE(c_int32, c_void_p, c_void_p)
# int32_t (*encode)(void *user_data, const char *method, void *object, penstock_buffer *bytes)
penstock_codec_encode = CFUNCTYPE(c_int32, c_void_p, c_char_p, c_void_p, c_void_p)
# int32_t (*decode)(void *user_data, const char *method, const void *data, size_t length, void **object)
penstock_codec_decode = CFUNCTYPE(c_int32, c_void_p, c_char_p, c_void_p, c_size_t, POINTER(c_void_p))
# void (*free)(void *user_data, void *object)
penstock_codec_free = CFUNCTYPE(None, c_void_p, c_void_p)
# void *(*copy)(void *user_data, void *object)
penstock_codec_copy = CFUNCTYPE(c_void_p, c_void_p, c_void_p)
# int32_t (*interrupted)(void *user_data)
penstock_interrupted = CFUNCTYPE(c_int32, c_void_p)
# void (*on_headers)(penstock_call *call, const penstock_metadata *headers, void *user_data), and so on
penstock_call_event = CFUNCTYPE(None, c_void_p, c_void_p, c_void_p)
# void (*on_sent)(penstock_call *call, uint64_t count, void *user_data)
penstock_call_sent = CFUNCTYPE(None, c_void_p, c_uint64, c_void_p)
# void penstock_token_source(penstock_token_request *request, void *user_data)
penstock_token_source = CFUNCTYPE(None, c_void_p, c_void_p)
# void penstock_log_line(const char *line, size_t length, void *user_data)
penstock_log_line = CFUNCTYPE(None, c_void_p, c_size_t, c_void_p)


class penstock_interceptor(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("name", c_char_p),
        ("methods", c_char_p),
        ("kinds", c_uint32),
        ("flags", c_uint32),
        ("hold_bytes", c_size_t),
        ("user_data", c_void_p),
        ("finalizer", penstock_finalizer),
        ("create", penstock_hop_create),
        ("destroy", penstock_hop_destroy),
        ("on_start", penstock_hop_callback),
        ("on_send", penstock_hop_callback),
        ("on_half_close", penstock_hop_callback),
        ("on_headers", penstock_hop_callback),
        ("on_receive", penstock_hop_callback),
        ("on_status", penstock_hop_callback),
        ("on_cancel", penstock_hop_callback),
        ("on_demand", penstock_hop_callback),
        ("on_sent", penstock_hop_callback),
        ("replay_bytes", c_size_t),
        ("max_restarts", c_size_t),
        ("outbound_executor", c_void_p),
        ("inbound_executor", c_void_p),
    ]


class penstock_async_interceptor(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("name", c_char_p),
        ("methods", c_char_p),
        ("kinds", c_uint32),
        ("flags", c_uint32),
        ("user_data", c_void_p),
        ("finalizer", penstock_finalizer),
        ("create", penstock_async_create),
        ("destroy", penstock_async_destroy),
        ("on_start", penstock_async_metadata),
        ("on_request", penstock_async_message),
        ("on_half_close", penstock_async_signal),
        ("on_headers", penstock_async_metadata),
        ("on_response", penstock_async_message),
        ("on_status", penstock_async_status),
        ("on_cancel", penstock_async_cancel),
    ]


class penstock_sync_interceptor(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("name", c_char_p),
        ("methods", c_char_p),
        ("kinds", c_uint32),
        ("flags", c_uint32),
        ("hold_bytes", c_size_t),
        ("user_data", c_void_p),
        ("finalizer", penstock_finalizer),
        ("intercept", penstock_intercept),
    ]


class penstock_call_callbacks(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("user_data", c_void_p),
        ("finalizer", penstock_finalizer),
        ("on_headers", penstock_call_event),
        ("on_message", penstock_call_event),
        ("on_sent", penstock_call_sent),
        ("on_reply", penstock_call_event),
    ]


class penstock_codec_functions(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("user_data", c_void_p),
        ("finalizer", penstock_finalizer),
        ("encode", penstock_codec_encode),
        ("decode", penstock_codec_decode),
        ("free", penstock_codec_free),
        ("copy", penstock_codec_copy),
    ]


# ---- Functions ----

PROTOTYPES: Dict[str, Tuple[Any, Tuple[Any, ...]]] = {}


def _declare(name: str, restype: Any, *argtypes: Any) -> None:
    PROTOTYPES[name] = (restype, argtypes)


def __getattr__(name: str) -> Any:
    if name not in PROTOTYPES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    _library.load()
    return globals()[name]


def bind(library: ctypes.CDLL) -> None:
    """Makes every declared function an attribute of this module.

    Raises AttributeError, with the symbol's name, if the library lacks one.
    """
    functions = {}
    for name, (restype, argtypes) in PROTOTYPES.items():
        function = getattr(library, name)
        function.restype = restype
        function.argtypes = argtypes
        functions[name] = function
    globals().update(functions)


# ---- base.h ----

# const char *penstock_result_name(penstock_result result);
_declare("penstock_result_name", c_char_p, c_int32)
# const char *penstock_version(void);
_declare("penstock_version", c_char_p)
# uint32_t penstock_version_number(void);
_declare("penstock_version_number", c_uint32)
# void penstock_free(void *memory);
_declare("penstock_free", None, c_void_p)
# penstock_result penstock_error_code(const penstock_error *error);
_declare("penstock_error_code", c_int32, c_void_p)
# const char *penstock_error_message(const penstock_error *error);
_declare("penstock_error_message", c_char_p, c_void_p)
# const char *penstock_error_json(const penstock_error *error);
_declare("penstock_error_json", c_char_p, c_void_p)
# penstock_error *penstock_error_retain(penstock_error *error);
_declare("penstock_error_retain", c_void_p, c_void_p)
# void penstock_error_release(penstock_error *error);
_declare("penstock_error_release", None, c_void_p)

# ---- metadata.h ----

# penstock_result penstock_metadata_new(penstock_metadata **metadata);
_declare("penstock_metadata_new", c_int32, POINTER(c_void_p))
# penstock_metadata *penstock_metadata_retain(const penstock_metadata *metadata);
_declare("penstock_metadata_retain", c_void_p, c_void_p)
# void penstock_metadata_release(penstock_metadata *metadata);
_declare("penstock_metadata_release", None, c_void_p)
# penstock_result penstock_metadata_set(penstock_metadata *metadata, const char *name, const char *value);
_declare("penstock_metadata_set", c_int32, c_void_p, c_char_p, c_char_p)
# penstock_result penstock_metadata_add(penstock_metadata *metadata, const char *name, const char *value);
_declare("penstock_metadata_add", c_int32, c_void_p, c_char_p, c_char_p)
# penstock_result penstock_metadata_set_bytes(penstock_metadata *metadata, const char *name, const void
# *value, size_t length);
_declare("penstock_metadata_set_bytes", c_int32, c_void_p, c_char_p, c_void_p, c_size_t)
# penstock_result penstock_metadata_add_bytes(penstock_metadata *metadata, const char *name, const void
# *value, size_t length);
_declare("penstock_metadata_add_bytes", c_int32, c_void_p, c_char_p, c_void_p, c_size_t)
# penstock_result penstock_metadata_remove(penstock_metadata *metadata, const char *name);
_declare("penstock_metadata_remove", c_int32, c_void_p, c_char_p)
# size_t penstock_metadata_count(const penstock_metadata *metadata);
_declare("penstock_metadata_count", c_size_t, c_void_p)
# penstock_result penstock_metadata_get(const penstock_metadata *metadata, const char *name, size_t index,
# const void **value, size_t *length);
_declare("penstock_metadata_get", c_int32, c_void_p, c_char_p, c_size_t, POINTER(c_void_p), POINTER(c_size_t))
# penstock_result penstock_metadata_at(const penstock_metadata *metadata, size_t index, const char **name,
# const void **value, size_t *length);
_declare(
    "penstock_metadata_at",
    c_int32,
    c_void_p,
    c_size_t,
    POINTER(c_char_p),
    POINTER(c_void_p),
    POINTER(c_size_t),
)
# penstock_result penstock_metadata_json(const penstock_metadata *metadata, char **json);
_declare("penstock_metadata_json", c_int32, c_void_p, POINTER(c_void_p))
# penstock_result penstock_metadata_set_json(penstock_metadata *metadata, const char *json, penstock_error
# **error);
_declare("penstock_metadata_set_json", c_int32, c_void_p, c_char_p, POINTER(c_void_p))

# ---- status.h ----

# const char *penstock_status_code_name(int32_t code);
_declare("penstock_status_code_name", c_char_p, c_int32)
# penstock_result penstock_status_new(int32_t code, const char *message, penstock_status **status);
_declare("penstock_status_new", c_int32, c_int32, c_char_p, POINTER(c_void_p))
# penstock_result penstock_status_from_json(const char *json, penstock_status **status, penstock_error
# **error);
_declare("penstock_status_from_json", c_int32, c_char_p, POINTER(c_void_p), POINTER(c_void_p))
# penstock_status *penstock_status_retain(const penstock_status *status);
_declare("penstock_status_retain", c_void_p, c_void_p)
# void penstock_status_release(penstock_status *status);
_declare("penstock_status_release", None, c_void_p)
# int32_t penstock_status_code(const penstock_status *status);
_declare("penstock_status_code", c_int32, c_void_p)
# const char *penstock_status_message(const penstock_status *status);
_declare("penstock_status_message", c_char_p, c_void_p)
# penstock_result penstock_status_set_code(penstock_status *status, int32_t code);
_declare("penstock_status_set_code", c_int32, c_void_p, c_int32)
# penstock_result penstock_status_set_message(penstock_status *status, const char *message);
_declare("penstock_status_set_message", c_int32, c_void_p, c_char_p)
# penstock_metadata *penstock_status_trailers(const penstock_status *status);
_declare("penstock_status_trailers", c_void_p, c_void_p)
# size_t penstock_status_detail_count(const penstock_status *status);
_declare("penstock_status_detail_count", c_size_t, c_void_p)
# penstock_result penstock_status_detail_at(const penstock_status *status, size_t index, const char
# **type_url, const void **value, size_t *length);
_declare(
    "penstock_status_detail_at",
    c_int32,
    c_void_p,
    c_size_t,
    POINTER(c_char_p),
    POINTER(c_void_p),
    POINTER(c_size_t),
)
# penstock_result penstock_status_detail_find(const penstock_status *status, const char *type_url, const
# void **value, size_t *length);
_declare("penstock_status_detail_find", c_int32, c_void_p, c_char_p, POINTER(c_void_p), POINTER(c_size_t))
# penstock_result penstock_status_add_detail(penstock_status *status, const char *type_url, const void
# *value, size_t length);
_declare("penstock_status_add_detail", c_int32, c_void_p, c_char_p, c_void_p, c_size_t)
# penstock_result penstock_status_set_detail(penstock_status *status, const char *type_url, const void
# *value, size_t length);
_declare("penstock_status_set_detail", c_int32, c_void_p, c_char_p, c_void_p, c_size_t)
# penstock_result penstock_status_remove_detail(penstock_status *status, const char *type_url);
_declare("penstock_status_remove_detail", c_int32, c_void_p, c_char_p)
# penstock_result penstock_status_clear_details(penstock_status *status);
_declare("penstock_status_clear_details", c_int32, c_void_p)
# penstock_result penstock_status_details_bin(const penstock_status *status, void **data, size_t
# *length);
_declare("penstock_status_details_bin", c_int32, c_void_p, POINTER(c_void_p), POINTER(c_size_t))
# penstock_result penstock_status_json(const penstock_status *status, char **json);
_declare("penstock_status_json", c_int32, c_void_p, POINTER(c_void_p))

# ---- executor.h ----

# penstock_result penstock_executor_new(penstock_submit submit, void *user_data,
#                                       penstock_finalizer finalizer, penstock_executor **executor);
_declare("penstock_executor_new", c_int32, penstock_submit, c_void_p, penstock_finalizer, POINTER(c_void_p))
# penstock_result penstock_executor_serial_new(penstock_executor **executor);
_declare("penstock_executor_serial_new", c_int32, POINTER(c_void_p))
# penstock_executor *penstock_executor_retain(penstock_executor *executor);
_declare("penstock_executor_retain", c_void_p, c_void_p)
# void penstock_executor_release(penstock_executor *executor);
_declare("penstock_executor_release", None, c_void_p)

# ---- interceptor.h ----

# penstock_result penstock_interceptor_removal_wait(penstock_interceptor_id id, int64_t timeout_ms);
_declare("penstock_interceptor_removal_wait", c_int32, c_uint64, c_int64)

# ---- hop.h ----

# penstock_hop *penstock_hop_retain(penstock_hop *hop);
_declare("penstock_hop_retain", c_void_p, c_void_p)
# void penstock_hop_release(penstock_hop *hop);
_declare("penstock_hop_release", None, c_void_p)
# int32_t penstock_hop_event(const penstock_hop *hop);
_declare("penstock_hop_event", c_int32, c_void_p)
# uint64_t penstock_hop_call_id(const penstock_hop *hop);
_declare("penstock_hop_call_id", c_uint64, c_void_p)
# int32_t penstock_hop_kind(const penstock_hop *hop);
_declare("penstock_hop_kind", c_int32, c_void_p)
# penstock_result penstock_hop_set_executors(penstock_hop *hop, penstock_executor *outbound,
# penstock_executor *inbound);
_declare("penstock_hop_set_executors", c_int32, c_void_p, c_void_p, c_void_p)
# uint32_t penstock_hop_attempt(const penstock_hop *hop);
_declare("penstock_hop_attempt", c_uint32, c_void_p)
# int32_t penstock_hop_level(const penstock_hop *hop);
_declare("penstock_hop_level", c_int32, c_void_p)
# const char *penstock_hop_target(const penstock_hop *hop);
_declare("penstock_hop_target", c_char_p, c_void_p)
# penstock_metadata *penstock_hop_request_metadata(penstock_hop *hop);
_declare("penstock_hop_request_metadata", c_void_p, c_void_p)
# penstock_result penstock_hop_can_restart(const penstock_hop *hop);
_declare("penstock_hop_can_restart", c_int32, c_void_p)
# penstock_metadata *penstock_hop_metadata(penstock_hop *hop);
_declare("penstock_hop_metadata", c_void_p, c_void_p)
# penstock_result penstock_hop_message(penstock_hop *hop, const void **data, size_t *length);
_declare("penstock_hop_message", c_int32, c_void_p, POINTER(c_void_p), POINTER(c_size_t))
# penstock_result penstock_hop_set_message(penstock_hop *hop, const void *data, size_t length);
_declare("penstock_hop_set_message", c_int32, c_void_p, c_void_p, c_size_t)
# penstock_status *penstock_hop_status(penstock_hop *hop);
_declare("penstock_hop_status", c_void_p, c_void_p)
# uint64_t penstock_hop_count(const penstock_hop *hop);
_declare("penstock_hop_count", c_uint64, c_void_p)
# penstock_result penstock_hop_set_count(penstock_hop *hop, uint64_t n);
_declare("penstock_hop_set_count", c_int32, c_void_p, c_uint64)
# const char *penstock_hop_method(const penstock_hop *hop);
_declare("penstock_hop_method", c_char_p, c_void_p)
# penstock_result penstock_hop_set_method(penstock_hop *hop, const char *method);
_declare("penstock_hop_set_method", c_int32, c_void_p, c_char_p)
# const char *penstock_hop_authority(const penstock_hop *hop);
_declare("penstock_hop_authority", c_char_p, c_void_p)
# penstock_result penstock_hop_set_authority(penstock_hop *hop, const char *authority);
_declare("penstock_hop_set_authority", c_int32, c_void_p, c_char_p)
# int64_t penstock_hop_deadline_ms(const penstock_hop *hop);
_declare("penstock_hop_deadline_ms", c_int64, c_void_p)
# penstock_result penstock_hop_set_deadline_ms(penstock_hop *hop, int64_t ms);
_declare("penstock_hop_set_deadline_ms", c_int32, c_void_p, c_int64)
# const char *penstock_hop_compression(const penstock_hop *hop);
_declare("penstock_hop_compression", c_char_p, c_void_p)
# penstock_result penstock_hop_set_compression(penstock_hop *hop, const char *name);
_declare("penstock_hop_set_compression", c_int32, c_void_p, c_char_p)
# size_t penstock_hop_max_receive_message_bytes(const penstock_hop *hop);
_declare("penstock_hop_max_receive_message_bytes", c_size_t, c_void_p)
# penstock_result penstock_hop_set_max_receive_message_bytes(penstock_hop *hop, size_t bytes);
_declare("penstock_hop_set_max_receive_message_bytes", c_int32, c_void_p, c_size_t)
# size_t penstock_hop_max_send_message_bytes(const penstock_hop *hop);
_declare("penstock_hop_max_send_message_bytes", c_size_t, c_void_p)
# penstock_result penstock_hop_set_max_send_message_bytes(penstock_hop *hop, size_t bytes);
_declare("penstock_hop_set_max_send_message_bytes", c_int32, c_void_p, c_size_t)
# int32_t penstock_hop_idempotency(const penstock_hop *hop);
_declare("penstock_hop_idempotency", c_int32, c_void_p)
# penstock_result penstock_hop_set_idempotency(penstock_hop *hop, int32_t idempotency);
_declare("penstock_hop_set_idempotency", c_int32, c_void_p, c_int32)
# int32_t penstock_hop_wait_for_ready(const penstock_hop *hop);
_declare("penstock_hop_wait_for_ready", c_int32, c_void_p)
# penstock_result penstock_hop_set_wait_for_ready(penstock_hop *hop, int32_t wait);
_declare("penstock_hop_set_wait_for_ready", c_int32, c_void_p, c_int32)
# int32_t penstock_hop_has_credentials(const penstock_hop *hop);
_declare("penstock_hop_has_credentials", c_int32, c_void_p)
# penstock_result penstock_hop_set_credentials(penstock_hop *hop, const char *authorization);
_declare("penstock_hop_set_credentials", c_int32, c_void_p, c_char_p)
# penstock_result penstock_hop_stats_json(const penstock_hop *hop, char **json);
_declare("penstock_hop_stats_json", c_int32, c_void_p, POINTER(c_void_p))
# penstock_result penstock_hop_peer_certificates(const penstock_hop *hop, char **pem);
_declare("penstock_hop_peer_certificates", c_int32, c_void_p, POINTER(c_void_p))
# penstock_result penstock_hop_finish(penstock_hop *hop, int32_t code, const char *message);
_declare("penstock_hop_finish", c_int32, c_void_p, c_int32, c_char_p)
# penstock_result penstock_hop_finish_with(penstock_hop *hop, const penstock_status *status);
_declare("penstock_hop_finish_with", c_int32, c_void_p, c_void_p)
# penstock_result penstock_hop_set_channel(penstock_hop *hop, penstock_channel *channel);
_declare("penstock_hop_set_channel", c_int32, c_void_p, c_void_p)
# penstock_result penstock_hop_call(penstock_hop *hop, const char *method, int32_t kind, uint32_t flags,
#                                   const penstock_call_options *options, const penstock_call_callbacks *callbacks,
#                                   penstock_call **call, penstock_error **error);
_declare(
    "penstock_hop_call",
    c_int32,
    c_void_p,
    c_char_p,
    c_int32,
    c_uint32,
    c_void_p,
    POINTER(penstock_call_callbacks),
    POINTER(c_void_p),
    POINTER(c_void_p),
)
# penstock_result penstock_hop_send_message(penstock_hop *hop, const void *data, size_t length);
_declare("penstock_hop_send_message", c_int32, c_void_p, c_void_p, c_size_t)
# penstock_result penstock_hop_deliver_message(penstock_hop *hop, const void *data, size_t length);
_declare("penstock_hop_deliver_message", c_int32, c_void_p, c_void_p, c_size_t)
# penstock_result penstock_hop_deliver_headers(penstock_hop *hop, const penstock_metadata *headers);
_declare("penstock_hop_deliver_headers", c_int32, c_void_p, c_void_p)
# penstock_result penstock_hop_deliver_status(penstock_hop *hop, const penstock_status *status);
_declare("penstock_hop_deliver_status", c_int32, c_void_p, c_void_p)
# penstock_result penstock_hop_demand(penstock_hop *hop, uint64_t n);
_declare("penstock_hop_demand", c_int32, c_void_p, c_uint64)
# penstock_result penstock_hop_set_value(penstock_hop *hop, const char *key, void *value, penstock_finalizer
# finalizer);
_declare("penstock_hop_set_value", c_int32, c_void_p, c_char_p, c_void_p, penstock_finalizer)
# void *penstock_hop_get_value(const penstock_hop *hop, const char *key);
_declare("penstock_hop_get_value", c_void_p, c_void_p, c_char_p)
# penstock_ticket penstock_hop_ticket(penstock_hop *hop);
_declare("penstock_hop_ticket", c_uint64, c_void_p)
# penstock_result penstock_ticket_resolve(penstock_ticket ticket, int32_t verdict);
_declare("penstock_ticket_resolve", c_int32, c_uint64, c_int32)
# penstock_result penstock_ticket_resume(penstock_ticket ticket);
_declare("penstock_ticket_resume", c_int32, c_uint64)
# penstock_result penstock_ticket_drop(penstock_ticket ticket);
_declare("penstock_ticket_drop", c_int32, c_uint64)
# penstock_result penstock_ticket_finish(penstock_ticket ticket, int32_t code, const char *message);
_declare("penstock_ticket_finish", c_int32, c_uint64, c_int32, c_char_p)
# penstock_result penstock_ticket_finish_with(penstock_ticket ticket, const penstock_status *status);
_declare("penstock_ticket_finish_with", c_int32, c_uint64, c_void_p)
# penstock_result penstock_ticket_resume_after(penstock_ticket ticket, uint64_t ms);
_declare("penstock_ticket_resume_after", c_int32, c_uint64, c_uint64)
# penstock_result penstock_ticket_event(penstock_ticket ticket, penstock_event **event);
_declare("penstock_ticket_event", c_int32, c_uint64, POINTER(c_void_p))
# penstock_event *penstock_event_retain(penstock_event *event);
_declare("penstock_event_retain", c_void_p, c_void_p)
# void penstock_event_release(penstock_event *event);
_declare("penstock_event_release", None, c_void_p)
# int32_t penstock_event_kind(const penstock_event *event);
_declare("penstock_event_kind", c_int32, c_void_p)
# penstock_metadata *penstock_event_metadata(penstock_event *event);
_declare("penstock_event_metadata", c_void_p, c_void_p)
# penstock_result penstock_event_message(const penstock_event *event, const void **data, size_t *length);
_declare("penstock_event_message", c_int32, c_void_p, POINTER(c_void_p), POINTER(c_size_t))
# penstock_result penstock_event_set_message(penstock_event *event, const void *data, size_t length);
_declare("penstock_event_set_message", c_int32, c_void_p, c_void_p, c_size_t)
# penstock_status *penstock_event_status(penstock_event *event);
_declare("penstock_event_status", c_void_p, c_void_p)

# ---- async.h ----

# penstock_result penstock_async_interceptor_table(const penstock_async_interceptor *interceptor,
#                                                  penstock_interceptor *table, penstock_error **error);
_declare("penstock_async_interceptor_table", c_int32, c_void_p, c_void_p, POINTER(c_void_p))
# penstock_result penstock_completion_next(penstock_completion *completion);
_declare("penstock_completion_next", c_int32, c_void_p)
# penstock_result penstock_completion_next_message(penstock_completion *completion, const void *data,
#                                                  size_t length);
_declare("penstock_completion_next_message", c_int32, c_void_p, c_void_p, c_size_t)
# penstock_result penstock_completion_cancel(penstock_completion *completion, int32_t code,
#                                            const char *message);
_declare("penstock_completion_cancel", c_int32, c_void_p, c_int32, c_char_p)
# penstock_result penstock_completion_cancel_with(penstock_completion *completion,
#                                                 const penstock_status *status);
_declare("penstock_completion_cancel_with", c_int32, c_void_p, c_void_p)
# penstock_result penstock_completion_resolve(penstock_completion *completion, int32_t verdict);
_declare("penstock_completion_resolve", c_int32, c_void_p, c_int32)
# penstock_hop *penstock_completion_hop(penstock_completion *completion);
_declare("penstock_completion_hop", c_void_p, c_void_p)
# penstock_completion *penstock_completion_retain(penstock_completion *completion);
_declare("penstock_completion_retain", c_void_p, c_void_p)
# void penstock_completion_release(penstock_completion *completion);
_declare("penstock_completion_release", None, c_void_p)

# ---- sync.h ----

# penstock_result penstock_sync_interceptor_table(const penstock_sync_interceptor *interceptor,
# penstock_interceptor *table, penstock_error **error);
_declare(
    "penstock_sync_interceptor_table",
    c_int32,
    POINTER(penstock_sync_interceptor),
    POINTER(penstock_interceptor),
    POINTER(c_void_p),
)
# penstock_result penstock_intercepted_next(penstock_intercepted_call *call);
_declare("penstock_intercepted_next", c_int32, c_void_p)
# penstock_result penstock_intercepted_cancel(penstock_intercepted_call *call, int32_t code, const char
# *message);
_declare("penstock_intercepted_cancel", c_int32, c_void_p, c_int32, c_char_p)
# penstock_result penstock_intercepted_cancel_with(penstock_intercepted_call *call, const penstock_status
# *status);
_declare("penstock_intercepted_cancel_with", c_int32, c_void_p, c_void_p)
# penstock_result penstock_intercepted_answer_message(penstock_intercepted_call *call, const void *data,
# size_t length);
_declare("penstock_intercepted_answer_message", c_int32, c_void_p, c_void_p, c_size_t)
# penstock_result penstock_intercepted_answer(penstock_intercepted_call *call, const penstock_metadata
# *headers, const penstock_status *status);
_declare("penstock_intercepted_answer", c_int32, c_void_p, c_void_p, c_void_p)
# penstock_hop *penstock_intercepted_hop(penstock_intercepted_call *call);
_declare("penstock_intercepted_hop", c_void_p, c_void_p)
# uint64_t penstock_intercepted_id(const penstock_intercepted_call *call);
_declare("penstock_intercepted_id", c_uint64, c_void_p)
# int32_t penstock_intercepted_kind(const penstock_intercepted_call *call);
_declare("penstock_intercepted_kind", c_int32, c_void_p)
# uint32_t penstock_intercepted_attempt(const penstock_intercepted_call *call);
_declare("penstock_intercepted_attempt", c_uint32, c_void_p)
# int32_t penstock_intercepted_level(const penstock_intercepted_call *call);
_declare("penstock_intercepted_level", c_int32, c_void_p)
# const char *penstock_intercepted_target(const penstock_intercepted_call *call);
_declare("penstock_intercepted_target", c_char_p, c_void_p)
# const char *penstock_intercepted_method(const penstock_intercepted_call *call);
_declare("penstock_intercepted_method", c_char_p, c_void_p)
# penstock_result penstock_intercepted_set_method(penstock_intercepted_call *call, const char *method);
_declare("penstock_intercepted_set_method", c_int32, c_void_p, c_char_p)
# const char *penstock_intercepted_authority(const penstock_intercepted_call *call);
_declare("penstock_intercepted_authority", c_char_p, c_void_p)
# penstock_result penstock_intercepted_set_authority(penstock_intercepted_call *call, const char
# *authority);
_declare("penstock_intercepted_set_authority", c_int32, c_void_p, c_char_p)
# int64_t penstock_intercepted_deadline_ms(const penstock_intercepted_call *call);
_declare("penstock_intercepted_deadline_ms", c_int64, c_void_p)
# penstock_result penstock_intercepted_set_deadline_ms(penstock_intercepted_call *call, int64_t ms);
_declare("penstock_intercepted_set_deadline_ms", c_int32, c_void_p, c_int64)
# penstock_metadata *penstock_intercepted_metadata(penstock_intercepted_call *call);
_declare("penstock_intercepted_metadata", c_void_p, c_void_p)
# penstock_result penstock_intercepted_request(penstock_intercepted_call *call, const void **data, size_t
# *length);
_declare("penstock_intercepted_request", c_int32, c_void_p, POINTER(c_void_p), POINTER(c_size_t))
# penstock_result penstock_intercepted_set_request(penstock_intercepted_call *call, const void *data,
# size_t length);
_declare("penstock_intercepted_set_request", c_int32, c_void_p, c_void_p, c_size_t)
# penstock_metadata *penstock_intercepted_headers(penstock_intercepted_call *call);
_declare("penstock_intercepted_headers", c_void_p, c_void_p)
# penstock_result penstock_intercepted_response(penstock_intercepted_call *call, const void **data, size_t
# *length);
_declare("penstock_intercepted_response", c_int32, c_void_p, POINTER(c_void_p), POINTER(c_size_t))
# penstock_result penstock_intercepted_set_response(penstock_intercepted_call *call, const void *data,
# size_t length);
_declare("penstock_intercepted_set_response", c_int32, c_void_p, c_void_p, c_size_t)
# penstock_status *penstock_intercepted_status(penstock_intercepted_call *call);
_declare("penstock_intercepted_status", c_void_p, c_void_p)
# void *penstock_intercepted_request_object(penstock_intercepted_call *call);
_declare("penstock_intercepted_request_object", c_void_p, c_void_p)
# penstock_result penstock_intercepted_set_request_object(penstock_intercepted_call *call, void *object);
_declare("penstock_intercepted_set_request_object", c_int32, c_void_p, c_void_p)
# void *penstock_intercepted_response_object(penstock_intercepted_call *call);
_declare("penstock_intercepted_response_object", c_void_p, c_void_p)
# penstock_result penstock_intercepted_set_response_object(penstock_intercepted_call *call, void *object);
_declare("penstock_intercepted_set_response_object", c_int32, c_void_p, c_void_p)
# penstock_result penstock_intercepted_answer_object(penstock_intercepted_call *call, void *object);
_declare("penstock_intercepted_answer_object", c_int32, c_void_p, c_void_p)
# penstock_result penstock_intercepted_set_value(penstock_intercepted_call *call, const char *key, void
# *value, penstock_finalizer finalizer);
_declare("penstock_intercepted_set_value", c_int32, c_void_p, c_char_p, c_void_p, penstock_finalizer)
# void *penstock_intercepted_get_value(penstock_intercepted_call *call, const char *key);
_declare("penstock_intercepted_get_value", c_void_p, c_void_p, c_char_p)

# ---- runtime.h ----

# penstock_result penstock_runtime_new(const char *options, penstock_runtime **runtime, penstock_error
# **error);
_declare("penstock_runtime_new", c_int32, c_char_p, POINTER(c_void_p), POINTER(c_void_p))
# penstock_result penstock_runtime_default(penstock_runtime **runtime, penstock_error **error);
_declare("penstock_runtime_default", c_int32, POINTER(c_void_p), POINTER(c_void_p))
# penstock_runtime *penstock_runtime_retain(penstock_runtime *runtime);
_declare("penstock_runtime_retain", c_void_p, c_void_p)
# void penstock_runtime_release(penstock_runtime *runtime);
_declare("penstock_runtime_release", None, c_void_p)
# penstock_result penstock_runtime_fd(penstock_runtime *runtime, int *fd);
_declare("penstock_runtime_fd", c_int32, c_void_p, POINTER(c_int))
# penstock_result penstock_runtime_poll(penstock_runtime *runtime, int64_t timeout_ms);
_declare("penstock_runtime_poll", c_int32, c_void_p, c_int64)
# penstock_result penstock_runtime_shutdown(penstock_runtime *runtime, int64_t timeout_ms);
_declare("penstock_runtime_shutdown", c_int32, c_void_p, c_int64)
# penstock_result penstock_runtime_add_interceptor(penstock_runtime *runtime, const penstock_interceptor
# *interceptor, int32_t priority, penstock_interceptor_id *id, penstock_error **error);
_declare(
    "penstock_runtime_add_interceptor",
    c_int32,
    c_void_p,
    POINTER(penstock_interceptor),
    c_int32,
    POINTER(c_uint64),
    POINTER(c_void_p),
)
# penstock_result penstock_runtime_remove_interceptor(penstock_runtime *runtime, penstock_interceptor_id id,
# penstock_error **error);
_declare("penstock_runtime_remove_interceptor", c_int32, c_void_p, c_uint64, POINTER(c_void_p))
# penstock_result penstock_runtime_set_interceptor_priority(penstock_runtime *runtime,
# penstock_interceptor_id id, int32_t priority, penstock_error **error);
_declare("penstock_runtime_set_interceptor_priority", c_int32, c_void_p, c_uint64, c_int32, POINTER(c_void_p))
# penstock_result penstock_runtime_set_interceptor_filter(penstock_runtime *runtime, penstock_interceptor_id
# id, const char *methods, uint32_t kinds, penstock_error **error);
_declare(
    "penstock_runtime_set_interceptor_filter", c_int32, c_void_p, c_uint64, c_char_p, c_uint32, POINTER(c_void_p)
)
# penstock_result penstock_runtime_replace_interceptor(penstock_runtime *runtime, penstock_interceptor_id
# id, const penstock_interceptor *interceptor, penstock_interceptor_id *new_id, penstock_error **error);
_declare(
    "penstock_runtime_replace_interceptor",
    c_int32,
    c_void_p,
    c_uint64,
    POINTER(penstock_interceptor),
    POINTER(c_uint64),
    POINTER(c_void_p),
)
# penstock_result penstock_runtime_interceptors_json(penstock_runtime *runtime, char **json);
_declare("penstock_runtime_interceptors_json", c_int32, c_void_p, POINTER(c_void_p))
# penstock_result penstock_runtime_snapshot_json(penstock_runtime *runtime, int64_t timeout_ms, char **json);
_declare("penstock_runtime_snapshot_json", c_int32, c_void_p, c_int64, POINTER(c_void_p))
# penstock_result penstock_call_trace_json(penstock_call *call, char **json);
_declare("penstock_call_trace_json", c_int32, c_void_p, POINTER(c_void_p))
# penstock_result penstock_hop_trace_json(penstock_hop *hop, char **json);
_declare("penstock_hop_trace_json", c_int32, c_void_p, POINTER(c_void_p))
# const char *penstock_reply_trace_json(const penstock_reply *reply);
_declare("penstock_reply_trace_json", c_char_p, c_void_p)

# ---- call.h ----

# penstock_result penstock_call_options_new(const char *json, penstock_call_options **options,
# penstock_error **error);
_declare("penstock_call_options_new", c_int32, c_char_p, POINTER(c_void_p), POINTER(c_void_p))
# penstock_call_options *penstock_call_options_retain(penstock_call_options *options);
_declare("penstock_call_options_retain", c_void_p, c_void_p)
# void penstock_call_options_release(penstock_call_options *options);
_declare("penstock_call_options_release", None, c_void_p)
# penstock_metadata *penstock_call_options_metadata(penstock_call_options *options);
_declare("penstock_call_options_metadata", c_void_p, c_void_p)
# penstock_result penstock_call_options_on_interrupted(penstock_call_options *options, int32_t
# (*interrupted)(void *user_data), void *user_data, penstock_finalizer finalizer);
_declare(
    "penstock_call_options_on_interrupted",
    c_int32,
    c_void_p,
    penstock_interrupted,
    c_void_p,
    penstock_finalizer,
)
# penstock_result penstock_call_options_add_interceptor(penstock_call_options *options, const
# penstock_interceptor *interceptor, int32_t priority, penstock_interceptor_id *id, penstock_error **error);
_declare(
    "penstock_call_options_add_interceptor",
    c_int32,
    c_void_p,
    POINTER(penstock_interceptor),
    c_int32,
    POINTER(c_uint64),
    POINTER(c_void_p),
)
# penstock_result penstock_message_wrap(const void *data, size_t length, void *user_data,
#     penstock_finalizer finalizer, penstock_message **message);
_declare("penstock_message_wrap", c_int32, c_void_p, c_size_t, c_void_p, penstock_finalizer, POINTER(c_void_p))
# const void *penstock_message_data(const penstock_message *message);
_declare("penstock_message_data", c_void_p, c_void_p)
# size_t penstock_message_length(const penstock_message *message);
_declare("penstock_message_length", c_size_t, c_void_p)
# penstock_message *penstock_message_retain(penstock_message *message);
_declare("penstock_message_retain", c_void_p, c_void_p)
# void penstock_message_release(penstock_message *message);
_declare("penstock_message_release", None, c_void_p)
# penstock_reply *penstock_reply_retain(penstock_reply *reply);
_declare("penstock_reply_retain", c_void_p, c_void_p)
# void penstock_reply_release(penstock_reply *reply);
_declare("penstock_reply_release", None, c_void_p)
# int32_t penstock_reply_code(const penstock_reply *reply);
_declare("penstock_reply_code", c_int32, c_void_p)
# const penstock_status *penstock_reply_status(const penstock_reply *reply);
_declare("penstock_reply_status", c_void_p, c_void_p)
# const char *penstock_reply_status_json(const penstock_reply *reply);
_declare("penstock_reply_status_json", c_char_p, c_void_p)
# const void *penstock_reply_message(const penstock_reply *reply, size_t *length);
_declare("penstock_reply_message", c_void_p, c_void_p, POINTER(c_size_t))
# const penstock_metadata *penstock_reply_headers(const penstock_reply *reply);
_declare("penstock_reply_headers", c_void_p, c_void_p)
# const penstock_metadata *penstock_reply_trailers(const penstock_reply *reply);
_declare("penstock_reply_trailers", c_void_p, c_void_p)
# const char *penstock_reply_stats_json(const penstock_reply *reply);
_declare("penstock_reply_stats_json", c_char_p, c_void_p)
# penstock_result penstock_reply_peer_certificates(const penstock_reply *reply, char **pem);
_declare("penstock_reply_peer_certificates", c_int32, c_void_p, POINTER(c_void_p))
# void *penstock_reply_value(const penstock_reply *reply, const char *key);
_declare("penstock_reply_value", c_void_p, c_void_p, c_char_p)
# penstock_call *penstock_call_retain(penstock_call *call);
_declare("penstock_call_retain", c_void_p, c_void_p)
# void penstock_call_release(penstock_call *call);
_declare("penstock_call_release", None, c_void_p)
# uint64_t penstock_call_id(const penstock_call *call);
_declare("penstock_call_id", c_uint64, c_void_p)
# penstock_result penstock_call_send(penstock_call *call, const void *data, size_t length);
_declare("penstock_call_send", c_int32, c_void_p, c_void_p, c_size_t)
# penstock_result penstock_call_try_send(penstock_call *call, const void *data, size_t length);
_declare("penstock_call_try_send", c_int32, c_void_p, c_void_p, c_size_t)
# penstock_result penstock_call_send_message(penstock_call *call, penstock_message *message);
_declare("penstock_call_send_message", c_int32, c_void_p, c_void_p)
# penstock_result penstock_call_try_send_message(penstock_call *call, penstock_message *message);
_declare("penstock_call_try_send_message", c_int32, c_void_p, c_void_p)
# penstock_result penstock_call_half_close(penstock_call *call);
_declare("penstock_call_half_close", c_int32, c_void_p)
# penstock_result penstock_call_receive(penstock_call *call, penstock_message **message);
_declare("penstock_call_receive", c_int32, c_void_p, POINTER(c_void_p))
# penstock_result penstock_call_wait_headers(penstock_call *call, const penstock_metadata **headers);
_declare("penstock_call_wait_headers", c_int32, c_void_p, POINTER(c_void_p))
# penstock_result penstock_call_finish(penstock_call *call, penstock_reply **reply);
_declare("penstock_call_finish", c_int32, c_void_p, POINTER(c_void_p))
# penstock_result penstock_call_demand(penstock_call *call, uint64_t count);
_declare("penstock_call_demand", c_int32, c_void_p, c_uint64)
# penstock_result penstock_call_cancel(penstock_call *call, const char *reason);
_declare("penstock_call_cancel", c_int32, c_void_p, c_char_p)
# penstock_result penstock_call_reply(penstock_call *call, penstock_reply **reply);
_declare("penstock_call_reply", c_int32, c_void_p, POINTER(c_void_p))
# penstock_result penstock_call_set_value(penstock_call *call, const char *key, void *value,
# penstock_finalizer finalizer);
_declare("penstock_call_set_value", c_int32, c_void_p, c_char_p, c_void_p, penstock_finalizer)
# void *penstock_call_value(const penstock_call *call, const char *key);
_declare("penstock_call_value", c_void_p, c_void_p, c_char_p)

# ---- channel.h ----

# penstock_result penstock_channel_new(const char *target, const char *options, penstock_channel **channel,
# penstock_error **error);
_declare("penstock_channel_new", c_int32, c_char_p, c_char_p, POINTER(c_void_p), POINTER(c_void_p))
# penstock_result penstock_channel_new_on(penstock_runtime *runtime, const char *target, const char
# *options, penstock_channel **channel, penstock_error **error);
_declare("penstock_channel_new_on", c_int32, c_void_p, c_char_p, c_char_p, POINTER(c_void_p), POINTER(c_void_p))
# penstock_channel *penstock_channel_retain(penstock_channel *channel);
_declare("penstock_channel_retain", c_void_p, c_void_p)
# void penstock_channel_release(penstock_channel *channel);
_declare("penstock_channel_release", None, c_void_p)
# penstock_result penstock_channel_close(penstock_channel *channel);
_declare("penstock_channel_close", c_int32, c_void_p)
# penstock_result penstock_channel_unary(penstock_channel *channel, const char *method, const void *request,
# size_t length, const penstock_call_options *options, penstock_reply **reply, penstock_error **error);
_declare(
    "penstock_channel_unary",
    c_int32,
    c_void_p,
    c_char_p,
    c_void_p,
    c_size_t,
    c_void_p,
    POINTER(c_void_p),
    POINTER(c_void_p),
)
# penstock_result penstock_channel_call(penstock_channel *channel, const char *method, int32_t kind, const
# penstock_call_options *options, const penstock_call_callbacks *callbacks, penstock_call **call,
# penstock_error **error);
_declare(
    "penstock_channel_call",
    c_int32,
    c_void_p,
    c_char_p,
    c_int32,
    c_void_p,
    POINTER(penstock_call_callbacks),
    POINTER(c_void_p),
    POINTER(c_void_p),
)
# penstock_result penstock_channel_add_interceptor(penstock_channel *channel, const penstock_interceptor
# *interceptor, int32_t priority, penstock_interceptor_id *id, penstock_error **error);
_declare(
    "penstock_channel_add_interceptor",
    c_int32,
    c_void_p,
    POINTER(penstock_interceptor),
    c_int32,
    POINTER(c_uint64),
    POINTER(c_void_p),
)
# penstock_result penstock_channel_remove_interceptor(penstock_channel *channel, penstock_interceptor_id id,
# penstock_error **error);
_declare("penstock_channel_remove_interceptor", c_int32, c_void_p, c_uint64, POINTER(c_void_p))
# penstock_result penstock_channel_set_interceptor_priority(penstock_channel *channel,
# penstock_interceptor_id id, int32_t priority, penstock_error **error);
_declare("penstock_channel_set_interceptor_priority", c_int32, c_void_p, c_uint64, c_int32, POINTER(c_void_p))
# penstock_result penstock_channel_set_interceptor_filter(penstock_channel *channel, penstock_interceptor_id
# id, const char *methods, uint32_t kinds, penstock_error **error);
_declare(
    "penstock_channel_set_interceptor_filter", c_int32, c_void_p, c_uint64, c_char_p, c_uint32, POINTER(c_void_p)
)
# penstock_result penstock_channel_replace_interceptor(penstock_channel *channel, penstock_interceptor_id
# id, const penstock_interceptor *interceptor, penstock_interceptor_id *new_id, penstock_error **error);
_declare(
    "penstock_channel_replace_interceptor",
    c_int32,
    c_void_p,
    c_uint64,
    POINTER(penstock_interceptor),
    POINTER(c_uint64),
    POINTER(c_void_p),
)
# penstock_result penstock_channel_interceptors_json(penstock_channel *channel, char **json);
_declare("penstock_channel_interceptors_json", c_int32, c_void_p, POINTER(c_void_p))

# ---- ready.h ----

# penstock_result penstock_ready_share(const penstock_interceptor *table, penstock_interceptor *other);
_declare("penstock_ready_share", c_int32, POINTER(penstock_interceptor), POINTER(penstock_interceptor))
# penstock_result penstock_ready_bearer_token(const char *options_json, penstock_token_source source, void
# *user_data, penstock_finalizer finalizer, penstock_interceptor *table, penstock_error **error);
_declare(
    "penstock_ready_bearer_token",
    c_int32,
    c_char_p,
    penstock_token_source,
    c_void_p,
    penstock_finalizer,
    POINTER(penstock_interceptor),
    POINTER(c_void_p),
)
# const char *penstock_token_request_refused(const penstock_token_request *request);
_declare("penstock_token_request_refused", c_char_p, c_void_p)
# penstock_result penstock_token_request_complete(penstock_token_request *request, const char *token,
# int64_t expires_in_ms);
_declare("penstock_token_request_complete", c_int32, c_void_p, c_char_p, c_int64)
# penstock_result penstock_token_request_fail(penstock_token_request *request, int32_t code, const char
# *message);
_declare("penstock_token_request_fail", c_int32, c_void_p, c_int32, c_char_p)
# penstock_token_request *penstock_token_request_retain(penstock_token_request *request);
_declare("penstock_token_request_retain", c_void_p, c_void_p)
# void penstock_token_request_release(penstock_token_request *request);
_declare("penstock_token_request_release", None, c_void_p)
# penstock_result penstock_ready_logging(const char *options_json, penstock_log_line write, void *user_data,
# penstock_finalizer finalizer, penstock_interceptor *table, penstock_error **error);
_declare(
    "penstock_ready_logging",
    c_int32,
    c_char_p,
    penstock_log_line,
    c_void_p,
    penstock_finalizer,
    POINTER(penstock_interceptor),
    POINTER(c_void_p),
)
# penstock_result penstock_metrics_new(const char *options_json, penstock_metrics **metrics, penstock_error
# **error);
_declare("penstock_metrics_new", c_int32, c_char_p, POINTER(c_void_p), POINTER(c_void_p))
# penstock_metrics *penstock_metrics_retain(penstock_metrics *metrics);
_declare("penstock_metrics_retain", c_void_p, c_void_p)
# void penstock_metrics_release(penstock_metrics *metrics);
_declare("penstock_metrics_release", None, c_void_p)
# penstock_result penstock_ready_metrics(penstock_metrics *metrics, penstock_interceptor *table);
_declare("penstock_ready_metrics", c_int32, c_void_p, POINTER(penstock_interceptor))
# penstock_result penstock_metrics_snapshot_json(penstock_metrics *metrics, char **json);
_declare("penstock_metrics_snapshot_json", c_int32, c_void_p, POINTER(c_void_p))
# penstock_result penstock_metrics_prometheus_text(penstock_metrics *metrics, char **text);
_declare("penstock_metrics_prometheus_text", c_int32, c_void_p, POINTER(c_void_p))
# penstock_result penstock_ready_trace_context(const char *options_json, penstock_interceptor *table,
# penstock_error **error);
_declare("penstock_ready_trace_context", c_int32, c_char_p, POINTER(penstock_interceptor), POINTER(c_void_p))
# penstock_result penstock_ready_response_cache(const char *options_json, penstock_interceptor *table,
# penstock_error **error);
_declare("penstock_ready_response_cache", c_int32, c_char_p, POINTER(penstock_interceptor), POINTER(c_void_p))
# penstock_result penstock_ready_rate_limit(const char *options_json, penstock_interceptor *table,
# penstock_error **error);
_declare("penstock_ready_rate_limit", c_int32, c_char_p, POINTER(penstock_interceptor), POINTER(c_void_p))
# penstock_result penstock_ready_fault_injection(const char *options_json, penstock_interceptor *table,
# penstock_error **error);
_declare("penstock_ready_fault_injection", c_int32, c_char_p, POINTER(penstock_interceptor), POINTER(c_void_p))
# penstock_result penstock_ready_header_rules(const char *options_json, penstock_interceptor *table,
# penstock_error **error);
_declare("penstock_ready_header_rules", c_int32, c_char_p, POINTER(penstock_interceptor), POINTER(c_void_p))
# ---- codec.h ----

# penstock_result penstock_buffer_append(penstock_buffer *buffer, const void *data, size_t length);
_declare("penstock_buffer_append", c_int32, c_void_p, c_void_p, c_size_t)
# penstock_result penstock_codec_new(const penstock_codec_functions *functions, penstock_codec **codec,
# penstock_error **error);
_declare("penstock_codec_new", c_int32, POINTER(penstock_codec_functions), POINTER(c_void_p), POINTER(c_void_p))
# penstock_codec *penstock_codec_retain(penstock_codec *codec);
_declare("penstock_codec_retain", c_void_p, c_void_p)
# void penstock_codec_release(penstock_codec *codec);
_declare("penstock_codec_release", None, c_void_p)
# penstock_result penstock_channel_set_codec(penstock_channel *channel, penstock_codec *codec);
_declare("penstock_channel_set_codec", c_int32, c_void_p, c_void_p)
# penstock_result penstock_call_options_set_codec(penstock_call_options *options, penstock_codec *codec);
_declare("penstock_call_options_set_codec", c_int32, c_void_p, c_void_p)
# penstock_result penstock_channel_unary_object(penstock_channel *channel, const char *method, void *object, const
# penstock_call_options *options, penstock_reply **reply, penstock_error **error);
_declare(
    "penstock_channel_unary_object",
    c_int32,
    c_void_p,
    c_char_p,
    c_void_p,
    c_void_p,
    POINTER(c_void_p),
    POINTER(c_void_p),
)
# penstock_result penstock_call_send_object(penstock_call *call, void *object);
_declare("penstock_call_send_object", c_int32, c_void_p, c_void_p)
# penstock_result penstock_call_try_send_object(penstock_call *call, void *object);
_declare("penstock_call_try_send_object", c_int32, c_void_p, c_void_p)
# void *penstock_message_object(const penstock_message *message);
_declare("penstock_message_object", c_void_p, c_void_p)
# void *penstock_reply_object(const penstock_reply *reply);
_declare("penstock_reply_object", c_void_p, c_void_p)
# void *penstock_hop_object(penstock_hop *hop);
_declare("penstock_hop_object", c_void_p, c_void_p)
# penstock_result penstock_hop_set_object(penstock_hop *hop, void *object);
_declare("penstock_hop_set_object", c_int32, c_void_p, c_void_p)
# penstock_result penstock_hop_send_object(penstock_hop *hop, void *object);
_declare("penstock_hop_send_object", c_int32, c_void_p, c_void_p)
# penstock_result penstock_hop_deliver_object(penstock_hop *hop, void *object);
_declare("penstock_hop_deliver_object", c_int32, c_void_p, c_void_p)
# void *penstock_event_object(const penstock_event *event);
_declare("penstock_event_object", c_void_p, c_void_p)
# penstock_result penstock_event_set_object(penstock_event *event, void *object);
_declare("penstock_event_set_object", c_int32, c_void_p, c_void_p)
