"""The functions of ready.h, credentials.h and telemetry.h, which make the ready-made interceptors."""

from __future__ import annotations

from ctypes import POINTER, c_char_p, c_int32, c_int64, c_uint64, c_void_p
from typing import Any, Dict, Tuple

from .c_types import penstock_finalizer, penstock_interceptor, penstock_log_line, penstock_token_source

PROTOTYPES: Dict[str, Tuple[Any, ...]] = {
    # ---- ready.h ----
    # penstock_result penstock_ready_share(const penstock_interceptor *table, penstock_interceptor *other);
    "penstock_ready_share": (c_int32, POINTER(penstock_interceptor), POINTER(penstock_interceptor)),
    # penstock_result penstock_ready_bearer_token(const char *options_json, penstock_token_source source, void
    # *user_data, penstock_finalizer finalizer, penstock_interceptor *table, penstock_error **error);
    "penstock_ready_bearer_token": (
        c_int32,
        c_char_p,
        penstock_token_source,
        c_void_p,
        penstock_finalizer,
        POINTER(penstock_interceptor),
        POINTER(c_void_p),
    ),
    # penstock_result penstock_token_complete(penstock_token_request request, const char *token, int64_t
    # expires_in_ms);
    "penstock_token_complete": (c_int32, c_uint64, c_char_p, c_int64),
    # penstock_result penstock_token_fail(penstock_token_request request, int32_t code, const char *message);
    "penstock_token_fail": (c_int32, c_uint64, c_int32, c_char_p),
    # penstock_result penstock_ready_token_file(const char *options_json, penstock_interceptor *table, penstock_error
    # **error);
    "penstock_ready_token_file": (c_int32, c_char_p, POINTER(penstock_interceptor), POINTER(c_void_p)),
    # penstock_result penstock_ready_logging(const char *options_json, penstock_log_line write, void *user_data,
    # penstock_finalizer finalizer, penstock_interceptor *table, penstock_error **error);
    "penstock_ready_logging": (
        c_int32,
        c_char_p,
        penstock_log_line,
        c_void_p,
        penstock_finalizer,
        POINTER(penstock_interceptor),
        POINTER(c_void_p),
    ),
    # penstock_result penstock_metrics_new(const char *options_json, penstock_metrics **metrics, penstock_error
    # **error);
    "penstock_metrics_new": (c_int32, c_char_p, POINTER(c_void_p), POINTER(c_void_p)),
    # penstock_metrics *penstock_metrics_retain(penstock_metrics *metrics);
    "penstock_metrics_retain": (c_void_p, c_void_p),
    # void penstock_metrics_release(penstock_metrics *metrics);
    "penstock_metrics_release": (None, c_void_p),
    # penstock_result penstock_ready_metrics(penstock_metrics *metrics, penstock_interceptor *table);
    "penstock_ready_metrics": (c_int32, c_void_p, POINTER(penstock_interceptor)),
    # penstock_result penstock_metrics_snapshot_json(penstock_metrics *metrics, char **json);
    "penstock_metrics_snapshot_json": (c_int32, c_void_p, POINTER(c_void_p)),
    # penstock_result penstock_metrics_prometheus_text(penstock_metrics *metrics, char **text);
    "penstock_metrics_prometheus_text": (c_int32, c_void_p, POINTER(c_void_p)),
    # penstock_result penstock_ready_trace_context(const char *options_json, penstock_interceptor *table,
    # penstock_error **error);
    "penstock_ready_trace_context": (c_int32, c_char_p, POINTER(penstock_interceptor), POINTER(c_void_p)),
    # penstock_result penstock_ready_response_cache(const char *options_json, penstock_interceptor *table,
    # penstock_error **error);
    "penstock_ready_response_cache": (c_int32, c_char_p, POINTER(penstock_interceptor), POINTER(c_void_p)),
    # penstock_result penstock_ready_rate_limit(const char *options_json, penstock_interceptor *table, penstock_error
    # **error);
    "penstock_ready_rate_limit": (c_int32, c_char_p, POINTER(penstock_interceptor), POINTER(c_void_p)),
    # penstock_result penstock_ready_hedging(const char *options_json, penstock_channel *other, penstock_interceptor
    # *table, penstock_error **error);
    "penstock_ready_hedging": (c_int32, c_char_p, c_void_p, POINTER(penstock_interceptor), POINTER(c_void_p)),
    # penstock_result penstock_hedging_stats_json(const penstock_interceptor *table, char **json);
    "penstock_hedging_stats_json": (c_int32, POINTER(penstock_interceptor), POINTER(c_void_p)),
    # penstock_result penstock_ready_fault_injection(const char *options_json, penstock_interceptor *table,
    # penstock_error **error);
    "penstock_ready_fault_injection": (c_int32, c_char_p, POINTER(penstock_interceptor), POINTER(c_void_p)),
    # penstock_result penstock_ready_header_rules(const char *options_json, penstock_interceptor *table,
    # penstock_error **error);
    "penstock_ready_header_rules": (c_int32, c_char_p, POINTER(penstock_interceptor), POINTER(c_void_p)),
    # ---- credentials.h ----
    # penstock_result penstock_ready_jwt(const char *options_json, penstock_interceptor *table, penstock_error
    # **error);
    "penstock_ready_jwt": (c_int32, c_char_p, POINTER(penstock_interceptor), POINTER(c_void_p)),
    # penstock_result penstock_ready_oauth2(const char *options_json, penstock_channel *server, penstock_interceptor
    # *table, penstock_error **error);
    "penstock_ready_oauth2": (c_int32, c_char_p, c_void_p, POINTER(penstock_interceptor), POINTER(c_void_p)),
    # ---- telemetry.h ----
    # penstock_result penstock_telemetry_new(const char *options_json, penstock_telemetry **telemetry, penstock_error
    # **error);
    "penstock_telemetry_new": (c_int32, c_char_p, POINTER(c_void_p), POINTER(c_void_p)),
    # penstock_telemetry *penstock_telemetry_retain(penstock_telemetry *telemetry);
    "penstock_telemetry_retain": (c_void_p, c_void_p),
    # void penstock_telemetry_release(penstock_telemetry *telemetry);
    "penstock_telemetry_release": (None, c_void_p),
    # penstock_result penstock_ready_telemetry(penstock_telemetry *telemetry, penstock_interceptor *table,
    # penstock_error **error);
    "penstock_ready_telemetry": (c_int32, c_void_p, POINTER(penstock_interceptor), POINTER(c_void_p)),
    # penstock_result penstock_telemetry_prometheus_text(penstock_telemetry *telemetry, char **text);
    "penstock_telemetry_prometheus_text": (c_int32, c_void_p, POINTER(c_void_p)),
    # penstock_result penstock_telemetry_metrics_json(penstock_telemetry *telemetry, char **json);
    "penstock_telemetry_metrics_json": (c_int32, c_void_p, POINTER(c_void_p)),
    # penstock_result penstock_telemetry_spans_json(penstock_telemetry *telemetry, char **json);
    "penstock_telemetry_spans_json": (c_int32, c_void_p, POINTER(c_void_p)),
    # penstock_result penstock_telemetry_stats_json(penstock_telemetry *telemetry, char **json);
    "penstock_telemetry_stats_json": (c_int32, c_void_p, POINTER(c_void_p)),
    # penstock_result penstock_telemetry_flush(penstock_telemetry *telemetry, penstock_channel *channel, int64_t
    # timeout_ms, int32_t *code, penstock_error **error);
    "penstock_telemetry_flush": (c_int32, c_void_p, c_void_p, c_int64, POINTER(c_int32), POINTER(c_void_p)),
}
