/* The demo's output: titles, expectations, and the events that the interceptors of each call have seen. */
#ifndef DEMO_REPORT_H
#define DEMO_REPORT_H

#include <penstock/penstock.h>

void begin(const char *target);
void title(const char *text);
void remark(const char *text);

/* Checks an expectation; `format` and the arguments after it describe it, as for printf. */
void expect(int holds, const char *format, ...);

/* Prints how many expectations held; returns 0 if all did. */
int sum_up(void);

/* The events that the interceptors of one call have seen, in order. A trace is stored as a value of its call. */
typedef struct trace trace;

/* Adds the current event of `hop` to the trace of its call; `who` names the interceptor that has seen it. */
void note(penstock_hop *hop, const char *who);

/* Gives the trace of an ended call, which lives as long as `reply`; NULL if no interceptor has seen an event. */
const trace *trace_in(const penstock_reply *reply);

/* Prints a line for each event: the interceptors that saw it, in order, and the event as the first and as the last of
 * them saw it. */
void show(const trace *all);

/* Whether the call had an `event`, and each one was seen by exactly the `expected` hops ("auth > edit > meter"), in
 * this order. */
int went(const trace *all, int32_t event, const char *expected);

#endif
