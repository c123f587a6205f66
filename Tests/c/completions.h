/* Shared by the tests of async.h: an interceptor in asynchronous style, with a thread that resolves events later. */
#ifndef PENSTOCK_COMPLETIONS_H
#define PENSTOCK_COMPLETIONS_H

#include "test.h"

enum { START = PENSTOCK_EVENT_START, SEND, HALF_CLOSE, HEADERS, RECEIVE, STATUS };

typedef enum act {
  PASS,         /* resolves the event with NEXT, within the callback */
  PASS_LATER,   /* resolves the event with NEXT, on another thread */
  DROP,         /* releases the hop without resolving the event, within the callback */
  DROP_LATER,   /* releases the hop without resolving the event, on another thread */
  CANCEL,       /* ends the call with DATA_LOSS, within the callback */
  CANCEL_LATER, /* ends the call with DATA_LOSS, on another thread */
  KEEP,         /* keeps the hop for the test, which takes it with `take_kept` */
} act;

/* An interceptor in asynchronous style. It counts its callbacks and keeps the arguments of the last one; one worker
 * thread handles the events whose act is to come later. */
typedef struct style {
  act acts[7]; /* the act for each event; the index is PENSTOCK_EVENT_... */
  /* Called in each callback but on_cancel, when the arguments below are set, and before the act; NULL: nothing is called. */
  void (*look)(struct style *self, int32_t event, penstock_hop *hop);
  void *context;
  atomic_int seen[7];
  atomic_int created, destroyed, cancelled, finalized;
  bool declines;
  char method[64];
  int32_t kind;
  int32_t cancel_code;
  latch kept_latch, finalized_latch;
  penstock_hop *kept;
  /* The arguments of the running callback. */
  penstock_metadata *metadata;
  penstock_status *status;
  const char *data;
  size_t length;

  pthread_mutex_t mutex;
  pthread_cond_t changed;
  struct {
    penstock_hop *hop;
    act act;
  } queue[256];
  size_t queued, done;
  bool stop;
  pthread_t worker;
} style;

static inline void complete(penstock_hop *hop, act act) {
  if (act == PASS || act == PASS_LATER) {
    OK(penstock_hop_resolve(hop, PENSTOCK_NEXT));
    CHECK_RESULT(penstock_hop_resolve(hop, PENSTOCK_NEXT), PENSTOCK_E_ALREADY);
  }
  if (act == CANCEL || act == CANCEL_LATER) {
    OK(penstock_hop_end(hop, PENSTOCK_STATUS_DATA_LOSS, "not today"));
    CHECK_RESULT(penstock_hop_resolve(hop, PENSTOCK_NEXT), PENSTOCK_E_ALREADY);
    CHECK_RESULT(penstock_hop_end(hop, PENSTOCK_STATUS_ABORTED, "late"), PENSTOCK_E_ALREADY);
  }
  penstock_hop_release(hop);
}

static inline void *work(void *argument) {
  style *self = argument;
  pthread_mutex_lock(&self->mutex);
  while (!self->stop || self->done < self->queued) {
    if (self->done == self->queued) {
      pthread_cond_wait(&self->changed, &self->mutex);
      continue;
    }
    size_t next = self->done++;
    pthread_mutex_unlock(&self->mutex);
    complete(self->queue[next].hop, self->queue[next].act);
    pthread_mutex_lock(&self->mutex);
  }
  pthread_mutex_unlock(&self->mutex);
  return NULL;
}

static inline void came(style *self, int32_t event, penstock_hop *hop) {
  atomic_fetch_add(&self->seen[event], 1);
  if (self->look) self->look(self, event, hop);
  act act = self->acts[event];
  if (act == KEEP) {
    self->kept = hop;
    latch_signal(&self->kept_latch);
  } else if (act == PASS_LATER || act == DROP_LATER || act == CANCEL_LATER) {
    pthread_mutex_lock(&self->mutex);
    if (self->queued == sizeof(self->queue) / sizeof(self->queue[0])) abort();
    self->queue[self->queued].hop = hop;
    self->queue[self->queued].act = act;
    self->queued++;
    pthread_cond_signal(&self->changed);
    pthread_mutex_unlock(&self->mutex);
  } else {
    complete(hop, act);
  }
}

