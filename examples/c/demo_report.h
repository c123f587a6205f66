/* The demo's output: titles, expectations, and the events that the interceptors of each call have seen. */
#ifndef DEMO_REPORT_H
#define DEMO_REPORT_H

#include <penstock/penstock.h>

void begin(const char *target);
void title(const char *text);
void remark(const char *text);

/* Checks an expectation; `format` and the arguments after it describe it, as for printf. */
void expect(int holds, const char *format, ...);

/* Prints how many expectations held; 0 if all of them did. */
int sum_up(void);

/* The events that the interceptors of one call have seen, in order: a value of the call. */
typedef struct trace trace;

/* Adds the event of `hop`, as `who` sees it. */
void note(penstock_hop *hop, const char *who);

/* Lives as long as the reply; NULL if nobody saw anything. */
const trace *trace_in(const penstock_reply *reply);

/* Prints a line for each event: the interceptors that saw it, in order, and what the first and the last of them saw. */
void show(const trace *all);

/* Whether every passage of `event` went by exactly these hops, in this order: "auth > edit > meter". */
int went(const trace *all, int32_t event, const char *expected);

#endif
