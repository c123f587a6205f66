#!/usr/bin/env python3
"""Writes a C function for each function of the public headers, which calls it once with random arguments: api_calls.h
of test_api.c. The tables below map the type and the name of a parameter to an argument; an unknown parameter is an
error.

    api_calls.py FILE
"""

import pathlib
import re
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "scripts"))

import api  # noqa: E402

SHARED = ["runtime", "channel", "call_options", "call", "message", "reply", "hop", "executor", "codec", "compressor",
          "resolver", "connecting", "cancel_scope", "metrics", "telemetry"]
OWN = ["error", "metadata", "status"]
HANDLES = "|".join(SHARED + OWN)
# These functions change call options, which is allowed only before another thread has the options.
BEFORE_SHARED = {f"penstock_call_options_{name}" for name in ("request", "set_on_interrupted", "set_codec", "set_context",
                                                         "set_cancel_scope")}
# Functions that end many objects or take long, each with a number N: one of N random picks of the function calls it.
RARE = {"penstock_channel_close": 12, "penstock_channel_close_gracefully": 12, "penstock_runtime_shutdown": 24,
        "penstock_cancel_scope_cancel": 12,
        "penstock_call_trace_json": 16,
        "penstock_hop_trace_json": 16, "penstock_executor_new_serial": 8, "penstock_runtime_snapshot_json": 4,
        "penstock_channel_stats_json": 4,
        "penstock_runtime_new": 8, "penstock_runtime_default": 8, "penstock_channel_new": 8, "penstock_channel_new_on": 4,
        "penstock_fork_prepare": 8}
# Functions that may block. In callbacks on driving threads only one thread at a time calls them (one_waits in
# test_api.c).
WAITS = {f"penstock_{name}" for name in (
    "channel_unary", "channel_unary_message", "call_send", "call_send_message", "call_send_many", "call_receive",
    "call_receive_many", "call_wait_headers",
    "call_wait_status", "call_wait_status_for", "call_wait", "channel_wait_connectivity", "telemetry_flush")}
# After the first function, which stops other threads, the second one must follow at once, so that they go on.
FOLLOWED = {"penstock_fork_prepare": "penstock_fork_parent();"}
# Functions that make RPCs. They are the group "call" of test_api.c, which picks a group first and then a function of
# it: so there are enough RPCs for the other functions, most of which need one.
CALLS = {"penstock_channel_call", "penstock_channel_unary", "penstock_channel_unary_message", "penstock_hop_start_side_call"}
SCALARS = {
    "code": "pick_code()", "result": "pick_code()", "verdict": "pick_small()", "kind": "pick_small()", "level": "pick_small()",
    "idempotency": "pick_small()", "from": "pick_small()", "wait": "pick_small()", "required": "pick_small()",
    "allows": "pick_small()", "priority": "pick_priority()", "kinds": "pick_mask()",
    "flags": "pick_mask()", "timeout_ms": "pick_timeout()", "index": "once_in(2) ? below(3) : pick_size()",
    "ticket": "pick_number(&tickets)", "request": "pick_number(&tokens)", "id": "pick_number(&ids)", "bytes": "pick_size()",
    "ms": "pick_wide()", "expires_in_ms": "pick_wide()", "count": "(uint64_t)pick_wide()", "n": "(uint64_t)pick_wide()",
}
TABLES = {"penstock_sync_interceptor": "pick_sync", "penstock_async_interceptor": "pick_async",
          "penstock_codec_functions": "pick_functions", "penstock_call_callbacks": "pick_callbacks",
          "penstock_interceptor": "pick_interceptor", "penstock_resolver_functions": "pick_resolver",
          "penstock_connector_functions": "pick_connector", "penstock_compressor_functions": "pick_compressor"}
FUNCTIONS = {"penstock_submit": "api_submit", "penstock_token_source": "api_source", "penstock_log_line": "api_log",
             "int32_t (*)(void *)": "api_interrupted", "penstock_connectivity_function": "api_watch",
             "penstock_picker": "api_pick", "penstock_verifier": "api_verify",
             "penstock_out_of_memory_hook": "api_out_of_memory"}