/* The state of a hop is a block that holds a pointer to the style, so that checks notice a wrong state. */
static inline int32_t create(penstock_hop *hop, void *user_data, void **state) {
  style *self = user_data;
  atomic_fetch_add(&self->created, 1);
  snprintf(self->method, sizeof(self->method), "%s", penstock_request_method(penstock_hop_request(hop)));
  self->kind = penstock_hop_kind(hop);
  if (self->declines) return PENSTOCK_SKIP;
  style **mine = malloc(sizeof(*mine));
  *mine = self;
  *state = mine;
  return PENSTOCK_NEXT;
}
static inline void destroy(penstock_hop *hop, void *state) {
  (void)hop;
  style **mine = state;
  atomic_fetch_add(&(*mine)->destroyed, 1);
  free(mine);
}
static inline void on_event(penstock_hop *hop, void *state) {
  style *self = *(style **)state;
  int32_t event = penstock_hop_event(hop);
  const void *data = NULL;
  switch (event) {
  case START:
  case HEADERS:
    CHECK((self->metadata = penstock_hop_metadata(hop)) != NULL);
    break;
  case SEND:
  case RECEIVE:
    OK(hop_bytes(hop, &data, &self->length));
    self->data = data;
    CHECK(data != NULL);
    break;
  case STATUS:
    CHECK((self->status = penstock_hop_status(hop)) != NULL);
    break;
  default:
    break;
  }
  came(self, event, hop);
}
static inline int32_t on_cancel(penstock_hop *hop, void *state) {
  style *self = *(style **)state;
  self->cancel_code = penstock_status_code(penstock_hop_status(hop));
  atomic_fetch_add(&self->cancelled, 1);
  return PENSTOCK_NEXT;
}
static inline void finalize(void *user_data) {
  style *self = user_data;
  atomic_fetch_add(&self->finalized, 1);
  latch_signal(&self->finalized_latch);
}

static inline void style_init(style *self) {
  memset(self, 0, sizeof(*self));
  self->kept_latch = (latch)LATCH_INIT;
  self->finalized_latch = (latch)LATCH_INIT;
  pthread_mutex_init(&self->mutex, NULL);
  pthread_cond_init(&self->changed, NULL);
  if (pthread_create(&self->worker, NULL, work, self)) abort();
}

static inline penstock_interceptor style_table(style *self) {
  penstock_async_interceptor table = PENSTOCK_ASYNC_INTERCEPTOR_INIT;
  table.name = "promise";
  table.user_data = self;
  table.finalizer = finalize;
  table.create = create;
  table.destroy = destroy;
  table.on_start = table.on_send = table.on_half_close = on_event;
  table.on_headers = table.on_receive = table.on_status = on_event;
  table.on_cancel = on_cancel;
  penstock_interceptor made = PENSTOCK_INTERCEPTOR_INIT;
  OK(penstock_async_interceptor_table(&table, &made, NULL));
  return made;
}

static inline void style_add(style *self, penstock_channel *channel, int32_t priority) {
  penstock_interceptor table = style_table(self);
  penstock_interceptor_id id = 0;
  OK(penstock_channel_add_interceptor(channel, &table, priority, &id, NULL));
}

static inline penstock_hop *take_kept(style *self, int count) {
  latch_wait(&self->kept_latch, count);
  return self->kept;
}

/* Waits until the interceptor is finalized, ends the worker thread, and checks the counts; `calls` is the number of
 * calls that had this interceptor. */
static inline void style_end(style *self, int calls) {
  latch_wait(&self->finalized_latch, 1);
  pthread_mutex_lock(&self->mutex);
  self->stop = true;
  pthread_cond_signal(&self->changed);
  pthread_mutex_unlock(&self->mutex);
  pthread_join(self->worker, NULL);
  CHECK_INT(atomic_load(&self->finalized), 1);
  CHECK_INT(atomic_load(&self->created), calls);
  CHECK_INT(atomic_load(&self->destroyed), self->declines ? 0 : calls);
}

static inline void set_all(style *self, act act) {
  for (int event = START; event <= STATUS; event++) self->acts[event] = act;
}

/* A unary call on a separate thread. */
typedef struct unary_run {
  penstock_channel *channel;
  penstock_reply *reply;
} unary_run;
static inline void *run_unary(void *argument) {
  unary_run *run = argument;
  OK(penstock_channel_unary(run->channel, UNARY, "ping", 4, NULL, &run->reply, NULL));
  return NULL;
}

#endif
