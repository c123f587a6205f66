/* The probe of test.h: an interceptor with every callback. */
#include "test.h"

const char *event_name(int32_t event) {
  static const char *const names[] = {"none",   "start",  "send", "half_close", "headers", "receive", "status",
                                      "cancel", "demand", "sent", "create",     "destroy", "pick"};
  return event >= 0 && event < 13 ? names[event] : "?";
}

static int32_t probe_see(probe *probe, penstock_hop *hop, int32_t event) {
  static const char letters[] = "?SsHhRTXDNCdp";
  CHECK_INT(penstock_hop_event(hop), event);
  atomic_fetch_add(&probe->seen[event], 1);
  pthread_mutex_lock(&probe->mutex);
  size_t length = strlen(probe->log);
  if (length + 1 < sizeof(probe->log)) {
    probe->log[length] = letters[event];
    probe->log[length + 1] = 0;
  }
  pthread_mutex_unlock(&probe->mutex);
  if (probe->trace && event != PENSTOCK_EVENT_DEMAND && event != PENSTOCK_EVENT_SENT) {
    pthread_mutex_lock(&probe->trace->mutex);
    size_t used = strlen(probe->trace->text);
    snprintf(probe->trace->text + used, sizeof(probe->trace->text) - used, "%s:%s ", probe->name, event_name(event));
    pthread_mutex_unlock(&probe->trace->mutex);
  }
  return probe->hook ? probe->hook(probe, hop, event) : PENSTOCK_NEXT;
}

static int32_t probe_create(penstock_hop *hop, void *user_data, void **state) {
  *state = user_data;
  return probe_see(user_data, hop, PENSTOCK_EVENT_CREATE);
}
static void probe_destroy(penstock_hop *hop, void *state) {
  probe_see(state, hop, PENSTOCK_EVENT_DESTROY);
  latch_signal(&((probe *)state)->done);
}
#define PROBE_CALLBACK(name, event)                                                                                    \
  static int32_t probe_##name(penstock_hop *hop, void *state) { return probe_see(state, hop, event); }
PROBE_CALLBACK(on_start, PENSTOCK_EVENT_START)
PROBE_CALLBACK(on_send, PENSTOCK_EVENT_SEND)
PROBE_CALLBACK(on_half_close, PENSTOCK_EVENT_HALF_CLOSE)
PROBE_CALLBACK(on_headers, PENSTOCK_EVENT_HEADERS)
PROBE_CALLBACK(on_receive, PENSTOCK_EVENT_RECEIVE)
PROBE_CALLBACK(on_status, PENSTOCK_EVENT_STATUS)
PROBE_CALLBACK(on_cancel, PENSTOCK_EVENT_CANCEL)
PROBE_CALLBACK(on_demand, PENSTOCK_EVENT_DEMAND)
PROBE_CALLBACK(on_sent, PENSTOCK_EVENT_SENT)

static void probe_finalizer(void *user_data) {
  probe *self = user_data;
  /* The finalizer runs after the last destroy, which may have run on another thread. A reference count orders the two,
   * but ThreadSanitizer does not see the count. The lock of the latch shows it the order. */
  (void)latch_count(&self->done);
  atomic_fetch_add(&self->finalized, 1);
  latch_signal(&self->finalized_latch);
}

void probe_init(probe *probe, const char *name) {
  memset(probe, 0, sizeof(*probe));
  probe->name = name;
  pthread_mutex_init(&probe->mutex, NULL);
  latch empty = LATCH_INIT;
  probe->done = empty;
  probe->finalized_latch = empty;
}

void probe_init_with(probe *probe, const char *name, int32_t (*hook)(struct probe *, penstock_hop *, int32_t),
                     void *context) {
  probe_init(probe, name);
  probe->hook = hook;
  probe->context = context;
}

penstock_interceptor probe_table(probe *probe) {
  penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
  table.name = probe->name;
  table.user_data = probe;
  table.finalizer = probe_finalizer;
  table.create = probe_create;
  table.destroy = probe_destroy;
  table.on_start = probe_on_start;
  table.on_send = probe_on_send;
  table.on_half_close = probe_on_half_close;
  table.on_headers = probe_on_headers;
  table.on_receive = probe_on_receive;
  table.on_status = probe_on_status;
  table.on_cancel = probe_on_cancel;
  table.on_demand = probe_on_demand;
  table.on_sent = probe_on_sent;
  table.replay_bytes = probe->replay_bytes;
  table.max_restarts = probe->max_restarts;
  return table;
}

penstock_interceptor_id probe_add(probe *probe, penstock_channel *channel, int32_t priority) {
  penstock_interceptor table = probe_table(probe);
  penstock_interceptor_id id = 0;
  OK(penstock_channel_add_interceptor(channel, &table, priority, &id, NULL));
  CHECK(id != 0);
  return id;
}

penstock_interceptor_id probe_add_to_runtime(probe *probe, penstock_runtime *runtime, int32_t priority) {
  penstock_interceptor table = probe_table(probe);
  penstock_interceptor_id id = 0;
  OK(penstock_runtime_add_interceptor(runtime, &table, priority, &id, NULL));
  return id;
}

void probe_wait_finalized(probe *probe) {
  latch_wait(&probe->finalized_latch, 1);
  CHECK_INT(atomic_load(&probe->finalized), 1);
}