class Call:
    """The C function that calls one API function: the lines before the call, its arguments, and the lines after
    it."""

    def __init__(self, returns, name):
        self.returns, self.name = returns, name
        self.before, self.arguments, self.after, self.failed, self.needed = [], [], [], [], []
        self.error = "NULL"
        self.groups = {"call"} if name in CALLS else {"any"}

    def handle(self, kind, name, fresh):
        pick = f"borrow(KIND_{kind})"
        if kind == "hop":
            # The contents of an event may be read in the event's callback only: other threads may resolve a bound
            # hop.
            self.before += [] if self.name == "penstock_hop_release" else [
                "bool is_mine = here && here->hop && !once_in(4);",
                "enum kind hop_kind = is_mine || once_in(2) ? KIND_hop : KIND_bound;"]
            pick = "is_mine ? penstock_hop_retain(here->hop) : borrow(hop_kind)"
            self.groups |= {"hop"}
            self.groups -= {"any"}
        released = self.name == f"penstock_{kind}_release"
        if fresh:
            # This thread makes the options for this call, and shares them with other threads afterwards.
            self.before.append(f"penstock_call_options *{name} = NULL;")
            self.before.append(f'if (!once_in(16)) OK(penstock_call_options_new("{{}}", &{name}, NULL));')
            self.after.append(f"keep_made(KIND_call_options, {name});")
        elif released:
            place = "once_in(2) ? KIND_hop : KIND_bound" if kind == "hop" else f"KIND_{kind}"
            self.before.append(f"penstock_{kind} *{name} = once_in(8) ? NULL : take({place});")
        else:
            self.before.append(f"penstock_{kind} *{name} = once_in(24) ? NULL : {pick};")
            self.after.append(f"give_back({'hop_kind' if kind == 'hop' else f'KIND_{kind}'}, {name});")
        self.arguments.append(name)
        if kind != "call_options":
            self.needed.append(name)

    def output(self, type_, name, kept, declared="NULL"):
        """An output parameter. It is set to `declared` before the call, and must still be `declared` after a failure;
        `kept` is the code that takes over the value after the call."""
        self.before.append(f"{type_}{name} = {declared};")
        self.before.append(f"bool with_{name} = !once_in(24);")
        self.arguments.append(f"with_{name} ? &{name} : NULL")
        self.needed.append(f"with_{name}")
        self.after[:0] = kept
        if self.returns == "penstock_result":
            self.failed.append(f"{name} != {declared}")

    def parameter(self, type_, name, parameters):
        match = re.fullmatch(rf"(?:const )?penstock_({HANDLES}) \*", type_)
        if match:
            return self.handle(match.group(1), name, self.name in BEFORE_SHARED and match.group(1) == "call_options")
        match = re.fullmatch(rf"penstock_({HANDLES}) \*\*", type_)
        if match and match.group(1) != "error":
            place = "bound" if match.group(1) == "hop" else match.group(1)
            return self.output(f"penstock_{match.group(1)} *", name, [f"keep_made(KIND_{place}, {name});"])
        if type_ == "penstock_error **":
            self.before += ["penstock_error *error = NULL;", "penstock_error **with_error = once_in(4) ? NULL : &error;"]
            self.arguments.append("with_error")
            self.error = "with_error"
        elif type_ == "const penstock_metadata **":
            self.output("const penstock_metadata *", name, [f"look_at_metadata({name});"])
        elif type_ == "char **":
            self.output("char *", name, [f"look_at_text({name});", f"penstock_free({name});"])
        elif type_ == "void **":
            self.output("void *", name, [f"penstock_free({name});"])
        elif type_ == "const char **":
            self.output("const char *", name, [f"look_at_text({name});"])
        elif type_ == "const void **":
            mine = "is_mine && " if self.name.startswith("penstock_hop_") else ""
            self.output("const void *", name, [f"if ({mine}with_length) look_at_bytes({name}, length);"])
        elif name == "descriptor":
            self.before.append("int descriptor = pick_descriptor();")
            self.arguments.append("descriptor")
            self.after.insert(0, "if (result != PENSTOCK_OK && descriptor >= 0) CHECK(close(descriptor) == 0);")
        elif type_ == "size_t *" and name == "sent":
            # It is set after a failure, too.
            self.before.append("size_t sent = 0;")
            self.arguments.append("once_in(24) ? NULL : &sent")
            self.after.insert(0, "CHECK(sent <= batch.count);")
        elif type_ == "size_t *" and name == "lengths":
            self.before.append("size_t lengths[8];")
            self.arguments.append("once_in(24) ? NULL : lengths")
        elif type_ == "const size_t *":
            self.arguments.append("once_in(24) ? NULL : batch.lengths")
        elif type_ == "const void *" and ("const size_t *", "lengths") in parameters:
            self.before.append("batch batch = pick_batch();")
            self.arguments.append("batch.data")
        elif type_ in ("size_t *", "int *", "int32_t *", "uint32_t *", "int64_t *"):
            self.output(type_[:-1], name, [f"(void){name};"], "7")
        elif type_ == "penstock_interceptor_id *":
            self.output("penstock_interceptor_id ", name, [f"keep_number(&ids, {name});"], "0")
        elif type_ in ("penstock_request *", "const penstock_request *"):
            # The request is that of a hop, and lives as long as the hop.
            self.handle("hop", "hop", False)
            self.arguments[-1] = "penstock_hop_request(hop)"
        elif type_ == "penstock_buffer *":
            self.groups |= {"buffer"}
            self.groups -= {"any"}
            self.arguments.append("here ? here->buffer : NULL")
        elif type_ in ("penstock_pick *", "const penstock_pick *"):
            self.groups |= {"picker"}
            self.groups -= {"any"}
            self.arguments.append("here ? here->pick : NULL")
        elif type_ in ("penstock_verification *", "const penstock_verification *"):
            # The channels of this test have no TLS.
            self.arguments.append("NULL")
        elif type_ in ("penstock_compression *", "const penstock_compression *"):
            self.groups |= {"compression"}
            self.groups -= {"any"}
            self.arguments.append("here ? here->compression : NULL")
        elif type_ == "penstock_interceptor *":
            self.before.append(f"penstock_interceptor {name} = PENSTOCK_INTERCEPTOR_INIT;")
            self.before.append(f"bool with_{name} = !once_in(24);")
            self.arguments.append(f"with_{name} ? &{name} : NULL")
            self.after.insert(0, f"if (result == PENSTOCK_OK) keep_table(&{name});")
        elif type_ == "const penstock_interceptor *" and name == "table":
            self.before += ["penstock_interceptor table;", "bool with_table = take_table(&table);"]
            self.arguments.append("with_table ? &table : NULL")
            self.after.append("if (with_table) keep_table(&table);")
        elif type_.removeprefix("const ").removesuffix(" *") in TABLES:
            table = type_.removeprefix("const ").removesuffix(" *")
            self.before.append(f"{table} {name}_table;")
            self.before.append(f'const {table} *{name} = {TABLES[table]}("{self.name}", &{name}_table);')
            self.arguments.append(name)
            if table == "penstock_interceptor":
                self.after.append(f"give_back_executors({name});")
            if table == "penstock_call_callbacks":
                self.after.append(f"if (result == PENSTOCK_OK) note_begun({name});")
        elif type_ in FUNCTIONS:
            self.arguments.append(f"once_in(24) ? NULL : {FUNCTIONS[type_]}")
        elif type_ == "penstock_finalizer":
            self.arguments.append("owner.finalizer")
        elif type_ == "void *" and ("penstock_finalizer", "finalizer") in parameters:
            self.before.append(f'owner owner = pick_owner("{self.name}");')
            self.arguments.append("owner.data")
        elif type_ == "void *" and name == "object":
            self.before.append(f'cell *object = once_in(24) ? NULL : new_cell("{self.name}");')
            self.arguments.append("object")
        elif type_ == "const void *" and ("size_t", f"{name}_length") in parameters:
            self.before.append(f"bytes {name} = pick_bytes();")
            self.arguments.append(f"{name}.data")
        elif type_ == "size_t" and name.endswith("_length"):
            self.arguments.append(f"{name.removesuffix('_length')}.length")
        elif type_ == "const void *":
            self.before.append("bytes bytes = pick_bytes();")
            self.arguments.append("bytes.data")
        elif self.name.endswith("send_many") and name == "count":
            self.arguments.append("batch.count")
        elif self.name.endswith("receive_many") and name == "most":
            self.arguments.append("below(COUNT_OF(lengths) + 1)")
        elif self.name.endswith("receive_many") and name == "size":
            self.arguments.append("once_in(8) ? 0 : sizeof(room)")
        elif type_ == "void *" and name == "data":
            self.before.append("char room[256];")
            self.arguments.append("once_in(24) ? NULL : room")
        elif type_ == "size_t" and name == "length":
            self.arguments.append("bytes.length")
        elif type_ == "const char *":
            self.before.append(f'const char *{name} = pick_text("{self.name}", "{name}");')
            self.arguments.append(name)
            self.needed.append(name)
        elif type_ == "void *" and (name == "memory" or self.name == "penstock_set_out_of_memory_hook"):
            self.arguments.append("NULL")
        elif name in SCALARS:
            self.arguments.append(SCALARS[name])
        else:
            sys.exit(f"{self.name}: no argument for {type_}{name}")

    def code(self):
        call = f"{self.name}({', '.join(self.arguments)})"
        lines = list(self.before)
        uses_hop = "hop" in self.groups and "hop" in self.needed
        if uses_hop:
            kept = "hop_use use = " if self.returns == "penstock_result" else "(void)"
            lines.append(f"{kept}hop_use_begins();")
        if self.returns == "penstock_result":
            lines.append(f"penstock_result result = {call};")
            if uses_hop:
                lines.append(f'check_why("{self.name}", result, hop, use);')
            lines.append(f'check_outcome("{self.name}", result, {self.error});')
            if self.failed:
                lines.append(f'if (result != PENSTOCK_OK) check_untouched("{self.name}", {" || ".join(self.failed)});')
            if any("new_cell" in line for line in self.before):
                lines.append("if (object && result != PENSTOCK_OK) end_cell(object);")
        elif self.returns == "void":
            lines.append(f"{call};")
            lines += [FOLLOWED[self.name]] if self.name in FOLLOWED else []
        else:
            lines += self.returned(call)
        if uses_hop:
            lines.append("hop_use_ends();")
        body = "".join(f"  {line}\n" for line in lines + self.after)
        return f"static void call_{self.name}(void) {{\n{body}}}\n"

    def returned(self, call):
        kind = re.fullmatch(rf"(?:const )?penstock_({HANDLES}) \*", self.returns)
        if kind and self.name.endswith("_retain"):
            name = kind.group(1)
            if name in OWN:
                # The second reference is released at once. In the store it would let two threads use one object.
                return [f"drop(KIND_{name}, {call});"]
            if name == "hop":
                return [f"penstock_hop *again = {call};",
                        "if (hop_kind == KIND_bound) drop(KIND_bound, again); else keep(KIND_hop, again);"]
            return [f"keep(KIND_{name}, {call});"]
        if self.returns == "penstock_request *":
            return [f"(void){call};"]
        if self.returns == "const penstock_message *":
            # The message of an event is read only in the event's callback: other threads may resolve a bound hop.
            return [f"if (is_mine) look_at_message({call});"]
        if kind and kind.group(1) in ("hop", "message", "codec"):
            return [f"keep(KIND_{kind.group(1)}, penstock_{kind.group(1)}_retain({call}));"]
        if kind and self.returns.startswith("const "):
            look = "look_at_metadata" if kind.group(1) == "metadata" else "(void)"
            return [f"{look}({call});"]
        if kind and self.name.startswith(("penstock_hop_", "penstock_request_")):
            return [f"{self.returns}found = {call};", f"if (is_mine) change_{kind.group(1)}(found);"]
        if kind:
            return [f"change_{kind.group(1)}({call});"]
        if self.returns == "const char *":
            return [f"look_at_text({call});"]
        if self.returns == "penstock_ticket":
            return [f"keep_number(&tickets, {call});"]
        return [f"(void){call};"]


