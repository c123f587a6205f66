"""The types of callbacks, and the structures that contain them."""

from __future__ import annotations

from ctypes import CFUNCTYPE, POINTER, Structure, c_char_p, c_int32, c_size_t, c_uint32, c_uint64, c_void_p

# typedef void (*penstock_finalizer)(void *user_data);
penstock_finalizer = CFUNCTYPE(None, c_void_p)
# typedef void (*penstock_out_of_memory_hook)(size_t bytes, void *user_data);
penstock_out_of_memory_hook = CFUNCTYPE(None, c_size_t, c_void_p)
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
# typedef void (*penstock_async_callback)(penstock_hop *hop, void *state);
penstock_async_callback = CFUNCTYPE(None, c_void_p, c_void_p)
# typedef int32_t (*penstock_intercept)(penstock_hop *hop, void *user_data);
penstock_intercept = CFUNCTYPE(c_int32, c_void_p, c_void_p)
# int32_t (*encode)(void *user_data, const char *method, void *object, penstock_buffer *bytes)
penstock_codec_encode = CFUNCTYPE(c_int32, c_void_p, c_char_p, c_void_p, c_void_p)
# int32_t (*decode)(void *user_data, const char *method, const void *data, size_t length, void **object)
penstock_codec_decode = CFUNCTYPE(c_int32, c_void_p, c_char_p, c_void_p, c_size_t, POINTER(c_void_p))
# void (*free)(void *user_data, void *object)
penstock_codec_free = CFUNCTYPE(None, c_void_p, c_void_p)
# void *(*copy)(void *user_data, void *object)
penstock_codec_copy = CFUNCTYPE(c_void_p, c_void_p, c_void_p)
# void (*resolve)(void *user_data), and stop
penstock_resolver_function = CFUNCTYPE(None, c_void_p)
# void (*connect)(penstock_connecting *connecting, void *user_data), and cancel
penstock_connector_function = CFUNCTYPE(None, c_void_p, c_void_p)
# typedef void (*penstock_verifier)(penstock_verification *server, void *user_data);
penstock_verifier = CFUNCTYPE(None, c_void_p, c_void_p)
# int32_t (*compress)(void *user_data, const void *data, size_t length, penstock_compression *message), and decompress
penstock_compressor_function = CFUNCTYPE(c_int32, c_void_p, c_void_p, c_size_t, c_void_p)
# typedef int32_t (*penstock_connectivity_function)(void *user_data, int32_t state);
penstock_connectivity_function = CFUNCTYPE(c_int32, c_void_p, c_int32)
# typedef int32_t (*penstock_picker)(penstock_pick *pick, void *user_data);
penstock_picker = CFUNCTYPE(c_int32, c_void_p, c_void_p)


class penstock_connection_event(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("kind", c_int32),
        ("target", c_char_p),
        ("address", c_char_p),
        ("message", c_char_p),
        ("ms", c_uint64),
        ("tls_version", c_char_p),
        ("tls_cipher", c_char_p),
        ("tls_alpn", c_char_p),
        ("protocol", c_char_p),
        ("http", c_char_p),
        ("level", c_int32),
        ("name", c_char_p),
        ("call", c_uint64),
        ("method", c_char_p),
        ("interceptor", c_char_p),
        ("callback", c_char_p),
        ("json", c_char_p),
    ]


# typedef void (*penstock_connection_callback)(void *user_data, const penstock_connection_event *event);
penstock_connection_callback = CFUNCTYPE(None, c_void_p, POINTER(penstock_connection_event))
# int32_t (*interrupted)(void *user_data)
penstock_interrupted = CFUNCTYPE(c_int32, c_void_p)
# void (*on_headers)(penstock_call *call, const penstock_metadata *headers, void *user_data), and so on
penstock_call_event = CFUNCTYPE(None, c_void_p, c_void_p, c_void_p)
# void (*on_sent)(penstock_call *call, uint64_t count, void *user_data)
penstock_call_sent = CFUNCTYPE(None, c_void_p, c_uint64, c_void_p)
# void (*on_readable)(penstock_call *call, void *user_data)
penstock_call_readable = CFUNCTYPE(None, c_void_p, c_void_p)
# typedef void (*penstock_token_source)(penstock_token_request request, const char *refused, void *user_data);
penstock_token_source = CFUNCTYPE(None, c_uint64, c_char_p, c_void_p)
# typedef void (*penstock_log_line)(const char *line, size_t length, void *user_data);
penstock_log_line = CFUNCTYPE(None, c_void_p, c_size_t, c_void_p)


class penstock_interceptor(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("name", c_char_p),
        ("methods", c_char_p),
        ("kinds", c_uint32),
        ("level", c_uint32),
        ("per_attempt", c_uint32),
        ("hold_bytes", c_size_t),
        ("replay_bytes", c_size_t),
        ("max_restarts", c_size_t),
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
        ("outbound_executor", c_void_p),
        ("inbound_executor", c_void_p),
        ("on_connection", penstock_connection_callback),
        ("on_pick", penstock_hop_callback),
        ("headers_wait", c_uint64),
    ]


class penstock_async_interceptor(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("name", c_char_p),
        ("methods", c_char_p),
        ("kinds", c_uint32),
        ("level", c_uint32),
        ("per_attempt", c_uint32),
        ("hold_bytes", c_size_t),
        ("replay_bytes", c_size_t),
        ("max_restarts", c_size_t),
        ("user_data", c_void_p),
        ("finalizer", penstock_finalizer),
        ("create", penstock_hop_create),
        ("destroy", penstock_hop_destroy),
        ("on_start", penstock_async_callback),
        ("on_send", penstock_async_callback),
        ("on_half_close", penstock_async_callback),
        ("on_headers", penstock_async_callback),
        ("on_receive", penstock_async_callback),
        ("on_status", penstock_async_callback),
        ("on_cancel", penstock_hop_callback),
        ("on_demand", penstock_hop_callback),
        ("on_sent", penstock_hop_callback),
        ("on_pick", penstock_hop_callback),
        ("headers_wait", c_uint64),
    ]


class penstock_sync_interceptor(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("name", c_char_p),
        ("methods", c_char_p),
        ("kinds", c_uint32),
        ("level", c_uint32),
        ("per_attempt", c_uint32),
        ("hold_bytes", c_size_t),
        ("replay_bytes", c_size_t),
        ("max_restarts", c_size_t),
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
        ("on_readable", penstock_call_readable),
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
        ("name", c_char_p),
    ]


class penstock_resolver_functions(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("user_data", c_void_p),
        ("finalizer", penstock_finalizer),
        ("resolve", penstock_resolver_function),
        ("stop", penstock_resolver_function),
    ]


class penstock_compressor_functions(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("user_data", c_void_p),
        ("finalizer", penstock_finalizer),
        ("name", c_char_p),
        ("compress", penstock_compressor_function),
        ("decompress", penstock_compressor_function),
    ]


class penstock_connector_functions(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("user_data", c_void_p),
        ("finalizer", penstock_finalizer),
        ("connect", penstock_connector_function),
        ("cancel", penstock_connector_function),
    ]
