"""The functions for making calls: those of runtime.h, message.h, call.h, channel.h, registration.h, codec.h,
cancel.h, resolver.h, connector.h, verifier.h, compressor.h and picker.h."""

from __future__ import annotations

from ctypes import POINTER, c_char_p, c_int, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from typing import Any, Dict, Tuple

from .c_types import (
    penstock_call_callbacks,
    penstock_codec_functions,
    penstock_compressor_functions,
    penstock_connectivity_function,
    penstock_connector_functions,
    penstock_finalizer,
    penstock_interceptor,
    penstock_interrupted,
    penstock_picker,
    penstock_resolver_functions,
    penstock_verifier,
)

PROTOTYPES: Dict[str, Tuple[Any, ...]] = {
    # ---- runtime.h ----
    # penstock_result penstock_runtime_new(const char *options, penstock_runtime **runtime, penstock_error **error);
    "penstock_runtime_new": (c_int32, c_char_p, POINTER(c_void_p), POINTER(c_void_p)),
    # penstock_result penstock_runtime_default(penstock_runtime **runtime, penstock_error **error);
    "penstock_runtime_default": (c_int32, POINTER(c_void_p), POINTER(c_void_p)),
    # penstock_runtime *penstock_runtime_retain(penstock_runtime *runtime);
    "penstock_runtime_retain": (c_void_p, c_void_p),
    # void penstock_runtime_release(penstock_runtime *runtime);
    "penstock_runtime_release": (None, c_void_p),
    # penstock_result penstock_runtime_fd(penstock_runtime *runtime, int *fd);
    "penstock_runtime_fd": (c_int32, c_void_p, POINTER(c_int)),
    # penstock_result penstock_runtime_poll(penstock_runtime *runtime, int64_t timeout_ms);
    "penstock_runtime_poll": (c_int32, c_void_p, c_int64),
    # penstock_result penstock_runtime_shutdown(penstock_runtime *runtime, int64_t timeout_ms);
    "penstock_runtime_shutdown": (c_int32, c_void_p, c_int64),
    # penstock_result penstock_runtime_add_interceptor(penstock_runtime *runtime, const penstock_interceptor
    # *interceptor, int32_t priority, penstock_interceptor_id *id, penstock_error **error);
    "penstock_runtime_add_interceptor": (
        c_int32,
        c_void_p,
        POINTER(penstock_interceptor),
        c_int32,
        POINTER(c_uint64),
        POINTER(c_void_p),
    ),
    # penstock_result penstock_runtime_interceptors_json(penstock_runtime *runtime, char **json);
    "penstock_runtime_interceptors_json": (c_int32, c_void_p, POINTER(c_void_p)),
    # penstock_result penstock_runtime_snapshot_json(penstock_runtime *runtime, int64_t timeout_ms, char **json);
    "penstock_runtime_snapshot_json": (c_int32, c_void_p, c_int64, POINTER(c_void_p)),
    # ---- message.h ----
    # penstock_result penstock_message_new(const void *data, size_t length, uint32_t flags, penstock_message
    # **message);
    "penstock_message_new": (c_int32, c_void_p, c_size_t, c_uint32, POINTER(c_void_p)),
    # penstock_result penstock_message_new_lent(const void *data, size_t length, uint32_t flags, void *user_data,
    # penstock_finalizer finalizer, penstock_message **message);
    "penstock_message_new_lent": (
        c_int32,
        c_void_p,
        c_size_t,
        c_uint32,
        c_void_p,
        penstock_finalizer,
        POINTER(c_void_p),
    ),
    # const void *penstock_message_bytes(const penstock_message *message, size_t *length);
    "penstock_message_bytes": (c_void_p, c_void_p, POINTER(c_size_t)),
    # penstock_message *penstock_message_retain(penstock_message *message);
    "penstock_message_retain": (c_void_p, c_void_p),
    # void penstock_message_release(penstock_message *message);
    "penstock_message_release": (None, c_void_p),
    # ---- call.h ----
    # penstock_result penstock_call_options_new(const char *json, penstock_call_options **options, penstock_error
    # **error);
    "penstock_call_options_new": (c_int32, c_char_p, POINTER(c_void_p), POINTER(c_void_p)),
    # penstock_call_options *penstock_call_options_retain(penstock_call_options *options);
    "penstock_call_options_retain": (c_void_p, c_void_p),
    # void penstock_call_options_release(penstock_call_options *options);
    "penstock_call_options_release": (None, c_void_p),
    # penstock_request *penstock_call_options_request(penstock_call_options *options);
    "penstock_call_options_request": (c_void_p, c_void_p),
    # penstock_result penstock_call_options_set_on_interrupted(penstock_call_options *options, int32_t
    # (*interrupted)(void *user_data), void *user_data, penstock_finalizer finalizer);
    "penstock_call_options_set_on_interrupted": (
        c_int32,
        c_void_p,
        penstock_interrupted,
        c_void_p,
        penstock_finalizer,
    ),
    # penstock_result penstock_call_options_set_context(penstock_call_options *options, void *context,
    # penstock_finalizer finalizer);
    "penstock_call_options_set_context": (c_int32, c_void_p, c_void_p, penstock_finalizer),
    # penstock_result penstock_call_options_add_interceptor(penstock_call_options *options, const penstock_interceptor
    # *interceptor, int32_t priority, penstock_interceptor_id *id, penstock_error **error);
    "penstock_call_options_add_interceptor": (
        c_int32,
        c_void_p,
        POINTER(penstock_interceptor),
        c_int32,
        POINTER(c_uint64),
        POINTER(c_void_p),
    ),
    # penstock_reply *penstock_reply_retain(penstock_reply *reply);
    "penstock_reply_retain": (c_void_p, c_void_p),
    # void penstock_reply_release(penstock_reply *reply);
    "penstock_reply_release": (None, c_void_p),
    # int32_t penstock_reply_code(const penstock_reply *reply);
    "penstock_reply_code": (c_int32, c_void_p),
    # const penstock_status *penstock_reply_status(const penstock_reply *reply);
    "penstock_reply_status": (c_void_p, c_void_p),
    # const char *penstock_reply_status_json(const penstock_reply *reply);
    "penstock_reply_status_json": (c_char_p, c_void_p),
    # const void *penstock_reply_bytes(const penstock_reply *reply, size_t *length);
    "penstock_reply_bytes": (c_void_p, c_void_p, POINTER(c_size_t)),
    # penstock_message *penstock_reply_response_message(const penstock_reply *reply);
    "penstock_reply_response_message": (c_void_p, c_void_p),
    # const penstock_metadata *penstock_reply_headers(const penstock_reply *reply);
    "penstock_reply_headers": (c_void_p, c_void_p),
    # const penstock_metadata *penstock_reply_trailers(const penstock_reply *reply);
    "penstock_reply_trailers": (c_void_p, c_void_p),
    # const char *penstock_reply_stats_json(const penstock_reply *reply);
    "penstock_reply_stats_json": (c_char_p, c_void_p),
    # const char *penstock_reply_trace_json(const penstock_reply *reply);
    "penstock_reply_trace_json": (c_char_p, c_void_p),
    # penstock_result penstock_reply_peer_certificates_pem(const penstock_reply *reply, char **pem);
    "penstock_reply_peer_certificates_pem": (c_int32, c_void_p, POINTER(c_void_p)),
    # void *penstock_reply_value(const penstock_reply *reply, const char *key);
    "penstock_reply_value": (c_void_p, c_void_p, c_char_p),
    # penstock_call *penstock_call_retain(penstock_call *call);
    "penstock_call_retain": (c_void_p, c_void_p),
    # void penstock_call_release(penstock_call *call);
    "penstock_call_release": (None, c_void_p),
    # uint64_t penstock_call_id(const penstock_call *call);
    "penstock_call_id": (c_uint64, c_void_p),
    # penstock_result penstock_call_trace_json(penstock_call *call, char **json);
    "penstock_call_trace_json": (c_int32, c_void_p, POINTER(c_void_p)),
    # penstock_result penstock_call_send(penstock_call *call, const void *data, size_t length);
    "penstock_call_send": (c_int32, c_void_p, c_void_p, c_size_t),
    # penstock_result penstock_call_try_send(penstock_call *call, const void *data, size_t length);
    "penstock_call_try_send": (c_int32, c_void_p, c_void_p, c_size_t),
    # penstock_result penstock_call_send_message(penstock_call *call, penstock_message *message);
    "penstock_call_send_message": (c_int32, c_void_p, c_void_p),
    # penstock_result penstock_call_try_send_message(penstock_call *call, penstock_message *message);
    "penstock_call_try_send_message": (c_int32, c_void_p, c_void_p),
    # penstock_result penstock_call_send_many(penstock_call *call, const void *data, const size_t *lengths, size_t
    # count, size_t *sent);
    "penstock_call_send_many": (c_int32, c_void_p, c_void_p, POINTER(c_size_t), c_size_t, POINTER(c_size_t)),
    # penstock_result penstock_call_try_send_many(penstock_call *call, const void *data, const size_t *lengths, size_t
    # count, size_t *sent);
    "penstock_call_try_send_many": (c_int32, c_void_p, c_void_p, POINTER(c_size_t), c_size_t, POINTER(c_size_t)),
    # penstock_result penstock_call_half_close(penstock_call *call);
    "penstock_call_half_close": (c_int32, c_void_p),
    # penstock_result penstock_call_promise_half_close(penstock_call *call);
    "penstock_call_promise_half_close": (c_int32, c_void_p),
    # penstock_result penstock_call_receive(penstock_call *call, penstock_message **message);
    "penstock_call_receive": (c_int32, c_void_p, POINTER(c_void_p)),
    # penstock_result penstock_call_receive_many(penstock_call *call, size_t most, void *data, size_t size, size_t
    # *lengths, size_t *count);
    "penstock_call_receive_many": (
        c_int32,
        c_void_p,
        c_size_t,
        c_void_p,
        c_size_t,
        POINTER(c_size_t),
        POINTER(c_size_t),
    ),
    # penstock_result penstock_call_wait_headers(penstock_call *call, const penstock_metadata **headers);
    "penstock_call_wait_headers": (c_int32, c_void_p, POINTER(c_void_p)),
    # penstock_result penstock_call_wait_status(penstock_call *call, penstock_reply **reply);
    "penstock_call_wait_status": (c_int32, c_void_p, POINTER(c_void_p)),
    # penstock_result penstock_call_wait_status_for(penstock_call *call, int64_t timeout_ms,
    #                                               penstock_reply **reply);
    "penstock_call_wait_status_for": (c_int32, c_void_p, c_int64, POINTER(c_void_p)),
    # penstock_result penstock_call_wait(penstock_call *call, penstock_reply **reply);
    "penstock_call_wait": (c_int32, c_void_p, POINTER(c_void_p)),
    # penstock_result penstock_call_demand(penstock_call *call, uint64_t count);
    "penstock_call_demand": (c_int32, c_void_p, c_uint64),
    # penstock_result penstock_call_cancel(penstock_call *call, const char *reason);
    "penstock_call_cancel": (c_int32, c_void_p, c_char_p),
    # penstock_result penstock_call_reply(penstock_call *call, penstock_reply **reply);
    "penstock_call_reply": (c_int32, c_void_p, POINTER(c_void_p)),
    # penstock_result penstock_call_set_value(penstock_call *call, const char *key, void *value, penstock_finalizer
    # finalizer);
    "penstock_call_set_value": (c_int32, c_void_p, c_char_p, c_void_p, penstock_finalizer),
    # void *penstock_call_value(const penstock_call *call, const char *key);
    "penstock_call_value": (c_void_p, c_void_p, c_char_p),
    # ---- channel.h ----
    # penstock_result penstock_channel_new(const char *target, const char *options, penstock_channel **channel,
    # penstock_error **error);
    "penstock_channel_new": (c_int32, c_char_p, c_char_p, POINTER(c_void_p), POINTER(c_void_p)),
    # penstock_result penstock_channel_new_on(penstock_runtime *runtime, const char *target, const char *options,
    # penstock_channel **channel, penstock_error **error);
    "penstock_channel_new_on": (c_int32, c_void_p, c_char_p, c_char_p, POINTER(c_void_p), POINTER(c_void_p)),
    # penstock_channel *penstock_channel_retain(penstock_channel *channel);
    "penstock_channel_retain": (c_void_p, c_void_p),
    # void penstock_channel_release(penstock_channel *channel);
    "penstock_channel_release": (None, c_void_p),
    # penstock_result penstock_channel_stats_json(penstock_channel *channel, int64_t timeout_ms, char **json);
    "penstock_channel_stats_json": (c_int32, c_void_p, c_int64, POINTER(c_void_p)),
    # int32_t penstock_channel_connectivity(const penstock_channel *channel);
    "penstock_channel_connectivity": (c_int32, c_void_p),
    # penstock_result penstock_channel_wait_connectivity(penstock_channel *channel, int32_t from, int64_t timeout_ms,
    #                                                    int32_t *now);
    "penstock_channel_wait_connectivity": (c_int32, c_void_p, c_int32, c_int64, POINTER(c_int32)),
    # penstock_result penstock_channel_watch_connectivity(penstock_channel *channel,
    # penstock_connectivity_function changed, void *user_data, penstock_finalizer finalizer);
    "penstock_channel_watch_connectivity": (
        c_int32,
        c_void_p,
        penstock_connectivity_function,
        c_void_p,
        penstock_finalizer,
    ),
    # penstock_result penstock_channel_connect(penstock_channel *channel);
    "penstock_channel_connect": (c_int32, c_void_p),
    # penstock_result penstock_channel_reset_backoff(penstock_channel *channel);
    "penstock_channel_reset_backoff": (c_int32, c_void_p),
    # penstock_result penstock_channel_close(penstock_channel *channel);
    "penstock_channel_close": (c_int32, c_void_p),
    # penstock_result penstock_channel_close_gracefully(penstock_channel *channel, int64_t timeout_ms);
    "penstock_channel_close_gracefully": (c_int32, c_void_p, c_int64),
    # penstock_result penstock_channel_set_tls_pem(penstock_channel *channel, const void *roots, size_t roots_length,
    # const void *chain, size_t chain_length, const void *key, size_t key_length, penstock_error **error);
    "penstock_channel_set_tls_pem": (
        c_int32,
        c_void_p,
        c_void_p,
        c_size_t,
        c_void_p,
        c_size_t,
        c_void_p,
        c_size_t,
        POINTER(c_void_p),
    ),
    # penstock_result penstock_channel_unary(penstock_channel *channel, const char *method, const void *request,
    # size_t length, const penstock_call_options *options, penstock_reply **reply, penstock_error **error);
    "penstock_channel_unary": (
        c_int32,
        c_void_p,
        c_char_p,
        c_void_p,
        c_size_t,
        c_void_p,
        POINTER(c_void_p),
        POINTER(c_void_p),
    ),
    # penstock_result penstock_channel_unary_message(penstock_channel *channel, const char *method, penstock_message
    # *request, const penstock_call_options *options, penstock_reply **reply, penstock_error **error);
    "penstock_channel_unary_message": (
        c_int32,
        c_void_p,
        c_char_p,
        c_void_p,
        c_void_p,
        POINTER(c_void_p),
        POINTER(c_void_p),
    ),
    # penstock_result penstock_channel_call(penstock_channel *channel, const char *method, int32_t kind, const
    # penstock_call_options *options, const penstock_call_callbacks *callbacks, penstock_call **call, penstock_error
    # **error);
    "penstock_channel_call": (
        c_int32,
        c_void_p,
        c_char_p,
        c_int32,
        c_void_p,
        POINTER(penstock_call_callbacks),
        POINTER(c_void_p),
        POINTER(c_void_p),
    ),
    # penstock_result penstock_channel_add_interceptor(penstock_channel *channel, const penstock_interceptor
    # *interceptor, int32_t priority, penstock_interceptor_id *id, penstock_error **error);
    "penstock_channel_add_interceptor": (
        c_int32,
        c_void_p,
        POINTER(penstock_interceptor),
        c_int32,
        POINTER(c_uint64),
        POINTER(c_void_p),
    ),
    # penstock_result penstock_channel_interceptors_json(penstock_channel *channel, char **json);
    "penstock_channel_interceptors_json": (c_int32, c_void_p, POINTER(c_void_p)),
    # ---- registration.h ----
    # penstock_result penstock_registration_remove(penstock_interceptor_id id, penstock_error **error);
    "penstock_registration_remove": (c_int32, c_uint64, POINTER(c_void_p)),
    # penstock_result penstock_registration_set_priority(penstock_interceptor_id id, int32_t priority, penstock_error
    # **error);
    "penstock_registration_set_priority": (c_int32, c_uint64, c_int32, POINTER(c_void_p)),
    # penstock_result penstock_registration_set_filter(penstock_interceptor_id id, const char *methods, uint32_t
    # kinds, penstock_error **error);
    "penstock_registration_set_filter": (c_int32, c_uint64, c_char_p, c_uint32, POINTER(c_void_p)),
    # penstock_result penstock_registration_replace(penstock_interceptor_id id, const penstock_interceptor
    # *interceptor, penstock_interceptor_id *new_id, penstock_error **error);
    "penstock_registration_replace": (
        c_int32,
        c_uint64,
        POINTER(penstock_interceptor),
        POINTER(c_uint64),
        POINTER(c_void_p),
    ),
    # penstock_result penstock_registration_wait_removed(penstock_interceptor_id id, int64_t timeout_ms);
    "penstock_registration_wait_removed": (c_int32, c_uint64, c_int64),
    # ---- codec.h ----
    # penstock_result penstock_buffer_append(penstock_buffer *buffer, const void *data, size_t length);
    "penstock_buffer_append": (c_int32, c_void_p, c_void_p, c_size_t),
    # penstock_result penstock_codec_new(const penstock_codec_functions *functions, penstock_codec **codec,
    # penstock_error **error);
    "penstock_codec_new": (c_int32, POINTER(penstock_codec_functions), POINTER(c_void_p), POINTER(c_void_p)),
    # penstock_codec *penstock_codec_retain(penstock_codec *codec);
    "penstock_codec_retain": (c_void_p, c_void_p),
    # void penstock_codec_release(penstock_codec *codec);
    "penstock_codec_release": (None, c_void_p),
    # penstock_result penstock_channel_set_codec(penstock_channel *channel, penstock_codec *codec);
    "penstock_channel_set_codec": (c_int32, c_void_p, c_void_p),
    # penstock_result penstock_call_options_set_codec(penstock_call_options *options, penstock_codec *codec);
    "penstock_call_options_set_codec": (c_int32, c_void_p, c_void_p),
    # penstock_result penstock_message_new_object(penstock_codec *codec, void *object, uint32_t flags,
    # penstock_message **message);
    "penstock_message_new_object": (c_int32, c_void_p, c_void_p, c_uint32, POINTER(c_void_p)),
    # void *penstock_message_object(const penstock_message *message);
    "penstock_message_object": (c_void_p, c_void_p),
    # ---- fork.h ----
    # void penstock_fork_prepare(void);
    "penstock_fork_prepare": (None,),
    # void penstock_fork_parent(void);
    "penstock_fork_parent": (None,),
    # void penstock_fork_child(void);
    "penstock_fork_child": (None,),
    # ---- cancel.h ----
    # penstock_result penstock_cancel_scope_new(penstock_cancel_scope **scope);
    "penstock_cancel_scope_new": (c_int32, POINTER(c_void_p)),
    # penstock_result penstock_cancel_scope_cancel(penstock_cancel_scope *scope, const char *reason);
    "penstock_cancel_scope_cancel": (c_int32, c_void_p, c_char_p),
    # penstock_cancel_scope *penstock_cancel_scope_retain(penstock_cancel_scope *scope);
    "penstock_cancel_scope_retain": (c_void_p, c_void_p),
    # void penstock_cancel_scope_release(penstock_cancel_scope *scope);
    "penstock_cancel_scope_release": (None, c_void_p),
    # penstock_result penstock_call_options_set_cancel_scope(penstock_call_options *options, penstock_cancel_scope
    # *scope);
    "penstock_call_options_set_cancel_scope": (c_int32, c_void_p, c_void_p),
    # ---- resolver.h ----
    # penstock_result penstock_channel_set_resolver(penstock_channel *channel, const penstock_resolver_functions
    # *functions, penstock_resolver **resolver, penstock_error **error);
    "penstock_channel_set_resolver": (
        c_int32,
        c_void_p,
        POINTER(penstock_resolver_functions),
        POINTER(c_void_p),
        POINTER(c_void_p),
    ),
    # penstock_result penstock_resolver_push(penstock_resolver *resolver, const char *snapshot,
    #                                        penstock_error **error);
    "penstock_resolver_push": (c_int32, c_void_p, c_char_p, POINTER(c_void_p)),
    # penstock_resolver *penstock_resolver_retain(penstock_resolver *resolver);
    "penstock_resolver_retain": (c_void_p, c_void_p),
    # void penstock_resolver_release(penstock_resolver *resolver);
    "penstock_resolver_release": (None, c_void_p),
    # ---- connector.h ----
    # penstock_result penstock_channel_set_connector(penstock_channel *channel, const penstock_connector_functions
    # *functions, penstock_error **error);
    "penstock_channel_set_connector": (c_int32, c_void_p, POINTER(penstock_connector_functions), POINTER(c_void_p)),
    # const char *penstock_connecting_address(const penstock_connecting *connecting);
    "penstock_connecting_address": (c_char_p, c_void_p),
    # const void *penstock_connecting_sockaddr(const penstock_connecting *connecting, size_t *length);
    "penstock_connecting_sockaddr": (c_void_p, c_void_p, POINTER(c_size_t)),
    # const char *penstock_connecting_target(const penstock_connecting *connecting);
    "penstock_connecting_target": (c_char_p, c_void_p),
    # penstock_result penstock_connecting_socket(penstock_connecting *connecting, int32_t descriptor,
    #                                            penstock_error **error);
    "penstock_connecting_socket": (c_int32, c_void_p, c_int32, POINTER(c_void_p)),
    # penstock_result penstock_connecting_decline(penstock_connecting *connecting);
    "penstock_connecting_decline": (c_int32, c_void_p),
    # penstock_result penstock_connecting_fail(penstock_connecting *connecting, const char *message);
    "penstock_connecting_fail": (c_int32, c_void_p, c_char_p),
    # penstock_connecting *penstock_connecting_retain(penstock_connecting *connecting);
    "penstock_connecting_retain": (c_void_p, c_void_p),
    # void penstock_connecting_release(penstock_connecting *connecting);
    "penstock_connecting_release": (None, c_void_p),
    # ---- verifier.h ----
    # penstock_result penstock_channel_set_verifier(penstock_channel *channel, penstock_verifier verifier, void
    # *user_data, penstock_finalizer finalizer);
    "penstock_channel_set_verifier": (c_int32, c_void_p, penstock_verifier, c_void_p, penstock_finalizer),
    # const char *penstock_verification_name(const penstock_verification *server);
    "penstock_verification_name": (c_char_p, c_void_p),
    # size_t penstock_verification_count(const penstock_verification *server);
    "penstock_verification_count": (c_size_t, c_void_p),
    # const void *penstock_verification_certificate(penstock_verification *server, size_t index, size_t *length);
    "penstock_verification_certificate": (c_void_p, c_void_p, c_size_t, POINTER(c_size_t)),
    # penstock_result penstock_verification_accept(penstock_verification *server);
    "penstock_verification_accept": (c_int32, c_void_p),
    # penstock_result penstock_verification_refuse(penstock_verification *server, const char *words);
    "penstock_verification_refuse": (c_int32, c_void_p, c_char_p),
    # ---- compressor.h ----
    # penstock_result penstock_compression_append(penstock_compression *message, const void *data, size_t length);
    "penstock_compression_append": (c_int32, c_void_p, c_void_p, c_size_t),
    # size_t penstock_compression_room(const penstock_compression *message);
    "penstock_compression_room": (c_size_t, c_void_p),
    # penstock_result penstock_compression_fail(penstock_compression *message, const char *words);
    "penstock_compression_fail": (c_int32, c_void_p, c_char_p),
    # penstock_result penstock_compressor_new(const penstock_compressor_functions *functions, penstock_compressor
    # **compressor, penstock_error **error);
    "penstock_compressor_new": (
        c_int32,
        POINTER(penstock_compressor_functions),
        POINTER(c_void_p),
        POINTER(c_void_p),
    ),
    # penstock_compressor *penstock_compressor_retain(penstock_compressor *compressor);
    "penstock_compressor_retain": (c_void_p, c_void_p),
    # void penstock_compressor_release(penstock_compressor *compressor);
    "penstock_compressor_release": (None, c_void_p),
    # penstock_result penstock_channel_add_compressor(penstock_channel *channel, penstock_compressor *compressor);
    "penstock_channel_add_compressor": (c_int32, c_void_p, c_void_p),
    # ---- picker.h ----
    # penstock_result penstock_channel_set_picker(penstock_channel *channel, penstock_picker picker, void *user_data,
    # penstock_finalizer finalizer);
    "penstock_channel_set_picker": (c_int32, c_void_p, penstock_picker, c_void_p, penstock_finalizer),
    # penstock_request *penstock_pick_request(penstock_pick *pick);
    "penstock_pick_request": (c_void_p, c_void_p),
    # void *penstock_pick_context(const penstock_pick *pick);
    "penstock_pick_context": (c_void_p, c_void_p),
    # size_t penstock_pick_count(const penstock_pick *pick);
    "penstock_pick_count": (c_size_t, c_void_p),
    # const char *penstock_pick_address(const penstock_pick *pick, size_t index);
    "penstock_pick_address": (c_char_p, c_void_p, c_size_t),
    # uint32_t penstock_pick_weight(const penstock_pick *pick, size_t index);
    "penstock_pick_weight": (c_uint32, c_void_p, c_size_t),
    # const char *penstock_pick_attribute(const penstock_pick *pick, size_t index, const char *name);
    "penstock_pick_attribute": (c_char_p, c_void_p, c_size_t, c_char_p),
    # penstock_result penstock_pick_fail(penstock_pick *pick, int32_t code, const char *message);
    "penstock_pick_fail": (c_int32, c_void_p, c_int32, c_char_p),
}