def split(parameters):
    """Gives (type, name) of each parameter."""
    found = []
    for text in re.split(r",(?![^(]*\))", parameters):
        text = text.strip()
        function = re.fullmatch(r"(\w+) \(\*(\w+)\)\(void \*\w+\)", text)
        if function:
            found.append((f"{function.group(1)} (*)(void *)", function.group(2)))
        elif text not in ("", "void"):
            match = re.fullmatch(r"(.*?)(\w+)", text)
            found.append((match.group(1).strip(), match.group(2)))
    return found


def main():
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    calls = []
    for returns, name, parameters in api.prototypes(api.text()):
        call = Call(returns, name)
        pairs = split(parameters)
        for type_, parameter in pairs:
            call.parameter(type_, parameter, pairs)
        calls.append(call)
    parts = [call.code() for call in calls]
    rows = [f'{{"{call.name}", call_{call.name}, {RARE.get(call.name, 1)}, {int(call.name in WAITS)}}},' for call in calls]
    parts.append("static function functions[] = {\n  " + "\n  ".join(rows) + "\n};\n")
    for group in ("any", "call", "hop", "buffer", "compression", "picker"):
        numbers = [str(at) for at, call in enumerate(calls) if group in call.groups]
        parts.append(f"static const uint16_t {group}_functions[] = {{{', '.join(numbers)}}};\n")
    pathlib.Path(sys.argv[1]).write_text("\n".join(parts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
