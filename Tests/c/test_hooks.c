/* Statements of docs/hooks.md that no other C test shows. */
#include "others.h"

static int32_t refuse_with_details(probe *self, penstock_hop *hop, int32_t event) {
  if (event != *(int32_t *)self->context) return PENSTOCK_NEXT;
  penstock_status *status = NULL;
  OK(penstock_status_new(PENSTOCK_STATUS_RESOURCE_EXHAUSTED, "later", &status));
  OK(penstock_metadata_set(penstock_status_trailers(status), "x-by", "hop"));
  OK(penstock_status_add_detail(status, "type.example.com/a.B", "d", 1));
  OK(penstock_hop_end_with(hop, status));
  /* The call has a copy of the status, so this change has no effect. */
  OK(penstock_status_set_message(status, "changed", 7));
  penstock_status_release(status);
  return PENSTOCK_NEXT;
}

TEST(hooks_finish_with_a_built_status) {
  static const int32_t events[] = {PENSTOCK_EVENT_START, PENSTOCK_EVENT_SEND, PENSTOCK_EVENT_HEADERS,
                                   PENSTOCK_EVENT_STATUS};
  penstock_channel *channel = open_channel();
  for (int i = 0; i < 4; i++) {
    probe above, refusing;
    int32_t event = events[i];
    probe_init(&above, "above");
    probe_init_with(&refusing, "refusing", refuse_with_details, &event);
    penstock_interceptor_id ids[] = {probe_add(&above, channel, 2), probe_add(&refusing, channel, 1)};
    penstock_reply *reply = NULL;
    REQUIRE_OK(penstock_channel_unary(channel, UNARY, "x", 1, NULL, &reply, NULL));
    CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_RESOURCE_EXHAUSTED);
    CHECK_STR(penstock_status_message(penstock_reply_status(reply), NULL), "later");
    const void *value = NULL;
    size_t length = 0;
    OK(penstock_metadata_get(penstock_reply_trailers(reply), "x-by", 0, &value, &length));
    CHECK(is_text(value, length, "hop"));
    OK(penstock_status_detail_find(penstock_reply_status(reply), "a.B", &value, &length));
    CHECK(is_text(value, length, "d"));
    penstock_reply_release(reply);
    for (int k = 0; k < 2; k++) OK(penstock_registration_remove(ids[k], NULL));
    check_ended(&above);
    check_ended(&refusing);
    CHECK_INT(seen(&above, PENSTOCK_EVENT_STATUS), 1);
  }
  penstock_channel_release(channel);
}
