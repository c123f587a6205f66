/* Shared by the tests of connectors (connector.h). */
#ifndef PENSTOCK_DIALER_H
#define PENSTOCK_DIALER_H

#include "test.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

/* A connector that answers by `answer`, within `connect`. */
typedef struct dialer {
  void (*answer)(struct dialer *self, penstock_connecting *connecting);
  penstock_connecting *kept;
  char address[64], target[64];
  struct sockaddr_in place;
  latch asked, cancelled, finalized;
} dialer;

#define DIALER(function)                                                                                               \
  { .answer = (function), .asked = LATCH_INIT, .cancelled = LATCH_INIT, .finalized = LATCH_INIT }

static inline void on_connect(penstock_connecting *connecting, void *user_data) {
  dialer *self = user_data;
  size_t length = 0;
  snprintf(self->address, sizeof(self->address), "%s", penstock_connecting_address(connecting));
  snprintf(self->target, sizeof(self->target), "%s", penstock_connecting_target(connecting));
  const void *place = penstock_connecting_sockaddr(connecting, &length);
  CHECK_INT((int64_t)length, sizeof(self->place));
  CHECK(penstock_connecting_sockaddr(connecting, NULL) == place);
  if (place && length == sizeof(self->place)) memcpy(&self->place, place, length);
  self->answer(self, connecting);
  latch_signal(&self->asked);
}

static inline void on_cancel(penstock_connecting *connecting, void *user_data) {
  dialer *self = user_data;
  CHECK(connecting == self->kept);
  latch_signal(&self->cancelled);
}

static inline void on_end(void *user_data) { latch_signal(&((dialer *)user_data)->finalized); }

static inline void set_connector(penstock_channel *channel, dialer *self) {
  penstock_connector_functions functions = PENSTOCK_CONNECTOR_FUNCTIONS_INIT;
  functions.user_data = self;
  functions.finalizer = on_end;
  functions.connect = on_connect;
  functions.cancel = on_cancel;
  OK(penstock_channel_set_connector(channel, &functions, NULL));
}

static inline penstock_channel *open_with(dialer *self, const char *target, const char *options) {
  penstock_channel *channel = NULL;
  OK(penstock_channel_new(target, options, &channel, NULL));
  set_connector(channel, self);
  return channel;
}

static inline void close_with(dialer *self, penstock_channel *channel) {
  penstock_channel_release(channel);
  latch_wait(&self->finalized, 1);
}

/* A blocking socket that is connected to where the connection shall go. */
static inline int connected(const dialer *self) {
  int descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  CHECK(connect(descriptor, (const struct sockaddr *)&self->place, sizeof(self->place)) == 0);
  return descriptor;
}

static inline void give(dialer *self, penstock_connecting *connecting) {
  OK(penstock_connecting_socket(connecting, connected(self), NULL));
}
static inline void keep(dialer *self, penstock_connecting *connecting) {
  self->kept = penstock_connecting_retain(connecting);
}
static inline void decline(dialer *self, penstock_connecting *connecting) {
  (void)self;
  OK(penstock_connecting_decline(connecting));
}
static inline void forget(dialer *self, penstock_connecting *connecting) {
  (void)self;
  (void)connecting;
}

#endif
