"""The functions for interceptors of each style: interceptor.h, request.h, hop.h, async.h, sync.h."""

from __future__ import annotations

from ctypes import POINTER, c_char_p, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from typing import Any, Dict, Tuple

from .c_types import penstock_call_callbacks, penstock_finalizer, penstock_interceptor, penstock_sync_interceptor

PROTOTYPES: Dict[str, Tuple[Any, ...]] = {
    # ---- request.h ----
    # penstock_metadata *penstock_request_metadata(penstock_request *request);
    "penstock_request_metadata": (c_void_p, c_void_p),
    # const char *penstock_request_method(const penstock_request *request);
    "penstock_request_method": (c_char_p, c_void_p),
    # penstock_result penstock_request_set_method(penstock_request *request, const char *method);
    "penstock_request_set_method": (c_int32, c_void_p, c_char_p),
    # const char *penstock_request_authority(const penstock_request *request);
    "penstock_request_authority": (c_char_p, c_void_p),
    # penstock_result penstock_request_set_authority(penstock_request *request, const char *authority);
    "penstock_request_set_authority": (c_int32, c_void_p, c_char_p),
    # penstock_result penstock_request_deadline_ms(const penstock_request *request, int64_t *ms);
    "penstock_request_deadline_ms": (c_int32, c_void_p, POINTER(c_int64)),
    # penstock_result penstock_request_set_deadline_ms(penstock_request *request, int64_t ms);
    "penstock_request_set_deadline_ms": (c_int32, c_void_p, c_int64),
    # const char *penstock_request_compression(const penstock_request *request);
    "penstock_request_compression": (c_char_p, c_void_p),
    # penstock_result penstock_request_set_compression(penstock_request *request, const char *name);
    "penstock_request_set_compression": (c_int32, c_void_p, c_char_p),
    # penstock_result penstock_request_max_receive_message_bytes(const penstock_request *request, size_t *bytes);
    "penstock_request_max_receive_message_bytes": (c_int32, c_void_p, POINTER(c_size_t)),
    # penstock_result penstock_request_set_max_receive_message_bytes(penstock_request *request, size_t bytes);
    "penstock_request_set_max_receive_message_bytes": (c_int32, c_void_p, c_size_t),
    # penstock_result penstock_request_max_send_message_bytes(const penstock_request *request, size_t *bytes);
    "penstock_request_max_send_message_bytes": (c_int32, c_void_p, POINTER(c_size_t)),
    # penstock_result penstock_request_set_max_send_message_bytes(penstock_request *request, size_t bytes);
    "penstock_request_set_max_send_message_bytes": (c_int32, c_void_p, c_size_t),
    # const char *penstock_request_content_subtype(const penstock_request *request);
    "penstock_request_content_subtype": (c_char_p, c_void_p),
    # penstock_result penstock_request_set_content_subtype(penstock_request *request, const char *subtype);
    "penstock_request_set_content_subtype": (c_int32, c_void_p, c_char_p),
    # const char *penstock_request_user_agent(const penstock_request *request);
    "penstock_request_user_agent": (c_char_p, c_void_p),
    # penstock_result penstock_request_set_user_agent(penstock_request *request, const char *application);
    "penstock_request_set_user_agent": (c_int32, c_void_p, c_char_p),
    # penstock_result penstock_request_idempotency(const penstock_request *request, int32_t *idempotency);
    "penstock_request_idempotency": (c_int32, c_void_p, POINTER(c_int32)),
    # penstock_result penstock_request_set_idempotency(penstock_request *request, int32_t idempotency);
    "penstock_request_set_idempotency": (c_int32, c_void_p, c_int32),
    # penstock_result penstock_request_previous_attempts(const penstock_request *request, uint32_t *count);
    "penstock_request_previous_attempts": (c_int32, c_void_p, POINTER(c_uint32)),
    # penstock_result penstock_request_is_transparent_retry(const penstock_request *request, int32_t *is);
    "penstock_request_is_transparent_retry": (c_int32, c_void_p, POINTER(c_int32)),
    # const char *penstock_request_http_method(const penstock_request *request);
    "penstock_request_http_method": (c_char_p, c_void_p),
    # penstock_result penstock_request_allows_get(const penstock_request *request, int32_t *allows);
    "penstock_request_allows_get": (c_int32, c_void_p, POINTER(c_int32)),
    # penstock_result penstock_request_set_allows_get(penstock_request *request, int32_t allows);
    "penstock_request_set_allows_get": (c_int32, c_void_p, c_int32),
    # penstock_result penstock_request_wait_for_ready(const penstock_request *request, int32_t *wait);
    "penstock_request_wait_for_ready": (c_int32, c_void_p, POINTER(c_int32)),
    # penstock_result penstock_request_set_wait_for_ready(penstock_request *request, int32_t wait);
    "penstock_request_set_wait_for_ready": (c_int32, c_void_p, c_int32),
    # penstock_result penstock_request_has_credentials(const penstock_request *request, int32_t *has);
    "penstock_request_has_credentials": (c_int32, c_void_p, POINTER(c_int32)),
    # penstock_result penstock_request_set_credentials(penstock_request *request, const char *authorization);
    "penstock_request_set_credentials": (c_int32, c_void_p, c_char_p),
    # penstock_result penstock_request_message(penstock_request *request, size_t index, penstock_message **message);
    "penstock_request_message": (c_int32, c_void_p, c_size_t, POINTER(c_void_p)),
    # penstock_result penstock_request_set_message(penstock_request *request, size_t index, penstock_message
    # *message);
    "penstock_request_set_message": (c_int32, c_void_p, c_size_t, c_void_p),
    # penstock_result penstock_request_set_channel(penstock_request *request, penstock_channel *channel);
    "penstock_request_set_channel": (c_int32, c_void_p, c_void_p),
    # penstock_result penstock_request_prefer(penstock_request *request, const char *name, const char *value,
    # int32_t required);
    "penstock_request_prefer": (c_int32, c_void_p, c_char_p, c_char_p, c_int32),
    # ---- hop.h ----
    # penstock_hop *penstock_hop_retain(penstock_hop *hop);
    "penstock_hop_retain": (c_void_p, c_void_p),
    # void penstock_hop_release(penstock_hop *hop);
    "penstock_hop_release": (None, c_void_p),
    # int32_t penstock_hop_event(const penstock_hop *hop);
    "penstock_hop_event": (c_int32, c_void_p),
    # uint64_t penstock_hop_call_id(const penstock_hop *hop);
    "penstock_hop_call_id": (c_uint64, c_void_p),
    # int32_t penstock_hop_kind(const penstock_hop *hop);
    "penstock_hop_kind": (c_int32, c_void_p),
    # penstock_result penstock_hop_set_executors(penstock_hop *hop, penstock_executor *outbound, penstock_executor
    # *inbound);
    "penstock_hop_set_executors": (c_int32, c_void_p, c_void_p, c_void_p),
    # uint32_t penstock_hop_attempt(const penstock_hop *hop);
    "penstock_hop_attempt": (c_uint32, c_void_p),
    # int32_t penstock_hop_level(const penstock_hop *hop);
    "penstock_hop_level": (c_int32, c_void_p),
    # const char *penstock_hop_target(const penstock_hop *hop);
    "penstock_hop_target": (c_char_p, c_void_p),
    # const char *penstock_hop_address(const penstock_hop *hop);
    "penstock_hop_address": (c_char_p, c_void_p),
    # const char *penstock_hop_address_attribute(const penstock_hop *hop, const char *name);
    "penstock_hop_address_attribute": (c_char_p, c_void_p, c_char_p),
    # const char *penstock_hop_why(const penstock_hop *hop);
    "penstock_hop_why": (c_char_p, c_void_p),
    # penstock_request *penstock_hop_request(penstock_hop *hop);
    "penstock_hop_request": (c_void_p, c_void_p),
    # penstock_result penstock_hop_can_restart(const penstock_hop *hop);
    "penstock_hop_can_restart": (c_int32, c_void_p),
    # penstock_metadata *penstock_hop_metadata(penstock_hop *hop);
    "penstock_hop_metadata": (c_void_p, c_void_p),
    # const penstock_message *penstock_hop_message(penstock_hop *hop);
    "penstock_hop_message": (c_void_p, c_void_p),
    # penstock_codec *penstock_hop_codec(const penstock_hop *hop);
    "penstock_hop_codec": (c_void_p, c_void_p),
    # penstock_result penstock_hop_set_bytes(penstock_hop *hop, const void *data, size_t length);
    "penstock_hop_set_bytes": (c_int32, c_void_p, c_void_p, c_size_t),
    # penstock_result penstock_hop_set_message(penstock_hop *hop, penstock_message *message);
    "penstock_hop_set_message": (c_int32, c_void_p, c_void_p),
    # penstock_status *penstock_hop_status(penstock_hop *hop);
    "penstock_hop_status": (c_void_p, c_void_p),
    # uint64_t penstock_hop_count(const penstock_hop *hop);
    "penstock_hop_count": (c_uint64, c_void_p),
    # penstock_result penstock_hop_set_count(penstock_hop *hop, uint64_t n);
    "penstock_hop_set_count": (c_int32, c_void_p, c_uint64),
    # const char *penstock_hop_protocol(const penstock_hop *hop);
    "penstock_hop_protocol": (c_char_p, c_void_p),
    # int32_t penstock_hop_is_secure(const penstock_hop *hop);
    "penstock_hop_is_secure": (c_int32, c_void_p),
    # penstock_result penstock_hop_stats_json(const penstock_hop *hop, char **json);
    "penstock_hop_stats_json": (c_int32, c_void_p, POINTER(c_void_p)),
    # penstock_result penstock_hop_trace_json(penstock_hop *hop, char **json);
    "penstock_hop_trace_json": (c_int32, c_void_p, POINTER(c_void_p)),
    # penstock_result penstock_hop_peer_certificates_pem(const penstock_hop *hop, char **pem);
    "penstock_hop_peer_certificates_pem": (c_int32, c_void_p, POINTER(c_void_p)),
    # penstock_result penstock_hop_end(penstock_hop *hop, int32_t code, const char *message);
    "penstock_hop_end": (c_int32, c_void_p, c_int32, c_char_p),
    # penstock_result penstock_hop_end_with(penstock_hop *hop, const penstock_status *status);
    "penstock_hop_end_with": (c_int32, c_void_p, c_void_p),
    # penstock_result penstock_hop_start_side_call(penstock_hop *hop, const char *method, int32_t kind, uint32_t
    # flags, const penstock_call_options *options, const penstock_call_callbacks *callbacks, penstock_call **call,
    # penstock_error **error);
    "penstock_hop_start_side_call": (
        c_int32,
        c_void_p,
        c_char_p,
        c_int32,
        c_uint32,
        c_void_p,
        POINTER(penstock_call_callbacks),
        POINTER(c_void_p),
        POINTER(c_void_p),
    ),
    # penstock_result penstock_hop_next(penstock_hop *hop);
    "penstock_hop_next": (c_int32, c_void_p),
    # penstock_result penstock_hop_resolve(penstock_hop *hop, int32_t verdict);
    "penstock_hop_resolve": (c_int32, c_void_p, c_int32),
    # penstock_result penstock_hop_send(penstock_hop *hop, const void *data, size_t length);
    "penstock_hop_send": (c_int32, c_void_p, c_void_p, c_size_t),
    # penstock_result penstock_hop_send_message(penstock_hop *hop, penstock_message *message);
    "penstock_hop_send_message": (c_int32, c_void_p, c_void_p),
    # penstock_result penstock_hop_deliver(penstock_hop *hop, const void *data, size_t length);
    "penstock_hop_deliver": (c_int32, c_void_p, c_void_p, c_size_t),
    # penstock_result penstock_hop_deliver_message(penstock_hop *hop, penstock_message *message);
    "penstock_hop_deliver_message": (c_int32, c_void_p, c_void_p),
    # penstock_result penstock_hop_deliver_headers(penstock_hop *hop, const penstock_metadata *headers);
    "penstock_hop_deliver_headers": (c_int32, c_void_p, c_void_p),
    # penstock_result penstock_hop_deliver_status(penstock_hop *hop, const penstock_status *status);
    "penstock_hop_deliver_status": (c_int32, c_void_p, c_void_p),
    # penstock_result penstock_hop_half_close(penstock_hop *hop);
    "penstock_hop_half_close": (c_int32, c_void_p),
    # penstock_result penstock_hop_demand(penstock_hop *hop, uint64_t n);
    "penstock_hop_demand": (c_int32, c_void_p, c_uint64),
    # penstock_result penstock_hop_set_value(penstock_hop *hop, const char *key, void *value, penstock_finalizer
    # finalizer);
    "penstock_hop_set_value": (c_int32, c_void_p, c_char_p, c_void_p, penstock_finalizer),
    # void *penstock_hop_value(const penstock_hop *hop, const char *key);
    "penstock_hop_value": (c_void_p, c_void_p, c_char_p),
    # void *penstock_hop_context(const penstock_hop *hop);
    "penstock_hop_context": (c_void_p, c_void_p),
    # penstock_ticket penstock_hop_ticket(penstock_hop *hop);
    "penstock_hop_ticket": (c_uint64, c_void_p),
    # penstock_result penstock_ticket_resolve(penstock_ticket ticket, int32_t verdict);
    "penstock_ticket_resolve": (c_int32, c_uint64, c_int32),
    # penstock_result penstock_ticket_end(penstock_ticket ticket, int32_t code, const char *message);
    "penstock_ticket_end": (c_int32, c_uint64, c_int32, c_char_p),
    # penstock_result penstock_ticket_end_with(penstock_ticket ticket, const penstock_status *status);
    "penstock_ticket_end_with": (c_int32, c_uint64, c_void_p),
    # penstock_result penstock_ticket_resolve_after(penstock_ticket ticket, int32_t verdict, uint64_t ms);
    "penstock_ticket_resolve_after": (c_int32, c_uint64, c_int32, c_uint64),
    # penstock_result penstock_ticket_hop(penstock_ticket ticket, penstock_hop **hop);
    "penstock_ticket_hop": (c_int32, c_uint64, POINTER(c_void_p)),
    # ---- async.h ----
    # penstock_result penstock_async_interceptor_table(const penstock_async_interceptor *interceptor,
    # penstock_interceptor *table, penstock_error **error);
    "penstock_async_interceptor_table": (c_int32, c_void_p, c_void_p, POINTER(c_void_p)),
    # ---- sync.h ----
    # penstock_result penstock_sync_interceptor_table(const penstock_sync_interceptor *interceptor,
    # penstock_interceptor *table, penstock_error **error);
    "penstock_sync_interceptor_table": (
        c_int32,
        POINTER(penstock_sync_interceptor),
        POINTER(penstock_interceptor),
        POINTER(c_void_p),
    ),
}
